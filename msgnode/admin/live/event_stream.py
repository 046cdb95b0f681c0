"""
Event streams: `GET /api/v1/events`, server-sent events (WHATWG HTML, 9.2) that resume by Last-Event-ID.
"""

import json
from collections.abc import Callable
from typing import Any

from twisted.application.service import Service
from twisted.internet.interfaces import IPushProducer, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.web.server import Request
from zope.interface import implementer

from msgnode.admin.live.event_ring import KINDS, EventRing
from msgnode.admin.live.event_sources import EventSources, TrafficSample
from msgnode.node import Node
from msgnode.protocol.errors import Rejected

MAX_STREAMS, MAX_STREAMS_OF_ONE = 16, 8  # at a time, and those of one operator
MAX_LINES_A_SECOND = 200
LOOK_SECONDS, IDLE_LOOK_SECONDS = 0.25, 5.0  # between two looks, with and without a stream
HEARTBEAT_SECONDS = 15.0
RECHECK_SECONDS = 2.0  # between two looks at whether a stream's reader may still read
SLOW_SECONDS = 10.0  # a reader that takes nothing for so long is dropped
FIELDS = ("session", "user", "peer", "reason", "code")  # a stream may be filtered by these


@implementer(IPushProducer)
class EventStream:
    """
    One reader of events: `who` is its operator. `may` says whether it may still read; `wanted` has values
    that events must have.
    """

    def __init__(
        self,
        request: Request,
        who: str,
        kinds: frozenset[str],
        wanted: dict[str, str],
        at: int,
        may: Callable[[], bool],
    ) -> None:
        self.request = request
        self.who = who
        self.kinds = kinds
        self.wanted = wanted
        self.position = at
        self.may = may
        self.is_paused = self.is_over = False
        self.paused_since = 0.0
        self.checked = self.written = 0.0
        self.sample: TrafficSample | None = None
        request.registerProducer(self, True)

    def takes(self, kind: str, fields: dict[str, Any]) -> bool:
        return kind in self.kinds and all(str(fields.get(key)) == value for key, value in self.wanted.items())

    def write(self, text: str) -> None:
        self.request.write(text.encode())

    def resumeProducing(self) -> None:
        self.is_paused = False

    def pauseProducing(self) -> None:
        self.is_paused = True

    def stopProducing(self) -> None:
        self.is_over = True


