"""
Leases of pools in a cluster: an address of a pool is leased once in the domain.

A member that wants addresses for a session asks the owner of the pool, which knows by the directory what
other members hold, and remembers what it has granted until the directory shows it.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from msgnode.cluster.member_requests import MemberRequests, NoAnswer
from msgnode.cluster.ownership.owners import Owners
from msgnode.protocol.errors import Rejected
from msgnode.structures.time_slices import ADDRESSES, Slices

LEASE, CONFIRM, HELD = "pool.lease", "pool.confirm", "pool.held"
GRANT_SECONDS = 10.0  # until an address that was granted must be in the directory
MAX_GRANTED = 100_000  # that are not in the directory yet
MAX_ADDRESSES = 1_000  # of one request
LOOK_AGAIN_SECONDS = 1.0  # between two looks at addresses that were found leased
log = Logger()

_lease = msgspec.msgpack.Decoder(tuple[str, int])
_addresses = msgspec.msgpack.Decoder(list[str])
_confirm = msgspec.msgpack.Decoder(tuple[str, list[str]])
_encode = msgspec.msgpack.encode


class Pools(Protocol):
    """
    The pools of this node (Allocation).
    """

    def free(
        self, scheme: str, number: int, is_leased: Callable[[str], bool], found: list[str]
    ) -> Iterator[None]:
        """
        Finds free addresses, in slices. Raises Rejected if there are too few, or no pool of the scheme.
        """

    def has(self, scheme: str, address: str) -> bool:
        """
        Is it an address of that pool?
        """

    def is_leased(self, address: str) -> bool:
        """
        Does a session of this node have it, or is it about to?
        """

    def schemes(self) -> Iterable[str]: ...

    def all_of(self) -> Iterator[tuple[str, str]]:
        """
        All addresses of the pools, with their schemes.
        """

    def look_again(self, scheme: str) -> None:
        """
        Has addresses of the pool that were found leased examined again.
        """

    def lose(self, address: str, reason: str) -> None:
        """
        Takes an address from the session that has it, and tells it so.
        """


class LeaseDirectory(Protocol):
    """
    The directory, as leases use it.
    """

    def shared(self, address: str) -> tuple[str, ...]: ...

    def knows_all(self, nodes: Iterable[str]) -> bool:
        """
        Is it known what each of these members holds, or has its lease ended?
        """


class PoolLeases:
    """
    The leases of this node's sessions, and those that it grants as an owner.
    """

    def __init__(
        self,
        own: str,
        owners: Owners,
        requests: MemberRequests,
        directory: LeaseDirectory,
        pools: Pools,
        slices: Slices,
        clock: IReactorTime,
    ) -> None:
        self.lost = 0  # addresses that a session lost, because another member's has them
        self._own = own
        self._owners = owners
        self._requests = requests
        self._directory = directory
        self._pools = pools
        self._slices = slices
        self._clock = clock
        self._looked_at: dict[str, float] = {}
        self._granted: dict[str, tuple[float, str]] = {}  # until when, and to whom; the oldest first
        requests.offer(LEASE, self._grant)
        requests.offer(CONFIRM, self._confirm_to)
        requests.offer(HELD, self._held_elsewhere)
        requests.on_up.append(self._tell_held)

    # -- for sessions of this node ---------------------------------------------------------

    def lease(self, scheme: str, number: int) -> Deferred[list[str]]:
        """
        Free addresses of a pool, to be bound within GRANT_SECONDS. Fails with Rejected: 503 if there are too
        few, or an owner is away.
        """
        first, *others = self._owners.of(scheme)
        asked = self._requests.ask(first, LEASE, _encode((scheme, number))).addCallback(_addresses.decode)
        for other in others:
            asked.addCallback(self._confirm_by, other, scheme)
        return asked.addErrback(self._as_refusal, scheme)

    def _confirm_by(self, addresses: list[str], other: str, scheme: str) -> Deferred[list[str]]:
        asked = self._requests.ask(other, CONFIRM, _encode((scheme, addresses)))
        return asked.addCallback(lambda done: addresses)

    def _as_refusal(self, why: Any, scheme: str) -> Any:
        if why.check(NoAnswer):
            text = f"the node that leases the addresses of the pool {scheme} cannot be asked: {why.value}"
            raise NoAnswer(text)
        if why.check(msgspec.DecodeError, UnicodeDecodeError):
            raise NoAnswer(f"the node that leases the addresses of the pool {scheme} sent no list of them")
        return why

    # -- as the owner ------------------------------------------------------------------------

    def _grant(self, node: str, body: bytes) -> Deferred[bytes]:
        scheme, number = _lease.decode(body)
        if not 1 <= number <= MAX_ADDRESSES:
            raise Rejected(f"a lease has 1 to {MAX_ADDRESSES} addresses, not {number}")
        self._check_knowledge(scheme)
        self._check_room(number)
        if self._clock.seconds() - self._looked_at.get(scheme, 0.0) >= LOOK_AGAIN_SECONDS:
            self._looked_at[scheme] = self._clock.seconds()
            self._pools.look_again(scheme)
        found: list[str] = []
        rest = self._slices.begin(self._pools.free(scheme, number, self._is_taken, found))

        def grant(done: object) -> bytes:
            # Another request may have got one of them between two slices.
            if any(map(self._is_taken, found)):
                raise Rejected("other sessions got these addresses; try again", 503, "pool-empty")
            self._remember(found, node)
            return _encode(found)

        return (rest if rest is not None else succeed(None)).addCallback(grant)

    def _confirm_to(self, node: str, body: bytes) -> bytes:
        scheme, addresses = _confirm.decode(body)
        if len(addresses) > MAX_ADDRESSES:
            raise Rejected(f"a lease has 1 to {MAX_ADDRESSES} addresses, not {len(addresses)}")
        self._check_knowledge(scheme)
        self._check_room(len(addresses))
        for address in addresses:
            if not self._pools.has(scheme, address):
                raise Rejected(f"{address} is not in this node's pool"[:300], 503, "pool-empty")
            granted = self._granted.get(address)
            is_granted_to_it = granted is not None and granted[1] == node
            if self._is_taken(address) and not is_granted_to_it:
                raise Rejected(f"{address} is leased; try again"[:300], 503, "pool-empty")
        self._remember(addresses, node)
        return b""

    def _check_knowledge(self, scheme: str) -> None:
        if not self._directory.knows_all(self._owners.everyone - {self._own}):
            text = (
                f"it is not known yet which addresses of the pool {scheme} other nodes hold; try again later"
            )
            raise Rejected(text, 503, "no-path")

    def _check_room(self, number: int) -> None:
        self._forget_old()
        if len(self._granted) + number > MAX_GRANTED:
            raise Rejected(f"{MAX_GRANTED} leases were granted in {GRANT_SECONDS:g} s", 503, "limit")

    def _is_taken(self, address: str) -> bool:
        if address in self._granted or self._pools.is_leased(address):
            return True
        return bool(self._directory.shared(address))

    def _remember(self, addresses: Iterable[str], node: str) -> None:
        until = self._clock.seconds() + GRANT_SECONDS
        for address in addresses:
            self._granted.pop(address, None)
            self._granted[address] = until, node

    def _forget_old(self) -> None:
        now = self._clock.seconds()
        while self._granted:
            address = next(iter(self._granted))
            if self._granted[address][0] > now:
                return
            del self._granted[address]

    # -- after a link was down ---------------------------------------------------------------

    def _tell_held(self, node: str) -> None:
        """
        Ask an owner whether what sessions here have was leased to others, while this node was away.
        """
        telling = self._slices.work(self._ask_held(node))
        telling.addErrback(partial(log.failure, "the leases of this node could not be compared"))

    def _ask_held(self, node: str) -> Iterator[None]:
        owned = {scheme: node in self._owners.of(scheme) for scheme in self._pools.schemes()}
        held: list[str] = []
        for done, (scheme, address) in enumerate(self._pools.all_of()):
            if done % ADDRESSES == 0:
                yield
            if owned[scheme] and self._pools.is_leased(address):
                held.append(address)
            if len(held) == MAX_ADDRESSES:
                self._compare(node, held)
                held = []
        self._compare(node, held)

    def _compare(self, node: str, held: list[str]) -> None:
        if held:
            asked = self._requests.ask(node, HELD, _encode(held))
            asked.addCallbacks(partial(self._lose, node), lambda why: None)

    def _held_elsewhere(self, node: str, body: bytes) -> bytes:
        addresses = _addresses.decode(body)[:MAX_ADDRESSES]
        return _encode([address for address in addresses if self._has_other(address, node)])

    def _has_other(self, address: str, node: str) -> bool:
        granted = self._granted.get(address)
        others = set(self._directory.shared(address)) - {node}
        return bool(others) or self._pools.is_leased(address) or (granted is not None and granted[1] != node)

    def _lose(self, node: str, body: bytes) -> None:
        for address in _addresses.decode(body)[:MAX_ADDRESSES]:
            if self._pools.is_leased(address):
                self.lost += 1
                log.warn(
                    "{address} was leased to a session of another node while this node was away from {node}",
                    address=address,
                    node=node,
                )
                self._pools.lose(address, "conflict")
