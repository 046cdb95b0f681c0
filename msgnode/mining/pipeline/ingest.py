"""
Ingest: new lines are read, late hours again, batches and parts are merged, and old days removed.

Everything is written next to the existing data, and counts once the checkpoint is saved. Only then is
obsolete data deleted.
"""

from dataclasses import replace

from msgnode.mining.pipeline.batches import Batches
from msgnode.mining.pipeline.checkpoint import MAX_PARTS, MAX_TAIL, Checkpoint
from msgnode.mining.pipeline.checkpoint_entries import Batch, Part, Plan, Tail, Unpacked
from msgnode.mining.pipeline.output import Output
from msgnode.mining.reading.log_files import LogFile


class Ingest:
    """
    Updates a checkpoint with the present files.

    `keep` is the number of days that are kept; 0 keeps all.
    """

    def __init__(
        self,
        output: Output,
        batches: Batches,
        most_parts: int = MAX_PARTS,
        most_tail: int = MAX_TAIL,
        keep: int = 0,
    ) -> None:
        self._output = output
        self._batches = batches
        self._most = most_parts
        self._most_tail = most_tail
        self._keep = keep
        self._is_again = False

    def take(self, checkpoint: Checkpoint, logs: list[LogFile], unpacked: Unpacked) -> tuple[Checkpoint, int]:
        """
        Ingest these files. Returns the checkpoint, which is saved, and the number of files read.
        """
        since = self._since(checkpoint, logs)
        self._batches.since = checkpoint.since = max(checkpoint.since, since)
        plan = checkpoint.plan(logs, unpacked, self._output.ends_line)
        old = bool(checkpoint.batches) and checkpoint.batches[0].begin < checkpoint.since
        if plan.is_empty and not old and not self._has_work(checkpoint):
            return checkpoint, 0
        self._output.save(checkpoint)  # so that a first run that is killed can be continued
        self._output.sweep(checkpoint)
        if plan.gone:
            checkpoint = self._without(checkpoint, plan.gone[0].begin)
        self._read(checkpoint, plan)
        self._maintain(checkpoint)
        self._output.save(checkpoint)
        self._output.sweep(checkpoint)
        self._is_again = True
        return checkpoint, len(plan.tails) + sum(len(files) for _, _, files in plan.fresh)

    def _since(self, checkpoint: Checkpoint, logs: list[LogFile]) -> int:
        """
        The first hour that is kept: whole days, counted back from the newest hour.
        """
        newest = [file.hour for file in logs[-1:]] + [batch.end - 1 for batch in checkpoint.batches[-1:]]
        if not self._keep or not newest:
            return 0
        return max(0, max(newest) // 24 - self._keep + 1) * 24

    def _has_work(self, checkpoint: Checkpoint) -> bool:
        return bool(
            checkpoint.parts_to_merge(self._most)
            or checkpoint.batches_to_sum_up(self._most_tail)
            or checkpoint.batches_to_merge()
        )

    def _read(self, checkpoint: Checkpoint, plan: Plan) -> None:
        if plan.tails:
            self._append(checkpoint, plan.tails)
            self._output.save(checkpoint)
        for index, (begin, end, files) in enumerate(plan.fresh, 1):
            batch = Batch(checkpoint.next, begin, end, {file.name: file.size for file in files})
            before = checkpoint.batches[-1] if checkpoint.batches else None
            self._batches.make(batch, files, before, growing=index == len(plan.fresh))
            checkpoint.add(batch)
            if not plan.gone:  # else discarded batches count until their replacements are complete
                self._output.save(checkpoint)

    def _append(self, checkpoint: Checkpoint, tails: list[Tail]) -> None:
        """
        Read what was appended to the newest hour.
        """
        last, number = checkpoint.batches[-1], checkpoint.next
        files = last.files | {tail.file.name: tail.file.size for tail in tails}
        batch = replace(last, number=number, files=files, pieces=[*last.pieces, number])
        self._batches.append(batch, tails, checkpoint.batches[-2] if len(checkpoint.batches) > 1 else None)
        checkpoint.replace_batches([last], batch)

    def _without(self, checkpoint: Checkpoint, hour: int) -> Checkpoint:
        """
        The checkpoint without the hours from this one on. A part across it is summarised again from its
        remaining batches.
        """
        left, torn = checkpoint.before(hour)
        if torn is not None:
            part = Part(left.next, torn.begin, hour, torn.level)
            self._batches.sum_up(part.number, [batch for batch in left.batches if batch.begin >= torn.begin])
            left.parts.append(part)
            left.next += 1
        return left

    def _maintain(self, checkpoint: Checkpoint) -> None:
        if checkpoint.batches[0].begin < checkpoint.since:
            self._forget(checkpoint)
        # With --follow, more runs will come: all but the newest hour is summed up once, not by each of them.
        most = 1 if self._is_again else self._most_tail
        if batches := checkpoint.batches_to_sum_up(most):
            self._batches.sum_up(checkpoint.next, batches)
            checkpoint.sum_up(batches)
        while batches := checkpoint.batches_to_merge():
            one = Batch(
                checkpoint.next,
                batches[0].begin,
                batches[-1].end,
                {name: size for batch in batches for name, size in batch.files.items()},
                sum(batch.bad for batch in batches),
                sum(batch.lines for batch in batches),
            )
            self._batches.merge_batches(one, batches)
            checkpoint.replace_batches(batches, one)
        while parts := checkpoint.parts_to_merge(self._most):
            self._batches.merge(checkpoint.next, parts, checkpoint.batches_of(parts))
            checkpoint.merge(parts)

    def _forget(self, checkpoint: Checkpoint) -> None:
        """
        Remove the days before `since`: whole batches and parts, and those days of the ones across it.
        """
        for batch in checkpoint.forget(checkpoint.since):
            self._batches.recount(batch)
        for part in [part for part in checkpoint.parts if part.begin < checkpoint.since]:
            self._batches.merge(checkpoint.next, [part], checkpoint.batches_of([part]))
            checkpoint.merge([part])
        self._output.save(checkpoint)  # what it does not name any more is deleted now
        self._batches.delete_days(checkpoint.batches[0], checkpoint.since)
