"""
The link-state database: the newest advertisement of each node and audience, with its age by the local clock.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from msgnode.links.overlay.advertisement import Advertisement, is_inside, mark
from msgnode.links.overlay.routes.graph import Key
from msgnode.links.overlay.signatures import Signer
from msgnode.links.wire.node_name import domain_of
from msgnode.structures.bounded_cache import BoundedCache

MAX_AGE_SECONDS = 3600.0
MAX_DEAD = (
    4096  # removed advertisements that are remembered, for their sequence: an old one might be replayed
)
MAX_RECORDS = 4096  # so that no computation of routes takes long
MAX_DOMAINS = 4096
MAX_DOMAINS_BY_NEIGHBOUR = MAX_DOMAINS // 2  # that one neighbour may introduce
MAX_DOMAIN_NODES = 64
MAX_DOMAIN_BYTES = 1024 * 1024
MAX_BYTES = 64 * 1024 * 1024
MAX_CONFLICTS = 256
FORMER_SECONDS = 60.0  # for which a key that was renewed is good for what is under way
MAX_FORMER = 4096


class Record(msgspec.Struct):
    """
    An advertisement as it was received.

    `spread`: it came by a neighbour whose datagrams may pass through this node, so it is passed on to others.
    `tokens` and `received` are a token bucket that limits how often it may be replaced.
    """

    advertisement: Advertisement
    compact: str
    signer: Signer
    received: float
    spread: bool
    tokens: float
    mark: int = 0


class Conflict(msgspec.Struct):
    """
    A conflict: two keys, or two processes with one key, claim the same node name.
    """

    node: str
    held: str  # the beginning of the hash of the key that is believed
    claimed: str
    peer: str  # by which the claim came
    since: float
    times: int = 1


class _Domain(msgspec.Struct):
    """
    The nodes of a domain with the number of their advertisements, and the bytes of these.
    """

    introducer: str
    nodes: Counter[str]
    bytes: int = 0


class LinkStates:
    """
    The link-state database of a node. Its own advertisements are not in it.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.records: dict[Key, Record] = {}
        self.conflicts: dict[str, Conflict] = {}
        self.excluded: frozenset[str] = frozenset()  # domains that are in no route, and not passed on
        self.bytes = 0
        self._seconds = seconds
        self._held: dict[str, Record] = {}
        self._nodes: dict[str, dict[str, Record]] = {}
        self._domains: dict[str, _Domain] = {}
        self._introduced: Counter[str] = Counter()
        self._dead: BoundedCache[Key, Record] = BoundedCache(MAX_DEAD)
        self._former: BoundedCache[str, tuple[Signer, float]] = BoundedCache(MAX_FORMER)  # by node
        self._open_mark = self._inside_mark = 0

    def held(self, compact: str) -> Record | None:
        """
        The record of exactly this advertisement.
        """
        return self._held.get(compact)

    def newest(self, node: str) -> Record | None:
        """
        The record of a node, whichever its audience, that was signed last.
        """
        records = self._nodes.get(node)
        if records is None:
            return None
        if len(records) == 1:
            return next(iter(records.values()))
        return max(records.values(), key=lambda record: record.advertisement.sequence)

    def of_node(self, node: str) -> Iterator[Record]:
        yield from self._nodes.get(node, {}).values()

    def nodes(self) -> Iterator[str]:
        yield from self._nodes

    def links_of(self, advertisement: Advertisement) -> dict[str, int]:
        """
        The links of an advertisement that count. Where a node advertises a link for one neighbour and for
        all, the newer of both counts: it has granted that neighbour transit, or none any more.
        """
        others = self._nodes[advertisement.node]
        if len(others) == 1:
            return advertisement.links
        return {
            far: cost
            for far, cost in advertisement.links.items()
            if not any(
                far in other.advertisement.links and other.advertisement.sequence > advertisement.sequence
                for audience in _other_audiences(advertisement, far)
                if (other := others.get(audience)) is not None
            )
        }

    def affected(self, old: Advertisement | None, new: Advertisement) -> Iterator[Advertisement]:
        """
        The advertisements whose links may count otherwise, now that one has changed: itself the first.
        """
        yield new
        others = self._nodes[new.node]
        if len(others) == 1:
            return
        audiences = {
            audience
            for far in (new.links.keys() | (old.links.keys() if old else ()))
            for audience in _other_audiences(new, far)
        }
        for audience in audiences & others.keys():
            yield others[audience].advertisement

    def is_newer(self, advertisement: Advertisement) -> bool:
        """
        Is the sequence above the one that is held, or remembered of the dead?
        """
        last = self.last(advertisement.key)
        return last is None or advertisement.sequence > last.advertisement.sequence

    def last(self, key: Key) -> Record | None:
        """
        The record with this key, or the one that was removed.
        """
        return self.records.get(key) or self._dead.get(key)

    def full(self, advertisement: Advertisement, size: int, introducer: str) -> str:
        """
        Why there is no room for an advertisement of `size` bytes, or an empty text.
        """
        record = self.records.get(advertisement.key)
        added = size - (0 if record is None else len(record.compact))
        if self.bytes + added > MAX_BYTES or (record is None and len(self.records) >= MAX_RECORDS):
            return "map-full"
        domain = self._domains.get(domain_of(advertisement.node))
        if domain is None:
            if len(self._domains) >= MAX_DOMAINS:
                return "map-full"
            many = self._introduced[introducer] >= MAX_DOMAINS_BY_NEIGHBOUR
            return "neighbour-domains" if many else ""
        if domain.bytes + added > MAX_DOMAIN_BYTES:
            return "domain-full"
        many = advertisement.node not in domain.nodes and len(domain.nodes) >= MAX_DOMAIN_NODES
        return "domain-full" if many else ""

    def put(self, record: Record, introducer: str) -> None:
        """
        Add an advertisement, or replace an older one.
        """
        key = record.advertisement.key
        before = self.records.get(key)
        if before is not None:
            self._take_out(before)
            if before.signer.key_hash != record.signer.key_hash:
                self._former.put(key[0], (before.signer, self._seconds() + FORMER_SECONDS))
        name = domain_of(key[0])
        domain = self._domains.get(name)
        if domain is None:
            domain = self._domains[name] = _Domain(introducer, Counter())
            self._introduced[introducer] += 1
        domain.nodes[key[0]] += 1
        domain.bytes += len(record.compact)
        self.bytes += len(record.compact)
        self._dead.pop(key)
        self.records[key] = self._held[record.compact] = record
        self._nodes.setdefault(key[0], {})[key[1]] = record
        record.mark = mark(record.advertisement)
        if record.spread:
            self._add_mark(record)

    def former_signer(self, node: str) -> Signer | None:
        """
        The signer that a node had until just now.
        """
        signer, until = self._former.get(node) or (None, 0.0)
        return signer if self._seconds() < until else None

    def forget_former(self) -> None:
        """
        Forget them, as other certificates are trusted now.
        """
        self._former.clear()

    def spread(self, record: Record) -> None:
        """
        The record came by a neighbour whose datagrams may pass through this node, too.
        """
        if not record.spread:
            record.spread = True
            self._add_mark(record)

    def remove(self, key: Key) -> None:
        """
        Remove a record, and remember it for its sequence.
        """
        record = self.records[key]
        self._take_out(record)
        self._dead.put(key, record)

    def ended(self, wall: float) -> list[Key]:
        """
        The keys of records that are too old, or whose certificate has ended.
        """
        oldest = self._seconds() - MAX_AGE_SECONDS
        return [
            key
            for key, record in self.records.items()
            if record.received <= oldest or record.signer.until <= wall
        ]

    def digest(self, with_inside: bool, ends: tuple[str, str]) -> int:
        """
        A digest of the records that are passed on. Those that one of the nodes `ends` has for a neighbour
        without transit are not in it.
        """
        digest = self._open_mark ^ (self._inside_mark if with_inside else 0)
        for node in ends:
            for record in self.of_node(node):
                if record.spread and record.advertisement.audience.startswith("mn://"):
                    digest ^= record.mark
        return digest

    def conflict(self, node: str, held: bytes, claimed: bytes, peer: str) -> bool:
        """
        Note a conflict. True if it is a new one.
        """
        found = self.conflicts.get(node)
        if found is not None:
            found.times += 1
            return False
        if len(self.conflicts) >= MAX_CONFLICTS:
            del self.conflicts[next(iter(self.conflicts))]
        text = held.hex()[:16], claimed.hex()[:16]
        self.conflicts[node] = Conflict(node, *text, peer, self._seconds())
        return True

    def _take_out(self, record: Record) -> None:
        key = record.advertisement.key
        del self.records[key], self._held[record.compact], self._nodes[key[0]][key[1]]
        if not self._nodes[key[0]]:
            del self._nodes[key[0]]
        name = domain_of(key[0])
        domain = self._domains[name]
        domain.nodes[key[0]] -= 1
        if not domain.nodes[key[0]]:
            del domain.nodes[key[0]]
        domain.bytes -= len(record.compact)
        self.bytes -= len(record.compact)
        if not domain.nodes:
            del self._domains[name]
            self._introduced[domain.introducer] -= 1
            if not self._introduced[domain.introducer]:
                del self._introduced[domain.introducer]
        if record.spread:
            self._add_mark(record)  # adding twice removes

    def _add_mark(self, record: Record) -> None:
        if is_inside(record.advertisement):
            self._inside_mark ^= record.mark
        else:
            self._open_mark ^= record.mark


def _other_audiences(advertisement: Advertisement, far: str) -> tuple[str, ...]:
    """
    The audiences for which the same node may advertise its link to `far`, too.
    """
    if advertisement.audience.startswith("mn://"):
        return ("", domain_of(advertisement.node))
    return (far,)
