"""
Two nodes of one domain with their listeners in memory, which relay requests and connections to each other.
"""

from typing import Any

from msgnode.cluster.channels import Channels
from msgnode.cluster.member_requests import MemberRequests
from msgnode.protocol.close_codes import SUPERSEDED
from msgnode.service.cluster_relay import ClusterRelay
from tests.support.cluster_members import MemoryCluster
from tests.support.network import Network

A, B = "mn://example.org/a", "mn://example.org/b"


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

        def holders(runtime: str) -> tuple[str, ...]:
            """
            The other members that hold the session, as a directory has them.
            """
            others = [other for other in self.networks if other != name]
            return tuple(each for each in others if self.networks[each].node.sessions.get(runtime))

        self.relays[name] = ClusterRelay(
            network.node, channels, requests, members.up, lambda: self.away, holders, clock
        )

    def let_go(self, network: Network, runtime: str) -> None:
        """
        The node lets a session go, as for a move: connections that can be relayed stay, others are closed.
        """
        sessions = network.node.sessions
        session = sessions.get(runtime)
        assert session is not None
        sessions.leave_connections(session)
        sessions.suspend(session, SUPERSEDED)
        sessions.end(session, "closed")

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
