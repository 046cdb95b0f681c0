"""
Starting Spark: on this machine, or as configured by spark-submit; and errors that say what to install.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaClass, JavaMember  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from msgnode.mining.execution import kept_plans, planning
from msgnode.mining.execution.class_archive import ClassArchive
from msgnode.mining.reading.log_files import Unreadable

JAVA = 17
SMALL_BYTES = 64 * 1024 * 1024  # of the log: below this, little is compiled
LARGE_BYTES = 512 * 1024 * 1024  # of the log: from here on, more memory is used
MAX_CORES = 16
_PACKED_FACTOR = 8  # times the size of a compressed file is about that of the log
_UNDER_SUBMIT = "PYSPARK_GATEWAY_PORT"
_FILE_SYSTEM = "spark.hadoop.fs.file.impl"
_UNRESOLVED = re.compile(r"unresolved dependency: (\S+?):? not found")
# The words of Java before a trace, or instead of one.
_CAUSE = re.compile(
    r'^(?:Exception in thread "\S+" \S+: |Error: (?!Could not create|A fatal))(\S.*)'
    r"|^((?:Invalid|Unrecognized|Conflicting) .+)"
    r"|^Error occurred during initialization of VM\n(.+)",
    re.MULTILINE,
)
_JAVA = "spark.driver.extraJavaOptions"
# A task without memory could else end alone, and what waits for it would wait for ever.
_ENDING = "-XX:+ExitOnOutOfMemoryError"
_SERIAL = f"-XX:+UseSerialGC -Xss4m -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m {_ENDING}"
_PARALLEL = f"-XX:+UseParallelGC {_ENDING}"
_CLASS_PATH = "spark.driver.extraClassPath"
# The jars that most classes are from. Java searches them in order for each class, and Spark has 300.
_FIRST_JARS = (
    "spark-catalyst", "spark-core", "scala-library", "scala-reflect", "spark-sql-api", "spark-sql_",
    "parquet-column", "log4j-core", "hadoop-client-api", "jackson-databind", "parquet-jackson",
    "spark-common-utils", "spark-network-common",
)  # fmt: skip
# The names that PySpark asks Java for whenever an expression is made.
_CLASSES = (
    "functions",
    "org.apache.spark.sql.functions",
    "PythonUtils",
    "org.apache.spark.sql.classic.SparkSession",
)


def checked_java() -> str:
    """
    The version of the Java that Spark will use, in Java's words; "" under spark-submit. Unreadable, with what
    to install, if there is none.
    """
    if _UNDER_SUBMIT in os.environ:
        return ""
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
    return said


@contextmanager
def session(
    verbose: bool = False, places: Sequence[str] = (), conf: Sequence[str] = (), class_archive: str = ""
) -> Iterator[SparkSession]:
    """
    A Spark session, which ends with the block, unless one was running before.

    `places` are the directories that it will read: their size decides on memory and compilers. `conf` are
    settings of Spark, as `NAME=VALUE`, which take precedence. `class_archive` is a directory for an
    archive of Java's classes; without it there is none.
    """
    java = checked_java()
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    settings = local_settings(places, conf)
    archive = None
    if class_archive and not java:
        raise Unreadable("--class-archive is for runs on one machine, not under spark-submit")
    # A run without a log loads few classes.
    if class_archive and places and _bytes_in(places[0]):
        archive = ClassArchive(class_archive, f"{java}\n{settings.get(_CLASS_PATH, '')}", _jars())
        settings[_JAVA] = f"{settings.get(_JAVA, '')} {archive.java_options}".strip()
    with as_file(files("msgnode.mining") / "assets/log4j2.properties") as quiet:
        spark = _started(settings, None if verbose else quiet)
    if not verbose:
        spark.sparkContext.setLogLevel("ERROR")
    is_complete = False
    try:
        yield spark
        is_complete = True
    finally:
        kept_plans.forget()
        gateway: Any = spark.sparkContext._gateway
        spark.stop()
        if archive is not None and not archive.is_there:
            SparkContext._gateway = SparkContext._jvm = None
            archive.keep(gateway.proc, is_complete)


def local_settings(places: Sequence[str], conf: Sequence[str] = ()) -> dict[str, str]:
    """
    The settings of a local run over these directories; `conf` takes precedence.
    """
    settings = _settings(sum(map(_bytes_in, places)))
    if any(map(_is_remote, places)):  # a client of an object store needs Hadoop's own
        del settings[_FILE_SYSTEM]
    return settings | dict(map(_setting, conf))


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise Unreadable(f"--conf is a setting of Spark, spark.NAME=VALUE, not {text!r}")
    return name, value


def _is_remote(place: str) -> bool:
    scheme, separator, _ = place.partition("://")
    return bool(separator) and scheme != "file"


def _bytes_in(place: str) -> int:
    """
    About how many bytes of the log are in a local directory, uncompressed; many if it is elsewhere.
    """
    if _is_remote(place):
        return LARGE_BYTES
    total = 0
    for directory, _, names in os.walk(place.removeprefix("file://")):
        for name in names:
            with suppress(OSError):
                size = os.stat(os.path.join(directory, name)).st_size
                total += size * (_PACKED_FACTOR if name.endswith((".gz", ".parquet")) else 1)
    return total


def _settings(size: int) -> dict[str, str]:
    """
    The settings of a local run for so many bytes of the log.

    Few rows are done before compiled code has paid for its compilation, and one partition is enough for them.
    A small nursery needs less memory, and what is collected there does not take longer.
    """
    cores = min(os.cpu_count() or 1, MAX_CORES)
    settings = {
        "spark.ui.enabled": "false",
        _CLASS_PATH: _first_jars(),
        # Without checksum files: Hadoop would start a process for each file it creates here.
        _FILE_SYSTEM: "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # Else each expression records the line of Python that it is from, with calls to Java.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # lower() would load the tables of ICU; types and domains are ASCII.
        "spark.sql.icu.caseMappings.enabled": "false",
        # Files below a directory that no checkpoint names yet need not be renamed twice.
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    }
    if size < SMALL_BYTES:
        return settings | {
            "spark.master": "local[1]",
            "spark.driver.memory": "512m",
            # Calls by reflection are few, and each class that Java makes for one costs more than it saves.
            _JAVA: (
                f"{_SERIAL} -Xmn64m -XX:TieredStopAtLevel=1 -Dsun.reflect.inflationThreshold={2**31 - 1}"
            ),
            **planning.SETTINGS,
            # Many small files are one task, and are listed without one.
            "spark.sql.files.openCostInBytes": "4096",
            "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        }
    large = size >= LARGE_BYTES
    return settings | {
        "spark.master": f"local[{cores}]",
        "spark.driver.memory": "2g" if large else "1g",
        # With larger methods inside of others, the second compiler takes twice as long, and gains nothing.
        _JAVA: f"{_PARALLEL if large else _SERIAL} -XX:FreqInlineSize=100",
        "spark.sql.shuffle.partitions": str(8 * cores if large else 2 * cores),
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    }


def _started(settings: dict[str, str], quiet: Path | None) -> SparkSession:
    """
    Start Spark. Options of spark-submit take precedence over these.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("msgnode mine")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.sql.caseSensitive", "true")
    # A file has one hour, so rows need not be sorted to be written by day.
    builder = builder.config("spark.sql.maxConcurrentOutputFileWriters", "16")
    if _UNDER_SUBMIT in os.environ:
        return builder.getOrCreate()
    if quiet is not None:
        logging = f"-Dlog4j2.configurationFile=file:{quiet}"
        settings = settings | {_JAVA: f"{settings.get(_JAVA, '')} {logging}".strip()}
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _hushed(quiet is not None):
        spark = builder.getOrCreate()
    _look_up_once(spark)
    return spark


