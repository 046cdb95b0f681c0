"""
Log files of this machine to Parquet files on it, by Arrow in a few threads.
"""

import gzip
import json
import os
import zlib
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from msgnode.mining.reading.arrow_lines import of_kinds, read_lines
from msgnode.mining.reading.log_files import LogFile, date, local_path
from msgnode.mining.reading.parse import MAX_LINE_CHARS

CHUNK_BYTES = 4 * 1024 * 1024  # of lines, which become rows together
MAX_CHUNK_BYTES = 16 * 1024 * 1024  # a file with a longer line is left to Spark
RANGE_BYTES = 64 * 1024 * 1024  # of a file that one thread reads, if it is not compressed
MAX_THREADS = 8
ROWS_OF_A_GROUP = 100_000  # of a Parquet file, which a thread has in memory for each kind
_BAD_FILE = (gzip.BadGzipFile, EOFError, zlib.error)


class LeftToSpark(Exception):
    """
    A file cannot be read here: Spark is to read it, or to say why it cannot be read.
    """


@dataclass(frozen=True)
class Places:
    """
    Directories: for valid `lines`, by kind and date; for `invalid` lines as JSON, each with its reason; and
    for copies of files with `odd` lines only, which are left to Spark.
    """

    lines: Path
    invalid: Path
    odd: Path


@dataclass
class Stored:
    """
    A result: the number of valid `lines` and of `bad` ones, and for each file with `odd` lines its copy. The
    directory of a copy is named after its place here.
    """

    lines: int = 0
    bad: int = 0
    odd: dict[LogFile, Path] = field(default_factory=dict)


