"""
The places for connections to this node that have not said hello yet. Strangers cannot take all of them.
"""

from collections.abc import Collection
from typing import Protocol

from msgnode.structures.bounded_cache import BoundedCache

HOST_SHARE = 4  # one host may use a quarter of the places
MAX_KNOWN_HOSTS = 4096


class Caller(Protocol):
    """
    A connection: the domain that this node dialled, or "", the host of the peer, and its hello.
    """

    @property
    def dialled(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def peer(self) -> object: ...


class Handshakes:
    """
    The places. Half of them are for the hosts of known nodes: those that this node has dialled, and those of
    links. A connection without a host (a UNIX socket) counts as one of a known node.
    """

    def __init__(self) -> None:
        self._known: BoundedCache[str, None] = BoundedCache(MAX_KNOWN_HOSTS)

    def know(self, host: str) -> None:
        """
        Notes the host of a node.
        """
        if host:
            self._known.put(host, None)

    @staticmethod
    def count(connections: Collection[Caller]) -> int:
        return sum(each.peer is None and not each.dialled for each in connections)

    def has_room(self, host: str, connections: Collection[Caller], most: int) -> bool:
        """
        Is there room for one more connection of the host, if there are `most` places?
        """
        waiting = [each.host for each in connections if each.peer is None and not each.dialled]
        if len(waiting) >= most:
            return False
        if not host:
            return True
        if waiting.count(host) >= max(1, most // HOST_SHARE):
            return False
        strangers = sum(bool(each) and each not in self._known for each in waiting)
        return host in self._known or strangers < max(1, most - most // 2)
