"""
What a run takes in: new hours are read, late ones again, and old sums are merged.

Everything is made beside what is there, and counts from the moment that the
checkpoint is saved; only then is what it replaced swept away.
"""

from msgnode.mining.pipeline.batches import Batches
from msgnode.mining.pipeline.checkpoint import MAX_PARTS, Batch, Checkpoint, Part, Unpacked
from msgnode.mining.pipeline.log_files import LogFile
from msgnode.mining.pipeline.output import Output


class Ingest:
    """
    Brings a checkpoint up to date with the files there are.
    """

    def __init__(self, output: Output, batches: Batches, most_parts: int = MAX_PARTS) -> None:
        self._output = output
        self._batches = batches
        self._most = most_parts

    def take(self, checkpoint: Checkpoint, logs: list[LogFile], unpacked: Unpacked) -> tuple[Checkpoint, int]:
        """
        The checkpoint with these files in it, as it was saved, and how many of them were read.
        """
        gone, fresh = checkpoint.plan(logs, unpacked)
        if not fresh and not checkpoint.crowd(self._most):
            return checkpoint, 0
        self._output.save(checkpoint)  # whoever is killed in a first run may go on
        self._output.sweep(checkpoint)
        if gone:
            checkpoint = self._without(checkpoint, gone[0].begin)
        for begin, end, files in fresh:
            batch = Batch(checkpoint.next, begin, end, {file.name: file.size for file in files})
            self._batches.make(batch, files, checkpoint.batches[-1] if checkpoint.batches else None)
            checkpoint.add(batch)
            if not gone:  # else what is gone counts until all is read that takes its place
                self._output.save(checkpoint)
        self._merge(checkpoint)
        self._output.save(checkpoint)
        self._output.sweep(checkpoint)
        return checkpoint, sum(len(files) for _, _, files in fresh)

    def _without(self, checkpoint: Checkpoint, hour: int) -> Checkpoint:
        """
        What was before this hour; a part across it is summed up again from the batches of it that stay.
        """
        left, torn = checkpoint.before(hour)
        if torn is not None:
            part = Part(left.next, torn.begin, hour, torn.level)
            self._batches.sum_up(part.number, [batch for batch in left.batches if batch.begin >= torn.begin])
            left.parts.append(part)
            left.next += 1
        return left

    def _merge(self, checkpoint: Checkpoint) -> None:
        while crowd := checkpoint.crowd(self._most):
            self._batches.merge(checkpoint.next, crowd)
            checkpoint.merge(crowd)
