"""
Whole nodes of one domain in memory, joined by streams, and a directory that all of them share.
"""

from collections.abc import Iterator
from typing import Any

from twisted.internet.defer import Deferred, succeed

from msgnode.cluster.exchange.member_exchange import MemberExchange
from msgnode.links.exchange.envelopes import MessageIds
from tests.support.fakes import Client
from tests.support.links_exchange import Far, MemoryNetwork, View

DOMAIN = "a.example"
MAX_SEGMENTS = 32


class SharedDirectory:
    """
    The addresses and runtimeURLs that each node holds, as all members know them at once.

    `hidden` has addresses that the members do not know, although they are held: only asking finds them,
    unless the members are `busy`.
    """

    def __init__(self) -> None:
        self.held: dict[str, dict[str, None]] = {}
        self.runtimes: dict[str, dict[str, None]] = {}
        self.hidden: set[str] = set()
        self.busy = False
        self.asked: list[str] = []
        self.suspected: set[str] = set()
        self.members: dict[str, MemberExchange] = {}
        self.settling: list[Deferred[None]] | None = None  # a list: nothing is settled yet

    def find(self, address: str, node: str) -> Iterator[str]:
        found = self.held.get(address)
        if not found:
            for _ in range(MAX_SEGMENTS):
                found = self.runtimes.get(address)
                if found or "/" not in address:
                    break
                address = address.rpartition("/")[0]
        return (each for each in found or () if each != node)

    def gateways(self, address: str, node: str) -> Iterator[str]:
        return (name for name, member in self.members.items() if name != node and member.is_held(address))


class DirectoryView:
    """
    The shared directory as one node has it (MemberDirectory).
    """

    def __init__(self, shared: SharedDirectory, node: str) -> None:
        self._shared = shared
        self._node = node

    def holders(self, address: str) -> tuple[str, ...]:
        return () if address in self._shared.hidden else tuple(self._shared.find(address, self._node))

    def newer_holder(self, name: str, generation: int) -> str:
        return next(iter(self.holders(name)), "")

    def shared(self, address: str) -> tuple[str, ...]:
        return tuple(each for each in self._shared.held.get(address, ()) if each != self._node)

    def ask(self, address: str) -> Deferred[tuple[str, ...] | None]:
        self._shared.asked.append(address)
        if self._shared.busy:
            return succeed(None)
        found = tuple(self._shared.find(address, self._node))
        return succeed(found or tuple(self._shared.gateways(address, self._node)))

    def bound(self, address: str) -> None:
        self._shared.held.setdefault(address, {})[self._node] = None

    def unbound(self, address: str) -> None:
        self._shared.held.get(address, {}).pop(self._node, None)

    def is_suspected(self, node: str) -> bool:
        return node in self._shared.suspected

    def session_bound(self, name: str, token_hash: bytes, generation: int) -> None:
        self._shared.runtimes.setdefault(name, {})[self._node] = None

    def session_unbound(self, name: str) -> None:
        self._shared.runtimes.get(name, {}).pop(self._node, None)

    def settled(self, address: str) -> Deferred[None]:
        if self._shared.settling is None:
            return succeed(None)
        self._shared.settling.append(Deferred())
        return self._shared.settling[-1]


class ClusterNode(Far):
    """
    A member, with a client by name.
    """

    def __init__(self, network: "MemoryCluster", node: str, start: int, **given: Any) -> None:
        super().__init__(network, DOMAIN, start, node, **given)
        self.members = MemberExchange(
            self.node,
            self.streams,
            View(network, self.name),
            self.exchange,
            DirectoryView(network.directory, self.name),
            MessageIds(node.encode(), start),
            self.node.traffic_recorder,
            network.clock.seconds,
        )
        network.directory.members[self.name] = self.members

    def bare(self, name: str) -> Client:
        """
        A client with a session, and no other address.
        """
        client = Client(self.node)
        client.open(f"runtime://{self.domain}/{name}")
        return client


class MemoryCluster(MemoryNetwork):
    """
    Nodes `n1`, `n2` and so on of one domain. With `foreign`, which has one node, the first `gateways` are
    gateways to it.
    """

    def __init__(self, count: int, foreign: str = "", gateways: int = 1, **given: Any) -> None:
        super().__init__(*([foreign] if foreign else ()))
        self.directory = SharedDirectory()
        self._starts = 0
        self.domains.add(DOMAIN)
        for number in range(1, count + 1):
            self.start(number, bool(foreign) and number <= gateways, **given)

    def start(self, number: int, is_gateway: bool, **given: Any) -> ClusterNode:
        """
        Start a node, or start it again without its memory.
        """
        self._starts += 1
        far = ClusterNode(self, f"n{number}", self._starts, **given)
        self.nodes[far.name] = far
        if not is_gateway:
            self.unlinked.add(far.name)
        far.exchange.start(federates=is_gateway)
        far.members.start(is_gateway, lambda: self.domains)
        return far

    def __getitem__(self, node: str) -> ClusterNode:
        found = self.nodes[f"mn://{DOMAIN}/{node}"]
        assert isinstance(found, ClusterNode)
        return found
