"""
The built-in history: a few figures of the node, every five seconds for two hours and every five minutes for
a week.
"""

import os
from array import array
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import msgspec
from twisted.application.service import Service
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from msgnode.admin.access.named_tokens import write_private
from msgnode.admin.health import sessions_by_state
from msgnode.admin.reads.delivery_times import DeliveryTimes
from msgnode.admin.reads.inspector import Inspector
from msgnode.protocol.errors import Rejected

log = Logger()

FINE_SECONDS, FINE_POINTS = 5.0, 1440  # two hours
COARSE_SECONDS, COARSE_POINTS = 300.0, 2016  # seven days
MAX_POINTS = 4000  # in one answer
FILE = "history.bin"
NOTHING = float("nan")

# Figures that are kept: totals, of which an answer has the difference per second, and levels.
TOTALS: dict[str, Callable[[Inspector], float]] = {
    "in_messages": lambda i: i.node.counts.received,
    "in_bytes": lambda i: i.node.counts.received_bytes,
    "out_messages": lambda i: i.node.counts.sent,
    "out_bytes": lambda i: i.node.counts.sent_bytes,
    "refused": lambda i: i.node.counts.refused.total(),
    "no_route": lambda i: i.node.counts.no_route,
    "stale": lambda i: i.node.counts.stale,
    "overflow": lambda i: i.node.counts.overflowed,
    "shed": lambda i: i.node.counts.shed,
    "queued": lambda i: i.node.counts.waited,
    "unreadable": lambda i: i.node.counts.unreadable,
    "connections_rejected": lambda i: i.node.connection_limits.refused + i.node.connection_limits.dropped,
    "connections_closed": lambda i: i.node.sessions.connections.closed.by.total(),
    "disk_refused": lambda i: i.node.watermark.refused,
    "cpu_seconds": lambda i: i.process.cpu_seconds(),
    "gc_collections": lambda i: i.process.collections(),
    "sessions_opened": lambda i: i.node.counts.sessions.get("opened", 0),
    "sessions_detached": lambda i: i.node.counts.sessions.get("detached", 0),
    "messages_by_flow": lambda i: i.node.data_plane.carried,
}
LEVELS: dict[str, Callable[[Inspector], float]] = {
    "sessions_attached": lambda i: sessions_by_state(i.node)[0],
    "sessions_away": lambda i: sessions_by_state(i.node)[1],
    "sessions_slow": lambda i: i.node.sessions.count_slow(),
    "connections": lambda i: len(i.node.sessions.connections),
    "addresses": lambda i: len(i.node.routes),
    "waiting_messages": lambda i: i.node.sessions.queued.messages,
    "waiting_bytes": lambda i: i.node.sessions.queued.bytes,
    "memory_bytes": lambda i: i.node.sessions.journal.bytes_in_memory,
    "state_bytes": lambda i: i.node.budget.node.bytes,
    "spool_bytes": lambda i: i.node.message_log.live,
    "disk_free": lambda i: i.node.watermark.free,
    "rss": lambda i: i.process.memory()[1],
    "open_fds": lambda i: i.process.open_fds(),
    "lag": lambda i: max(list(i.lag.recent)[-10:], default=0.0),
    "flows": lambda i: i.node.data_plane.flows,
}
# The times within which half, and 99 of 100, of the messages since the point before were sent, in seconds.
DELIVERY = {"delivery_p50": 0.5, "delivery_p99": 0.99}
NAMES = (*TOTALS, *LEVELS, *DELIVERY)


class SeriesQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """
    The figures, separated by commas ("" for all), from a time in seconds since 1970 on (0: all that is
    kept), with a step of 5 or 300 seconds.
    """

    names: str = ""
    from_: float = msgspec.field(name="from", default=0)
    step: float = FINE_SECONDS


class SeriesReport(msgspec.Struct):
    """
    Figures by name, one every `step` seconds, the first at the time `start`; null where there is none.
    Those of totals are differences per second.
    """

    start: float
    step: float
    series: dict[str, list[float | None]]


