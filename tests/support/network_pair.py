"""
Two nodes of one domain with their listeners in memory, for the suites of the connectors.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from msgnode.cluster.exchange.member_exchange import MemberExchange
from msgnode.links.exchange.envelopes import MessageIds
from msgnode.links.exchange.exchange import Exchange
from msgnode.links.exchange.node_parts import ExchangeOptions
from msgnode.sessions.session import Session
from tests.support.cluster_nodes import DirectoryView, SharedDirectory
from tests.support.fakes import MemoryNode, MemoryTrafficRecorder, Turns
from tests.support.links_exchange import MemoryNetwork, MemoryStreams, SharedKeySigner, View
from tests.support.made_policies import use
from tests.support.network import Network
from tests.support.world import World


class _Streams(MemoryNetwork):
    """
    The streams between two nodes, on a clock of theirs.
    """

    def __init__(self, clock: Turns, domain: str) -> None:
        super().__init__()
        self.clock = clock
        self.domains.add(domain)


class _Member:
    """
    A node of the domain, as MemoryNetwork has it.
    """

    def __init__(self, network: _Streams, directory: SharedDirectory, number: int, node: MemoryNode) -> None:
        domain = node.config.domain
        self.name = f"mn://{domain}/n{number}"
        self.node = node
        self.streams = MemoryStreams(network, self.name)
        ids = MessageIds(bytes([number]), 1)
        self.exchange = Exchange(
            node,
            self.streams,
            View(network, self.name),
            ids,
            network.clock,
            node.traffic_recorder,
            ExchangeOptions(),
            SharedKeySigner(self.name),
            node.wall,
        )
        self.members = MemberExchange(
            node,
            self.streams,
            View(network, self.name),
            self.exchange,
            DirectoryView(directory, self.name),
            ids,
            node.traffic_recorder,
            network.clock.seconds,
        )
        directory.members[self.name] = self.members
        network.nodes[self.name] = self  # type: ignore[assignment]
        self.exchange.start(federates=False)
        self.members.start(False)


class PairedNetwork(Network):
    """
    One of two nodes; what moves here moves at the other, too, and between them.
    """

    pair: "NetworkPair"

    def pump(self) -> None:
        self.pair.pump()


class PairedSessions:
    """
    The sessions of both nodes; `exchanges` end with them.
    """

    def __init__(self, nodes: Sequence[MemoryNode], exchanges: Sequence[Exchange]) -> None:
        self._exchanges = exchanges
        self._all = [node.sessions for node in nodes]

    def __iter__(self) -> Iterator[Session]:
        return chain(*self._all)

    def __len__(self) -> int:
        return sum(map(len, self._all))

    def get(self, runtime: str) -> Session | None:
        found = (sessions.get(runtime) for sessions in self._all)
        return next((session for session in found if session is not None), None)

    @property
    def connections(self) -> list[Any]:
        return [connection for sessions in self._all for connection in sessions.connections]

    def startService(self) -> None:
        for sessions in self._all:
            sessions.startService()

    def stopService(self) -> Deferred[Any]:
        for exchange in self._exchanges:
            exchange.stop()
        return gatherResults([sessions.stopService() for sessions in self._all])


class PairedCounts:
    """
    The counts of both nodes, added.
    """

    def __init__(self, nodes: Sequence[MemoryNode]) -> None:
        self._nodes = nodes

    def __getattr__(self, name: str) -> Any:
        first, second = (getattr(node.counts, name) for node in self._nodes)
        return first + second


class PairedNode:
    """
    Both nodes, seen as one; what has no meaning for two is that of the first.
    """

    def __init__(self, nodes: Sequence[MemoryNode], exchanges: Sequence[Exchange]) -> None:
        self._nodes = nodes
        self.sessions = PairedSessions(nodes, exchanges)
        self.counts = PairedCounts(nodes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nodes[0], name)


class NetworkPair:
    """
    Two nodes of the domain example.org, with these sections of the configuration file. It is what the suites
    see of a Network; what has no meaning for two is that of the first.
    `nodes` are others, on one clock.
    """

    def __init__(self, nodes: tuple[MemoryNode, MemoryNode] | None = None, **sections: Any) -> None:
        given = {"world": World, "clock": Turns(), "traffic_recorder": MemoryTrafficRecorder(), **sections}
        nodes = nodes or (MemoryNode(**given), MemoryNode(**given))
        clock = nodes[0].clock
        self.streams = _Streams(clock, nodes[0].config.domain)
        directory = SharedDirectory()
        members = [_Member(self.streams, directory, number, node) for number, node in enumerate(nodes, 1)]
        self.networks = PairedNetwork(nodes[0]), PairedNetwork(nodes[1])
        for network in self.networks:
            network.pair = self
        self.node = PairedNode(nodes, [member.exchange for member in members])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.networks[0], name)

    def use(self, *rules: dict[str, Any], **how: Any) -> None:
        """
        Make these policies live at both nodes.
        """
        for network in self.networks:
            use(network.node, *rules, **how)

    def pump(self) -> None:
        """
        Move everything that can move, at this moment of the clock.
        """
        for _ in range(1000):
            for network in self.networks:
                Network.pump(network)
            if not self.streams.wire:
                break
            self.streams.flow()
        else:
            raise AssertionError("it never comes to rest")
