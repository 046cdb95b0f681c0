"""
Members in memory that lease the addresses of one pool: real directories, requests and pools.
"""

from collections.abc import Callable, Iterable, Iterator

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from msgnode.bus.responders.allocation import Pool
from msgnode.cluster.channels import Channels
from msgnode.cluster.directory.directory import ReplicatedDirectory
from msgnode.cluster.directory.limits import DirectoryLimits
from msgnode.cluster.member_requests import MemberRequests
from msgnode.cluster.ownership.owners import Owners
from msgnode.cluster.ownership.pool_leases import PoolLeases
from msgnode.protocol.errors import Rejected
from msgnode.structures.time_slices import Slices
from tests.support.cluster_members import MemoryCluster

SCHEME = "sip"


class LeaseNode:
    """
    One start of a node: its pool, and the addresses that its sessions have (Pools).
    """

    def __init__(
        self,
        cluster: MemoryCluster,
        name: str,
        listed: Iterable[str],
        addresses: Iterable[str],
        held: Iterable[str] = (),
        lease_seconds: float = 3600.0,
    ) -> None:
        clock = cluster.clock
        members = cluster.start(name)
        channels = Channels(members)
        channel = channels.make(b"d")
        self.held = set(held)
        self.pool = Pool(addresses)
        slices = Slices(clock)
        self.directory = ReplicatedDirectory(
            channel, self.is_leased, clock, slices, DirectoryLimits(lease_seconds=lease_seconds)
        )
        channel.listener = self.directory
        channel = channels.make(b"r")
        self.requests = channel.listener = MemberRequests(channel, clock)
        self.owners = Owners(members, self.requests, list(listed))
        self.leases = PoolLeases(name, self.owners, self.requests, self.directory, self, slices, clock)
        for address in self.held:
            self.directory.bound(address)
        members.listener = channels
        self.members = members
        self.directory.start()
        self.refused: list[Rejected] = []

    def lease(self, number: int = 1) -> Deferred[list[str]]:
        """
        Lease addresses for a session here, which binds them.
        """
        return self.leases.lease(SCHEME, number).addCallbacks(self._bind, self._refused)

    def _refused(self, why: Failure) -> list[str]:
        assert isinstance(why.value, Rejected)
        self.refused.append(why.value)
        return []

    def _bind(self, addresses: list[str]) -> list[str]:
        for address in addresses:
            self.held.add(address)
            self.directory.bound(address)
        return addresses

    def release(self, address: str) -> None:
        self.held.discard(address)
        self.directory.unbound(address)
        self.pool.returned(address)

    # -- Pools -------------------------------------------------------------------------------

    def free(
        self, scheme: str, number: int, is_leased: Callable[[str], bool], found: list[str]
    ) -> Iterator[None]:
        yield from self.pool.skip_leased(number, is_leased)
        found += self.pool.free(number, is_leased)

    def has(self, scheme: str, address: str) -> bool:
        return address in self.pool

    def is_leased(self, address: str) -> bool:
        return address in self.held

    def schemes(self) -> Iterable[str]:
        return [SCHEME]

    def all_of(self) -> Iterator[tuple[str, str]]:
        return ((SCHEME, address) for address in self.pool)

    def look_again(self, scheme: str) -> None:
        self.pool.look_again()

    def lose(self, address: str, reason: str) -> None:
        self.release(address)
