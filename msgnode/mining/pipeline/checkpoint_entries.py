"""
The entries of a checkpoint: batches of log files, what was appended to files, parts, and the plan of a run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from msgnode.mining.reading.log_files import LogFile

_GZIP_FACTOR = 10  # times the size of a compressed file is about that of the log
Unpacked = Callable[[LogFile], int]  # the uncompressed length modulo 2**32


@dataclass
class Batch:
    """
    A batch: the hours from `begin` to before `end`, counted since 1970. `files` has the size of each file by
    name.

    Its lines are stored under the numbers in `pieces`: one more for each time its files had grown. All else
    is stored under `number`.
    """

    number: int
    begin: int
    end: int
    files: dict[str, int]
    bad: int = 0
    lines: int = 0
    pieces: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pieces = self.pieces or [self.number]

    @property
    def bytes(self) -> int:
        """
        About the size of its files in bytes, uncompressed.
        """
        return sum(size * (_GZIP_FACTOR if name.endswith(".gz") else 1) for name, size in self.files.items())

    @property
    def day(self) -> int:
        return self.begin // 24

    def tails(self, found: dict[str, LogFile]) -> "list[Tail] | None":
        """
        The ends that were appended to its files since; None if they changed in another way.
        """
        tails = []
        for name, size in self.files.items():
            file = found.get(stem_of(name))
            if file is None or (file.name == name and file.size == size):
                continue
            if file.name != name or file.is_compressed or file.size < size:
                return None
            tails.append(Tail(file, size))
        return tails

    def is_of(self, found: dict[str, LogFile], unpacked: Unpacked, last: bool) -> bool:
        """
        Are the files unchanged? A file that was deleted or only compressed counts as unchanged.
        """
        for name, size in self.files.items():
            file = found.get(stem_of(name))
            if file is None:
                continue
            if file.name == name:
                same = file.size == size
            elif file.is_compressed:  # it may have grown before it was compressed
                same = unpacked(file) == size % 2**32
            else:
                same = not last
            if not same:
                return False
        return True

    def rename(self, found: dict[str, LogFile]) -> None:
        """
        Record the present names and sizes of the files, so that none is examined again.
        """
        now = [(found.get(stem_of(name)), name, size) for name, size in self.files.items()]
        self.files = dict((file.name, file.size) if file else (name, size) for file, name, size in now)


@dataclass(frozen=True)
class Tail:
    """
    The end of a file that was appended to it: its bytes from `begin` on.
    """

    file: LogFile
    begin: int


@dataclass(frozen=True)
class Plan:
    """
    The plan of a run: the batches to discard, what was appended to the newest batch that is kept, and the
    batches to read, each with begin, end and files.
    """

    gone: list[Batch]
    tails: list[Tail]
    fresh: list[tuple[int, int, list[LogFile]]]

    @property
    def is_empty(self) -> bool:
        return not self.tails and not self.fresh


@dataclass(frozen=True)
class Part:
    """
    The summaries of all batches from the hour `begin` to before `end`; it was merged `level` times.
    """

    number: int
    begin: int
    end: int
    level: int = 0


def stem_of(name: str) -> str:
    """
    The name of a log file without suffixes.
    """
    return LogFile(name, "", 0).stem


def hour_of(name: str) -> int:
    """
    The hour of a log file, since 1970.
    """
    return LogFile(name, "", 0).hour
