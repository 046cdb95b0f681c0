"""
Generated code of all languages compiles without warnings, and reads what the others write.
"""

import json
import select
import signal
import struct
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import clang_format
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from msgnode.records.checker import Checker
from msgnode.records.generate import c, java, python, typescript
from msgnode.records.reader import read, read_texts
from msgnode.records.writer import to_json
from tests.integration.process import PATIENCE, Lines, NodeProcess, fetched
from tests.support.examples import TOP
from tests.support.fuzz import TIMES
from tests.support.made_records import bodies, definitions
from tests.support.records_case import (
    JAVA_FORMAT,
    PRETTIER,
    TSC,
    by_c,
    by_java,
    by_python,
    by_typescript,
    canonical,
    needs,
    run,
    written,
)

SEED = TOP / "tests/records/seed.records.json"
NASTY = TOP / "tests/records/nasty.records.json"
THERMOMETER = TOP / "tests/records/thermometer.records.json"
LANGUAGES = [
    pytest.param(by_python, id="python"),
    pytest.param(by_typescript, id="typescript", marks=needs("node", TSC)),
    pytest.param(by_java, id="java", marks=needs("java", "javac")),
    pytest.param(by_c, id="c", marks=needs("gcc")),
]
ROUND = (by_python, by_typescript, by_java, by_c, by_python)


COUNT = b"""{"records": [{"id": "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0b21", "name": "COUNT", "slots": [
  {"key": 1, "name": "TOTAL", "type": "LONG"}, {"key": 2, "name": "PARTS", "type": "LONG[]"}]}]}"""
FOUND = read_texts(
    [("seed.json", SEED.read_bytes()), ("nasty.json", NASTY.read_bytes()), ("count.json", COUNT)]
)
RECORDS = {record.name: record for record in FOUND}


@pytest.fixture(scope="module", params=LANGUAGES)
def rounds(request, tmp_path_factory):
    return Round(request.param, tmp_path_factory.mktemp("generated"))


class Round:
    """
    A function that returns the body which a language writes after it has read a body of a record.
    """

    def __init__(self, language, place):
        self.is_c = language is by_c
        self._told = language(FOUND, place)

    def __call__(self, name, body):
        text = body if isinstance(body, str) else json.dumps(body)
        [answer] = self._told([(RECORDS[name].id, text)])
        return json.loads(answer)


@needs("node", TSC, "java", "javac", "gcc")
@settings(max_examples=2 * TIMES, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.data())
def test_bodies_go_round_all_languages_unchanged(data):
    """
    What Python writes, TypeScript, Java and C read and write in turn, and Python reads again: all values
    stay the same, also those of members that are no slots.
    """
    found = data.draw(definitions())
    sent = [
        (record, data.draw(bodies(found, record)))
        for record in found.records
        for _ in range(data.draw(st.integers(5, 20)))
    ]
    lines = [(record.id, json.dumps(body)) for record, body in sent]

    for language in ROUND:
        with TemporaryDirectory() as place:
            told = language(found, Path(place))(lines)
        lines = [(record.id, body) for (record, _), body in zip(sent, told, strict=True)]

    check = Checker(found).check
    for (record, body), (_, told) in zip(sent, lines, strict=True):
        assert check(record.id, json.loads(told)) is None
        assert canonical(found, record, json.loads(told)) == canonical(found, record, body)


@needs("node", TSC, "java", "javac", "gcc")
@settings(max_examples=TIMES, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)
@given(st.data())
def test_bodies_go_round_clients_in_all_languages_through_a_node(data):
    """
    Python, Java, C and TypeScript each have a session at one node, by TCP lines and by long-polling; each
    sends on what it has read, the node checks it each time, and at the end all values are those of the start.
    """
    found = data.draw(definitions().filter(lambda made: sum(len(each.slots) for each in made) >= 6))
    sent = [
        (record, {name: value for name, value in data.draw(bodies(found, record)).items() if name != "code"})
        for record in found.records
        for _ in range(5)
    ]
    names = [f"runtime://localhost/{name}" for name in ("python", "java", "c", "typescript")]
    me, *others = names
    with TemporaryDirectory() as place, ExitStack() as ending:
        (Path(place) / "made.records.json").write_text(to_json(found))
        node = NodeProcess("--records", place)
        ending.callback(node.stop, signal.SIGKILL)
        programs = [
            language(found, Path(place) / language.__name__) for language in (by_java, by_c, by_typescript)
        ]
        ports = [node.ports["line"], node.ports["line"], node.ports["web"]]
        for program, port, name, to in zip(programs, ports, others, [*others[1:], me], strict=True):
            process = program.relay(port, name, to)
            ending.callback(process.stdout.close)
            ending.callback(process.wait, PATIENCE)
            ending.callback(process.kill)
            assert select.select([process.stdout], [], [], PATIENCE)[0] and process.stdout.readline()
        client = Lines(node.ports["line"], me)
        ending.callback(client.close)
        written_by_python = by_python(found, Path(place) / "by_python")
        lines = [(record.id, json.dumps(body)) for record, body in sent]
        told = []
        for number, (record, body) in enumerate(zip(sent, written_by_python(lines), strict=True)):
            header = {"id": number, "type": "update", "from": me, "to": others[0], "record": record[0].id}
            client.socket.sendall(
                f'{json.dumps(header, separators=(",", ":"))[:-1]},"body":{body}}}\n'.encode()
            )
            told.append(client.receive())
        metrics = fetched(node, "admin", "/metrics")

    assert f"msgnode_records_checked_total {4.0 * len(sent)}" in metrics
    for (record, body), message in zip(sent, told, strict=True):
        assert (message["type"], message["record"]) == ("update", record.id)
        assert canonical(found, record, message["body"]) == canonical(found, record, body)


