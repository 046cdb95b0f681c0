"""
`msgnode mine sql`: the views of a mined directory, what a query prints, and errors in words.
"""

import csv
import io
import json

import pytest
from click.testing import CliRunner

from msgnode.cli.main import main
from msgnode.mining.mined.cells import csv_line, table


def run(*arguments, **more):
    found = CliRunner().invoke(main, ["mine", *map(str, arguments)], catch_exceptions=False, **more)
    return found.exit_code, found.stdout_bytes.decode(), found.stderr


@pytest.fixture
def mined(mined_log):
    return mined_log[0] / "out"


def test_views_are_listed_with_their_columns(mined):
    """
    Without a query all tables and the stored rows are listed, with their columns and types.
    """
    code, out, _ = run("sql", mined, "--json")

    views = json.loads(out)["views"]
    tables = {path.name for path in (mined / "tables").iterdir()}
    assert 0 == code
    assert tables | {"lines", "exchanges", "lives", "bad"} == set(views)
    assert ("bigint", "string") == (views["lines"]["time"], views["exchanges"]["asker"])
    lines = run("sql", mined)[1].splitlines()
    assert "    path string, why string, text string" == lines[lines.index("bad") + 1]


def test_query_over_tables_and_lines(mined):
    """
    A query may join tables and stored rows; names may be in capitals.
    """
    query = """
        -- what was read
        SELECT (SELECT count(*) FROM Lines) AS lines, (SELECT count(*) FROM bad) AS bad,
            (SELECT sum(MESSAGES) FROM volume) AS messages,
            (SELECT count(*) FROM lines WHERE kind = 'message') AS n;
    """

    code, out, _ = run("sql", mined, "-", "--json", input=query)

    found = json.loads(out)
    [(lines, bad, messages, number)] = found["rows"]
    assert (0, 300, 4) == (code, lines, bad)
    assert messages == number > 0
    assert {"name": "lines", "type": "bigint"} == found["columns"][0]


def test_table_says_how_many_rows_it_leaves_out(mined):
    """
    A table has at most --limit rows, and says how many there are beyond; 0 is all of them.
    """
    query = "SELECT kind, id FROM lines"

    _, out, _ = run("sql", mined, query, "--limit", 3)
    lines = out.splitlines()
    assert 7 == len(lines) and lines[0].startswith("kind")
    assert "297 more rows are not shown; --limit 0 shows all" == lines[-1]
    assert 302 == len(run("sql", mined, query, "--limit", 0)[1].splitlines())


def test_csv_is_complete_and_can_be_read_again(mined):
    """
    CSV has all rows, after a heading, as RFC 4180 has it; with --limit, standard error says what is missing.
    """
    code, out, err = run("sql", mined, "SELECT * FROM errors ORDER BY number DESC", "--csv")

    rows = list(csv.DictReader(io.StringIO(out, newline="")))
    assert (0, "") == (code, err)
    assert (
        len(rows) == json.loads(run("sql", mined, "SELECT count(*) FROM errors", "--json")[1])["rows"][0][0]
    )
    assert all(line.endswith("\r") for line in out.split("\n")[:-1])
    assert "date,hour,node,outcome,code,reason,number\r" == out.split("\n")[0]
    _, out, err = run("sql", mined, "SELECT id FROM lines", "--csv", "--limit", 2)
    assert 3 == out.count("\r\n")
    assert "msgnode: 298 more rows are not shown; --limit 0 shows all\n" == err


@pytest.mark.parametrize(
    "query, said",
    [
        ("SELECT * FROM volum", "there is no view volum; did you mean volume?"),
        ("SELECT * FROM sales", "there is no view sales; there are anomalies, "),
        ("SELECT typ FROM volume", "there is no column typ; near are: type, "),
        ("SELECT most(type) FROM volume", "there is no function most"),
        ("SELECT type, FROM volume", "the query failed: trailing comma detected in SELECT clause"),
        ("SELECT 1 / 0", "the query failed: division by zero"),
        ("DROP VIEW volume", "a query begins with SELECT or WITH"),
        ("SELECT 1) ; DROP VIEW volume", "the query failed: syntax error at or near 'DROP'"),
        ("", "a query begins with SELECT or WITH"),
    ],
)
def test_errors_are_one_sentence(mined, query, said):
    """
    What is wrong with a query is one sentence in the words of the query, with exit code 2.
    """
    code, out, err = run("sql", mined, query)

    assert (2, "") == (code, out)
    assert err.startswith(f"msgnode: {said}")
    assert 1 == err.count("\n")


def test_syntax_error_has_its_place(mined):
    """
    A syntax error names the line and the character of the query as it was written.
    """
    _, _, err = run("sql", mined, "SELECT *\nFROM volume volume volume")

    assert "msgnode: the query failed: syntax error at or near 'volume': extra input 'volume', " in err
    assert "at line 2, character 20" in err
    assert "the query failed: it ends too early" in run("sql", mined, "SELECT *\nFROM (volume")[2]


def test_csv_and_json_exclude_each_other(tmp_path):
    """
    Only one format is printed.
    """
    code, out, _ = run("sql", tmp_path, "SELECT 1", "--csv", "--json")

    assert 2 == code and "--csv and --json exclude each other" in out


def test_csv_quotes():
    """
    A field with a comma, a quote or a line end is quoted; null and an empty text differ.
    """
    values = [None, "", 'say "a, b"', "two\r\nlines", 3, 1.5, True, ["a", 1], " padded"]

    line = csv_line(values)

    assert ',"","say ""a, b""","two\r\nlines",3,1.5,true,"[""a"", 1]"," padded"\r\n' == line
    [read] = csv.reader(io.StringIO(line, newline=""))
    assert ["", "", 'say "a, b"', "two\r\nlines", "3", "1.5", "true", '["a", 1]', " padded"] == read


def test_table_is_aligned_and_safe():
    """
    Numbers are to the right; long cells are cut, and control characters are replaced.
    """
    lines = table(["name", "n"], [["a\x1b[31m", 5], ["b" * 80, None], ["", 1000]])

    assert lines[0] == f"name{' ' * 56}     n"
    assert lines[2] == f"a\ufffd[31m{' ' * 54}     5"
    assert lines[3] == f"{'b' * 59}…"
    assert lines[4].endswith("  1000")