def _first_jars() -> str:
    """
    A class path with the jars of Spark that most classes are from.
    """
    jars = _jars()
    return os.pathsep.join(str(jar) for name in _FIRST_JARS for jar in jars if jar.name.startswith(name))


def _jars() -> list[Path]:
    return sorted(Path(_find_spark_home(), "jars").glob("*.jar"))


class _KnownClass(JavaClass):  # type: ignore[misc]
    """
    A Java class whose methods are looked up once, not with a message to Java for each call.
    """

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            self.__dict__[name] = found
        return found


def _look_up_once(spark: SparkSession) -> None:
    """
    Keep the classes that PySpark would look up, in all jars, for each column.
    """
    jvm: Any = spark._jvm
    for name in _CLASSES:
        found = getattr(jvm, name)
        if isinstance(found, JavaClass):
            setattr(jvm, name, _KnownClass(found._fqn, found._gateway_client))


@contextmanager
def _hushed(really: bool) -> Iterator[None]:
    """
    Redirect what Java prints during its start to a file, which is shown if the start fails.
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
            raise Unreadable(_not_started(str(why), said.read().decode(errors="replace"))) from why
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _not_started(why: str, said: str) -> str:
    """
    Why Spark did not start, in a sentence, from what Java printed.
    """
    missing = sorted(set(_UNRESOLVED.findall(said)))
    if missing:
        names = ", ".join(name.replace("#", ":").replace(";", ":") for name in missing)
        return (
            f"{names} cannot be downloaded from Maven; without a network, name the files with "
            "--conf spark.jars=FILE,FILE"
        )
    cause = _CAUSE.search(said)
    found = (cause[1] or cause[2] or cause[3]) if cause else f"{why}\n{said}".strip().partition("\n")[0]
    return f"Spark did not start: {found or 'nothing says why'}"