class EventStreams(Service):
    """
    The readers of events, at most MAX_STREAMS, and MAX_STREAMS_OF_ONE of one operator. A slow one is dropped,
    and nothing waits for it.
    """

    def __init__(self, node: Node, sources: EventSources, ring: EventRing, clock: IReactorTime) -> None:
        self.ring = ring
        self.dropped = 0
        self._node = node
        self._sources = sources
        self._clock = clock
        self._streams: list[EventStream] = []
        self._carried = 0
        self._beat = LoopingCall(self._look)
        self._beat.clock = clock

    def __len__(self) -> int:
        return len(self._streams)

    def startService(self) -> None:
        super().startService()
        self._beat.start(IDLE_LOOK_SECONDS, now=False)

    def stopService(self) -> None:
        super().stopService()
        if self._beat.running:
            self._beat.stop()
        for stream in list(self._streams):
            self._end(stream)

    def open(
        self,
        request: Request,
        who: str,
        kinds: frozenset[str],
        wanted: dict[str, str],
        last_id: str,
        may: Callable[[], bool],
    ) -> None:
        """
        Answers the request with a stream of events. Raises Rejected if there are too many readers.
        """
        unknown = kinds - set(KINDS)
        if unknown:
            raise Rejected(f"no kind {min(unknown)[:40]!r}; there are {', '.join(KINDS)}")
        if len(self._streams) >= MAX_STREAMS:
            raise Rejected(f"{MAX_STREAMS} event streams are open, which is the limit", 429, "limit")
        if sum(stream.who == who for stream in self._streams) >= MAX_STREAMS_OF_ONE:
            text = f"{MAX_STREAMS_OF_ONE} event streams are open for this token, which is the limit"
            raise Rejected(text, 429, "limit")
        self._sources.look()
        at, is_whole = self.ring.position(last_id)
        request.setHeader(b"Content-Type", b"text/event-stream; charset=utf-8")
        request.setHeader(b"Cache-Control", b"no-store")
        request.setHeader(b"X-Accel-Buffering", b"no")
        stream = EventStream(request, who, kinds, wanted, at, may)
        now = self._clock.seconds()
        stream.checked = stream.written = now
        gone = request.notifyFinish()
        gone.addBoth(lambda done: self._gone(stream))
        stream.write(f"retry: 2000\nid: {self.ring.id(at)}\n\n")
        if not is_whole:
            self._write(stream, "event: gap\ndata: {}\n\n", now)
        self._streams.append(stream)
        if "traffic" in kinds:
            stream.sample = TrafficSample(MAX_LINES_A_SECOND, self._clock.seconds)
            self._carried = self._node.data_plane.carried
            self._node.traffic.listen(stream.sample)
        if len(self._streams) == 1:
            self._beat_every(LOOK_SECONDS)
        self._tell(stream, now)

    def _beat_every(self, seconds: float) -> None:
        if self._beat.running:
            self._beat.stop()
        if self.running:
            self._beat.start(seconds, now=False)

    def _gone(self, stream: EventStream) -> None:
        if stream in self._streams:
            self._streams.remove(stream)
            if stream.sample is not None:
                self._node.traffic.leave(stream.sample)
            if not self._streams:
                self._beat_every(IDLE_LOOK_SECONDS)
        stream.is_over = True

    def _end(self, stream: EventStream, abort: bool = False) -> None:
        self._gone(stream)
        if abort:
            channel: Any = stream.request.channel
            if channel is not None:
                channel.transport.abortConnection()
            return
        stream.request.unregisterProducer()
        stream.request.finish()

    def _look(self) -> None:
        self._sources.look()
        if any(stream.sample is not None for stream in self._streams):
            self._count_carried()
        now = self._clock.seconds()
        for stream in list(self._streams):
            self._serve(stream, now)

    def _count_carried(self) -> None:
        """
        Messages that the data plane carried are not shown one by one; they count as left out.
        """
        self._node.data_plane.update_counts()
        carried = self._node.data_plane.carried
        for stream in self._streams:
            if stream.sample is not None:
                stream.sample.carried(carried - self._carried)
        self._carried = carried

    def _serve(self, stream: EventStream, now: float) -> None:
        if now - stream.checked >= RECHECK_SECONDS:
            stream.checked = now
            if not stream.may():
                self._end(stream)
                return
        if stream.is_paused:
            stream.paused_since = stream.paused_since or now
            if now - stream.paused_since >= SLOW_SECONDS:
                self.dropped += 1
                self._end(stream, abort=True)
            return
        stream.paused_since = 0.0
        self._tell(stream, now)
        if now - stream.written >= HEARTBEAT_SECONDS:
            self._write(stream, ":\n\n", now)

    def _tell(self, stream: EventStream, now: float) -> None:
        if stream.position < self.ring.last_number:
            parts = []
            for event in self.ring.after(stream.position):
                if stream.takes(event.kind, event.fields):
                    parts.append(_written(event.kind, event.as_dict(), self.ring.id(event.number)))
            stream.position = self.ring.last_number
            if parts:
                self._write(stream, "".join(parts), now)
        if stream.sample is not None:
            lines, dropped = stream.sample.take()
            parts = [_written("traffic", line) for line in lines if stream.takes("traffic", line)]
            if dropped:
                parts.append(_written("dropped", {"dropped": dropped}))
            if parts:
                self._write(stream, "".join(parts), now)

    @staticmethod
    def _write(stream: EventStream, text: str, now: float) -> None:
        stream.written = now
        stream.write(text)


def _written(kind: str, fields: dict[str, Any], id: str = "") -> str:
    head = f"id: {id}\n" if id else ""
    return f"{head}event: {kind}\ndata: {json.dumps(fields)}\n\n"
