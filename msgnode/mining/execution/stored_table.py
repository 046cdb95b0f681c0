"""
A result that was written, and its rows if they are few.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from msgnode.mining.execution.gathering import Known, as_type
from msgnode.mining.execution.kept_plans import first


class StoredTable:
    """
    A table in the order in which it was written.

    `read` reads it; `values` are its rows, if this process has them, and then a head needs no execution.
    """

    def __init__(
        self,
        schema: StructType,
        read: Callable[[], DataFrame],
        values: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        self._schema = schema
        self._read = read
        self.values = values

    @cached_property
    def rows(self) -> DataFrame:
        return self._read()

    def head(self, most: int) -> DataFrame | Known:
        """
        A query for the first rows.
        """
        if self.values is None:
            return first(self.rows, most)
        return Known(as_type(values, self._schema) for values in self.values[:most])
