"""
The lookup of the members that hold an address, or that reach its domain.
"""

from collections.abc import Callable, Mapping

from twisted.internet.defer import Deferred

from msgnode.cluster.directory_view import MemberDirectory
from msgnode.policy.decision.addresses import split
from msgnode.protocol.address import is_multicast
from msgnode.sessions.routing import RUNTIMES
from msgnode.sessions.session import Session
from msgnode.structures.bounded_cache import BoundedCache

UNKNOWN_SECONDS = 1.0  # for which members are not asked again for an address that none of them holds
MAX_UNKNOWN = 10_000


class MemberLookup:
    """
    The lookup of members. `own` is this domain; `resolve` finds the sessions here, and `is_reached` says
    whether this node reaches the domain of an address by itself, `is_sender` whether a response to it is
    expected here outside of all sessions. `released` are the sessions here that
    another member has now, and that are still being handed over, by sid.
    """

    def __init__(
        self,
        directory: MemberDirectory,
        own: str,
        resolve: Callable[[str], tuple[Session, ...]],
        is_reached: Callable[[str], bool],
        is_sender: Callable[[str], bool],
        seconds: Callable[[], float],
        released: Mapping[int, Session],
    ) -> None:
        self._directory = directory
        self._own = own
        self._resolve = resolve
        self._is_reached = is_reached
        self._is_sender = is_sender
        self._seconds = seconds
        self._released = released
        self._unknown: BoundedCache[str, float] = BoundedCache(MAX_UNKNOWN)

    def holders(self, address: str, is_held_here: bool) -> tuple[str, ...]:
        if is_held_here:
            # A session here that has it as part of its runtimeURL is the only one, unless it is moving.
            if address.startswith(RUNTIMES):
                return self._moving_to(address) if self._released else ()
            return self._directory.shared(address)
        if address.startswith("mn:"):
            return ()
        return self._directory.holders(address)

    def _moving_to(self, address: str) -> tuple[str, ...]:
        """
        The member that has the session now which is found here by its name. It gets what clients here send;
        else a message to its name would come after a later publication. An earlier holder does not count.
        """
        found = self._resolve(address)
        if len(found) != 1 or found[0].sid not in self._released:
            return ()
        session = found[0]
        generation = session.move.generation if session.move is not None else 0
        node = self._directory.newer_holder(session.runtime, generation)
        return (node,) if node else ()

    def is_own(self, address: str) -> bool:
        """
        Is it an address of this domain?
        """
        host = split(address)[1]
        return host == self._own or host.endswith(f".{self._own}")

    def is_held(self, address: str) -> bool:
        """
        Does this node hold the address, reach its domain, or wait for a response to it? What it answers when
        a member asks.
        """
        return bool(self._resolve(address)) or self._is_reached(address) or self._is_sender(address)

    def came_here(self, address: str) -> bool:
        """
        Is it the address of one session, which this node holds, and no other member any more?
        """
        if not self.is_here(address):
            return False
        return not self._directory.holders(self._resolve(address)[0].runtime)

    def is_here(self, address: str) -> bool:
        """
        Is it the address of one session, which this node holds?
        """
        found = self._resolve(address)
        return len(found) == 1 and not found[0].is_node and found[0].sid not in self._released

    def is_held_elsewhere(self, address: str) -> bool:
        directory = self._directory
        found = directory.holders(address) if address.startswith(RUNTIMES) else directory.shared(address)
        return any(not directory.is_suspected(node) for node in found)

    def ask(self, address: str, has_moved: bool = False) -> Deferred[tuple[str, ...]] | None:
        if not has_moved and is_multicast(address) and self.is_own(address):
            return None  # every subscriber's member has told it
        now = self._seconds()
        unknown_since = self._unknown.get(address)
        if unknown_since is not None and now < unknown_since + UNKNOWN_SECONDS:
            return None
        return self._directory.ask(address).addCallback(self._asked, address)

    def _asked(self, nodes: tuple[str, ...] | None, address: str) -> tuple[str, ...]:
        if nodes is None:
            return ()  # a member that did not answer may hold it: it is asked again the next time
        if not nodes:
            self._unknown.put(address, self._seconds())
        elif not self.is_own(address):
            nodes = nodes[:1]
        return nodes
