"""
Queries of Parquet files of this machine by DuckDB, which sorts and groups rows in less than half of the time
that Spark needs.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from errno import ENOSPC
from pathlib import Path
from typing import Any

import duckdb

# Bytes for sorting and grouping, or a quarter of the machine's; with more rows it uses the disk.
MAX_MEMORY = 2 * 2**30
_SETTINGS = {
    "preserve_insertion_order": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_IN_GLOB = str.maketrans({char: f"[{char}]" for char in "*?["})


class NotAnswered(Exception):
    """
    DuckDB cannot answer: Spark is to do it.
    """


@dataclass(frozen=True)
class StoredFiles:
    """
    Parquet files with the same value in some columns, which are not in the files.
    """

    files: Sequence[Path]
    values: Mapping[str, str | int]


@dataclass(frozen=True)
class StoredRows:
    """
    Rows in files. `columns` are types by name; columns that older files lack are null.
    """

    columns: Mapping[str, str]
    parts: Sequence[StoredFiles]


def store(
    query: str, tables: Mapping[str, StoredRows], into: Path, by: Sequence[str], spill: Path, threads: int
) -> None:
    """
    Store the rows of a query of these tables in a directory, by the values of the columns `by`. `spill` is a
    directory for rows that do not fit into memory. NotAnswered if that is not possible, OSError if there
    is no space left where it stores them.
    """
    if "\\" in str(into):  # DuckDB would take it for a slash
        raise NotAnswered(f"{into}: has a backslash")
    into.mkdir(parents=True, exist_ok=True)
    spill.mkdir(parents=True, exist_ok=True)
    threads = min(threads, os.cpu_count() or 1)
    with _connection(tables, {"threads": threads, "temp_directory": str(spill)}) as connection:
        connection.execute(
            f"COPY ({query}) TO {_text(str(into))} "
            f"(FORMAT parquet, COMPRESSION snappy, PARTITION_BY ({', '.join(by)}), OVERWRITE true)"
        )


def read(query: str, tables: Mapping[str, StoredRows]) -> Any:
    """
    The rows of a query of these tables, which are few, as a table of Arrow. NotAnswered if that is not
    possible.
    """
    with _connection(tables, {"threads": 1, "temp_directory": ""}) as connection:
        return connection.sql(query).to_arrow_table()


@contextmanager
def _connection(tables: Mapping[str, StoredRows], settings: Mapping[str, Any]) -> Iterator[Any]:
    try:
        memory = min(MAX_MEMORY, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4)
        config = {**_SETTINGS, "memory_limit": f"{memory}B", **settings}
        with closing(duckdb.connect(config=config)) as connection:
            connection.execute("SET enable_progress_bar = false")
            for name, rows in tables.items():
                connection.execute(f"CREATE VIEW {_name(name)} AS {_select(rows)}")
            yield connection
    except (duckdb.InterruptException, RuntimeError) as why:
        if "nterrupted" in str(why):  # its form of what a signal raises
            raise KeyboardInterrupt from why
        raise
    except duckdb.Error as why:
        if "No space left on device" in str(why):
            raise OSError(ENOSPC, "No space left on device") from why
        raise NotAnswered(str(why).partition("\n")[0]) from why


def _select(rows: StoredRows) -> str:
    columns = ", ".join(f"CAST(NULL AS {type}) AS {_name(name)}" for name, type in rows.columns.items())
    found = [f"SELECT {columns} WHERE FALSE"]
    for part in rows.parts:
        # A name may have characters of a pattern.
        files = ", ".join(_text(str(file).translate(_IN_GLOB)) for file in part.files)
        values = "".join(f", {_text(str(value))} AS {_name(name)}" for name, value in part.values.items())
        found.append(
            f"SELECT *{values} FROM read_parquet([{files}], union_by_name=true, hive_partitioning=false)"
        )
    # The types are those of the first.
    names = ", ".join(
        f"CAST({_name(name)} AS {type}) AS {_name(name)}" for name, type in rows.columns.items()
    )
    return f"SELECT {names} FROM ({' UNION ALL BY NAME '.join(found)})"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
