"""
The time axis of the report: equal steps of a minute, an hour or a day, none left out.

A short log is shown by minute, a long one by day.
"""

from datetime import UTC, datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

from msgnode.mining.analyses.columns import quotient
from msgnode.mining.execution.gathering import served
from msgnode.mining.execution.stored_table import StoredTable

MINUTE, HOUR, DAY = 60, 3600, 86_400
SHORT_SECONDS = 6 * HOUR  # up to here by minute
LONG_SECONDS = 45 * DAY  # beyond that by day
MAX_NODES = 100_000  # whose lines tell how long the log is
_SECOND = 1_000_000_000


class Steps:
    """
    The steps from `begin` to before `end`, both in seconds since 1970.

    `size` is the length of a step in seconds. A step is known by its number since 1970. Steps are equal that
    give the same `column`.
    """

    def __init__(self, begin: int, end: int, size: int = 0) -> None:
        span = end - begin
        self._end = end
        self.size = size or (MINUTE if span <= SHORT_SECONDS else HOUR if span <= LONG_SECONDS else DAY)
        self.first = begin // self.size
        self.number = max(1, -(-end // self.size) - self.first)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Steps) and (self.size, self.first) == (other.size, other.first)

    def __hash__(self) -> int:
        return hash((self.size, self.first))

    @property
    def unit(self) -> str:
        return {MINUTE: "minute", HOUR: "hour", DAY: "day"}[self.size]

    def labels(self) -> list[str]:
        """
        The name of each step; the date is left out where all have the same.
        """
        one_day = self.first * self.size // DAY == ((self.first + self.number) * self.size - 1) // DAY
        form = "%Y-%m-%d" if self.size == DAY else "%H:%M" if one_day else "%Y-%m-%d %H:%M"
        return [self.moment(at, form) for at in range(self.number)]

    def begin(self, at: int) -> int:
        """
        The beginning of a step, counted from the first, in seconds since 1970.
        """
        return (self.first + at) * self.size

    def end(self, before: int) -> int:
        """
        The end of the step before this one. The last step ends with the log: of a day it may be some hours.
        """
        return min(self.begin(before), self._end)

    def moment(self, at: int, form: str = "%Y-%m-%d %H:%M") -> str:
        """
        The beginning of a step in words.
        """
        return datetime.fromtimestamp(self.begin(at), UTC).strftime(form)

    def column(self) -> Column:
        """
        The step of a row with `time`, else with `date` and `hour`, counted from the first.
        """
        if self.size == MINUTE:
            return (quotient(F.col("time"), self.size * _SECOND) - self.first).cast("int")
        day = F.unix_date(F.to_date("date"))
        number = day if self.size == DAY else day * 24 + F.col("hour")
        return (number - self.first).cast("int")


def minutes_of(nodes: StoredTable, begin: int, end: int) -> tuple[int, int]:
    """
    The whole minutes that have all the lines of these nodes, in seconds since 1970; `begin` and `end` if
    there are none.
    """
    [found] = served([nodes.head(MAX_NODES)])
    if not found:
        return begin, end
    # The table has the minutes of the first and the last line.
    first, last = min(row["first"] for row in found), max(row["last"] for row in found)
    return first // _SECOND, last // _SECOND + MINUTE
