"""
Lines that Arrow reads: they are the rows that Spark makes of them, and every other line is left to Spark.
"""

import itertools
import json
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from msgnode.mining.reading.arrow_lines import FEW_LINES, MAX_FAILED, MAX_INVALID, Read, of_kinds, read_lines
from msgnode.mining.reading.parse import parsed
from msgnode.mining.reading.schema import KINDS

HOUR = 495_984  # 2026-08-01T00
TIME = HOUR * 3600 * 10**9 + 5
LINE: dict[str, Any] = {
    "v": 1,
    "kind": "message",
    "time": TIME,
    "node": "mn1",
    "type": "update",
    "id": 7,
    "from": "a://b/c",
    "outcome": "delivered",
    "bytes": 3,
}
SESSION = {"v": 1, "kind": "session", "time": TIME, "node": "mn1", "session": "s", "event": "attached"}

# Values of a field, as JSON text.
_VALUES = (
    "null", "true", "0", "-0", "-1", "1.0", "1.10", "1e3", "1E400", "2147483648", "9223372036854775808",
    "4294967297", '""', '"x"', '"5"', '"\\u0041\\ud83d\\ude00"', '"\\ud83d"', '"é€😀"', '"\\u0000"', '"\\t"',
    '"a\tb"', '"\\"id\\":5,"', "[]", '["a",null]', '["a","b\\/"]', "[1]", "{}", '{"id":1}', "NaN",
    "-Infinity", "'x'", "01", "1.", ".5", "+1", " 12", "12 ", str(TIME), str(TIME - 10), "[[[]]]",
    '"\\x"', "",
)  # fmt: skip
_PIECES = (
    b"null", b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b" ", b"\t", b"{}", b"[null]", b'"id":',
    b'"v":1,', b'"id":9,', b'"transaction":7,', b'"a"', b"1", b"-0", b"e5", b"\x00",
    b"\xff", b"\\ud800", b"\\u0000", b"",
)  # fmt: skip
_FIELDS = ("v", "kind", "time", "node", "id", "transaction", "bytes", "code", "resources", "outcome", "other")
# Whole lines.
_LINES = (
    "",
    " ",
    "{}",
    "null",
    "[]",
    "{",
    "}",
    '"x"',
    "not JSON",
    "\ufeff" + json.dumps(LINE),
    " " + json.dumps(LINE),
    json.dumps(LINE) + " ",
    json.dumps(LINE) + ",",
    json.dumps(LINE) + " x",
    json.dumps(LINE) + json.dumps(LINE),
    "[" + json.dumps(LINE) + "]",
    json.dumps(LINE)[:-1],
    json.dumps(LINE)[:-1] + ',"v":1}',
    json.dumps(LINE)[:-1] + ',"id":8}',
    json.dumps(LINE)[:-1] + ',"Id":8}',
    json.dumps(LINE)[:-1] + ",}",
    json.dumps(LINE)[:-1] + ',"other":{"a":[1,{"id":2}]}}',
    json.dumps(LINE)[:-1] + ',"_corrupt":"x"}',
    json.dumps(SESSION),
    json.dumps(SESSION | {"event": None}),
    json.dumps(SESSION | {"kind": "alive"}),
    json.dumps(SESSION | {"kind": "node", "started": TIME}),
    json.dumps(LINE | {"id": "é\u2028"}, ensure_ascii=False),
    "/* x */" + json.dumps(LINE),
)


def text_of(changes: dict[str, str]) -> str:
    """
    A good line with other values, each given as JSON text.
    """
    values = {name: json.dumps(value) for name, value in LINE.items()} | changes
    return "{" + ",".join(f'"{name}":{value}' for name, value in values.items()) + "}"


