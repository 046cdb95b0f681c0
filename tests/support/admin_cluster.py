"""
Two nodes of a domain in memory, of which an operator asks the first.
"""

from msgnode.cluster.member_requests import MemberRequests
from tests.support.admin_case import AdminCase, C
from tests.support.cluster_members import MemoryCluster
from tests.support.fakes import MemoryNode, directory
from tests.support.network import Network
from tests.support.runtimes import TCPRuntime

HERE, THERE = "mn://example.org/test", "mn://example.org/other"


class ClusterCase(AdminCase):
    """
    Two nodes; the operator asks the first, the client C is at the second.
    """

    sections = {
        "cluster": {"members": ["test", "other"]},
        "pools": {"guests": {"scheme": "sip", "pattern": "sip:guest{1..2}@example.org"}},
    }

    def setUp(self) -> None:
        super().setUp()
        self.other = Network(
            MemoryNode(clock=self.node.clock, state=str(directory(self)), node="other", **self.sections)
        )
        self.other.tokens.startService()
        self.other.listener("admin")
        self.net.listener("admin")
        self.cluster = MemoryCluster(clock=self.net.clock)
        for network, name in ((self.net, HERE), (self.other, THERE)):
            self.join(network, name)
        self.cluster.connect()
        self.net.advance(0.1)
        self.far = TCPRuntime(self.other, C).open()

    def join(self, network: Network, name: str) -> None:
        members = self.cluster.start(name)
        members.listener = requests = MemberRequests(members, self.cluster.clock)
        network.node.operator_requests.join(requests, lambda: (HERE, THERE))

    def other_sessions(self) -> list[str]:
        return [each.runtime for each in self.other.node.sessions if each.connection is not None]
