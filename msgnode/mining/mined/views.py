"""
A mined directory in SQL: its tables, and the stored rows that the checkpoint names, as views to select from.

The views are in a session of their own, whose names may be written in upper or lower case. Nothing can be
changed: a query is a SELECT.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from msgnode.mining.reading.log_files import Unreadable

_WORD = re.compile(r"\w+")
_COMMENT = re.compile(r"\s*(?:--[^\n]*\n|/\*.*?\*/)", re.DOTALL)
_BEGINS = re.compile(r"[\s(]*(select|with|values|from)\b", re.IGNORECASE)
# A subquery, so that only a SELECT can be parsed.
_WHOLE = "SELECT * FROM (\n{}\n)"
_PLACE = re.compile(r"\(line (\d+), (pos|position) (\d+)\)")
_STATE = re.compile(r"\s*SQLSTATE: .*", re.DOTALL)
_CLASS = re.compile(r"^\s*\[[A-Z_.0-9]+\]\s*")
_SENTENCE = re.compile(r"\.\s+(?=[A-Z])")
_NAME = re.compile(r"`([^`]*)`")

Read = Callable[[], DataFrame]


@dataclass(frozen=True)
class View:
    """
    The name of a view, and the names and types of its columns.
    """

    name: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Answer:
    """
    The rows of a query: at most as many as asked for, and how many more there are.
    """

    columns: tuple[tuple[str, str], ...]
    rows: list[tuple[Any, ...]]
    more: int


def session_for_views(spark: SparkSession) -> SparkSession:
    """
    A session with names and settings of its own, in the same Spark.
    """
    own = spark.newSession()
    for name, value in (("caseSensitive", "false"), ("session.timeZone", "UTC")):
        own.conf.set(f"spark.sql.{name}", value)
    return own


class Views:
    """
    The views of a mined directory. `reads` reads each of them, by name, in this session.
    """

    def __init__(self, spark: SparkSession, reads: dict[str, Read], where: str) -> None:
        self._spark = spark
        self._reads = reads
        self._where = where

    def listed(self) -> list[View]:
        """
        All views with their columns.
        """
        return [View(name, _columns(read())) for name, read in sorted(self._reads.items())]

    def select(self, query: str, limit: int) -> Answer:
        """
        The first rows of a query, 0 for all of them. Unreadable, in words, if it is wrong or fails.
        """
        try:
            rows = self._rows(query)
            if not limit:
                return Answer(_columns(rows), list(map(tuple, rows.collect())), 0)
            found = [tuple(row) for row in rows.take(limit + 1)]
            more = rows.count() - limit if len(found) > limit else 0
            return Answer(_columns(rows), found[:limit], more)
        except PySparkException as why:
            raise Unreadable(self._words(why)) from why

    def stream(self, query: str) -> tuple[tuple[tuple[str, str], ...], Iterable[tuple[Any, ...]]]:
        """
        The columns of a query, and all its rows one after the other; only a part of them is in memory.
        """
        try:
            rows = self._rows(query)
            return _columns(rows), self._told(rows)
        except PySparkException as why:
            raise Unreadable(self._words(why)) from why

    def _told(self, rows: DataFrame) -> Iterable[tuple[Any, ...]]:
        try:
            yield from map(tuple, rows.toLocalIterator())
        except PySparkException as why:
            raise Unreadable(self._words(why)) from why

    def _rows(self, query: str) -> DataFrame:
        query = query.strip().rstrip(";").rstrip()
        bare = query
        while comment := _COMMENT.match(bare):
            bare = bare[comment.end() :]
        if not _BEGINS.match(bare):
            raise Unreadable(
                "a query begins with SELECT or WITH; nothing else can be done to a mined directory"
            )
        words = {word.lower() for word in _WORD.findall(query)}
        for name, read in self._reads.items():
            if name.lower() in words:
                read().createOrReplaceTempView(name)
        return self._spark.sql(_WHOLE.format(query))

    def _words(self, why: PySparkException) -> str:
        """
        An error of Spark in words, without classes, plans and traces.
        """
        kind, given = why.getCondition() or "", why.getMessageParameters() or {}
        if kind == "TABLE_OR_VIEW_NOT_FOUND":
            return self._no_view(_plain(given["relationName"]))
        if kind.startswith("UNRESOLVED_COLUMN"):
            near = f"; near are: {_plain(given['proposal'])}" if given.get("proposal") else ""
            return f"there is no column {_plain(given['objectName'])}{near}"
        if kind == "UNRESOLVED_ROUTINE":
            return f"there is no function {_plain(given['routineName'])}"
        if kind == "AMBIGUOUS_REFERENCE":
            return f"{_plain(given['name'])} is a column of several views: write VIEW.{_plain(given['name'])}"
        if kind.startswith(("FAILED_READ_FILE", "PATH_NOT_FOUND")):
            return f"{self._where}: a run has replaced the tables while they were read; ask again"
        return f"the query failed: {_first_sentence(str(why))}"

    def _no_view(self, name: str) -> str:
        near = get_close_matches(name.lower(), self._reads, 1, 0.7)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(self._reads))}"
        return f"there is no view {name}; {hint}"


def _columns(rows: DataFrame) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, field.dataType.simpleString()) for field in rows.schema.fields)


def _first_sentence(text: str) -> str:
    """
    The first sentence of an error, and its place in the query; Spark counts characters from 0 or from 1.
    """
    text = text.strip()
    first = _SENTENCE.split(_CLASS.sub("", _STATE.sub("", text.partition("\n")[0])))[0].rstrip(". ")
    if first.startswith("Syntax error at or near end of input"):
        return "it ends too early"
    place = _PLACE.search(text)
    if not place:
        return first[:1].lower() + first[1:]
    line, character = int(place[1]) - 1, int(place[3]) + (place[2] == "pos")
    return f"{first[:1].lower()}{first[1:]}, at line {line}, character {character}"


def _plain(text: str) -> str:
    """
    Names without quotes.
    """
    return _NAME.sub(r"\1", text)
