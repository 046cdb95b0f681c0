"""
The stored rows of batches, as files of this machine for DuckDB.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.sql.types import ArrayType, DataType, StructType

from msgnode.mining.local.query import NotAnswered, StoredFiles, StoredRows
from msgnode.mining.reading.log_files import date


def local_rows(place: Path, numbers: list[int], schema: StructType, since: int, **values: str) -> StoredRows:
    """
    The rows of these batches, or pieces of batches, in a directory, from the hour `since` on; `values` are
    those of columns that divide them into directories. NotAnswered if a directory cannot be listed.
    """
    first = date(since) if since else ""
    try:
        found = [
            part
            for number in numbers
            for part in _parts(place / f"batch={number}", {"batch": number})
            if part.files
            and str(part.values["date"]) >= first
            and all(part.values[name] == value for name, value in values.items())
        ]
    except OSError as why:
        raise NotAnswered(str(why)) from why
    return StoredRows({field.name: type_name(field.dataType) for field in schema.fields}, found)


def _parts(directory: Path, values: Mapping[str, str | int]) -> Iterator[StoredFiles]:
    with os.scandir(directory) as entries:
        inside = sorted(entries, key=lambda entry: entry.name)
    files = [Path(entry.path) for entry in inside if entry.is_file() and _has_rows(entry.name)]
    yield StoredFiles(files, {"date": "", **values})
    for entry in inside:
        name, equals, value = entry.name.partition("=")
        if equals and entry.is_dir():
            yield from _parts(Path(entry.path), {**values, name: value})


def _has_rows(name: str) -> bool:
    return name.endswith(".parquet") and not name.startswith((".", "_"))


def type_name(type: DataType) -> str:
    """
    A type of Spark as DuckDB writes it.
    """
    if isinstance(type, ArrayType):
        return f"{type_name(type.elementType)}[]"
    if isinstance(type, StructType):
        fields = (f'"{field.name}" {type_name(field.dataType)}' for field in type.fields)
        return f"STRUCT({', '.join(fields)})"
    return type.simpleString()
