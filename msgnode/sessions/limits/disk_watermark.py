"""
The disk's watermark: below it nothing new is taken on that would have to be written down.

What makes the node owe less, or owes it already, goes on: deliveries,
acknowledgements, unsubscriptions, ends.  So the last of the disk is there for
what was promised.
"""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

log = Logger()

EVERY = 1.0  # seconds
PART = 50  # at most this part of the whole disk is kept free: 2 %
ROOMY = 1.25  # times the reserve are free before anything is taken on again

Measure = Callable[[str], tuple[int, int, int]]  # bytes in all, used and free of a directory's disk


class Watermark:
    """
    Watches the free space of a disk.

    `low` while less than `reserve()` bytes are free on the disk of `directory`; None: nothing is kept there.

    `refused` counts what was not taken on because of it; with `times` it is low
    at so many times the reserve, for what has to yield to others.
    """

    def __init__(
        self,
        directory: Path | None,
        reserve: Callable[[], int],
        measure: Measure = shutil.disk_usage,
        times: int = 1,
    ) -> None:
        self.low = False
        self.free = 0
        self.refused = 0
        self.measure = measure
        self._directory = directory
        self._reserve = reserve
        self._times = times

    @property
    def why(self) -> str:
        """
        In words; empty while there is room.
        """
        return f"only {self.free} bytes are free on the disk" if self.low else ""

    def look(self) -> None:
        """
        How much is free now?
        """
        if self._directory is None:
            return
        try:
            whole, _, self.free = self.measure(str(self._directory))
        except OSError:
            return  # it is not there yet, or any more; who writes there says so
        reserve = min(self._reserve(), whole // PART) * self._times
        low = self.free < reserve * (ROOMY if self.low else 1)
        if low and not self.low:
            log.warn(
                "only {free} bytes are free for {directory}, less than {reserve}: nothing new is kept there",
                free=self.free,
                directory=str(self._directory),
                reserve=reserve,
            )
        elif self.low and not low:
            log.info(
                "{free} bytes are free for {directory} again", free=self.free, directory=str(self._directory)
            )
        self.low = low


class Watching(Service):
    """
    Looks at each watermark every second.
    """

    def __init__(self, watermarks: Iterable[Watermark], clock: IReactorTime) -> None:
        self._watermarks = list(watermarks)
        self._beat = LoopingCall(self._look)
        self._beat.clock = clock

    def startService(self) -> None:
        super().startService()
        self._beat.start(EVERY)

    def stopService(self) -> None:
        super().stopService()
        if self._beat.running:
            self._beat.stop()

    def _look(self) -> None:
        for watermark in self._watermarks:
            watermark.look()
