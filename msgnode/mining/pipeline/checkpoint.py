"""
The checkpoint: which files were read, in batches of whole hours in the order of time.

The newest hour is a batch of its own, because its file may still grow. If a file came late or grew, its batch
and all later ones are discarded and read again. So the batches always equal those of one run over everything.

The summaries of the analyses are in parts, each of several batches; older parts are merged, and merged parts
are merged again, so that a year of hourly runs has less than a hundred parts. The batches of a day are merged
into one when the day is over.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

from msgnode.mining.pipeline.checkpoint_entries import Batch, Part, Plan, Tail, Unpacked, hour_of, stem_of
from msgnode.mining.reading.log_files import LogFile, Unreadable

FORMAT = 3  # version of the output; version 2 stored rows by hour
MAX_PARTS = 48  # of the same level; beyond that, all but the newest half are merged
MAX_TAIL = 12  # batches without a part; each analysis summarises them in every run
MAX_TAIL_BYTES = 64 * 1024 * 1024  # of the log, in those batches
OPEN_DAYS = 2  # the last days, whose batches are not merged: a late file should invalidate little


@dataclass
class Checkpoint:
    """
    The state of the output: batches, parts, and the options that must not change.

    Hours before `since` were removed. `versions` are those of the Delta tables. The newest batches have no
    part: they are the `tail`.
    """

    options: dict[str, str]
    format: int = FORMAT
    next: int = 1
    answered: int = 0  # the value of `next` when the tables were written
    batches: list[Batch] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    since: int = 0
    versions: dict[str, int] = field(default_factory=dict)

    def add(self, batch: Batch) -> None:
        """
        Add a batch that was read.
        """
        self.batches.append(batch)
        self.next = max(self.next, batch.number) + 1

    def replace_batches(self, some: list[Batch], one: Batch) -> None:
        """
        Replace batches that follow each other by one, which has the next number.
        """
        at = self.batches.index(some[0])
        self.batches[at : at + len(some)] = [one]
        self.next = max(self.next, one.number) + 1

    @property
    def tail(self) -> list[Batch]:
        """
        The batches without a part; the newest one, which may grow, is always among them.
        """
        end = self.parts[-1].end if self.parts else 0
        return [batch for batch in self.batches if batch.begin >= end]

    def batches_to_sum_up(self, most: int = MAX_TAIL) -> list[Batch]:
        """
        The tail without the newest batch, if it has become too long or too large; else nothing.
        """
        tail = self.tail[:-1]
        too_large = sum(batch.bytes for batch in tail) > MAX_TAIL_BYTES
        return tail if too_large or len(tail) >= most else []

    def sum_up(self, batches: list[Batch]) -> None:
        """
        Add the part of these batches, which has the next number.
        """
        self.parts.append(Part(self.next, batches[0].begin, batches[-1].end))
        self.next += 1

    def batches_to_merge(self) -> list[Batch]:
        """
        The batches of a day that is over and of one part, if there are several.
        """
        over = [batch for batch in self.batches[:-1] if batch.day <= self.batches[-1].day - OPEN_DAYS]
        ends = {part.end for part in self.parts}
        group: list[Batch] = []
        for batch in over:
            if group and (batch.day != group[0].day or batch.begin in ends):
                if len(group) > 1:
                    return group
                group = []
            if batch.day == (batch.end - 1) // 24:
                group.append(batch)
        return group if len(group) > 1 else []

    def forget(self, since: int) -> list[Batch]:
        """
        Remove the hours before this one. Returns the batches that extend across it, which begin there now.
        """
        self.since = since
        self.batches = [batch for batch in self.batches if batch.end > since]
        torn = [batch for batch in self.batches if batch.begin < since]
        for batch in torn:
            batch.begin = since
            batch.files = {name: size for name, size in batch.files.items() if hour_of(name) >= since}
        self.parts = [part for part in self.parts if part.end > since]
        return torn

    def before(self, hour: int) -> "tuple[Checkpoint, Part | None]":
        """
        The checkpoint without the batches from this hour on, and the part that extends across the hour, or
        None.
        """
        batches = [batch for batch in self.batches if batch.end <= hour]
        parts = [part for part in self.parts if part.end <= hour]
        torn = [part for part in self.parts if part.begin < hour < part.end]
        return replace(self, batches=batches, parts=parts, answered=0), torn[0] if torn else None

    def parts_to_merge(self, most: int = MAX_PARTS) -> list[Part]:
        """
        The oldest parts of a level, if there are too many; the newest of them stay separate.

        With a run each hour, a part has at most about as many hours as there are after it, so little must be
        summarised again when a file comes late.
        """
        for level in sorted({part.level for part in self.parts}):
            equal = [part for part in self.parts if part.level == level]
            if len(equal) > most:
                return equal[: len(equal) - most // 2]
        return []

    def batches_of(self, parts: list[Part]) -> list[Batch]:
        """
        The batches that these parts, which follow each other, sum up.
        """
        return [batch for batch in self.batches if parts[0].begin <= batch.begin < parts[-1].end]

    def merge(self, parts: list[Part]) -> Part:
        """
        Replace these parts by one with the next number.
        """
        level = parts[0].level + (len(parts) > 1)
        one = Part(self.next, max(parts[0].begin, self.since), parts[-1].end, level)
        at = self.parts.index(parts[0])
        self.parts[at : at + len(parts)] = [one]
        self.next += 1
        return one

    def plan(
        self, files: list[LogFile], unpacked: Unpacked, ends_line: Callable[[Tail], bool] = bool
    ) -> Plan:
        """
        The plan for the present files. `ends_line`: what was read of a file ended with a whole line.
        """
        files = [file for file in files if file.hour >= self.since]
        found = {file.stem: file for file in files}
        kept = self._unchanged(found, unpacked)
        tails: list[Tail] = []
        if len(kept) + 1 == len(self.batches):  # only the newest hour has changed: was it appended to?
            appended = self.batches[-1].tails(found)
            if appended and all(map(ends_line, appended)):
                kept.append(self.batches[-1])
                tails = appended
        known = {stem_of(name) for batch in kept for name in batch.files}
        fresh = [file for file in files if file.stem not in known]
        if kept and len(kept) == len(self.batches) and fresh and fresh[0].hour == kept[-1].end - 1:
            # The hour's file of another node: all of it is appended.
            tails = [*tails, *(Tail(file, 0) for file in fresh if file.hour < kept[-1].end)]
            fresh = [file for file in fresh if file.hour >= kept[-1].end]
        while kept and fresh and fresh[0].hour < kept[-1].end:
            kept.pop()
        gone = self.batches[len(kept) :]
        self._refuse_holes(gone, found)
        if gone:
            tails = []
        known = {stem_of(name) for batch in kept for name in batch.files} | {tail.file.stem for tail in tails}
        return Plan(gone, tails, _cut([file for file in files if file.stem not in known]))

    def _unchanged(self, found: dict[str, LogFile], unpacked: Unpacked) -> list[Batch]:
        kept: list[Batch] = []
        for batch in self.batches:
            if not batch.is_of(found, unpacked, batch is self.batches[-1]):
                break
            batch.rename(found)
            kept.append(batch)
        return kept

    def _refuse_holes(self, gone: list[Batch], found: dict[str, LogFile]) -> None:
        missing = sorted(name for batch in gone for name in batch.files if stem_of(name) not in found)
        if missing:
            raise Unreadable(
                "a file came late or grew, so later hours must be read again, but "
                f"{missing[0]} and {len(missing) - 1} more are gone; "
                "put them back, or start over with --overwrite"
            )

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


def _cut(files: list[LogFile]) -> list[tuple[int, int, list[LogFile]]]:
    """
    Divide files into two batches: the newest hour, and everything before it.
    """
    if not files:
        return []
    newest = files[-1].hour
    older = [file for file in files if file.hour < newest]
    cut = [(older[0].hour, newest, older)] if older else []
    return [*cut, (newest, newest + 1, [file for file in files if file.hour == newest])]


def load(text: str) -> Checkpoint:
    """
    Parse a checkpoint. ValueError, KeyError or TypeError if it is malformed.
    """
    table = json.loads(text)
    if table["format"] != FORMAT:  # another version may have other keys
        return Checkpoint(table["options"], table["format"])
    batches = [Batch(**batch) for batch in table["batches"]]
    parts = [Part(**part) for part in table["parts"]]
    return Checkpoint(
        table["options"],
        FORMAT,
        table["next"],
        table["answered"],
        batches,
        parts,
        table["since"],
        table.get("versions", {}),
    )
