"""
`msgnode records`, from a shell.
"""

import json

import pytest
from click.testing import CliRunner

from msgnode.cli.main import main
from msgnode.records.reader import read
from tests.support.examples import TOP, blocks

SEED = TOP / "tests/records/seed.records.json"
[SHOWN] = [
    block.text for block in blocks("docs/records.md") if block.info == "json" and '"slots"' in block.text
]
[SHOWN_XML] = [block.text for block in blocks("docs/records.md") if block.info == "xml"]


def run(*words):
    return CliRunner().invoke(main, ["records", *map(str, words)])


@pytest.fixture
def shown(tmp_path):
    """
    The definition that docs/records.md shows.
    """
    path = tmp_path / "thermometer.records.json"
    path.write_text(SHOWN)
    return path


def changed(path, old, new):
    other = path.with_name("changed.records.json")
    assert old in SHOWN
    other.write_text(SHOWN.replace(old, new))
    return other


def test_check_says_how_many_there_are(shown):
    """
    Definitions without errors are counted.
    """
    told = run("check", shown)

    assert (told.exit_code, told.output) == (0, f"{shown}: ok, records: 1, slots: 4\n")
    assert json.loads(run("check", shown, "--json").output)["sha256"] == read(shown).digest


def test_check_lists_errors_with_positions(shown):
    """
    Errors go to standard error with file, line and column, or to standard output as JSON.
    """
    wrong = changed(shown, '"STRING"', '"STIRNG"')

    told, as_json = run("check", wrong), run("check", wrong, "--json")

    assert told.exit_code == as_json.exit_code == 2
    assert told.stderr == f"{wrong}:10:63: unknown type 'STIRNG', did you mean 'STRING'?\n"
    assert json.loads(as_json.output)["problems"] == [
        {
            "where": str(wrong),
            "line": 10,
            "column": 63,
            "text": "unknown type 'STIRNG', did you mean 'STRING'?",
        }
    ]


def test_a_file_that_is_not_there_is_said(tmp_path):
    """
    A missing file is one line, and exit code 2.
    """
    told = run("check", tmp_path / "x.json")

    assert (told.exit_code, told.stderr) == (
        2,
        f"msgnode: {tmp_path}/x.json: cannot be read: No such file or directory\n",
    )


@pytest.mark.parametrize("language", ["python", "typescript", "java", "c"])
def test_generate_writes_the_files_it_prints(language, shown, tmp_path):
    """
    The files are below the directory, in each language.
    """
    told = run("generate", "--language", language, "--out", tmp_path / "out", shown)

    files = told.output.splitlines()
    assert told.exit_code == 0 and len(files) >= 2
    assert sorted(files) == sorted(str(path) for path in (tmp_path / "out").rglob("*") if path.is_file())


def test_convert_gives_the_other_form(shown, tmp_path):
    """
    The XML of docs/records.md has the content of its JSON, and converts into it.
    """
    xml = tmp_path / "shown.records.xml"
    xml.write_text(SHOWN_XML)

    assert read(xml).records == read(shown).records
    assert run("convert", xml).output == run("convert", shown, "--to", "json").output
    assert run("convert", shown, "--out", tmp_path / "made.xml").exit_code == 0
    assert read(tmp_path / "made.xml").records == read(shown).records


def test_compare_exits_with_1_if_a_program_breaks(shown):
    """
    A new mandatory slot breaks old senders; a new optional one breaks nothing.
    """
    fifth = '"type": "DATE"},\n        {"key": 5, "name": "FLOOR", "type": "BYTE"'
    optional = run("compare", shown, changed(shown, '"type": "DATE"', fifth))
    mandatory = run(
        "compare", shown, changed(shown, '"type": "DATE"', fifth + ', "mandatory": true'), "--json"
    )

    assert (optional.exit_code, optional.output) == (
        0,
        "compatible: GET_TEMPERATURE.FLOOR: a new optional slot\n",
    )
    assert mandatory.exit_code == 1
    assert json.loads(mandatory.output)["breaks"] == {"old senders": True, "old readers": False}


def test_docs_writes_a_page(shown, tmp_path):
    """
    The catalogue is a file, or goes to standard output.
    """
    assert run("docs", shown, "--out", tmp_path / "a.html", "--title", "Home").exit_code == 0

    assert (tmp_path / "a.html").read_text() == run("docs", shown, "--title", "Home").output
    assert "<title>Home</title>" in (tmp_path / "a.html").read_text()


def test_python_of_the_documents_runs(shown, tmp_path, monkeypatch, capsys):
    """
    The examples of generated code in docs/records.md give what their comments say.
    """
    assert run("generate", "--language", "python", "--out", tmp_path / "thermometer", shown).exit_code == 0
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    shown_in_python = [block.text for block in blocks("docs/records.md") if block.info == "python"]
    generated, checked = [text for text in shown_in_python if "msgnode.client" not in text]

    with pytest.raises(ValueError, match="TEMPERATURE: expected DOUBLE, found 'warm'"):
        exec(generated, {})
    exec(checked, {})

    assert capsys.readouterr().out == (
        "{'ROOM': 'hall'}\n22.5 2026-11-18 10:00:00+00:00\nROOM: expected STRING, found 5\n"
    )
