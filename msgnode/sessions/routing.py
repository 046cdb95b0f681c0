"""
What sessions need of the routing table, which is built on them.
"""

from typing import Protocol

from msgnode.sessions.session import Session


class Owners(Protocol):
    """
    The session that announced each address, if any did.
    """

    def get(self, address: str) -> Session | None: ...


class Routes(Protocol):
    """
    The routing table, as those see it who look after sessions (bus/routing_table.py).
    """

    @property
    def owners(self) -> Owners: ...

    def __contains__(self, address: str) -> bool:
        """
        Is anybody bound to it?
        """

    def runtime(self, address: str) -> Session | None:
        """
        The session at or below whose runtimeURL the address lies.
        """

    def is_name(self, address: str) -> bool:
        """
        May no session go by that name, because it is an address of somebody else's?
        """

    def disown(self, address: str, session: Session) -> None:
        """
        The address is not the session's own any longer.
        """

    def join(self, session: Session) -> None:
        """
        The session hears what lies at and below its runtimeURL.
        """

    def rename(self, session: Session, runtime: str) -> None:
        """
        From now on that is its runtimeURL.
        """

    def forget(self, session: Session) -> None:
        """
        The session has ended: nothing is bound to it.
        """
