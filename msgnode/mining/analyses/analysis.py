"""
A question: what is kept of each batch of hours, and what the kept rows answer together.

What is kept must add up: however the log was cut into batches, `combine`
sees the same sums.  That is why one run over everything and many small runs
give the same figures.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

Transform = Callable[[DataFrame], DataFrame]
Source = Literal["lines", "messages", "events", "exchanges", "lives", "decisions"]


@dataclass(frozen=True)
class Analysis:
    """
    One question to the traffic log, and how the answers of several batches are combined.

    `of` names the rows that `summarise` is given; `combine` is given what it kept of all batches.

    `fold` makes the kept rows of several batches those of one, so that they do not grow with the number
    of runs; without it they are only put into one file.
    `shares` is another question whose kept rows answer this one too.
    """

    name: str
    of: Source
    summarise: Transform
    combine: Transform
    fold: Transform | None = None
    shares: str = ""

    @property
    def kept(self) -> str:
        return self.shares or self.name


def adding(*sums: str, least: str = "", most: str = "") -> Transform:
    """
    A fold that adds up these columns, keeps the least of one and the most of another, and groups by the rest.
    """

    def fold(parts: DataFrame) -> DataFrame:
        totals = [F.sum(name).alias(name) for name in sums]
        totals += [F.min(least).alias(least)] if least else []
        totals += [F.max(most).alias(most)] if most else []
        keys = [name for name in parts.columns if name not in (*sums, least, most)]
        return parts.groupBy(*keys).agg(*totals)

    return fold