def test_the_example_of_the_seed_compiles_and_runs(rounds):
    """
    The record of the seed is read and written in each language.
    """
    body = {"REMOTE_NODE": "mn://b.example/n1", "TYPE": "SERVER", "LATER": [1, {"a": None}]}

    assert rounds("NOTIFY_REMOTE_NODE_ADDED", body) == body


def test_names_that_are_keywords_compile(rounds):
    """
    Records, slots and values named after keywords, macros and members of the runtime compile without a
    warning, and descriptions that end comments or begin escapes stay comments.
    """
    body = {
        "EXTRA": 'é\u2028"\\\n',
        "CONSTRUCTOR": "x",
        "CLASS": {"__proto__": "new", "toString": "None", "mro": "mro"},
        "UNIX": True,
        "SELF": -5,
        "ID": "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0b12",
        "BACK": {"CHILDREN": [{"CHILDREN": []}], "LATER": 1},
        "constructor": {"__proto__": 1},
    }

    told = rounds("REGISTER", body)

    record = RECORDS["REGISTER"]
    assert canonical(FOUND, record, told) == canonical(FOUND, record, body)


def test_names_of_builtins_compile(rounds):
    """
    Slots named after what their types refer to, and namespaces named after headers of C, compile as well.
    """
    body = {"PROPERTY": "x", "BYTES": "YQ==", "FLOAT": 0.5, "LIST": ["y"], "MODE": "DEFAULT", "TYPE": "z"}

    assert rounds("DOUBLE", body) == body


def test_a_member_with_escapes_in_its_name_is_a_slot(rounds):
    """
    A slot's name is the same text with and without escapes, so no slot can be hidden from one language.
    """
    told = rounds(
        "NOTIFY_REMOTE_NODE_ADDED", r'{"REMOTE\u005fNODE": "mn://b.example/n1", "TYP\u0045": "SERVER"}'
    )

    assert told == {"REMOTE_NODE": "mn://b.example/n1", "TYPE": "SERVER"}


@pytest.mark.parametrize("value", [294.65, 0.1, 5e-324, 1.7976931348623157e308, 1 / 3])
def test_a_double_is_exact_and_short(rounds, value):
    """
    A DOUBLE is written with as many digits as it needs.
    """
    told = rounds("REGISTER", {"REGISTER_SLOTS": value})["REGISTER_SLOTS"]

    assert told == value and len(repr(told)) <= len(repr(value))


@pytest.mark.parametrize("value", [3.4028235e38, -3.4028235e38, 1e-45])
def test_the_largest_float_is_read(rounds, value):
    """
    The largest number of 32 bits is read with as many digits as Java writes.
    """
    told = rounds("DOUBLE", {"FLOAT": value})["FLOAT"]

    assert struct.pack("f", told) == struct.pack("f", value)
    assert Checker(FOUND).check(RECORDS["DOUBLE"].id, {"FLOAT": told}) is None


def test_a_float_out_of_range_is_refused(rounds):
    """
    A FLOAT has 32 bits in each language.
    """
    with pytest.raises((AssertionError, ValueError)):
        rounds("DOUBLE", {"FLOAT": 3.5e38})


def test_absent_null_and_unknown_are_told_apart(rounds):
    """
    An absent slot stays absent, null stays null, and a value that an enum does not have is kept.
    """
    body = {"EXTRA": None, "CLASS": {"a": "of_later"}}

    assert rounds("REGISTER", body) == body


def test_slots_by_key_are_read(rounds):
    """
    A body with keys in the place of names is read in each language.
    """
    told = rounds("NOTIFY_REMOTE_NODE_ADDED", {"1": "mn://b.example/n1", "2": "SERVER"})

    assert list(told.values()) == ["mn://b.example/n1", "SERVER"]


def test_slots_by_name_and_by_key_in_one_body_are_refused(rounds):
    """
    A body has one form, also if the key is that of a slot of a newer definition; C reads both.
    """
    for key in ("2", "99"):
        if not rounds.is_c:
            with pytest.raises((AssertionError, ValueError), match=r"by name.* by key"):
                rounds("NOTIFY_REMOTE_NODE_ADDED", {"REMOTE_NODE": "mn://b/n", "TYPE": "x", key: "y"})


