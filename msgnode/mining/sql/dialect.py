"""
SQL that is written once for two engines: Spark, and DuckDB, which takes stored rows of this machine.

A dialect has the parts that the engines write in different ways.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from msgnode.mining.analyses.columns import HOUR_NANOSECONDS

_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"


def in_lower_case(column: str) -> str:
    """
    A text with the letters of ASCII in lower case: of others, engines have different ideas.
    """
    return f"translate({column}, '{_UPPER}', '{_LOWER}')"


@dataclass(frozen=True)
class Dialect:
    """
    A dialect of SQL. The fields are what to write in it, with `{}` for what is written about.
    """

    name: str  # of a column that may be a word of SQL
    origin: str  # an address without its path: it has the same domain and destination, and there are few
    quotient: str  # the integer quotient, cut off
    struct: str
    field: str  # of a struct: its name, and its value
    row_before: str  # as the end of a frame
    date: str  # of a number of days since 1970, as 2026-07-31
    each: str  # a row for each element of an array
    set: str  # of all values but null, in order
    with_one: str  # such a set, with one more value
    decoded: str  # the text of hexadecimal digits

    def named(self, column: str) -> str:
        return self.name.format(column)

    def text(self, value: str) -> str:
        """
        Any text as a literal. Engines differ in what they escape, so it is written in hexadecimal digits.
        """
        return self.decoded.format(value.encode("utf-8", "replace").hex())

    def struct_of(self, fields: Mapping[str, str]) -> str:
        """
        A struct with these values by name.
        """
        return self.struct.format(", ".join(self.field.format(*field) for field in fields.items()))

    def day(self, nanoseconds: str) -> str:
        """
        The date in UTC.
        """
        return self.date.format(self.quotient.format(nanoseconds, 24 * HOUR_NANOSECONDS))

    def hour(self, nanoseconds: str) -> str:
        """
        The hour of the day in UTC, 0 to 23.
        """
        return f"CAST({self.quotient.format(nanoseconds, HOUR_NANOSECONDS)} % 24 AS INT)"


SPARK = Dialect(
    name="`{}`",
    origin="substring_index({}, '/', 3)",
    quotient="(({}) DIV {})",
    struct="named_struct({})",
    field="'{}', {}",
    row_before="-1 FOLLOWING",  # a constant; the other form is an expression, which planning does not fold
    date="date_format(date_from_unix_date(CAST({} AS INT)), 'yyyy-MM-dd')",
    each="explode({})",
    set="sort_array(collect_set({}))",
    with_one="sort_array(array_compact(array_union({}, array({}))))",
    decoded="decode(unhex('{}'), 'utf-8')",
)
DUCKDB = Dialect(
    name='"{}"',
    origin="regexp_extract({}, '^[^/]*/?[^/]*/?[^/]*')",
    quotient="(({}) // {})",
    struct="{{{}}}",
    field="'{}': {}",
    row_before="1 PRECEDING",
    date="strftime(DATE '1970-01-01' + CAST({} AS INTEGER), '%Y-%m-%d')",
    each="unnest({})",
    set="list_sort(list_distinct(list({})))",
    with_one="list_sort(list_distinct(list_append({}, {})))",
    decoded="decode(unhex('{}'))",
)
