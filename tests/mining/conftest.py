"""
One Spark for all tests of a run, started by the first that asks for it.
"""

import fcntl
import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from synthetic.plan import generate

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
    Spark as the tool starts it for a small log.
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
    from msgnode.mining.pipeline.spark import local_settings

    options = local_settings([]) | {
        "spark.driver.memory": "1g",  # for all tests of a run
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


@pytest.fixture(scope="session")
def mined_log(spark, tmp_path_factory):
    """
    A directory with 300 lines in `logs`, of which 4 are invalid, mined with a key and a policy to `out`; and
    what the command said. Processes that share the tests mine it once.
    """
    from msgnode.cli.main import main
    from tests.mining.rows import MINED_LOG_OPTIONS

    base = tmp_path_factory.getbasetemp()
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "mined_log"
    directory.mkdir(exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = directory / "said.json"
        if not said.exists():
            generate(directory / "logs", 300, 3, 1, 1, hours=4)
            arguments = ["mine", directory / "logs", "--out", directory / "out", *MINED_LOG_OPTIONS]
            done = CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)
            said.write_text(json.dumps([done.exit_code, done.stdout, done.stderr]))
    code, out, err = json.loads(said.read_text())
    return directory, SimpleNamespace(exit_code=code, stdout=out, stderr=err)


@pytest.fixture(params=["spark", "duckdb"])
def engine(request, spark, tmp_path):
    """
    Each engine that answers questions about messages and sessions.
    """
    from tests.mining.engines import InDuckDB, InSpark

    return InSpark() if request.param == "spark" else InDuckDB(spark, tmp_path)