class LocalFiles:
    """
    A store of the lines of log files.
    """

    def __init__(
        self,
        places: Places,
        unique: Iterable[str],
        threads: int,
        range_bytes: int = RANGE_BYTES,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._places = places
        self._unique = frozenset(unique)
        self._threads = min(threads, MAX_THREADS)
        self._range = range_bytes
        self._chunk = chunk_bytes
        self._stored = Stored()
        self._lock = Lock()
        self._writers: SimpleQueue[_Writers] = SimpleQueue()
        self._is_over = False

    def store(self, files: Iterable[tuple[LogFile, int]]) -> Stored:
        """
        Store the lines of each file from a byte on. LeftToSpark if a file cannot be read.
        """
        self._places.lines.mkdir(parents=True, exist_ok=True)
        pieces = [piece for file, first in files for piece in _pieces(file, first, self._range)]
        with ExitStack() as closing:
            numbers = count()
            for _ in range(min(self._threads, len(pieces))):
                self._writers.put(closing.enter_context(_Writers(self._places.lines, self._unique, numbers)))
            if len(pieces) < 2:
                for piece in pieces:
                    self._take(piece)
                return self._stored
            with ThreadPoolExecutor(self._threads) as threads:
                try:
                    for done in [threads.submit(self._take, piece) for piece in pieces]:
                        done.result()
                except BaseException:
                    self._is_over = True
                    threads.shutdown(cancel_futures=True)
                    raise
        return self._stored

    def _take(self, piece: "_Piece") -> None:
        writers = self._writers.get()
        try:
            lines = self._written(piece, writers)
        finally:
            self._writers.put(writers)
        with self._lock:
            self._stored.lines += lines

    def _written(self, piece: "_Piece", writers: "_Writers") -> int:
        lines, hour = 0, piece.file.hour
        for number, chunk in enumerate(piece.chunks(self._chunk)):
            if self._is_over:
                break
            if number == piece.begin == 0:
                chunk = chunk.removeprefix(BOM_UTF8)  # as Spark does
            read = read_lines(chunk, hour)
            if read.rows:
                for kind, rows in of_kinds(pa.concat_tables(read.rows)):
                    writers.write(kind, hour, rows)
                    lines += rows.num_rows
            if read.invalid:
                self._set_aside(piece.file, read.invalid)
            if read.odd:
                self._leave(piece.file, read.odd)
        return lines

    def _set_aside(self, file: LogFile, lines: list[tuple[bytes, str]]) -> None:
        with self._lock:
            self._places.invalid.mkdir(parents=True, exist_ok=True)
            with open(self._places.invalid / "part-00000.json", "a", encoding="utf-8") as aside:
                for line, why in lines:
                    text = line.decode().rstrip("\n")[:MAX_LINE_CHARS]
                    told = {"path": file.path, "why": why, "text": text}
                    print(json.dumps(told, ensure_ascii=False), file=aside)
            self._stored.bad += len(lines)

    def _leave(self, file: LogFile, lines: list[bytes]) -> None:
        """
        Add odd lines to the copy of their file.
        """
        with self._lock:
            copy = self._stored.odd.get(file)
            if copy is None:
                copy = self._places.odd / str(len(self._stored.odd)) / f"{file.stem}.jsonl"
                copy.parent.mkdir(parents=True)
                self._stored.odd[file] = copy
            with open(copy, "ab") as end:  # there may be more of them than a process can have open
                end.writelines(lines)


@dataclass(frozen=True)
class _Piece:
    """
    The lines of a file that begin from one byte to before another. `first` is where any of them may begin.
    """

    file: LogFile
    first: int
    begin: int
    end: int

    def chunks(self, size: int) -> Iterator[bytes]:
        """
        The lines, about `size` bytes at a time.
        """
        path = local_path(self.file.path)
        try:
            if not os.path.isfile(path):  # a pipe would have no end
                raise LeftToSpark(f"{path} is no file")
            if self.file.is_compressed:
                with gzip.open(path) as packed:
                    yield from _chunks(packed, None, size)
                return
            with open(path, "rb") as file:
                begin = self.begin if self.begin == self.first else _next_line(file, self.begin)
                end = self.end if self.end == self.file.size else _next_line(file, self.end)
                file.seek(begin)
                yield from _chunks(file, min(end, self.file.size) - begin, size)
        except (OSError, *_BAD_FILE) as why:
            raise LeftToSpark(str(why)) from why


def _pieces(file: LogFile, first: int, size: int) -> list[_Piece]:
    if file.is_compressed:
        return [_Piece(file, first, first, file.size)] if file.size else []
    begins = range(first, file.size, size)
    return [_Piece(file, first, begin, min(begin + size, file.size)) for begin in begins]


def _next_line(file: IO[bytes], at: int) -> int:
    """
    The first byte from `at` on that begins a line.
    """
    file.seek(at - 1)
    rest = file.readline(MAX_CHUNK_BYTES)
    if len(rest) == MAX_CHUNK_BYTES:
        raise LeftToSpark("a line is too long")
    return at - 1 + len(rest)


def _chunks(file: Any, left: int | None, size: int) -> Iterator[bytes]:
    """
    The bytes that are `left` of a file, or all, in chunks of whole lines of about `size` bytes.
    """
    rest = b""
    while left is None or left > 0:
        read = file.read(size if left is None else min(size, left))
        if not read:
            break
        if left is not None:
            left -= len(read)
        rest += read
        end = rest.rfind(b"\n") + 1
        if end:
            yield rest[:end]
            rest = rest[end:]
        elif len(rest) > MAX_CHUNK_BYTES:
            raise LeftToSpark("a line is too long")
    if rest:
        yield rest + b"\n"


class _Writers:
    """
    The Parquet files that one thread writes, one for each kind of a day.
    """

    def __init__(self, directory: Path, unique: frozenset[str], numbers: Iterator[int]) -> None:
        self._directory = directory
        self._unique = unique
        self._numbers = numbers
        self._day = 0
        self._open: dict[str, pq.ParquetWriter] = {}
        self._waiting: dict[str, list[pa.Table]] = defaultdict(list)

    def __enter__(self) -> "_Writers":
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        self._close(complete=failure is None)

    def write(self, kind: str, hour: int, rows: pa.Table) -> None:
        # Files come in the order of time: there are never more open than a day has kinds.
        if hour // 24 != self._day:
            self._close()
            self._day = hour // 24
        waiting = self._waiting[kind]
        waiting.append(rows)
        if sum(each.num_rows for each in waiting) >= ROWS_OF_A_GROUP:
            self._write(kind)

    def _close(self, complete: bool = True) -> None:
        with ExitStack() as closing:
            closing.callback(self._waiting.clear)
            closing.callback(self._open.clear)
            closing.callback(self._end)
            for kind in list(self._waiting) if complete else ():
                self._write(kind)

    def _end(self) -> None:
        with ExitStack() as closing:
            for writer in self._open.values():
                closing.callback(writer.close)

    def _write(self, kind: str) -> None:
        rows = pa.concat_tables(self._waiting.pop(kind))
        if kind not in self._open:
            self._open[kind] = self._begun(kind, rows.schema)
        self._open[kind].write_table(rows, row_group_size=2 * ROWS_OF_A_GROUP)

    def _begun(self, kind: str, schema: pa.Schema) -> pq.ParquetWriter:
        place = self._directory / f"kind={kind}" / f"date={date(self._day * 24)}"
        place.mkdir(parents=True, exist_ok=True)
        plain = [name for name in schema.names if name not in self._unique]
        name = f"part-{next(self._numbers):05d}.snappy.parquet"
        return pq.ParquetWriter(place / name, schema, compression="snappy", use_dictionary=plain)
