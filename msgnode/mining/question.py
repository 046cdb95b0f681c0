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

Source = Literal["lines", "messages", "events", "exchanges", "lives", "decisions"]


@dataclass(frozen=True)
class Question:
    """
    `of` names the rows that `summarise` is given; `combine` is given what it kept of all batches.

    `shares` is another question whose kept rows answer this one too.
    """

    name: str
    of: Source
    summarise: Callable[[DataFrame], DataFrame]
    combine: Callable[[DataFrame], DataFrame]
    shares: str = ""

    @property
    def kept(self) -> str:
        return self.shares or self.name
