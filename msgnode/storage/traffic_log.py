"""
The traffic log: a flat JSON line for each message and session event, and one each minute for the node itself.

Its format is public, docs/traffic-log.md. It never has a body or a token. Lines are collected and written
together, at the latest after half a second, in a thread. If the disk is full, lines are lost and counted;
messages never wait.
"""

import time
from collections.abc import Callable

import msgspec
from msgspec import UNSET, Struct, UnsetType, field
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime

from msgnode.config.schema import StorageOptions
from msgnode.protocol.message import Message
from msgnode.protocol.trace_context import KEY, MAX_BYTES, trace_context
from msgnode.sessions.counters import Counters
from msgnode.sessions.session import Connection, Session
from msgnode.storage.json_lines import MAX_HELD, MAX_TEXT_CHARS, Batches, LineLog, cut, cut_id
from msgnode.storage.node_lines import NodeLine
from msgnode.structures.log_limits import MAX_LOGGED_ADDRESSES
from msgnode.transport.data_plane import NO_DATA_PLANE

VERSION = 1
RESOURCES_FACTOR = 8  # the resources in a line may have this many times the bytes of the message,
RESOURCES_BYTES = 1024  # plus these
_encode = msgspec.json.Encoder().encode


class TrafficLine(Struct, gc=False, omit_defaults=True):
    """
    A line of the log. docs/traffic-log.md explains the keys.
    """

    v: int = field(default_factory=lambda: VERSION)
    kind: str = ""
    time: int = 0
    node: str = ""
    session: str = ""
    connector: str = ""
    peer: str = ""
    type: str = ""
    id: int | str = ""
    from_: str = field(name="from", default="")
    to: str = ""
    bytes: int | UnsetType = UNSET
    outcome: str = ""
    recipients: int | UnsetType = UNSET
    waiting: int | UnsetType = UNSET
    code: int = 0
    micros: int | UnsetType = UNSET
    reason: str = ""
    transaction: int | str | UnsetType = UNSET
    source: str = ""
    hops: int = 0
    resources: list[str] | None = None
    resources_count: int | UnsetType = UNSET
    event: str = ""
    record: str = ""
    slot: str = ""
    traceparent: str = ""


class NoLog:
    """
    The TrafficRecorder used when the traffic log is switched off.
    """

    def message(self, message: Message, session: Session | None) -> None:
        pass

    def session(self, event: str, session: Session, connection: Connection | None) -> None:
        pass


class TrafficLog(LineLog):
    """
    The TrafficRecorder that writes `<directory>/traffic-<node>-YYYYMMDDTHH.jsonl`.

    `always`: messages with `log: false` are logged too; else they are only counted in `counts`.
    """

    what = "traffic"

    def __init__(
        self,
        directory: str,
        node: str,
        clock: IReactorTime,
        wall: Callable[[], int] = time.time_ns,
        run: Callable[..., Deferred[None]] = maybeDeferred,
        options: StorageOptions | None = None,
        always: Callable[[], bool] = bool,
    ) -> None:
        self.counts = Counters()
        self.data_plane = NO_DATA_PLANE
        self._always = always
        self._options = options = options or StorageOptions()
        super().__init__(directory, node, clock, run, lambda: options.max_traffic_bytes_per_hour)
        self._node = node
        self._wall = wall

    def message(self, message: Message, session: Session | None) -> None:
        if not message.log and not self._always():
            self.counts.unlogged += 1
            return
        connection, to, size = message.origin, message.to, len(message.data)
        if to.__class__ is not str:
            to = f"{cut(to[0])} and {len(to) - 1} more" if len(to) > 1 else to[0]
        runtime = "" if session is None else session.runtime
        line = TrafficLine(
            VERSION,
            "message",
            message.received_at,
            self._node,
            runtime,
            connection.connector,
            connection.peer,
            message.type,
            message.id,
            message.from_,
            to,
            size,
            message.outcome,
            message.recipients,
            message.waiting,
            message.code,
            message.handling_us,
            message.reason,
            UNSET if message.transaction is None else message.transaction,
        )
        if len(runtime) > MAX_TEXT_CHARS or (size > MAX_TEXT_CHARS and _is_long(line)):
            _shorten(line)
            self.long += 6 * MAX_TEXT_CHARS
        far = getattr(connection, "far", None)  # it came from another node
        if far is not None:
            line.source, line.hops = far.node, far.hops
        if message.record is not None:
            line.record, line.slot = message.record.lower(), message.slot
        if size <= MAX_BYTES and KEY in message.data:
            line.traceparent = trace_context(message.data)
        if message.resources:
            self._name(message.resources, line)
        self._add(line)

    def _name(self, resources: list[str], line: TrafficLine) -> None:
        """
        Add as many of the addresses as the line has room for, and their total number.
        """
        assert isinstance(line.bytes, int)
        used = len(_encode(line)) + RESOURCES_BYTES
        room = min(
            RESOURCES_FACTOR * line.bytes + RESOURCES_BYTES, self._options.max_traffic_line_bytes - used
        )
        named: list[str] = []
        for address in resources[:MAX_LOGGED_ADDRESSES]:
            short = cut(address)
            room -= len(_encode(short)) + 1
            if room < 0:
                break
            named.append(short)
        line.resources = named or None
        if len(named) < len(resources):
            line.resources_count = len(resources)
        self.long += sum(map(len, named))

    def session(self, event: str, session: Session, connection: Connection | None) -> None:
        line = TrafficLine(VERSION, "session", self._wall(), self._node, cut(session.runtime), event=event)
        if connection is not None:
            line.connector, line.peer = connection.connector, connection.peer
        self._add(line)

    def node(self, event: str, started: int, version: str, revision: str) -> None:
        """
        Add a line about the node itself; `started` is in nanoseconds since 1970.
        """
        counts = self.counts
        self._add(
            NodeLine(
                VERSION,
                "node",
                self._wall(),
                self._node,
                event,
                started,
                version,
                revision,
                counts.received,
                counts.unlogged,
                self.lost,
            )
        )

    def _add(self, line: TrafficLine | NodeLine) -> None:
        if self.data_plane.is_native:  # which has lines of its own, and those of all are in order
            self.data_plane.log(line.time, _encode(line))
            return
        lines = self._lines
        lines.append(line)
        if len(lines) == MAX_HELD:
            self.flush()

    def _take(self) -> Batches:
        if not self.data_plane.is_native:
            return super()._take()
        self.long = 0
        self.lost += self.data_plane.take_lost_lines()
        return self.data_plane.take_log()


def _is_long(line: TrafficLine) -> bool:
    """
    Has the line a text that may be too long?
    """
    if line.id.__class__ is str or len(line.from_) + len(line.to) + len(line.type) > MAX_TEXT_CHARS:
        return True
    return isinstance(line.id, int) and line.id.bit_length() > 64


def _shorten(line: TrafficLine) -> None:
    line.session, line.type, line.from_ = cut(line.session), cut(line.type), cut(line.from_)
    line.id = cut_id(line.id)
    if not line.to.endswith(" more"):
        line.to = cut(line.to)
    elif len(line.to) > 2 * MAX_TEXT_CHARS:
        line.to = line.to[:MAX_TEXT_CHARS] + "…"
