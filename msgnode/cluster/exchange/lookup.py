"""
The lookup of the members that hold an address, or that reach its domain.
"""

from collections.abc import Callable

from twisted.internet.defer import Deferred, gatherResults

from msgnode.cluster.directory_view import MemberDirectory
from msgnode.policy.decision.addresses import split
from msgnode.protocol.address import is_multicast
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.routing import RUNTIMES
from msgnode.sessions.session import Session
from msgnode.structures.bounded_cache import BoundedCache

UNKNOWN_SECONDS = 1.0  # for which members are not asked again for an address that none of them holds
MAX_UNKNOWN = 10_000
GATEWAY_SECONDS = 30.0  # for which a member is known to reach another domain


class MemberLookup:
    """
    The lookup of members. `own` is this domain; `resolve` finds the sessions here, and `home` the domain of
    an address that this node reaches by itself, "" if there is none.
    """

    def __init__(
        self,
        directory: MemberDirectory,
        own: str,
        resolve: Callable[[str], tuple[Session, ...]],
        home: Callable[[str], str],
        seconds: Callable[[], float],
    ) -> None:
        self.federates = False  # does this node reach other domains by itself?
        self._directory = directory
        self._own = own
        self._resolve = resolve
        self._home = home
        self._seconds = seconds
        self._unknown: BoundedCache[str, float] = BoundedCache(MAX_UNKNOWN)
        self._gateways: BoundedCache[str, tuple[str, float]] = BoundedCache(MAX_UNKNOWN)  # by host

    def holders(self, address: str, is_held_here: bool) -> tuple[str, ...]:
        if is_held_here:
            # A session here that has it as part of its runtimeURL is the only one.
            return () if address.startswith(RUNTIMES) else self._directory.shared(address)
        if address.startswith("mn:"):
            return ()
        found = self._directory.holders(address)
        if found or not self._gateways or self.is_own(address):
            return found
        return self._gateway(split(address)[1])

    def _gateway(self, host: str) -> tuple[str, ...]:
        """
        The member that reaches the domain of this host, as it has said lately.
        """
        gateway, until = self._gateways.get(host) or ("", 0.0)
        return (gateway,) if gateway and self._seconds() < until else ()

    def is_own(self, address: str) -> bool:
        """
        Is it an address of this domain?
        """
        host = split(address)[1]
        return host == self._own or host.endswith(f".{self._own}")

    def is_held(self, address: str) -> bool:
        """
        Does this node hold the address, or reach its domain? What it answers when a member asks.
        """
        if self._resolve(address):
            return True
        return self.federates and self._home(address) not in ("", self._own)

    def is_held_elsewhere(self, address: str) -> bool:
        directory = self._directory
        found = directory.holders(address) if address.startswith(RUNTIMES) else directory.shared(address)
        return any(not directory.is_suspected(node) for node in found)

    def ask(self, address: str) -> Deferred[tuple[str, ...]] | None:
        if is_multicast(address) and self.is_own(address):
            return None  # every subscriber's member has told it
        now = self._seconds()
        unknown_since = self._unknown.get(address)
        if unknown_since is not None and now < unknown_since + UNKNOWN_SECONDS:
            return None
        return self._directory.ask(address).addCallback(self._asked, address)

    def subscribe(self, message: Message, addresses: list[str], session: Session) -> Deferred[None] | None:
        """
        Refuses subscriptions in domains that another member reaches, for nothing published there would come.
        """
        hosts = dict.fromkeys(split(address)[1] for address in addresses if not self.is_own(address))
        if not hosts:
            return None
        # Not for the address itself, because a member that has only subscribers of it would answer, too.
        asked = [self._directory.ask(f"domain://msg-node.{host}/sm") for host in hosts]
        return gatherResults(asked).addCallback(_check_unreached)

    def _asked(self, nodes: tuple[str, ...], address: str) -> tuple[str, ...]:
        if not nodes:
            self._unknown.put(address, self._seconds())
        elif not self.is_own(address):
            nodes = nodes[:1]
            self._gateways.put(split(address)[1], (nodes[0], self._seconds() + GATEWAY_SECONDS))
        return nodes


def _check_unreached(found: list[tuple[str, ...]]) -> None:
    for nodes in found:
        if nodes:
            raise Rejected(f"subscribe at {nodes[0]}, which has links to that domain", 502, "no-path")
