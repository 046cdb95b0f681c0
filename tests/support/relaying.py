"""
Two nodes of one domain with their HTTP listeners in memory, which relay requests to each other.
"""

from typing import Any

from msgnode.cluster.channels import Channels
from msgnode.cluster.member_requests import MemberRequests
from msgnode.cluster.relay.holders import SidTags, TokenHolders
from msgnode.cluster.relay.member_relay import MemberRelay
from msgnode.cluster.relay.relay import Relay, RelayLimits
from tests.support.cluster_members import MemoryCluster
from tests.support.network import Network

A, B = "mn://example.org/a", "mn://example.org/b"


class RelayingNodes:
    """
    The nodes `a` and `b`. `away` has the members that are down and may soon be back.
    """

    def __init__(self, relay_limits: RelayLimits | None = None, **sections: Any) -> None:
        self.cluster = MemoryCluster(max_payload=32 * 1024)
        self.away: list[str] = []
        self.limits = relay_limits or RelayLimits()
        self.a, self.b = (self._start(name, **sections) for name in (A, B))
        self.cluster.connect()
        self.run()

    def _start(self, name: str, **sections: Any) -> Network:
        network = Network(**sections)
        node, clock = network.node, self.cluster.clock
        network.listener("web")  # makes the resources
        members = self.cluster.start(name)
        members.listener = channels = Channels(members)
        channel = channels.make(b"r")
        channel.listener = requests = MemberRequests(channel, clock)
        channel = channels.make(b"h")
        channel.listener = relay = Relay(channel, clock, self.limits)
        relay.serve = lambda member, request: node.serve_relayed(member, request)
        sessions = node.sessions
        holders = TokenHolders(
            requests,
            lambda token_hash: sessions.by_token_hash(token_hash) is not None,
            members.up,
            lambda: self.away,
            clock.seconds,
        )
        sids = SidTags(members.node, members.epoch)
        relay.on_up.append(sids.member_up)
        node.member_relay = MemberRelay(relay, holders, sids)
        return network

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
