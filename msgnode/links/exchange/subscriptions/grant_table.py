"""
The table of grants, by node, address and subscriber. It counts the grants of each domain over its nodes, and
charges their memory to the sessions of the nodes.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from msgspec import Struct

from msgnode.links.wire.node_name import domain_of
from msgnode.sessions.limits.memory_budget import text_size

GRANT_BYTES = 256  # of memory for a grant and its table entry, without the texts in it

Identity = tuple[tuple[str, str], ...]
Charge = Callable[[str, int], None]


class Grant(Struct, frozen=True):
    """
    One subscriber's grant; `generation` is that of the entry that asked for it last.
    """

    generation: int
    from_: str
    identity: Identity

    @property
    def size(self) -> int:
        texts = [self.from_, *(text for pair in self.identity for text in pair)]
        return GRANT_BYTES + sum(map(text_size, texts))


class Held(Struct):
    """
    An address that a node is subscribed to: its grants by subscriber, and the end of the lease.
    """

    until: float
    grants: dict[int, Grant]


class GrantTable:
    """
    The table of grants. `charge` adds bytes to the account of a node's session; negative ones are given back.

    An address counts as one grant while it has none, as after a restart.
    """

    def __init__(self, charge: Charge) -> None:
        self._charge = charge
        self._held: dict[str, dict[str, Held]] = {}  # by node and address
        self._of_domain: Counter[str] = Counter()

    def __len__(self) -> int:
        """
        The number of addresses that nodes are subscribed to.
        """
        return sum(map(len, self._held.values()))

    def count(self, domain: str) -> int:
        """
        The number of grants of a domain.
        """
        return self._of_domain[domain]

    def counts(self) -> dict[str, int]:
        """
        The numbers of grants by domain.
        """
        return dict(self._of_domain)

    def nodes(self) -> list[str]:
        return list(self._held)

    def get(self, node: str, address: str) -> Held | None:
        return self._held.get(node, {}).get(address)

    def of(self, node: str) -> Iterator[tuple[str, Held]]:
        """
        The addresses of a node; the table may change meanwhile.
        """
        yield from list(self._held.get(node, {}).items())

    def is_more(self, node: str, address: str, subscriber: int) -> bool:
        """
        Would a grant to the subscriber count as one more?
        """
        held = self.get(node, address)
        return held is None or bool(held.grants and subscriber not in held.grants)

    def hold(self, node: str, address: str, until: float) -> None:
        self._held.setdefault(node, {})[address] = Held(until, {})
        self._of_domain[domain_of(node)] += 1

    def put(self, node: str, address: str, subscriber: int, grant: Grant) -> None:
        """
        Adds a grant for an address that is held, or replaces it.
        """
        held = self._held[node][address]
        if self.is_more(node, address, subscriber):
            self._of_domain[domain_of(node)] += 1
        known = held.grants.get(subscriber)
        self._charge(node, grant.size - (known.size if known is not None else 0))
        held.grants[subscriber] = grant

    def remove(self, node: str, address: str, subscriber: int) -> bool:
        """
        Removes a grant. True if the address has none any more; the caller drops it.
        """
        held = self._held[node][address]
        grant = held.grants.pop(subscriber, None)
        if grant is not None:
            self._charge(node, -grant.size)
            if held.grants:
                self._uncount(node, 1)
        return not held.grants

    def drop(self, node: str, address: str) -> None:
        held = self._held.get(node, {})
        dropped = held.pop(address, None)
        if dropped is not None:
            self._charge(node, -sum(grant.size for grant in dropped.grants.values()))
            self._uncount(node, max(1, len(dropped.grants)))
        if not held:
            self._held.pop(node, None)

    def drop_all(self, node: str) -> None:
        for address, _ in self.of(node):
            self.drop(node, address)

    def _uncount(self, node: str, number: int) -> None:
        domain = domain_of(node)
        self._of_domain[domain] -= number
        if not self._of_domain[domain]:
            del self._of_domain[domain]
