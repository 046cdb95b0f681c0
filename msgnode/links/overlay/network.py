"""
The seam between the overlay and streams: datagrams to any node, at most once.
"""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from msgnode.links.wire.datagram import Datagram


class NodeKeys(msgspec.Struct, frozen=True):
    """
    The public keys of a node, as its signed advertisement has them.

    `start` is the random identifier of its last start (16 bytes), which is part of each key agreement.
    `x25519` is the raw public key (32 bytes); `rsa` is DER (SubjectPublicKeyInfo, 3,072 bits or more), or
    empty. `features` are what its streams can: `zstd`, `encrypt`.
    """

    start: bytes
    x25519: bytes
    rsa: bytes
    features: frozenset[str]


class Network(Protocol):
    """
    The network as streams see it. Delivery is at most once, in any order.
    """

    @property
    def node(self) -> str:
        """
        This node's own name.
        """

    def send(self, datagram: Datagram) -> bool:
        """
        Send towards `datagram.destination`. False: no route, or the next hop is full.
        """

    def keys(self, node: str) -> NodeKeys | None:
        """
        The keys of a node; None while its advertisement is unknown.
        """

    def has_route(self, node: str) -> bool: ...

    def nodes_of(self, domain: str) -> Iterable[str]:
        """
        The reachable nodes of a domain, the nearest first.
        """

    def knows(self, domain: str) -> bool:
        """
        Is the domain configured as a peer, or reachable?
        """

    def avoid_first_hop(self, node: str) -> None:
        """
        Nothing sent to the node is acknowledged any more: its first hop is avoided for a while.
        """


class NetworkListener(Protocol):
    """
    A listener to the network: the streams.
    """

    def received(self, datagram: Datagram) -> None:
        """
        A datagram for this node came. Its tag has not been verified.
        """

    def route_changed(self, node: str) -> None:
        """
        The first hop to the node is another one, or there is one or none now.
        """

    def keys_changed(self, node: str) -> None: ...

    def has_room(self) -> None:
        """
        `send` returned False for lack of room, and a link has room again.
        """