def cases() -> list[bytes]:
    found = [text_of({name: value}) for name, value in itertools.product(_FIELDS, _VALUES)]
    found += [*_LINES, text_of({"micros": "-1"}), text_of({"recipients": str(2**24 + 1)})]
    return [text.encode() for text in found] + [
        json.dumps(LINE).encode().replace(b"mn1", bytes([0xFF, 0xC0])),
        json.dumps(LINE).encode().replace(b"mn1", b"\xed\xa0\x80"),
        json.dumps(LINE).encode().replace(b"mn1", "😀".encode()[:3]),
    ]


def changed(seed: int, number: int) -> list[bytes]:
    """
    As many lines again, with pieces of JSON in wrong places, or missing.
    """
    random = Random(seed)
    good, found = cases(), []
    for _ in range(number):
        line = random.choice(good)
        for _ in range(random.randint(1, 3)):
            begin = random.randint(0, len(line))
            end = min(len(line), begin + random.choice((0, 0, 1, 5)))
            line = line[:begin] + random.choice(_PIECES) + line[end:]
        found.append(line.replace(b"\n", b" "))
    return found


def rows_of(read: Read) -> list[dict[str, Any]]:
    found = []
    for table in read.rows:
        for kind, rows in of_kinds(table):
            found += [row | {"kind": kind} for row in rows.to_pylist()]
    return found


