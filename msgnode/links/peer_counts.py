"""
Counts of links and streams by peer: the configured domains, and all others together.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from msgnode.links.wire.node_name import domain_of

OTHER = "other"  # no domain name: it has no dot, and a configured domain that is called so counts here, too


class PeerCounts(msgspec.Struct):
    """
    The counts of one peer since the node started.

    `failures` are attempts to connect that failed, and links that were lost. `refused` counts by reason what
    streams did not accept, or dropped. `exchanged` counts what crossed between the domains, and by reason
    what was refused or lost there. `faults` counts what the peer did wrong, by layer (`link`, `map` or
    `stream`) and cause.
    """

    bytes_in: int = 0
    bytes_out: int = 0
    failures: int = 0
    sent_again: int = 0
    in_doubt: int = 0
    bytes_saved: int = 0
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    exchanged: Counter[str] = msgspec.field(default_factory=Counter)
    faults: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)


class PeerTable:
    """
    The counts of all peers, bounded by the configuration: what is not configured counts as OTHER.
    """

    def __init__(self, peers: Iterable[str]) -> None:
        self.counts: dict[str, PeerCounts] = {}
        self.apply(peers)

    def apply(self, peers: Iterable[str]) -> None:
        """
        Changes the configured domains. A domain that is not configured any more is added to OTHER.
        """
        kept = {domain: self.of(domain) if domain in self.counts else PeerCounts() for domain in peers}
        other = kept[OTHER] = self.counts.get(OTHER) or PeerCounts()
        for domain, counts in self.counts.items():
            if domain not in kept:
                _add(other, counts)
        self.counts = kept

    def of(self, domain: str) -> PeerCounts:
        """
        The counts for a domain, to be incremented. They are valid until the next `apply`.
        """
        return self.counts.get(domain) or self.counts[OTHER]

    def fault(self, of: str, layer: str, cause: str) -> None:
        """
        Counts a fault of a node, a domain, or a host that has proved no name.
        """
        self.of(domain_of(of) if of.startswith("mn:") else of).faults[layer, cause] += 1


def _add(sum_: PeerCounts, more: PeerCounts) -> None:
    for field in PeerCounts.__struct_fields__:
        if field in ("refused", "exchanged", "faults"):
            getattr(sum_, field).update(getattr(more, field))
        else:
            setattr(sum_, field, getattr(sum_, field) + getattr(more, field))
