"""
What of the sessions is kept on disk: the seam between the core and the store.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from twisted.internet.defer import Deferred, succeed

from msgnode.sessions.principal import Principal
from msgnode.sessions.queue import QueuedMessage


class SessionRecord(Protocol):
    """
    The fields of a session that are kept on disk, beside what is bound to it.

    `used`: has it ever had an address?  `identity` is who a certificate has
    shown to be its owner, `host` where it was opened from.
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
    Told of every change that a restart must not undo.

    `changes` rises with each; `failing` says in words why nothing can be
    written now, or is empty.
    """

    changes: int
    failing: str

    def opened(self, session: SessionRecord) -> None: ...
    def changed(self, session: SessionRecord) -> None: ...
    def left(self, session: SessionRecord, when: float | None) -> None: ...
    def ended(self, session: SessionRecord) -> None: ...
    def moved(self, sid: int, other: int) -> None: ...
    def bound(self, sid: int, address: str, kinds: int) -> None: ...
    def keyed(self, sid: int, key: str, addresses: Iterable[str]) -> None: ...
    def unkeyed(self, sid: int, address: str) -> None: ...
    def registered(self, sid: int, url: str) -> None: ...
    def unregistered(self, sid: int, url: str) -> None: ...
    def settled(self) -> "Deferred[None]": ...


class NullSessionStore:
    """
    Keeps nothing: a node without a state directory.
    """

    changes = 0
    failing = ""

    def opened(self, session: SessionRecord) -> None:
        pass

    def changed(self, session: SessionRecord) -> None:
        pass

    def left(self, session: SessionRecord, when: float | None) -> None:
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

    def settled(self) -> "Deferred[None]":
        return succeed(None)


class MessageLog(Protocol):
    """
    The storage of the journal: a Spool, or a NullMessageLog.
    """

    live: int  # bytes of messages still owed
    anew: bool  # all is being written anew, and what was written before counts until then

    @property
    def failing(self) -> OSError | MemoryError | None: ...

    def keep(
        self, sid: int, key: int, data: bytes, until: float, priority: int, asker: int, number: int
    ) -> int: ...
    def keep_sent(self, sent: list[tuple[int, QueuedMessage, int]]) -> None: ...
    def left(self, sid: int, key: int, number: int) -> None: ...
    def gone(self, sid: int, key: int, missed: bool) -> None: ...
    def acknowledged(self, sid: int, number: int) -> None: ...
    def heard(self, sid: int, received: int, pending: Sequence[int]) -> None: ...
    def state(self, sid: int, state: bytes, fresh: bool = False) -> None: ...
    def forget(self, sid: int) -> None: ...
    def settle(self) -> bool: ...
    def holds(self, place: int, size: int) -> bool: ...
    def read(self, place: int, size: int) -> bytes: ...
    def release(self, size: int) -> None: ...


class NullMessageLog:
    """
    A node that keeps nothing on disk.
    """

    failing: OSError | MemoryError | None = None
    live = 0
    anew = False

    def keep(
        self, sid: int, key: int, data: bytes, until: float, priority: int, asker: int, number: int
    ) -> int:
        return 0

    def keep_sent(self, sent: list[tuple[int, QueuedMessage, int]]) -> None:
        pass

    def left(self, sid: int, key: int, number: int) -> None:
        pass

    def gone(self, sid: int, key: int, missed: bool) -> None:
        pass

    def acknowledged(self, sid: int, number: int) -> None:
        pass

    def heard(self, sid: int, received: int, pending: Sequence[int]) -> None:
        pass

    def state(self, sid: int, state: bytes, fresh: bool = False) -> None:
        pass

    def forget(self, sid: int) -> None:
        pass

    def settle(self) -> bool:
        return True

    def holds(self, place: int, size: int) -> bool:
        return False

    def read(self, place: int, size: int) -> bytes:
        raise LookupError("nothing is kept on disk")

    def release(self, size: int) -> None:
        pass
