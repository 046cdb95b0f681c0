"""
The parts of a node that the moves of its sessions need.
"""

from contextlib import AbstractContextManager
from typing import Any, Protocol

from msgnode.bus.router import Router
from msgnode.cluster.moves import session_transfer as transfer
from msgnode.links.exchange.awaited import MovedRequest
from msgnode.sessions.limits.memory_budget import Budget
from msgnode.sessions.persistence import MessageLog
from msgnode.sessions.session import Session
from msgnode.structures.time_slices import Slices


class Routes(transfer.Bindings, Protocol):
    """
    The routing table, as moves use it.
    """

    def join(self, session: Session) -> None: ...
    def forget(self, session: Session) -> None: ...


class Registered(Protocol):
    """
    The table of the sessions' registrations at the domain registry.
    """

    def of(self, session: Session) -> list[str]: ...
    def restore(self, session: Session, url: str, owner: str) -> None: ...
    def forget(self, session: Session) -> None: ...


class Identities(Protocol):
    """
    The timers of the sessions' identities.
    """

    def resume(self, session: Session) -> object: ...


class Parts(transfer.Parts, Protocol):
    """
    The parts of a node that its moving sessions need.
    """

    slices: Slices
    message_log: MessageLog
    budget: Budget

    @property
    def registered(self) -> Registered: ...

    @property
    def router(self) -> Router: ...

    @property
    def identity_expiry(self) -> Identities: ...

    @property
    def routes(self) -> Routes: ...

    @property
    def together(self) -> AbstractContextManager[Any]:
        """
        The collection of the output of one piece of work, so that it is on disk before it is sent.
        """


class Requests(Protocol):
    """
    The requests of sessions here to other nodes that are not answered yet.
    """

    def awaited_of(self, session: Session) -> list[MovedRequest]: ...
    def told_to(self, session: Session) -> list[bytes]: ...
    def adopt_told(self, told: list[bytes], session: Session) -> None: ...
    def is_expected(self, data: bytes) -> bool: ...
    def adopt_awaited(self, requests: list[MovedRequest], session: Session) -> None: ...
    def forget_awaited(self, session: Session) -> None: ...


class NoRequests:
    """
    The port of sessions that wait for no answer (Requests).
    """

    def awaited_of(self, session: Session) -> list[MovedRequest]:
        return []

    def told_to(self, session: Session) -> list[bytes]:
        return []

    def adopt_told(self, told: list[bytes], session: Session) -> None: ...

    def is_expected(self, data: bytes) -> bool:
        return True

    def adopt_awaited(self, requests: list[MovedRequest], session: Session) -> None: ...
    def forget_awaited(self, session: Session) -> None: ...
