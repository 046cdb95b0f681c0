"""
Superseded connections whose session moved to another member.

A client that counts its messages is closed, and comes back where its session is. One that does not would take
the session back, and two pages of one runtime would take it from each other for ever. So its connection stays
open where it is, as it does within one node: what it sends goes to the member that holds the session, and is
answered from there.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.cluster.membership import Members
from msgnode.cluster.relay.connection_link import ConnectionLink
from msgnode.cluster.relay.connection_wire import (
    AnyStatement,
    Attach,
    Attached,
    Close,
    Detached,
    Gone,
    Pause,
    Piece,
    Read,
    decode,
)
from msgnode.cluster.relay.remote_connection import RemoteConnection
from msgnode.protocol.close_codes import STOPPING, SUPERSEDED, Closing
from msgnode.sessions.session import Connection, Session

SEEK_SECONDS = 10.0  # for which the holder of the session is sought; its client is not read meanwhile
RETRY_SECONDS = 0.25
MAX_REMOTE = 10_000  # connections of one member
MAX_WAITING_BYTES = 16 * 1024 * 1024  # of one client's messages while its session is sought
MESSAGE_OVERHEAD_BYTES = 100  # of memory for a message that waits
REQUESTS_ONLY = frozenset(("poll", "rest", "events"))  # connectors without a connection that could stay

log = Logger()


class SessionsHere(Protocol):
    """
    The sessions and connections of this node.

    `find` has the session of that name, if it is of that generation or a later one; `supersede` makes the
    connection a superseded one of it. `begin` treats a connection as a new one, which may open a session.
    """

    def find(self, runtime: str, generation: int) -> Session | None: ...
    def supersede(self, connection: Connection, session: Session) -> None: ...
    def lost(self, connection: Connection) -> None: ...
    def begin(self, connection: Connection) -> None: ...
    def close(self, connection: Connection, why: Closing) -> None: ...
    def answer(self, connection: Connection, data: bytes) -> None: ...
    def resumed(self, connection: Connection) -> None: ...
    def receive(self, data: bytes, connection: Connection) -> None: ...
    def settle(self) -> None: ...


class ConnectionCounts(msgspec.Struct):
    """
    The counts of relayed connections since the node started: those of clients here that were `kept` open, of
    these the ones that were `given_up`, because no member was found to hold their session, and those of other
    members that were `attached` here. `connection_malformed` are statements of members.
    """

    kept: int = 0
    given_up: int = 0
    attached: int = 0
    connection_malformed: int = 0


class _Kept(msgspec.Struct, eq=False):
    """
    A superseded connection of a client here; `node` is where its session was found, "" while it is sought.
    """

    connection: Connection
    runtime: str
    generation: int
    owner: str
    until: float
    node: str = ""
    number: int = 0
    is_attached: bool = False
    timer: IDelayedCall | None = None
    waiting: list[bytes] = msgspec.field(default_factory=list)
    size: int = 0  # of those that wait, in bytes
    reasons: set[str] = msgspec.field(default_factory=set)  # why its client is not read
    answer: bytearray = msgspec.field(default_factory=bytearray)


class _Link:
    """
    The part of the link to a member: the connections here that are relayed to it, and those of its clients.
    """

    def __init__(self, queue: ConnectionLink) -> None:
        self.queue = queue
        self.kept: dict[int, _Kept] = {}
        self.remote: dict[int, RemoteConnection] = {}


class ConnectionRelay:
    """
    The superseded connections to and from all members (MembersListener). `holder` is the member that has a
    session of that name, "" if none is known. No message is longer than `message_bytes`.
    """

    def __init__(
        self,
        members: Members,
        here: SessionsHere,
        holder: Callable[[str], str],
        clock: IReactorTime,
        message_bytes: Callable[[], int],
    ) -> None:
        self.counts = ConnectionCounts()
        self._members = members
        self._here = here
        self._holder = holder
        self._clock = clock
        self._message_bytes = message_bytes
        self._links: dict[str, _Link] = {}
        self._kept: dict[Connection, _Kept] = {}
        self._number = 0
        self._logged: set[str] = set()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, connection: Connection) -> bool:
        """
        Is it a connection of a client here, whose session is at another member?
        """
        return connection in self._kept

    # -- connections of clients here ----------------------------------------------------------

    def keep(self, connection: Connection, session: Session) -> bool:
        """
        Relay a connection of a session that moves to another member. False: its client has to come back.
        """
        outbox = session.mailbox.outbox
        counts = outbox is not None and outbox.client_requested
        # The member of a remote connection attaches it to the session's new holder by itself.
        if counts or connection.connector in REQUESTS_ONLY or isinstance(connection, RemoteConnection):
            return False
        until = self._clock.seconds() + SEEK_SECONDS
        generation = session.generation
        kept = _Kept(connection, session.runtime, generation, owner_of(session), until)
        self._kept[connection] = kept
        self.counts.kept += 1
        self._pause(kept, "sought", True)
        # The session is here until its new holder has it.
        kept.timer = self._clock.callLater(0, self._seek, kept)
        return True

    def relay(self, data: bytes, connection: Connection) -> bool:
        """
        Relay a message of a connection without a session here. False: it is none of those.
        """
        kept = self._kept.get(connection)
        if kept is None:
            return False
        if kept.is_attached:
            self._links[kept.node].queue.send(kept.number, False, data)
        elif kept.size < MAX_WAITING_BYTES:
            kept.waiting.append(data)
            kept.size += len(data) + MESSAGE_OVERHEAD_BYTES
        else:
            self._give_up(kept)
            return False
        return True

    def left(self, connection: Connection) -> None:
        """
        The connection is lost, or opens a session here.
        """
        kept = self._kept.get(connection)
        if kept is not None:
            self._detach(kept, say=True)
            self._forget(kept)

    def _forget(self, kept: _Kept) -> None:
        del self._kept[kept.connection]
        if kept.timer is not None and kept.timer.active():
            kept.timer.cancel()
        for reason in list(kept.reasons):
            self._pause(kept, reason, False)

    def _detach(self, kept: _Kept, say: bool = False) -> None:
        link = self._links.get(kept.node)
        if link is not None and link.kept.pop(kept.number, None) is not None and say:
            link.queue.say(Gone(kept.number))
        kept.node, kept.is_attached = "", False
        kept.answer.clear()

    @staticmethod
    def _pause(kept: _Kept, reason: str, on: bool) -> None:
        before = bool(kept.reasons)
        (kept.reasons.add if on else kept.reasons.discard)(reason)
        if before != bool(kept.reasons):
            (kept.connection.pause_reading if on else kept.connection.resume_reading)()

    def _seek(self, kept: _Kept) -> None:
        """
        Attach the connection to its session, where that is now.
        """
        session = self._here.find(kept.runtime, kept.generation)
        if session is not None and owner_of(session) == kept.owner:
            self._return(kept, session)
            return
        if self._clock.seconds() >= kept.until:
            self._give_up(kept)
            return
        kept.timer = self._clock.callLater(RETRY_SECONDS, self._seek, kept)
        node = self._holder(kept.runtime)
        link = self._links.get(node)
        if kept.node or link is None:
            return  # it was asked, and says nothing yet; or is not reached
        self._number += 1
        kept.node, kept.number = node, self._number
        link.kept[kept.number] = kept
        each = kept.connection
        link.queue.say(
            Attach(
                kept.number,
                kept.runtime,
                kept.generation,
                kept.owner,
                each.connector[:256],
                each.peer[:256],
                each.identity[:2048],
            )
        )

    def _seek_again(self, kept: _Kept) -> None:
        if kept.is_attached:
            kept.until = self._clock.seconds() + SEEK_SECONDS
            self._pause(kept, "sought", True)
            self._pause(kept, "holder", False)
            self._pause(kept, "crowded", False)
            kept.timer = self._clock.callLater(RETRY_SECONDS, self._seek, kept)
        self._detach(kept)

    def _lose(self, kept: _Kept) -> None:
        """
        Messages of the client may be lost with the link. It has to know, as if its own connection were lost.
        """
        self._detach(kept)
        self._forget(kept)
        self._here.close(kept.connection, STOPPING)

    def _return(self, kept: _Kept, session: Session) -> None:
        """
        The session has come back to this node.
        """
        self._detach(kept, say=True)
        self._forget(kept)
        if session.connection is None:  # nothing would get the session's messages: its client has to open it
            self._here.close(kept.connection, SUPERSEDED)
            return
        self._here.supersede(kept.connection, session)
        for data in kept.waiting:
            self._here.receive(data, kept.connection)

    def _give_up(self, kept: _Kept) -> None:
        """
        The session was not found: the connection may open one, and what its client has sent is answered.
        """
        self.counts.given_up += 1
        self._detach(kept, say=True)
        self._forget(kept)
        self._here.begin(kept.connection)
        for data in kept.waiting:
            self._here.receive(data, kept.connection)

    def _attached(self, link: _Link, kept: _Kept) -> None:
        kept.is_attached = True
        if kept.timer is not None:
            kept.timer.cancel()
        waiting, kept.waiting, kept.size = kept.waiting, [], 0
        for data in waiting:
            link.queue.send(kept.number, False, data)
        self._pause(kept, "crowded", link.queue.is_crowded)
        self._pause(kept, "sought", False)

    # -- MembersListener ------------------------------------------------------------------

    def member_up(self, node: str, epoch: tuple[bytes, int]) -> None:
        self.member_down(node)

        def crowded(on: bool) -> None:
            self._crowded(link, on)

        link = self._links[node] = _Link(ConnectionLink(self._members, node, crowded))

    def member_down(self, node: str) -> None:
        link = self._links.pop(node, None)
        if link is None:
            return
        for remote in list(link.remote.values()):
            self._drop(link, remote)
        for kept in list(link.kept.values()):
            if kept.is_attached:
                self._lose(kept)
            else:
                self._seek_again(kept)

    def has_room(self, node: str) -> None:
        link = self._links.get(node)
        if link is not None:
            link.queue.go_on()

    def _crowded(self, link: _Link, on: bool) -> None:
        for kept in link.kept.values():
            if kept.is_attached:
                self._pause(kept, "crowded", on)
        for remote in list(link.remote.values()):
            if on:
                remote.write_paused = True
            else:
                self._here.resumed(remote)

    def member_heard(self, node: str, payload: bytes) -> None:
        link = self._links.get(node)
        if link is None:
            return
        try:
            said = decode(payload)
        except ValueError as why:  # also msgspec.DecodeError
            self._malformed(node, str(why)[:200])
            return
        if isinstance(said, Read):
            link.queue.was_read(said.number)
            return
        link.queue.read(len(payload))
        if isinstance(said, Attach):
            self._attach(node, link, said)
        elif isinstance(said, Gone) or (isinstance(said, Piece) and not said.is_back):
            self._of_remote(node, link, said)
        else:
            self._of_kept(node, link, said)

    def _malformed(self, node: str, why: str) -> None:
        self.counts.connection_malformed += 1
        if node not in self._logged:
            self._logged.add(node)
            log.warn("{node} sent a malformed statement about a connection: {why}", node=node, why=why)

    def _of_kept(self, node: str, link: _Link, said: AnyStatement) -> None:
        """
        Handle what the holder of a session says of a connection here.
        """
        kept = link.kept.get(said.number)
        if kept is None:
            return  # it was lost meanwhile
        if isinstance(said, Attached):
            if not kept.is_attached:
                self._attached(link, kept)
        elif isinstance(said, Detached):
            if said.ended:
                self._give_up(kept)
            else:
                self._seek_again(kept)
        elif isinstance(said, Pause):
            self._pause(kept, "holder", said.on)
        elif isinstance(said, Close):
            self._detach(kept)
            self._forget(kept)
            self._here.close(kept.connection, Closing(said.code, said.word, said.retry_after))
        elif isinstance(said, Piece):
            message = self._message(node, kept.answer, said)
            if message is not None:
                self._here.answer(kept.connection, message)

    def _message(self, node: str, pieces: bytearray, piece: Piece) -> bytes | None:
        """
        The message that the piece completes.
        """
        pieces += piece.data
        if len(pieces) > self._message_bytes():
            self._malformed(node, f"a message of more than {self._message_bytes()} bytes")
            pieces.clear()
        elif piece.is_last:
            message = bytes(pieces)
            pieces.clear()
            return message
        return None

    # -- connections of other members -----------------------------------------------------------

    def _attach(self, node: str, link: _Link, attach: Attach) -> None:
        session = self._here.find(attach.runtime, attach.generation)
        if session is None or owner_of(session) != attach.owner or len(link.remote) >= MAX_REMOTE:
            link.queue.say(Detached(attach.number, False))
            return
        if attach.number in link.remote:
            self._malformed(node, f"connection {attach.number} is attached twice")
            return

        def detached(remote: RemoteConnection, ended: bool) -> None:
            # Not at once: the sessions are still being changed.
            self._clock.callLater(0, self._detached, link, remote, ended)

        self.counts.attached += 1
        remote = RemoteConnection(attach, link.queue, self._here.settle, detached)
        link.remote[attach.number] = remote
        link.queue.say(Attached(attach.number))
        self._here.supersede(remote, session)

    def _of_remote(self, node: str, link: _Link, said: Gone | Piece) -> None:
        """
        Handle what a client of another member sends, or that it is gone.
        """
        remote = link.remote.get(said.number)
        if remote is None:
            return  # it is detached, which the member hears soon
        if isinstance(said, Gone):
            self._drop(link, remote)
            return
        message = self._message(node, remote.message, said)
        if message is not None:
            self._here.receive(message, remote)

    def _drop(self, link: _Link, remote: RemoteConnection) -> None:
        del link.remote[remote.number]
        remote.is_open = False
        self._here.lost(remote)

    def _detached(self, link: _Link, remote: RemoteConnection, ended: bool) -> None:
        if link.remote.get(remote.number) is not remote:
            return
        if remote.is_open:
            link.queue.say(Detached(remote.number, ended))
        self._drop(link, remote)


def owner_of(session: Session) -> str:
    """
    The user of a session, "" if it has none.
    """
    return session.proof.user if session.proof is not None else session.identity
