"""
Fewer rows for a grouping that costs much for each row: with texts to search, or structures to compare.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from msgnode.mining.execution.planning import in_one_partition

NONE: Mapping[str, Column] = {}


def with_fewer_rows(
    rows: DataFrame,
    keys: Sequence[Column | str],
    sums: Mapping[str, Column],
    least: Mapping[str, Column] = NONE,
    most: Mapping[str, Column] = NONE,
) -> DataFrame:
    """
    Those with the same keys become one row, with the sums, minima and maxima of these columns.

    The rows of a small log are left as they are, with these columns: one more grouping costs more there than
    it saves.
    """
    if in_one_partition(rows.sparkSession):
        values = {**sums, **least, **most}
        return rows.select(*keys, *[column.alias(name) for name, column in values.items()])
    found = [F.sum(column).alias(name) for name, column in sums.items()]
    found += [F.min(column).alias(name) for name, column in least.items()]
    found += [F.max(column).alias(name) for name, column in most.items()]
    return rows.groupBy(*keys).agg(*found)
