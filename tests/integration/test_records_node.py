"""
Records in a real node: definitions in a directory, refused messages, a reload, the catalogue.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.process import Lines, NodeProcess, fetched
from tests.support.examples import TOP

GET_TEMPERATURE = "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a12"
PAGE, LAMP = "runtime://localhost/page", "runtime://localhost/lamp"
REQUEST = {"id": 5, "type": "ping", "from": PAGE, "to": LAMP}
CONFIG = """
web = ["tcp:0:interface=127.0.0.1"]
lines = ["tcp:0:interface=127.0.0.1"]
[admin]
listen = "tcp:0:interface=127.0.0.1"
[records]
dir = "{directory}"
public = ["HOME"]
"""


@pytest.fixture
def definitions(tmp_path: Path) -> Path:
    directory = tmp_path / "definitions"
    directory.mkdir()
    source = TOP / "tests/records/thermometer.records.json"
    (directory / "thermometer.records.json").write_text(source.read_text())
    (tmp_path / "msgnode.toml").write_text(CONFIG.format(directory=directory))
    return directory


@pytest.fixture
def node(definitions: Path):
    process = NodeProcess("--config", str(definitions.parent / "msgnode.toml"))
    yield process
    process.stop(signal.SIGKILL)


def test_a_record_is_checked_though_a_flow_carries_messages_like_it(node):
    """
    The compiled data plane, if there is one, leaves messages with a record to the check.
    """
    page, lamp = Lines(node.ports["line"], PAGE), Lines(node.ports["line"], LAMP)
    for number in range(100):
        page.send({**REQUEST, "id": number, "body": {"ROOM": 5}})
        assert lamp.receive()["id"] == number

    refused = page.ask({**REQUEST, "record": GET_TEMPERATURE, "body": {"ROOM": 5}})
    page.send({**REQUEST, "record": GET_TEMPERATURE, "body": {"ROOM": "hall"}})

    assert (refused["from"], refused["id"]) == ("mn:/validator", 5)
    assert (refused["body"]["code"], refused["body"]["slot"]) == (400, "ROOM")
    assert lamp.receive()["body"] == {"ROOM": "hall"}
    metrics = fetched(node, "admin", "/metrics")
    if "carried by the compiled data plane" in node.said:
        assert "msgnode_messages_by_flow_total 0.0" not in metrics
    assert 'msgnode_messages_refused_total{code="400",reason="record"} 1.0' in metrics
    assert "msgnode_records_checked_total 2.0" in metrics
    assert "msgnode_records 8.0" in metrics


def test_definitions_are_reloaded_with_a_verdict(node, definitions):
    """
    A changed definition holds after SIGHUP; a broken one changes nothing, and the log says where it is.
    """
    page, lamp = Lines(node.ports["line"], PAGE), Lines(node.ports["line"], LAMP)
    message = {**REQUEST, "record": GET_TEMPERATURE, "body": {"ROOM": 5}}
    file = definitions / "thermometer.records.json"
    good = file.read_text()
    changed = good.replace('"mandatory": true, "type": "STRING"', '"mandatory": true, "type": "INTEGER"')
    changed = changed.replace(', "maxLength": 64', "")

    assert page.ask(message)["body"]["slot"] == "ROOM"
    file.write_text(good.replace('"type": "STRING"', '"type": "STRNG"', 1))
    node.process.send_signal(signal.SIGHUP)
    node.read_until("the old ones stay")
    assert f"{file}:" in node.said and "STRNG" in node.said
    assert page.ask(message)["body"]["slot"] == "ROOM"
    file.write_text(changed)
    node.process.send_signal(signal.SIGHUP)
    node.read_until("the definitions of records are replaced")
    page.send(message)

    assert lamp.receive()["body"] == {"ROOM": 5}


def test_the_catalogue_is_served(node):
    index = json.loads(fetched(node, "web", "/.well-known/records/"))

    assert [record["name"] for record in index["records"]] == ["GET_TEMPERATURE", "POSITION"]
    assert "GET_TEMPERATURE" in fetched(node, "web", "/.well-known/records/docs.html")


def test_check_reads_the_definitions(definitions):
    """
    `msgnode check` refuses a configuration whose definitions have errors, with exit code 2.
    """
    command = [Path(sys.executable).with_name("msgnode"), "check", str(definitions.parent / "msgnode.toml")]
    good = subprocess.run(command, capture_output=True, text=True, timeout=60)
    (definitions / "other.records.json").write_text('{"records": [{"id": 5}]}')
    bad = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert (good.returncode, bad.returncode) == (0, 2)
    assert f"records  {definitions}" in good.stdout
    assert "records.dir: " in bad.stderr and "other.records.json:1:" in bad.stderr
