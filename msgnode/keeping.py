"""
What of the sessions is kept on disk: the seam between the core and the store.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from twisted.internet.defer import Deferred, succeed

if TYPE_CHECKING:
    from msgnode.session import Session


class Keeping(Protocol):
    """
    Told of every change that a restart must not undo.

    `changes` rises with each; `failing` says in words why nothing can be
    written now, or is empty.
    """

    changes: int
    failing: str

    def opened(self, session: "Session") -> None: ...
    def changed(self, session: "Session") -> None: ...
    def left(self, session: "Session", when: float | None) -> None: ...
    def ended(self, session: "Session") -> None: ...
    def moved(self, sid: int, other: int) -> None: ...
    def bound(self, sid: int, address: str, kinds: int) -> None: ...
    def keyed(self, sid: int, key: str, addresses: Iterable[str]) -> None: ...
    def unkeyed(self, sid: int, address: str) -> None: ...
    def registered(self, sid: int, url: str) -> None: ...
    def unregistered(self, sid: int, url: str) -> None: ...
    def settled(self) -> "Deferred[None]": ...


class Nothing:
    """
    Keeps nothing: a node without a state directory.
    """

    changes = 0
    failing = ""

    def opened(self, session: "Session") -> None:
        pass

    def changed(self, session: "Session") -> None:
        pass

    def left(self, session: "Session", when: float | None) -> None:
        pass

    def ended(self, session: "Session") -> None:
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
