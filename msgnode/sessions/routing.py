"""
The port of sessions to the routing table, which is built on sessions, and the kinds of bindings.
"""

from typing import Protocol

from msgnode.sessions.session import Session

# The reasons for a binding of a session to an address, as flags.
ALLOCATED, SUBSCRIBED, LEARNED = 1, 2, 4
OWNED = 8  # in addition to those: the session owns the address
RUNTIMES = (
    "runtime://",
    "hyperty-runtime://",
)  # schemes of runtimeURLs; a session owns the addresses below its own


class Owners(Protocol):
    """
    The session that announced each address, if there is one.
    """

    def get(self, address: str) -> Session | None: ...


class Routes(Protocol):
    """
    The routing table as sessions use it (bus/routing_table.py).
    """

    @property
    def owners(self) -> Owners: ...

    def __contains__(self, address: str) -> bool:
        """
        Is any session bound to the address?
        """

    def runtime(self, address: str) -> Session | None:
        """
        The session whose runtimeURL is the address or is above it.
        """

    def is_name(self, address: str) -> bool:
        """
        Is the name an address of another session, so that no session may have it as its runtimeURL?
        """

    def disown(self, address: str, session: Session) -> None:
        """
        Ends the session's ownership of the address.
        """

    def join(self, session: Session) -> None:
        """
        Binds the session to the addresses at and below its runtimeURL.
        """

    def rename(self, session: Session, runtime: str) -> None:
        """
        Changes the runtimeURL of the session.
        """

    def token_changed(self, session: Session) -> None:
        """
        Notes that the session has another token, or none.
        """

    def forget(self, session: Session) -> None:
        """
        Removes all bindings of a session that has ended.
        """
