"""
The mining tool on a cluster, by the recipe of docs/mining.md: a master and a worker on this machine.

With MSGNODE_CLUSTER=1 there are two workers, and a log of several hours.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import click
import pytest
from synthetic.plan import generate

from tests.support.examples import TOP

pytest.importorskip("pyspark")

PATIENCE = 600  # seconds for a process of Spark to start, on a machine with other work
LONGEST = 3000  # seconds for a run
LARGE = bool(os.environ.get("MSGNODE_CLUSTER"))
LINES, HOURS, WORKERS = (600, 3, 2) if LARGE else (100, 1, 1)
# Few rows are done before anything that is compiled pays.
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m"
SMALL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "600m",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JAVA,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(WORKERS),
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}
_numbers = count(1)


def home() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


@contextmanager
def daemon(directory: Path, said: str, *arguments: str) -> Iterator[str]:
    """
    A process of Spark, which has said this; ends it. Yields the first group of what it said.
    """
    command = [str(home() / "bin/spark-class"), *arguments]
    environment = os.environ | {
        "SPARK_HOME": str(home()), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_JAVA_OPTS": JAVA,
        "SPARK_DAEMON_MEMORY": "256m",
    }  # fmt: skip
    # A file, not a pipe: nobody reads it later, and a full pipe would stop the process.
    log = directory / f"{next(_numbers)}.log"
    with (
        log.open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=directory) as process,
    ):
        try:
            deadline = time.monotonic() + PATIENCE
            while (found := re.search(said, log.read_text())) is None:
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            yield found[1]
        finally:
            process.terminate()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """
    The address of a master with its workers.
    """
    where = ("--host", "127.0.0.1", "--webui-port", "0")
    name = "org.apache.spark.deploy.master.Master"
    with daemon(tmp_path, r"Starting Spark master at (spark://\S+)", name, *where, "--port", "0") as url:
        name = "org.apache.spark.deploy.worker.Worker"
        worker = (name, *where, "--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work"), url)
        said = r"Successfully registered with master (\S+)"
        with ExitStack() as running:
            for _ in range(WORKERS):
                running.enter_context(daemon(tmp_path, said, *worker))
            yield url


def package(where: Path) -> Path:
    """
    The package and click in one zip file, as the recipe makes it.
    """
    deps = where / "deps"
    assert click.__file__ is not None
    shutil.copytree(Path(click.__file__).parent, deps / "click")
    shutil.copytree(TOP / "msgnode", deps / "msgnode", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    with zipfile.ZipFile(where / "msgnode.zip", "w") as file:
        for path in deps.rglob("*"):
            file.write(path, path.relative_to(deps))
    return where / "msgnode.zip"


def submit(master: str, zipped: Path, *arguments: Any) -> dict[str, Any]:
    """
    The result of the tool under spark-submit.
    """
    command = [
        str(home() / "bin/spark-submit"), "--master", master, "--py-files", str(zipped),
        *(f"--conf={name}={value}" for name, value in SMALL.items()),
        str(TOP / "tools/mine.py"), *map(str, arguments), "--json",
    ]  # fmt: skip
    environment = os.environ | {
        "SPARK_HOME": str(home()), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=LONGEST, check=False
    )
    assert 0 == done.returncode, done.stdout + done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_cluster_recipe_mines_a_log_on_workers(master: str, tmp_path: Path) -> None:
    """
    The recipe for a cluster mines a log on its workers, also with a policy, which runs Python there.
    """
    generate(tmp_path / "logs", LINES, 3, 1, 2, hours=HOURS)
    policy = TOP / "etc/policies/block-partner.json"

    found = submit(
        master, package(tmp_path), tmp_path / "logs", "--out", tmp_path / "out", "--policy", policy
    )

    assert (True, LINES, 4) == (found["ok"], found["lines"], found["bad"])
    assert "decisions" in found["tables"] and (tmp_path / "out/report.html").exists()
    used = {path.parent.name for path in (tmp_path / "work").glob("app-*/*/stderr")}
    assert WORKERS == len(used)
