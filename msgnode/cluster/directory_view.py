"""
The directory of a cluster as the bus sees it: the members that hold each address.
"""

from typing import Protocol

from twisted.internet.defer import Deferred


class Directory(Protocol):
    """
    The directory of the domain's addresses.
    """

    def holders(self, address: str) -> tuple[str, ...]:
        """
        The other members that hold the address, by name; () if none is known. One dict access for a known
        address. A suspected member is among them.
        """

    def bound(self, address: str) -> None:
        """
        Notes that a session here is bound to the address; to call it again changes nothing.
        """

    def unbound(self, address: str) -> None:
        """
        Notes that no session here is bound to the address any more.
        """

    def settled(self, address: str) -> Deferred[None]:
        """
        Fires once all unsuspected members have the last change of the address; after 0.5 s at most.
        """


class MemberDirectory(Directory, Protocol):
    """
    The directory as the exchange between members uses it.
    """

    def shared(self, address: str) -> tuple[str, ...]:
        """
        The other members that hold this very address. One dict access.
        """

    def newer_holder(self, name: str, generation: int) -> str:
        """
        The other member that holds the session with this generation or a higher one; "" if none does.
        """

    def is_suspected(self, node: str) -> bool:
        """
        Was nothing heard of the member for a while?
        """

    def session_bound(self, name: str, token_hash: bytes, generation: int) -> None:
        """
        Notes that this node holds a session with this runtimeURL, and everything below it.
        """

    def session_unbound(self, name: str) -> None:
        """
        Notes that this node holds it no more.
        """

    def ask(self, address: str) -> Deferred[tuple[str, ...] | None]:
        """
        The members that hold the address, by asking all that are up; None if some of them do not answer for
        some seconds. Never fails.
        """
