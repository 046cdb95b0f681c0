"""
The low-disk watermark: below it, the node accepts nothing new that has to be written to disk.

Operations that reduce the stored data, or that work on stored data, continue: deliveries, acknowledgements,
unsubscriptions, closes. So the last free space is reserved for messages that the node has accepted.
"""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

log = Logger()

CHECK_SECONDS = 1.0
RESERVE_DIVISOR = 50  # the reserve is at most this fraction of the disk: 1/50
RECOVERY_FACTOR = 1.25  # times the reserve must be free before new data is accepted again

Measure = Callable[[str], tuple[int, int, int]]  # total, used and free bytes of a directory's disk


class Watermark:
    """
    A monitor of the free space of a disk.

    `low` is set while less than `reserve()` bytes are free on the disk of `directory`; never, if that is
    None.

    `refused` counts what was refused because of it. `times` multiplies the reserve, for data of lower
    priority.
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
        The reason as a text; "" while there is enough space.
        """
        return f"only {self.free} bytes are free on the disk" if self.low else ""

    def look(self) -> None:
        """
        Measures the free space.
        """
        if self._directory is None:
            return
        try:
            whole, _, self.free = self.measure(str(self._directory))
        except OSError:
            return  # the directory does not exist now; its writer reports that
        reserve = min(self._reserve(), whole // RESERVE_DIVISOR) * self._times
        low = self.free < reserve * (RECOVERY_FACTOR if self.low else 1)
        if low and not self.low:
            log.warn(
                "only {free} bytes are free for {directory}, less than {reserve}: no new data is accepted",
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
    A service that measures each watermark every second.
    """

    def __init__(self, watermarks: Iterable[Watermark], clock: IReactorTime) -> None:
        self._watermarks = list(watermarks)
        self._beat = LoopingCall(self._look)
        self._beat.clock = clock

    def startService(self) -> None:
        super().startService()
        self._beat.start(CHECK_SECONDS)

    def stopService(self) -> None:
        super().stopService()
        if self._beat.running:
            self._beat.stop()

    def _look(self) -> None:
        for watermark in self._watermarks:
            watermark.look()