def test_a_key_of_a_newer_slot_stays_among_keys(rounds):
    """
    What was read by key is written by key if a member that is no slot has one, so that it can be read again.
    """
    body = {"1": "mn://b.example/n1", "2": "SERVER", "99": 5}

    if not rounds.is_c:
        assert rounds("NOTIFY_REMOTE_NODE_ADDED", body) == body


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 2**53 + 1])
def test_a_long_is_exact(rounds, value):
    """
    A LONG is written as text, so no language rounds it; a small one is read as a number, too.
    """
    told = rounds("COUNT", {"TOTAL": str(value), "PARTS": [5]})

    assert told["TOTAL"] == str(value)
    assert [int(part) for part in told["PARTS"]] == [5]


@pytest.mark.parametrize("value", [str(2**63), "x", 1.5, True])
def test_a_value_that_does_not_fit_is_refused(rounds, value):
    """
    Generated code refuses a value of another type or out of range, with the name of its slot.
    """
    with pytest.raises((AssertionError, ValueError), match=r"\bTOTAL: "):
        rounds("COUNT", {"TOTAL": value})


@pytest.mark.parametrize("value", ["\ud800", "a\udc00b", "\udc00\ud800"])
def test_half_of_a_character_is_refused_with_the_slot(rounds, value):
    """
    A STRING has no lone surrogate in any language; a whole character outside of the first plane is one.
    """
    fits = {"REMOTE_NODE": "mn://b.example/n1", "TYPE": "\U0001f600"}

    assert rounds("NOTIFY_REMOTE_NODE_ADDED", fits) == fits
    with pytest.raises((AssertionError, ValueError)) as raised:
        rounds("NOTIFY_REMOTE_NODE_ADDED", fits | {"TYPE": value})

    assert raised.match(
        r"\bTYPE: expected STRING without lone surrogates" if not rounds.is_c else r"\bTYPE: .* does not fit"
    )


@pytest.mark.parametrize("slot, value", [("LIST", ["a", "\ud800"]), ("MODE", "\udfff")])
def test_half_of_a_character_in_an_array_or_an_enum_is_refused_with_the_slot(rounds, slot, value):
    """
    The error names the slot, not the type of its elements; C has arrays as JSON.
    """
    if not (rounds.is_c and slot == "LIST"):
        with pytest.raises((AssertionError, ValueError), match=rf"\b{slot}: .* without|\b{slot}: .* not fit"):
            rounds("DOUBLE", {slot: value})


def test_half_of_a_character_in_a_key_of_a_map_is_refused_with_the_slot(rounds):
    """
    Keys are texts like others; C has maps as JSON.
    """
    if not rounds.is_c:
        with pytest.raises(
            (AssertionError, ValueError), match="CLASS: expected keys without lone surrogates"
        ):
            rounds("REGISTER", {"CLASS": {"\ud800": "a"}})


def test_a_mandatory_slot_must_be_there(rounds):
    """
    Generated code refuses a body without a mandatory slot, and names the slot.
    """
    with pytest.raises((AssertionError, ValueError), match=r"\bREMOTE_NODE: "):
        rounds("NOTIFY_REMOTE_NODE_ADDED", {"TYPE": "SERVER"})


# -- layout ------------------------------------------------------------------


def test_python_is_laid_out_as_ruff_does_it(tmp_path):
    """
    ruff would neither format the generated package differently, nor find anything in it, nor would mypy.
    """
    written(tmp_path / "generated", python.generate(read(THERMOMETER)))
    ruff = Path(sys.executable).with_name("ruff")

    run(ruff, "format", "--isolated", "--check", ".", cwd=tmp_path)
    run(ruff, "check", "--isolated", "--select", "E,F,I,B,UP", "--ignore", "E501", ".", cwd=tmp_path)
    run(sys.executable, "-m", "mypy", "--strict", "--config-file", "", "generated", cwd=tmp_path)


def test_python_with_names_of_builtins_has_types(tmp_path):
    """
    mypy understands the annotations of a class whose slots are named after types.
    """
    written(tmp_path / "generated", python.generate(read(NASTY)))

    run(sys.executable, "-m", "mypy", "--strict", "--config-file", "", "generated", cwd=tmp_path)


@needs(PRETTIER)
def test_typescript_is_laid_out_as_prettier_does_it(tmp_path):
    """
    prettier would not format the generated modules differently.
    """
    written(tmp_path, typescript.generate(read(THERMOMETER)))

    run(PRETTIER, "--check", ".", cwd=tmp_path)


@needs(JAVA_FORMAT)
@needs("java")
def test_java_is_laid_out_as_google_java_format_does_it(tmp_path):
    """
    google-java-format would not format the generated classes differently.
    """
    files = java.generate(read(THERMOMETER)) | java.generate(read(SEED))
    written(tmp_path, files)

    assert "" == run(JAVA_FORMAT, "--dry-run", *files, cwd=tmp_path)


def test_c_is_laid_out_as_clang_format_does_it(tmp_path):
    """
    clang-format would not format the generated headers differently.
    """
    files = c.generate(read(THERMOMETER))
    written(tmp_path, files)

    binary = Path(clang_format.__file__).parent / "data/bin/clang-format"
    run(binary, "--style=LLVM", "--dry-run", "--Werror", *files, cwd=tmp_path)
