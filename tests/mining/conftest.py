"""
One Spark for all tests of a run, started by the first that asks for it.
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.examples import TOP


def delta_settings() -> list[str]:
    """
    The settings for Delta, with the files of a directory if the variable names one.
    """
    from msgnode.mining.pipeline.delta import settings

    found = sorted(Path(os.environ.get("MSGNODE_LAKE", "")).glob("delta-*.jar"))
    return settings(["spark.jars=" + ",".join(map(str, found))] if found else [])


@pytest.fixture(scope="session")
def spark():
    """
    Spark on one core, without the compiling that pays only for many rows.
    """
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        missing = "Spark needs Java: apt-get install openjdk-17-jre-headless"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    pyspark = pytest.importorskip("pyspark.sql")
    # The workers of Spark import the checkout too.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(TOP), os.environ.get("PYTHONPATH"))))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    options = {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # The first compiler only, with room for all that it compiles.
        "spark.driver.extraJavaOptions": (
            "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
        ),
        # As the tool has it: Hadoop starts a process for each file with a checksum beside it.
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",  # one partition has nothing to adapt
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.caseSensitive": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "OFF",
    }
    if importlib.util.find_spec("delta") is not None:
        options |= dict(setting.partition("=")[::2] for setting in delta_settings())
    builder = pyspark.SparkSession.builder.appName("tests")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
