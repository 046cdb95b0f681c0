"""
Starting Spark: on this machine, or as spark-submit has it; and what to do where it cannot start.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from pyspark.sql import SparkSession

from msgnode.mining.pipeline.log_files import Unreadable

JAVA = 17
_UNDER_SUBMIT = "PYSPARK_GATEWAY_PORT"


def check_java() -> None:
    """
    Raise Unreadable with what to install, unless there is a Java that Spark can use.
    """
    if _UNDER_SUBMIT in os.environ:
        return
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin/java")) if home else shutil.which("java")
    remedy = f"install it (apt-get install openjdk-{JAVA}-jre-headless) or set JAVA_HOME"
    if java is None:
        raise Unreadable(f"Spark needs Java {JAVA} or later, and there is none here; {remedy}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        raise Unreadable(f"Spark needs Java {JAVA} or later, and {java} does not start; {remedy}") from None
    version = said.partition('"')[2].partition('"')[0]
    number = version.partition(".")[0].partition("-")[0]
    if number.isdigit() and int(number) < JAVA:
        raise Unreadable(f"Spark needs Java {JAVA} or later, and {java} is {version}; {remedy}")


@contextmanager
def session(verbose: bool = False) -> Iterator[SparkSession]:
    """
    A session of Spark, which ends with the block unless it was there before.
    """
    check_java()
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    with as_file(files("msgnode.mining") / "assets/log4j2.properties") as quiet:
        spark = _started(None if verbose else quiet)
    if not verbose:
        spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def _started(quiet: Path | None) -> SparkSession:
    """
    Options of spark-submit win over these.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("msgnode mine")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.sql.caseSensitive", "true")
    # A file holds one hour, so rows need not be sorted to be written hour by hour.
    builder = builder.config("spark.sql.maxConcurrentOutputFileWriters", "16")
    if _UNDER_SUBMIT in os.environ:
        return builder.getOrCreate()
    cores = os.cpu_count() or 1
    local = {
        "spark.master": "local[*]",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        # Without checksums beside each file: Hadoop starts a process for each file it makes here.
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(8 * cores),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    for name, value in local.items():
        builder = builder.config(name, value)
    if quiet is not None:
        builder = builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile=file:{quiet}")
    with _hushed(quiet is not None):
        return builder.getOrCreate()


@contextmanager
def _hushed(really: bool) -> Iterator[None]:
    """
    What Java prints while it starts goes into a file, which is shown if it does not start.
    """
    if not really:
        yield
        return
    with tempfile.TemporaryFile() as said:
        kept = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            yield
        except Exception as why:
            said.seek(0)
            raise Unreadable(f"Spark did not start: {why}\n{said.read().decode(errors='replace')}") from why
        finally:
            os.dup2(kept, 2)
            os.close(kept)
