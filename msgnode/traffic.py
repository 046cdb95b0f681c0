"""
The traffic log: one flat JSON line for each message and each event in a session's life.

A public contract, docs/traffic-log.md; never a body, never a token.  Lines are
collected and written together, at the latest after a second, in a thread of
their own.  When the disk is full they are lost and counted; messages never
wait for their log.
"""

import time
from collections.abc import Callable

from msgspec import UNSET, Struct, UnsetType, field
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime

from msgnode.address import LONGEST
from msgnode.linelog import MOST_HELD, LineLog
from msgnode.message import Message
from msgnode.session import Connection, Session

VERSION = 1
MOST_RESOURCES = 1000  # addresses in one line


class Line(Struct, gc=False, omit_defaults=True):
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
    resources: list[str] | None = None
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
    """

    what = "traffic"

    def __init__(
        self,
        directory: str,
        node: str,
        clock: IReactorTime,
        wall: Callable[[], int] = time.time_ns,
        run: Callable[..., Deferred[None]] = maybeDeferred,
    ) -> None:
        super().__init__(directory, node, clock, run)
        self._node = node
        self._wall = wall

    def message(self, message: Message, session: Session | None) -> None:
        connection, to, size = message.origin, message.to, len(message.data)
        if to.__class__ is not str:
            to = f"{to[0]} and {len(to) - 1} more"
        if size > LONGEST:
            to = _shortened(message, to)
        held = self._held
        held.append(
            Line(
                VERSION,
                "message",
                message.came,
                self._node,
                "" if session is None else session.runtime,
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
                message.resources and _few(message.resources),
            )
        )
        if len(held) == MOST_HELD:
            self.flush()

    def session(self, event: str, session: Session, connection: Connection | None) -> None:
        line = Line(VERSION, "session", self._wall(), self._node, session.runtime, event=event)
        if connection is not None:
            line.connector, line.peer = connection.connector, connection.peer
        self._held.append(line)


def _shortened(message: Message, to: str) -> str:
    """
    Nobody's log is filled by an address of a megabyte.
    """
    if not isinstance(message.id, int) and len(message.id) > LONGEST:
        message.id = message.id[:LONGEST] + "…"
    if len(message.type) > LONGEST:
        message.type = message.type[:LONGEST] + "…"
    if len(message.from_) > LONGEST:
        message.from_ = message.from_[:LONGEST] + "…"
    return to if len(to) <= LONGEST else to[:LONGEST] + "…"


def _few(resources: list[str]) -> list[str]:
    return [address[:LONGEST] for address in resources[:MOST_RESOURCES]]