class _Ring:
    """
    Points of all figures at equal distances, numbered in steps since 1970.
    """

    def __init__(self, step: float, points: int) -> None:
        self.step = step
        self.points = points
        self.last = 0  # the number of the newest point
        self.delivery = DeliveryTimes()  # since that point

    @cached_property
    def values(self) -> dict[str, "array[float]"]:
        """
        The points of each figure; a megabyte, made when the history begins.
        """
        return {name: array("d", [NOTHING]) * self.points for name in NAMES}

    def put(self, number: int, values: dict[str, float]) -> None:
        # No figure was taken between, or the clock was set back before it.
        low, high = sorted((self.last, number)) if self.last else (number, number)
        for gap in range(max(low + 1, high - self.points), high + (number < self.last)):
            for ring in self.values.values():
                ring[gap % self.points] = NOTHING
        self.last = number
        for name, value in values.items():
            self.values[name][number % self.points] = value

    def points_from(self, first: int, name: str) -> Iterator[float]:
        ring = self.values[name]
        for number in range(first, self.last + 1):
            yield ring[number % self.points]


class History(Service):
    """
    The history of a node; it is saved when the node stops, and read when it starts. `path` is None without a
    state directory.
    """

    def __init__(self, inspector: Inspector, path: Path | None) -> None:
        self._inspector = inspector
        self._path = path
        self._rings = (_Ring(FINE_SECONDS, FINE_POINTS), _Ring(COARSE_SECONDS, COARSE_POINTS))
        self._tick = LoopingCall(self.sample)
        self._tick.clock = inspector.clock

    def startService(self) -> None:
        super().startService()
        self._restore()
        self._tick.start(FINE_SECONDS, now=True)

    def stopService(self) -> None:
        super().stopService()
        if self._tick.running:
            self._tick.stop()
        if self._path is not None:
            try:
                write_private(self._path, self._saved())
            except OSError as why:
                log.warn(
                    "the history could not be saved in {path}: {why}", path=str(self._path), why=str(why)
                )

    def sample(self) -> None:
        """
        Takes the figures of this moment.
        """
        inspector = self._inspector
        inspector.node.data_plane.update_counts()
        now = inspector.facts.wall()
        values = {name: float(read(inspector)) for name, read in (*TOTALS.items(), *LEVELS.items())}
        for ring in self._rings:
            number = int(now // ring.step)
            if number > ring.last or number < ring.last - 1:  # not twice, but after the clock was set back
                times = ring.delivery.look(inspector.node.counts.handed_over, *DELIVERY.values())
                ring.put(number, values | dict(zip(DELIVERY, times, strict=True)))

    def report(self, query: SeriesQuery) -> SeriesReport:
        """
        The figures. Raises Rejected.
        """
        names = [name for name in query.names.split(",") if name] or list(NAMES)
        for name in names:
            if name not in NAMES:
                raise Rejected(f"parameter names: there is no {name[:40]!r}; there are {', '.join(NAMES)}")
        ring = self._rings[0] if query.step < COARSE_SECONDS else self._rings[1]
        oldest = max(ring.last - ring.points + 2, 1)
        first = max(oldest, int(query.from_ // ring.step))
        first = max(first, ring.last - MAX_POINTS)
        series: dict[str, list[float | None]] = {}
        for name in names:
            if name not in TOTALS:
                series[name] = [_shown(value) for value in ring.points_from(first, name)]
                continue
            values = list(ring.points_from(first - 1, name))
            series[name] = [
                _shown((new - old) / ring.step) if new >= old else None for old, new in pairwise(values)
            ]
        return SeriesReport(first * ring.step, ring.step, series)

    # -- on disk ---------------------------------------------------------------------------

    def _saved(self) -> bytes:
        rings = [
            (ring.step, ring.last, {n: v.tobytes() for n, v in ring.values.items()}) for ring in self._rings
        ]
        return msgspec.msgpack.encode(rings)

    def _restore(self) -> None:
        if self._path is None or not self._path.exists():
            return
        try:
            kept = msgspec.msgpack.decode(
                self._path.read_bytes(), type=list[tuple[float, int, dict[str, bytes]]]
            )
            os.unlink(self._path)
        except (OSError, msgspec.DecodeError) as why:
            log.warn("the history in {path} could not be read: {why}", path=str(self._path), why=str(why))
            return
        now = self._inspector.facts.wall()
        for ring, (step, last, values) in zip(self._rings, kept, strict=False):
            if step == ring.step and last <= now // step:
                ring.last = last
                for name, data in values.items():
                    if name in ring.values and len(data) == 8 * ring.points:
                        ring.values[name] = array("d", data)


def _shown(value: float) -> float | None:
    return None if value != value else round(value, 6)
