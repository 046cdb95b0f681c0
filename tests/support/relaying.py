"""
Two nodes of one domain with their listeners in memory, which relay requests and connections to each other.
"""

from collections.abc import Callable
from typing import Any

from msgnode.cluster.channels import Channels
from msgnode.cluster.member_requests import MemberRequests
from msgnode.protocol.close_codes import SUPERSEDED
from msgnode.service.cluster_relay import ClusterRelay
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import Sessions
from tests.support.cluster_members import MemoryCluster
from tests.support.network import Network

A, B = "mn://example.org/a", "mn://example.org/b"


class OtherSessions:
    """
    The sessions of the other nodes, as a directory has them (SessionHolders).
    """

    def __init__(self, networks: dict[str, Network], name: str) -> None:
        self._networks = networks
        self._name = name

    def _find(self, has: Callable[[Sessions], Session | None]) -> str:
        found = [name for name, network in self._networks.items() if has(network.node.sessions) is not None]
        return next((name for name in found if name != self._name), "")

    def session_holder(self, name: str) -> str:
        return self._find(lambda sessions: sessions.get(name))

    def token_holder(self, token_hash: bytes) -> str:
        return self._find(lambda sessions: sessions.by_token_hash(token_hash))


class RelayingNodes:
    """
    The nodes `a` and `b`. `away` has the members that are down and may soon be back.
    """

    def __init__(self, **sections: Any) -> None:
        self.cluster = MemoryCluster(max_payload=32 * 1024)
        self.away: list[str] = []
        self.relays: dict[str, ClusterRelay] = {}
        self.networks: dict[str, Network] = {}
        for name in (A, B):
            self._start(name, **sections)
        self.a, self.b = self.networks.values()
        self.cluster.connect()
        self.run()

    def _start(self, name: str, **sections: Any) -> None:
        network = self.networks[name] = Network(**sections)
        network.listener("web")  # makes the resources
        clock, members = self.cluster.clock, self.cluster.start(name)
        members.listener = channels = Channels(members)
        channel = channels.make(b"r")
        channel.listener = requests = MemberRequests(channel, clock)

        self.relays[name] = ClusterRelay(
            network.node,
            channels,
            requests,
            members.up,
            lambda: self.away,
            OtherSessions(self.networks, name),
            clock,
        )

    def let_go(self, network: Network, runtime: str) -> None:
        """
        The node lets a session go, as for a move: connections that can be relayed stay, others are closed.
        """
        sessions = network.node.sessions
        session = sessions.get(runtime)
        assert session is not None
        sessions.release(session, SUPERSEDED)
        sessions.forget_released(session)

    def run(self, seconds: float = 0.1) -> None:
        """
        Let the links between the nodes, and the clients, move for so long.
        """
        for _ in range(round(seconds / 0.02)):
            self.a.pump()
            self.b.pump()
            self.cluster.run(0.02)
        self.a.pump()
        self.b.pump()
