"""
What tests of links share: names of two nodes, a listener that records, and datagrams.
"""

from typing import Any

from msgnode.links.carrier.link import Link
from msgnode.links.wire.datagram import HOP_LIMIT, Datagram
from msgnode.links.wire.entries import Data

A, B = "mn://a.example/a1", "mn://b.example/b1"


class RecordingListener:
    """
    A LinkListener that records what it hears; `link` is the last that came up.
    """

    def __init__(self) -> None:
        self.links: list[Link] = []  # those that are up
        self.entries: list[Any] = []
        self.reasons: list[str] = []  # of links that went down
        self.rooms = 0
        self.trips: list[float | None] = []

    @property
    def link(self) -> Any:
        return self.links[-1]

    def link_up(self, link: Link) -> None:
        self.links.append(link)

    def link_down(self, link: Link, reason: str) -> None:
        self.links.remove(link)
        self.reasons.append(reason)

    def received(self, link: Link, entry: Any) -> None:
        self.entries.append(entry)

    def has_room(self, link: Link) -> None:
        self.rooms += 1

    def round_trip_changed(self, link: Link) -> None:
        self.trips.append(link.round_trip)


def datagram(payload: bytes = b"", priority: int = 5, source: str = A, destination: str = B) -> Data:
    return Data(Datagram(source, destination, HOP_LIMIT, [], priority, "k", 0, bytes(16), b"header", payload))
