"""
The watch over a stub's process: its pings, and its CPU time. The kernel bounds its memory.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.interfaces import IDelayedCall

from msgnode.structures.token_bucket import refilled

LOOK_SECONDS = 1.0
HANG_BYTES = 1024 * 1024  # written after the ping, by which even a slow reader would have seen its answer
CPU_BURST_SECONDS = 60.0  # for which a process may use a whole core


class Watch:
    """
    The regular check of a process. `ping` sends one, `kill` gets the reason, and the limit.
    """

    def __init__(
        self,
        clock: Any,
        pid: int,
        ping: Callable[[int], None],
        kill: Callable[[str, str], None],
        hang_seconds: float,
        cpu_share: float,
    ) -> None:
        self._clock = clock
        self._stat = Path(f"/proc/{pid}/stat")
        self._ping = ping
        self._kill = kill
        self._hang_seconds = hang_seconds
        self._cpu_share = cpu_share
        self._number = 0
        self._answered = True
        self._silent = 0.0  # seconds since the ping in which the process could have answered
        self._bytes = 0
        self._cpu = CPU_BURST_SECONDS
        self._used = 0.0
        self.held = False  # the node does not read from the process
        self._looking: IDelayedCall = clock.callLater(LOOK_SECONDS, self._look)

    def stop(self) -> None:
        if self._looking.active():
            self._looking.cancel()

    def read(self, size: int) -> None:
        """
        So many bytes came.
        """
        self._bytes += size

    def pong(self, number: int) -> None:
        if number == self._number:
            self._answered = True

    def _look(self) -> None:
        self._looking = self._clock.callLater(LOOK_SECONDS, self._look)
        if why := self._hangs():
            self._kill(why, "hang")
        elif why := self._uses_too_much():
            self._kill(why, "cpu")
        elif self._answered:
            self._answered = False
            self._number += 1
            self._silent = self._bytes = 0
            self._ping(self._number)

    def _hangs(self) -> str:
        if self._answered:
            return ""
        # The answer may be stuck in the pipe, but not behind more than the pipe has room for.
        if not self.held or self._bytes > HANG_BYTES:
            self._silent += LOOK_SECONDS
        most = self._hang_seconds
        return f"did not answer within {most:g} s" if self._silent > most else ""

    def _uses_too_much(self) -> str:
        if not self._cpu_share:
            return ""
        try:
            ticks = self._stat.read_text().rpartition(")")[2].split()[11:13]
        except (OSError, ValueError, IndexError):
            return ""  # not Linux, or it is gone
        used = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        left = refilled(self._cpu, LOOK_SECONDS, self._cpu_share, CPU_BURST_SECONDS)
        self._cpu = left - (used - self._used)
        self._used = used
        text = f"used {self._cpu_share:.0%} of a core for more than {CPU_BURST_SECONDS:g} s"
        return text if self._cpu < 0 else ""
