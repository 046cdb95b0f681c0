"""
The mining tool on an object store: moto's server, by s3a.

These tests need moto, and packages of Java that have hundreds of megabytes; CONTRIBUTING.md says how to run
them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from synthetic.plan import generate

PACKAGES = os.environ.get("MSGNODE_LAKE", "")
pytestmark = pytest.mark.skipif(not PACKAGES, reason="MSGNODE_LAKE is not set")
LINES = 300
LOGS, OUT = "s3a://lake/traffic", "s3a://lake/mined"


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[tuple[Any, list[str]]]:
    """
    A bucket with a log, as a client of boto3, and the options to reach it.
    """
    server = pytest.importorskip("moto.server").ThreadedMotoServer(
        ip_address="127.0.0.1", port=0, verbose=False
    )
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    boto3 = pytest.importorskip("boto3")
    client = boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="lake")
    generate(tmp_path / "logs", LINES, 3, 1, 1, hours=4)
    for path in (tmp_path / "logs").iterdir():
        client.upload_file(str(path), "lake", f"traffic/{path.name}")
    s3a = {
        "endpoint": url, "endpoint.region": "us-east-1", "path.style.access": "true", "access.key": "key",
        "secret.key": "secret",
    }  # fmt: skip
    options = [f"--conf=spark.hadoop.fs.s3a.{name}={value}" for name, value in s3a.items()]
    yield client, [*options, f"--conf={packages()}", "--conf=spark.driver.memory=1g"]
    server.stop()


def packages() -> str:
    """
    The client of Hadoop for S3: from Maven, or from the directory that the variable names.
    """
    from pyspark import __file__ as pyspark

    if os.path.isdir(PACKAGES):
        return "spark.jars=" + ",".join(map(str, Path(PACKAGES).glob("*.jar")))
    [jar] = (Path(pyspark).parent / "jars").glob("hadoop-client-api-*.jar")
    return f"spark.jars.packages=org.apache.hadoop:hadoop-aws:{jar.stem.rpartition('-')[2]}"


def mine(*arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "msgnode.cli", "mine", *arguments, "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(process: "subprocess.Popen[str]") -> tuple[int, dict[str, Any]]:
    out, err = process.communicate()
    assert out, err[-4000:]
    return process.returncode, json.loads(out.splitlines()[-1])


def test_two_runs_on_an_object_store(bucket: tuple[Any, list[str]]) -> None:
    """
    Of two runs at a time one mines the log in the bucket, the other is refused; SQL reads the result.
    """
    client, options = bucket

    both = [result(each) for each in [mine(LOGS, "--out", OUT, *options) for _ in range(2)]]

    both.sort(key=lambda found: found[0])
    (first, found), (second, refused) = both
    assert (0, LINES, 4) == (first, found["lines"], found["bad"])
    if second:
        assert 2 == second and f"uses {OUT}; wait until it ends" in refused["error"]
    else:  # it came after the end of the first
        assert {0, 4} == {found["files"], refused["files"]}
    names = {each["Key"] for each in client.list_objects_v2(Bucket="lake", Prefix="mined/")["Contents"]}
    assert {"mined/_checkpoint.json", "mined/report.html", "mined/.lock"} <= names
    assert b"" == client.get_object(Bucket="lake", Key="mined/.lock")["Body"].read()
    code, said = result(mine("sql", OUT, "SELECT count(*) FROM lines", *options))
    assert (0, [[LINES]]) == (code, said["rows"])


def test_lock_of_another_machine_is_respected(bucket: tuple[Any, list[str]]) -> None:
    """
    While a run on another machine holds the lock, a run is refused, and the holder is named.
    """
    client, options = bucket
    client.put_object(Bucket="lake", Key="mined/.lock", Body=b"elsewhere process 1 renewal 1")

    code, said = result(mine(LOGS, "--out", OUT, *options))

    assert 2 == code and "another run (elsewhere process 1) uses" in said["error"]
