"""
One Spark for all tests of a run, started by the first that asks for it.
"""

import os
import shutil
import sys

import pytest

from tests.support.examples import TOP


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
    builder = pyspark.SparkSession.builder.appName("tests")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
