"""
The members that a node expects at its start, and those that are gone: silent for an hour in which it ran.

A node that starts waits for the other members (joining.py); without this it would wait each time for a node
that was taken away for good.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

NAME = "cluster-members"
TICK_SECONDS = 60.0
log = Logger()
_seconds = msgspec.json.Decoder(dict[str, float])


class KnownMembers:
    """
    The seconds for which each member was silent while this node ran; `directory` keeps them over its starts.

    `names` gives all members that there may be, and `up` those with a link. A member is gone after
    `gone_seconds`, when its addresses have ended, too.
    """

    def __init__(
        self,
        directory: Path | None,
        names: Callable[[], Iterable[str]],
        up: Callable[[], Iterable[str]],
        gone_seconds: Callable[[], float],
        clock: IReactorTime,
    ) -> None:
        self._path = directory / NAME if directory is not None else None
        self._names = names
        self._up = up
        self._gone_seconds = gone_seconds
        self._clock = clock
        self._silent: dict[str, float] = {}
        self._counted_at = 0.0
        self._timer: IDelayedCall | None = None
        self._failed = False

    def start(self) -> None:
        if self._path is not None:
            try:
                self._silent = _seconds.decode(self._path.read_bytes())
            except FileNotFoundError:
                pass
            except (OSError, ValueError) as why:  # also msgspec.DecodeError
                log.warn("{path} is not used: {why}", path=str(self._path), why=str(why)[:200])
        self._counted_at = self._clock.seconds()
        self._timer = self._clock.callLater(TICK_SECONDS, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._count()

    def expected(self, names: Iterable[str]) -> set[str]:
        """
        Those of the members that are not gone.
        """
        gone = self._gone_seconds()
        return {name for name in names if self._silent.get(name, 0.0) < gone}

    def _tick(self) -> None:
        self._timer = self._clock.callLater(TICK_SECONDS, self._tick)
        self._count()

    def _count(self) -> None:
        now = self._clock.seconds()
        passed, self._counted_at = now - self._counted_at, now
        up = set(self._up())
        self._silent = {
            name: 0.0 if name in up else self._silent.get(name, 0.0) + passed
            for name in sorted({*self._names(), *up})
        }
        if self._path is None:
            return
        part = self._path.with_suffix(".part")
        try:
            part.write_bytes(msgspec.json.encode(self._silent))
            part.replace(self._path)
            self._failed = False
        except OSError as why:
            if not self._failed:
                log.warn("{path} cannot be written: {why}", path=str(self._path), why=why.strerror)
            self._failed = True
