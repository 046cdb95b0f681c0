"""
Tables of a few rows, made by this process: an execution of Spark for each would cost more.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

_TYPES = {
    StringType: pa.string(),
    LongType: pa.int64(),
    IntegerType: pa.int32(),
    DoubleType: pa.float64(),
    BooleanType: pa.bool_(),
}


def table_of(rows: Sequence[dict[str, Any]], schema: StructType) -> pa.Table:
    """
    A table with these rows, of the types that Spark would write.
    """
    fields = [pa.field(field.name, _type_of(field.dataType)) for field in schema.fields]
    return pa.Table.from_pylist(rows, pa.schema(fields))


def parquet_of(table: pa.Table) -> bytes:
    """
    A Parquet file with the rows of a table, in one group, so that Spark reads them in their order.
    """
    into = pa.BufferOutputStream()
    pq.write_table(table, into, row_group_size=max(1, table.num_rows))
    return bytes(into.getvalue().to_pybytes())


def values_of(table: pa.Table) -> list[dict[str, Any]]:
    """
    The rows of a table, without what is null.
    """
    return [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]


def schema_of(schema: pa.Schema) -> StructType:
    """
    The schema of a table as Spark has it.
    """
    return from_arrow_schema(schema)


def _type_of(type: DataType) -> Any:
    if isinstance(type, ArrayType):
        return pa.list_(_type_of(type.elementType))
    if isinstance(type, StructType):
        return pa.struct([pa.field(field.name, _type_of(field.dataType)) for field in type.fields])
    return _TYPES[type.__class__]
