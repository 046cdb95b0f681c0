"""
Lines of the log as Arrow tables, several times faster than Spark parses them.

Arrow takes lines as a node writes them. A line that is certainly invalid is set aside with the reason that
`parse` would give. Whatever else a line may be (of other types, or only written in another way) is odd: it is
left to `parse`, the authority for what is valid.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType

from msgnode.mining.reading.parse import LACKING, MOST, NO_JSON, OTHER_HOUR
from msgnode.mining.reading.schema import KINDS, TRAFFIC, VERSIONS

FEW_LINES = 16  # among so many, the lines that Arrow does not take are looked for one by one
MAX_FAILED = 64  # times that Arrow is asked in vain about a chunk; what is left then is left to Spark
MAX_INVALID = 1000  # rows of a chunk that are set aside here; if there are more, they are left to Spark
_HOUR_NANOSECONDS = 3600 * 1_000_000_000
_TYPES = {
    StringType(): pa.string(),
    LongType(): pa.int64(),
    IntegerType(): pa.int32(),
    ArrayType(StringType()): pa.list_(pa.string()),
}
# Numbers, or texts: Arrow takes one type for a chunk, and a number is to be kept as it is written.
_NAMES = ("id", "transaction")
_NUMBER = {name: re.compile(rb'("%s":)(-?[1-9]\d{0,399}|0)(?=[,}])' % name.encode()) for name in _NAMES}
_LONG = {name: re.compile(rb'"%s":-?\d{19}' % name.encode()) for name in _NAMES}  # perhaps above 64 bits
_NAME, _TEXT = ({name: b'"%s":%s' % (name.encode(), quote) for name in _NAMES} for quote in (b"", b'"'))
_EMPTY = re.compile(rb"\n{2,}")
_NULL = re.compile(rb"\}[ \t]*null")  # instead of an object: there Arrow 26 ends the process
_FIELDS = [pa.field(field.name, _TYPES[field.dataType]) for field in TRAFFIC.fields]
_STORED = pa.schema([*_FIELDS, pa.field("hour", pa.int32())])
_REQUIRED = {"message": ("outcome",), "session": ("event", "session")}


@dataclass
class Read:
    """
    A result: valid rows with the columns of a line and the `hour` of the day, invalid lines, each with the
    reason, and odd lines.
    """

    rows: list[pa.Table] = field(default_factory=list)
    invalid: list[tuple[bytes, str]] = field(default_factory=list)
    odd: list[bytes] = field(default_factory=list)


def read_lines(chunk: bytes, hour: int) -> Read:
    """
    Read a chunk, which ends with the end of a line. `hour` is that of the file, since 1970.
    """
    found, failed = Read(), 0
    if b"\n\n" in chunk:  # to look for a text is ten times as fast as for an expression
        chunk = _EMPTY.sub(b"\n", chunk)
    waiting = [chunk.removeprefix(b"\n")]
    while waiting:
        lines = waiting.pop()
        rows = _parsed(lines) if failed < MAX_FAILED else None
        number = lines.count(b"\n")
        if rows is not None:
            _judge(rows, lines, hour, found)
            continue
        failed += 1
        if number == 1:
            _set_aside(lines, found)
        elif failed > MAX_FAILED:
            found.odd.append(lines)
        elif number > FEW_LINES:
            waiting += reversed(_halves(lines))
        else:
            waiting += [line + b"\n" for line in reversed(lines.split(b"\n")[:-1])]
    return found


def _set_aside(line: bytes, found: Read) -> None:
    why = certainly_no_json(line)
    if why is None:
        found.odd.append(line)
    elif why:
        found.invalid.append((line, why))


def _judge(rows: pa.Table, lines: bytes, hour: int, found: Read) -> None:
    good = _is_valid(rows, hour)
    if not pc.all(good).as_py():
        each = lines.splitlines(keepends=True)
        places = pc.indices_nonzero(pc.invert(good))
        if len(found.invalid) + len(places) > MAX_INVALID:
            found.odd += [each[at] for at in places.to_pylist()]
        else:
            reasons = map(_why, rows.take(places).to_pylist())
            found.invalid += [(each[at], why) for at, why in zip(places.to_pylist(), reasons, strict=True)]
        rows = rows.filter(good)
    found.rows.append(_as_stored(rows, hour))


def certainly_no_json(line: bytes) -> str | None:
    """
    The reason why a line is no JSON of the log, if that is certain: it does not begin as an object, or ends
    before it. "" for an empty line, which does not count; None if the line may be valid.
    """
    if b"\r" in line or not _is_utf8(line):
        return None
    text = line.decode().rstrip("\n").strip(" ")
    if not text:
        return ""
    if not text.startswith("{"):
        return NO_JSON
    try:
        json.loads(text)
    except json.JSONDecodeError as why:
        # Up to its end the text is JSON.
        is_cut = why.pos == len(text) or why.msg.startswith("Unterminated string")
        return NO_JSON if is_cut else None
    except (ValueError, RecursionError):
        return None
    return None


def _why(row: dict[str, Any]) -> str:
    """
    The reason why a row is invalid, as `parse` gives it.
    """
    if row["v"] is None:
        return "no version"
    if row["v"] not in VERSIONS:
        return f"version {row['v']}"
    if row["kind"] is None:
        return "no kind"
    if row["time"] is None or row["node"] is None:
        return "without time or node"
    for kind, names in _REQUIRED.items():
        if row["kind"] == kind and any(row[name] is None for name in names):
            return LACKING[kind]
    for name, most in MOST.items():
        if not 0 <= (row[name] or 0) <= most:
            return f"{name} out of range"
    return OTHER_HOUR


def of_kinds(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """
    The rows of each kind, without that column. Lines of other kinds are skipped.
    """
    for kind in KINDS:
        some = rows.filter(pc.equal(rows["kind"], kind))
        if some.num_rows:
            yield kind, some.drop_columns(["kind"])


def _parsed(lines: bytes) -> pa.Table | None:
    """
    A row for each line; None if Arrow does not take each of them as one object.
    """
    number = lines.count(b"\n")
    # A break is no part of a JSON text, so a chunk that Arrow takes has no object across two lines.
    if lines.count(b"}\n{") != number - 1 or not (lines.startswith(b"{") and lines.endswith(b"}\n")):
        return None
    if b"\r" in lines or (b"null" in lines and _NULL.search(lines)) or not _is_utf8(lines):
        return None
    types = {}
    for name in _NAMES:
        if _NAME[name] not in lines or _NUMBER[name].search(lines) is None:
            continue
        if _TEXT[name] in lines or _LONG[name].search(lines):
            lines = _quoted(lines, name)
        else:
            types[name] = pa.int64()
    fields = [field.with_type(types.get(field.name, field.type)) for field in _FIELDS]
    options = pj.ParseOptions(pa.schema(fields), unexpected_field_behavior="ignore")
    try:
        rows = pj.read_json(
            pa.BufferReader(lines), pj.ReadOptions(use_threads=False, block_size=len(lines) + 1), options
        )
    except pa.ArrowInvalid:
        return None
    return rows if rows.num_rows == number else None


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _quoted(lines: bytes, name: str) -> bytes:
    """
    The lines with numbers of this name as texts. A name in a text has a backslash before its quotes.
    """
    parts = _NUMBER[name].split(lines)
    parts[2::3] = [b'"%s"' % number for number in parts[2::3]]
    return b"".join(parts)


def _halves(lines: bytes) -> list[bytes]:
    """
    Two halves of several lines.
    """
    # From the middle on, or before it if the rest is one line.
    end = lines.find(b"\n", len(lines) // 2, -1) + 1 or lines.rfind(b"\n", 0, len(lines) // 2) + 1
    return [lines[:end], lines[end:]]


def _is_valid(rows: pa.Table, hour: int) -> pa.ChunkedArray:
    """
    For each row, is it valid in the sense of `parse`?
    """
    time, kind = rows["time"], rows["kind"]
    good = pc.is_in(rows["v"], value_set=pa.array(VERSIONS, pa.int32()))
    within = pc.and_(
        pc.greater_equal(time, hour * _HOUR_NANOSECONDS), pc.less(time, (hour + 1) * _HOUR_NANOSECONDS)
    )
    good = pc.and_(good, pc.fill_null(within, False))
    good = pc.and_(good, pc.and_(pc.is_valid(kind), pc.is_valid(rows["node"])))
    for of, names in _REQUIRED.items():
        other = pc.fill_null(pc.not_equal(kind, of), True)
        for name in names:
            good = pc.and_(good, pc.or_(other, pc.is_valid(rows[name])))
    for name, most in MOST.items():
        limit = pa.scalar(min(most, 2**31 - 1) if rows[name].type == pa.int32() else most, rows[name].type)
        between = pc.and_(pc.greater_equal(rows[name], 0), pc.less_equal(rows[name], limit))
        good = pc.and_(good, pc.fill_null(between, True))
    return good


def _as_stored(rows: pa.Table, hour: int) -> pa.Table:
    hours = pa.array([hour % 24], pa.int32()).take(pa.array([0] * rows.num_rows, pa.int32()))
    return rows.append_column("hour", hours).cast(_STORED)
