"""
Nodes of a cluster in memory that have a directory and nothing else.
"""

from msgnode.cluster.directory.directory import ReplicatedDirectory
from msgnode.cluster.directory.limits import DirectoryLimits
from msgnode.structures.time_slices import Slices
from tests.support.cluster_members import MemoryCluster

A, B, C = "mn://example.com/a", "mn://example.com/b", "mn://example.com/c"
HASH = bytes(range(16))


class DirectoryNode:
    """
    One start of a node: the addresses that are bound there, in truth and in its directory.
    """

    def __init__(
        self, cluster: MemoryCluster, name: str, limits: DirectoryLimits | None = None, forgets: bool = False
    ):
        self.bound: set[str] = set()
        self.sessions: dict[str, int] = {}
        members = cluster.start(name, forgets)
        self.directory = ReplicatedDirectory(
            members, self.is_bound, cluster.clock, Slices(cluster.clock), limits
        )
        self.directory.last_copy = lambda: 1
        members.listener = self.directory
        self.members = members
        self.directory.start()

    def is_bound(self, address):
        return address in self.bound or address in self.sessions

    def bind(self, *addresses):
        for address in addresses:
            self.bound.add(address)
            self.directory.bound(address)

    def unbind(self, *addresses):
        for address in addresses:
            self.bound.discard(address)
            self.directory.unbound(address)

    def open(self, name, generation=1, token_hash=HASH):
        self.sessions[name] = generation
        self.directory.session_bound(name, token_hash, generation)

    def close(self, name):
        self.sessions.pop(name, None)
        self.directory.session_unbound(name)


def directories(*names, limits=None, **options):
    """
    A cluster, and its nodes with links between them, at rest.
    """
    cluster = MemoryCluster(**options)
    nodes = [DirectoryNode(cluster, name, limits) for name in names]
    cluster.connect()
    cluster.run(1)
    return cluster, *nodes
