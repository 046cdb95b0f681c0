"""
The definitions of records that the node reads at its start, and again at SIGHUP.
"""

import json
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred, execute
from twisted.logger import Logger, globalLogPublisher

from msgnode.bus.records.known_records import KnownRecords, read_records
from msgnode.config.schema import ConfigError
from msgnode.config.sections import RecordsOptions
from msgnode.service.options import Options
from msgnode.service.records import RecordsLoader

log = Logger()
ROOM = {"key": 1, "name": "ROOM", "type": "STRING"}


def written(directory: Path, slots: object, name: str = "GET") -> None:
    """
    A file with one definition that has these slots.
    """
    record = {
        "id": "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a12",
        "name": name,
        "namespaces": "HOME",
        "slots": slots,
    }
    (directory / "a.records.json").write_text(json.dumps({"records": [record]}))


@pytest.fixture
def said():
    lines: list[str] = []

    def note(event):
        if event["log_namespace"] == "msgnode.service.records":
            lines.append(event["log_format"].format(**event))

    globalLogPublisher.addObserver(note)
    yield lines
    globalLogPublisher.removeObserver(note)


@pytest.fixture
def known():
    return KnownRecords()


def names(known):
    return {record.name for record in known.definitions if "SYSTEM" not in record.namespaces}


def test_definitions_are_read_at_the_start(tmp_path, known):
    written(tmp_path, [ROOM])

    RecordsLoader(RecordsOptions(dir=str(tmp_path)), known, execute).load()

    assert names(known) == {"GET"}
    assert len(known) == 1 + 6


def test_a_node_does_not_start_with_definitions_that_have_errors(tmp_path, known):
    """
    The error names the file, the line and what is wrong; so it does if the directory is not there.
    """
    written(tmp_path, [{**ROOM, "type": "STRNG"}])

    with pytest.raises(ConfigError, match=r"records.dir: .*a.records.json:1:\d+: .*STRNG"):
        RecordsLoader(RecordsOptions(dir=str(tmp_path)), known, execute).load()
    with pytest.raises(ConfigError, match=r"records.dir: .*nowhere: cannot be read"):
        RecordsLoader(RecordsOptions(dir=str(tmp_path / "nowhere")), known, execute).load()


def test_a_reload_replaces_the_definitions_and_says_so(tmp_path, known, said):
    written(tmp_path, [ROOM])
    loader = RecordsLoader(RecordsOptions(dir=str(tmp_path)), known, execute)
    loader.load()
    written(tmp_path, [ROOM], "OTHER")

    loader.reload()
    loader.reload()

    assert names(known) == {"OTHER"}
    assert ["replaced" in said[0], "unchanged" in said[1]] == [True, True]


def test_a_reload_of_definitions_with_errors_keeps_the_old_ones(tmp_path, known, said):
    """
    The log says file, line and problem.
    """
    written(tmp_path, [ROOM])
    loader = RecordsLoader(RecordsOptions(dir=str(tmp_path)), known, execute)
    loader.load()
    written(tmp_path, [ROOM, ROOM])

    loader.reload()

    assert names(known) == {"GET"}
    assert known.refused_reloads == 1
    assert "the old ones stay" in said[0] and "a.records.json:1:" in said[0]


def test_a_reload_while_one_is_under_way_reads_once_more(known):
    started = []

    def run(read, *given):
        started.append(Deferred())
        return started[-1]

    loader = RecordsLoader(RecordsOptions(), known, run)
    for _ in range(5):
        loader.reload()
    assert len(started) == 1
    started[0].callback(read_records("", ()))
    assert len(started) == 2


def test_the_option_names_the_directory():
    options = Options()
    options.parseOptions(["--records", "definitions"])
    assert options.loaded.records.dir == "definitions"


def test_only_public_namespaces_and_what_they_nest_are_in_the_catalogue_for_everybody(tmp_path):
    nested = {
        "id": "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a11",
        "name": "PLACE",
        "namespaces": "INNER",
        "slots": [],
    }
    slots = [{"key": 1, "name": "WHERE", "type": "RECORD", "record": nested["id"]}]
    home = {**nested, "id": "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a12", "name": "GET", "namespaces": "HOME"}
    other = {**nested, "id": "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a13", "name": "SECRET"}
    records = [nested, {**home, "slots": slots}, other]
    (tmp_path / "a.records.json").write_text(json.dumps({"records": records}))

    def shown(*public: str) -> list[str]:
        index = json.loads(read_records(str(tmp_path), public).public.index)
        return [record["name"] for record in index["records"]]

    assert shown() == []
    assert shown("HOME") == ["GET", "PLACE"]
    page = read_records(str(tmp_path), ["HOME"]).public.page.decode()
    assert ("SECRET" in page, "PLACE" in page) == (False, True)