def in_order(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


def by_spark(spark: SparkSession, lines: list[bytes]) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """
    The rows that Spark makes of lines, and the invalid lines with their reasons.
    """
    given = [(bytearray(line), "/traffic-mn1-20260801T00.jsonl") for line in lines]
    text = spark.createDataFrame(given, "value binary, path string").coalesce(1)
    rows = parsed(text.withColumn("value", F.col("value").cast("string"))).cache()
    valid = rows.where(F.col("kind").isin(*KINDS) & F.col("why").isNull()).drop("date", "why", "text", "path")
    invalid = rows.where("why is not null").collect()
    return [row.asDict(True) for row in valid.collect()], [(row.text, row.why) for row in invalid]


def test_a_line_that_is_read_is_what_spark_makes_of_it(spark: SparkSession) -> None:
    """
    For each of many ways to write a line, Arrow makes the same row as Spark, or the same reason why there is
    none, or leaves the line to it.
    """
    read: list[bytes] = []
    rows: list[dict[str, Any]] = []
    invalid: list[tuple[str, str]] = []
    for line in cases() + changed(1, 2000):
        found = read_lines(line + b"\n", HOUR)
        if found.odd:
            assert (found.odd, found.rows, found.invalid) == ([line + b"\n"], [], [])
        else:
            read.append(line)
            rows += rows_of(found)
            invalid += [(text.decode().rstrip("\n"), why) for text, why in found.invalid]
    assert (rows, invalid) == by_spark(spark, read)
    assert len(rows) > 100 and len({why for _, why in invalid}) > 8


def test_lines_as_nodes_write_them_are_not_left_to_spark() -> None:
    """
    Numbers and texts as ids, transactions, and lines of all kinds are read, whatever stands beside them.
    """
    lines = [
        LINE,
        LINE | {"id": "text", "transaction": "t-1"},
        LINE | {"id": 2**70, "transaction": 5},
        LINE | {"resources": ["a://b", "c"], "resources_count": 2},
        SESSION,
        SESSION | {"kind": "node", "started": TIME, "version": "0.2"},
        SESSION | {"kind": "later"},
    ]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()
    found = read_lines(text, HOUR)
    rows = rows_of(found)
    assert [row["id"] for row in rows if row["kind"] == "message"] == ["7", "text", str(2**70), "7"]
    assert len(rows) == len(lines) - 1  # a later kind is skipped
    assert not found.odd and not found.invalid


@pytest.mark.parametrize("place", [0, 1, FEW_LINES, 3 * FEW_LINES, 1000])
def test_no_other_line_is_left_to_spark_with_an_odd_one(place: int) -> None:
    """
    Lines are halved until the odd one, and the one that is cut, stand alone; all others are rows.
    """
    odd, cut = text_of({"id": "1.5"}).encode() + b"\n", b'{"v":1,"kind":"mess\n'
    lines = [text_of({"id": str(at)}).encode() + b"\n" for at in range(1001)]
    lines[place : place + 1] = [odd, cut]
    found = read_lines(b"".join(lines), HOUR)
    assert (found.odd, found.invalid) == ([odd], [(cut, "not JSON of the log")])
    assert sorted(int(row["id"]) for row in rows_of(found)) == [at for at in range(1001) if at != place]


@pytest.mark.parametrize("every", [3, 50, 1000])
def test_the_search_for_odd_lines_ends(every: int) -> None:
    """
    However many lines are odd, there are few pieces of rows, and every line is a row or left to Spark.
    """
    odd = text_of({"id": "1.5"}).encode() + b"\n"
    lines = [text_of({"id": str(at)}).encode() + b"\n" if at % every else odd for at in range(12_000)]
    found = read_lines(b"".join(lines), HOUR)
    left = b"".join(found.odd)
    assert left.count(odd) == lines.count(odd)
    assert len(rows_of(found)) + left.count(b"\n") == len(lines)
    assert len(found.rows) + len(found.odd) < 4 * MAX_FAILED


def test_large_and_negative_ids_are_read() -> None:
    """
    Ids beyond 64 bits and below zero, alone and beside texts, are not odd.
    """
    ids = [str(2**64 - 1), str(-(2**70)), "-5", "7", "0", '"x"']
    for some in (ids, ids[:1], ids[1:2], ids[2:5], ids[3:]):
        found = read_lines(b"".join(text_of({"id": id}).encode() + b"\n" for id in some), HOUR)
        assert [row["id"] for row in rows_of(found)] == [id.strip('"') for id in some]
        assert not found.odd


def test_many_invalid_rows_and_empty_lines_are_not_searched() -> None:
    """
    Lines of another program are left to Spark if they are many, and empty lines are dropped.
    """
    found = read_lines(b"{}\n" * (MAX_INVALID + 1), HOUR)
    assert (len(found.odd), found.invalid) == (MAX_INVALID + 1, [])
    assert read_lines(b"\n" * 10**6 + b" \n", HOUR) == Read()


@pytest.mark.parametrize("seed", range(3))
def test_chunks_are_what_spark_makes_of_their_lines(spark: SparkSession, seed: int) -> None:
    """
    Lines of all sorts beside each other are the same rows, and have the same reasons, as alone.
    """
    random = Random(seed)
    some = cases() + changed(seed, 200) + [text_of({"id": str(at)}).encode() for at in range(500)]
    random.shuffle(some)
    read: list[bytes] = []
    rows: list[dict[str, Any]] = []
    invalid: list[tuple[str, str]] = []
    while some:
        lines = [some.pop() for _ in range(min(len(some), random.randint(2, 40)))]
        found = read_lines(b"".join(line + b"\n" for line in lines), HOUR)
        left = b"".join(found.odd).split(b"\n")[:-1]
        for line in left:
            lines.remove(line)
        read += lines
        rows += rows_of(found)
        invalid += [(text.decode().rstrip("\n"), why) for text, why in found.invalid]
    expected = by_spark(spark, read)
    assert sorted(rows, key=in_order) == sorted(expected[0], key=in_order)
    assert sorted(invalid) == sorted(expected[1])
    assert len(rows) > 400


def test_deep_nesting_does_not_end_the_process() -> None:
    """
    A line of a million brackets is left to Spark, or ignored where nothing reads it.
    """
    deep = b"[" * 10**6 + b"]" * 10**6
    found = read_lines(text_of({"id": "1"}).encode()[:-1] + b',"other":' + deep + b"}\n", HOUR)
    assert len(rows_of(found)) + len(found.odd) == 1
    assert read_lines(b'{"v":' + deep + b"}\n", HOUR).odd
    assert read_lines(b'{"v":' + deep[: 10**6] + b"\n", HOUR).odd
