"""
Tables of a few rows, written as Parquet by this process: an execution of Spark for each would cost more.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
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


def parquet_of(rows: Sequence[dict[str, Any]], schema: StructType) -> bytes:
    """
    A Parquet file with these rows, of the types that Spark would write.
    """
    into = pa.BufferOutputStream()
    fields = [pa.field(field.name, _type_of(field.dataType)) for field in schema.fields]
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), into)
    return bytes(into.getvalue().to_pybytes())


def _type_of(type: DataType) -> Any:
    if isinstance(type, ArrayType):
        return pa.list_(_type_of(type.elementType))
    if isinstance(type, StructType):
        return pa.struct([pa.field(field.name, _type_of(field.dataType)) for field in type.fields])
    return _TYPES[type.__class__]
