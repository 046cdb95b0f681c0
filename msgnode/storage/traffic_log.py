"""
The traffic log: one flat JSON line for each message and each event in a session's life.

A public contract, docs/traffic-log.md; never a body, never a token.  Lines are
collected and written together, at the latest after a second, in a thread of
their own.  When the disk is full they are lost and counted; messages never
wait for their log.
"""

import time
from collections.abc import Callable

import msgspec
from msgspec import UNSET, Struct, UnsetType, field
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime

from msgnode.config.schema import StorageOptions
from msgnode.protocol.message import Message
from msgnode.sessions.counters import Counters
from msgnode.sessions.session import Connection, Session
from msgnode.storage.json_lines import CUT, MAX_HELD, LineLog, cut, cut_id

VERSION = 1
MAX_RESOURCES = 1000  # addresses in one line
TIMES = 8  # what a message names is written down in so many times its own bytes,
ROOM = 1024  # and these
_encode = msgspec.json.Encoder().encode


class TrafficLine(Struct, gc=False, omit_defaults=True):
    """
    One line of the log.  docs/traffic-log.md says what each key means.
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
    resources: list[str] | None = None
    resources_count: int | UnsetType = UNSET
    event: str = ""


class NoLog:
    """
    The journal when the traffic log is switched off.
    """

    def message(self, message: Message, session: Session | None) -> None:
        pass

    def session(self, event: str, session: Session, connection: Connection | None) -> None:
        pass


class TrafficLog(LineLog):
    """
    The journal: `<directory>/traffic-<node>-YYYYMMDDTHH.jsonl`.

    `always`: also of messages whose senders want nothing written down; else
    they are counted in `counts`, which the node may share.
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
            message.came,
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
            message.micros,
            message.reason,
            UNSET if message.transaction is None else message.transaction,
        )
        if len(runtime) > CUT or (size > CUT and _is_long(line)):
            _shorten(line)
            self.long += 6 * CUT
        if message.resources:
            self._name(message.resources, line)
        held = self._held
        held.append(line)
        if len(held) == MAX_HELD:
            self.flush()

    def _name(self, resources: list[str], line: TrafficLine) -> None:
        """
        Name as many of the addresses as the line has room for, and how many they are.
        """
        assert isinstance(line.bytes, int)
        used = len(_encode(line)) + ROOM
        room = min(TIMES * line.bytes + ROOM, self._options.max_traffic_line_bytes - used)
        named: list[str] = []
        for address in resources[:MAX_RESOURCES]:
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
        self._held.append(line)


def _is_long(line: TrafficLine) -> bool:
    """
    Has it a text that may be too long?
    """
    if line.id.__class__ is str or len(line.from_) + len(line.to) + len(line.type) > CUT:
        return True
    return isinstance(line.id, int) and line.id.bit_length() > 64


def _shorten(line: TrafficLine) -> None:
    line.session, line.type, line.from_ = cut(line.session), cut(line.type), cut(line.from_)
    line.id = cut_id(line.id)
    if not line.to.endswith(" more"):
        line.to = cut(line.to)
    elif len(line.to) > 2 * CUT:
        line.to = line.to[:CUT] + "…"
