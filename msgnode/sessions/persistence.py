"""
Persistence of sessions: the Protocols of the session store and the message log, their null objects, and what
a session writes of its moves between nodes.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
from twisted.internet.defer import Deferred, succeed

from msgnode.sessions.principal import Principal
from msgnode.sessions.queue import QueuedMessage

MAX_HANDOVERS = 16  # that are remembered for one session after they have ended
MAX_CLAIMS = 16


class SessionMove(msgspec.Struct, omit_defaults=True):
    """
    The moves of a session. With `to` it was released to that node, with `generation` there, by the handover
    `id` (in hexadecimal): only its messages are still here.

    `progress` has for each handover that came, by its sender and id, the key up to which its messages are
    here, and whether it has ended. With `behind` others arrive: what was sent here has keys above it.
    `claims` has how many messages of each earlier epoch the client has had, and `marks` the last copies of
    publications that it has had at earlier nodes, by instance (in hexadecimal) and priority.
    """

    id: str = ""
    to: str = ""
    generation: int = 0
    behind: int = 0
    claims: dict[str, int] = {}
    progress: dict[str, tuple[int, bool]] = {}
    marks: list[tuple[str, int, int]] = []

    def note_progress(self, handover: str, key: int, has_ended: bool) -> None:
        self.progress.pop(handover, None)
        self.progress[handover] = (key, has_ended)
        ended = [each for each, (_, is_over) in self.progress.items() if is_over]
        for each in ended[:-MAX_HANDOVERS]:
            del self.progress[each]

    def note_claim(self, epoch: str, received: int) -> None:
        self.claims.pop(epoch, None)
        self.claims[epoch] = received
        while len(self.claims) > MAX_CLAIMS:
            del self.claims[next(iter(self.claims))]


class SessionRecord(Protocol):
    """
    The fields of a session that are stored on disk, without its bindings.

    `used`: has it ever had an address? `identity` is the owner by a client certificate, `host` the host that
    opened it.
    """

    sid: int
    runtime: str
    token_hash: bytes
    anonymous: bool
    used: bool
    identity: str
    host: str
    proof: Principal | None


class SessionStore(Protocol):
    """
    The store of sessions, which gets every change that a restart must not undo.

    `changes` counts them; `failing` is the reason why nothing can be written now, or empty.
    """

    changes: int
    failing: str

    def opened(self, session: SessionRecord) -> None: ...
    def changed(self, session: SessionRecord) -> None: ...
    def disconnected(self, session: SessionRecord, when: float | None) -> None: ...
    def ended(self, session: SessionRecord) -> None: ...
    def moved(self, sid: int, other: int) -> None: ...
    def bound(self, sid: int, address: str, kinds: int) -> None: ...
    def keyed(self, sid: int, key: str, addresses: Iterable[str]) -> None: ...
    def unkeyed(self, sid: int, address: str) -> None: ...
    def registered(self, sid: int, url: str) -> None: ...
    def unregistered(self, sid: int, url: str) -> None: ...
    def committed(self) -> "Deferred[None]": ...


class NullSessionStore:
    """
    The null object of the session store: a node without a state directory.
    """

    changes = 0
    failing = ""

    def opened(self, session: SessionRecord) -> None:
        pass

    def changed(self, session: SessionRecord) -> None:
        pass

    def disconnected(self, session: SessionRecord, when: float | None) -> None:
        pass

    def ended(self, session: SessionRecord) -> None:
        pass

    def moved(self, sid: int, other: int) -> None:
        pass

    def bound(self, sid: int, address: str, kinds: int) -> None:
        pass

    def keyed(self, sid: int, key: str, addresses: Iterable[str]) -> None:
        pass

    def unkeyed(self, sid: int, address: str) -> None:
        pass

    def registered(self, sid: int, url: str) -> None:
        pass

    def unregistered(self, sid: int, url: str) -> None:
        pass

    def committed(self) -> "Deferred[None]":
        return succeed(None)


class MessageLog(Protocol):
    """
    The storage of the journal: a Spool, or a NullMessageLog.
    """

    live: int  # bytes of undelivered messages
    size: int  # bytes on disk
    rewriting: bool  # all is being rewritten; the earlier records are valid until that is done

    @property
    def failing(self) -> str | None: ...

    @property
    def segments(self) -> int: ...

    @property
    def offset(self) -> int:
        """
        The offset of the next record in the batch that `flush` will write.
        """

    def append(
        self, sid: int, key: int, data: bytes, until: float, priority: int, asker: int, number: int
    ) -> int: ...
    def append_sent(self, sent: list[tuple[int, QueuedMessage, int]]) -> None: ...
    def append_records(self, records: bytes, live: int) -> int: ...
    def sent(self, sid: int, key: int, number: int) -> None: ...
    def removed(self, sid: int, key: int, missed: bool) -> None: ...
    def acknowledged(self, sid: int, number: int) -> None: ...
    def received(self, sid: int, received: int, pending: Sequence[int]) -> None: ...
    def state(self, sid: int, state: bytes, fresh: bool = False) -> None: ...
    def copies(self, sid: int, instance: bytes, copies: Sequence[tuple[int, int]]) -> None: ...
    def forget(self, sid: int) -> None: ...
    def flush(self) -> bool: ...
    def holds(self, place: int, size: int) -> bool: ...
    def read(self, place: int, size: int) -> bytes: ...
    def release(self, size: int) -> None: ...


class NullMessageLog:
    """
    The null object of the message log: a node without a state directory.
    """

    failing: str | None = None
    live = 0
    size = 0
    segments = 0
    offset = 0
    rewriting = False

    def append(
        self, sid: int, key: int, data: bytes, until: float, priority: int, asker: int, number: int
    ) -> int:
        return 0

    def append_sent(self, sent: list[tuple[int, QueuedMessage, int]]) -> None:
        pass

    def append_records(self, records: bytes, live: int) -> int:
        return 0

    def sent(self, sid: int, key: int, number: int) -> None:
        pass

    def removed(self, sid: int, key: int, missed: bool) -> None:
        pass

    def acknowledged(self, sid: int, number: int) -> None:
        pass

    def received(self, sid: int, received: int, pending: Sequence[int]) -> None:
        pass

    def state(self, sid: int, state: bytes, fresh: bool = False) -> None:
        pass

    def copies(self, sid: int, instance: bytes, copies: Sequence[tuple[int, int]]) -> None:
        pass

    def forget(self, sid: int) -> None:
        pass

    def flush(self) -> bool:
        return True

    def holds(self, place: int, size: int) -> bool:
        return False

    def read(self, place: int, size: int) -> bytes:
        raise LookupError("nothing is kept on disk")

    def release(self, size: int) -> None:
        pass
