"""
What has been read: batches of whole hours, in the order of time, each with its files.

The newest hour is a batch of its own, because it may still be written to.  A
file that came late or grew takes its batch and all later ones back; they are
read again.  So the batches always are what one run over everything would read.

The sums of the questions lie in parts.  There is one for each batch at first;
older ones are merged, and those of many merged ones again, so that a year of
hourly runs is about a hundred parts.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

from msgnode.mining.pipeline.log_files import LogFile, Unreadable

FORMAT = 2  # of what lies in the output; 1 had no parts
MAX_PARTS = 48  # that were merged equally often; of more, all but the newest half become one
Unpacked = Callable[[LogFile], int]  # the length before it was compressed, of 2**32


@dataclass
class Batch:
    """
    Hours from `begin` to before `end`, counted since 1970; `files` has the size of each by its name.
    """

    number: int
    begin: int
    end: int
    files: dict[str, int]
    bad: int = 0
    lines: int = 0

    def is_of(self, found: dict[str, LogFile], unpacked: Unpacked, last: bool) -> bool:
        """
        Are the files that were read still what they were?  One that is gone or was only compressed is.
        """
        for name, size in self.files.items():
            file = found.get(_stem(name))
            if file is None:
                continue
            if file.name == name:
                same = file.size == size
            elif file.is_compressed:  # it may have grown before
                same = unpacked(file) == size % 2**32
            else:
                same = not last
            if not same:
                return False
        return True

    def rename(self, found: dict[str, LogFile]) -> None:
        """
        Know the files by the names and sizes that they have now, so that none is looked into twice.
        """
        now = [(found.get(_stem(name)), name, size) for name, size in self.files.items()]
        self.files = dict((file.name, file.size) if file else (name, size) for file, name, size in now)


@dataclass(frozen=True)
class Part:
    """
    The sums of all batches from the hour `begin` to before `end`; it was merged `level` times.
    """

    number: int
    begin: int
    end: int
    level: int = 0


@dataclass
class Checkpoint:
    """
    The batches, and the options that must stay what they are.
    """

    options: dict[str, str]
    format: int = FORMAT
    next: int = 1
    answered: int = 0  # what `next` was when the tables were written
    batches: list[Batch] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)

    def add(self, batch: Batch) -> None:
        """
        A batch was read, and summed up under its own number.
        """
        self.batches.append(batch)
        self.parts.append(Part(batch.number, batch.begin, batch.end))
        self.next = max(self.next, batch.number) + 1

    def before(self, hour: int) -> "tuple[Checkpoint, Part | None]":
        """
        What is left without the batches from this hour on, and the part that began before it, if one did.
        """
        batches = [batch for batch in self.batches if batch.end <= hour]
        parts = [part for part in self.parts if part.end <= hour]
        torn = [part for part in self.parts if part.begin < hour < part.end]
        return replace(self, batches=batches, parts=parts, answered=0), torn[0] if torn else None

    def crowd(self, most: int = MAX_PARTS) -> list[Part]:
        """
        The oldest parts that were merged equally often, if they are too many; the newest of them stay apart.

        With a run each hour a part has about as many hours as there are after it at
        least, so little is summed up again when a file comes late.
        """
        for level in sorted({part.level for part in self.parts}):
            equal = [part for part in self.parts if part.level == level]
            if len(equal) > most:
                return equal[: len(equal) - most // 2]
        return []

    def merge(self, crowd: list[Part]) -> Part:
        """
        One part for these, under the next number.
        """
        one = Part(self.next, crowd[0].begin, crowd[-1].end, crowd[0].level + 1)
        at = self.parts.index(crowd[0])
        self.parts[at : at + len(crowd)] = [one]
        self.next += 1
        return one

    def plan(
        self, files: list[LogFile], unpacked: Unpacked
    ) -> tuple[list[Batch], list[tuple[int, int, list[LogFile]]]]:
        """
        The batches that are taken back, and what is to be read: begin, end and files of each new batch.
        """
        found = {file.stem: file for file in files}
        kept = self._unchanged(found, unpacked)
        known = {_stem(name) for batch in kept for name in batch.files}
        fresh = [file for file in files if file.stem not in known]
        while kept and fresh and fresh[0].hour < kept[-1].end:
            kept.pop()
        gone = self.batches[len(kept) :]
        self._refuse_holes(gone, found)
        again = {_stem(name) for batch in gone for name in batch.files}
        return gone, _cut([file for file in files if file.stem in again or file.stem not in known])

    def _unchanged(self, found: dict[str, LogFile], unpacked: Unpacked) -> list[Batch]:
        kept: list[Batch] = []
        for batch in self.batches:
            if not batch.is_of(found, unpacked, batch is self.batches[-1]):
                break
            batch.rename(found)
            kept.append(batch)
        return kept

    def _refuse_holes(self, gone: list[Batch], found: dict[str, LogFile]) -> None:
        missing = sorted(name for batch in gone for name in batch.files if _stem(name) not in found)
        if missing:
            raise Unreadable(
                "a file came late or grew, so later hours must be read again, but "
                f"{missing[0]} and {len(missing) - 1} more are gone; "
                "put them back, or begin anew with --overwrite"
            )

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


def _cut(files: list[LogFile]) -> list[tuple[int, int, list[LogFile]]]:
    """
    The newest hour by itself, all before it together.
    """
    if not files:
        return []
    newest = files[-1].hour
    older = [file for file in files if file.hour < newest]
    cut = [(older[0].hour, newest, older)] if older else []
    return [*cut, (newest, newest + 1, [file for file in files if file.hour == newest])]


def _stem(name: str) -> str:
    return LogFile(name, "", 0).stem


def load(text: str) -> Checkpoint:
    """
    ValueError, KeyError or TypeError when it is not one.
    """
    table = json.loads(text)
    if table["format"] not in (1, FORMAT):  # what else is in it, only its own version knows
        return Checkpoint(table["options"], table["format"])
    batches = [Batch(**batch) for batch in table["batches"]]
    found = Checkpoint(table["options"], table["format"], table["next"], table["answered"], batches)
    if found.format == 1:
        found.format = FORMAT
        found.parts = [Part(batch.number, batch.begin, batch.end) for batch in batches]
    else:
        found.parts = [Part(**part) for part in table["parts"]]
    return found
