"""
The cluster as operators see it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol


class ClusterFigures(NamedTuple):
    """
    The figures of the cluster: the members by state, the addresses that others hold, with their estimated
    bytes of memory, and the counts since the node started.

    `refused` counts what came over NATS and was not taken, by reason; `directory` the events of the directory
    by name, `requests` those between members by outcome, and `relayed` the requests of HTTP clients that were
    relayed to the holder of their session, of which `relayed_now` wait for their response; `rates` those of
    shared rates. `relayed_connections` are superseded connections of clients here whose session is at another
    member. `moves` counts the events of sessions that move between members, `moving` has those under
    way by direction, `copies` the ids of publications that are remembered for them, and `taking` the number
    of sessions that came for clients here, and their seconds.
    """

    is_connected: bool
    members: Mapping[str, int]
    addresses: int
    address_bytes: int
    refused: Mapping[str, int]
    directory: Mapping[str, int]
    requests: Mapping[str, int]
    relayed: Mapping[str, int]
    relayed_now: int
    relayed_connections: int
    leases_lost: int
    rates: Mapping[str, int]
    moves: Mapping[str, int]
    moving: Mapping[str, int]
    copies: int
    taking: tuple[int, float]


class ClusterStatus(Protocol):
    """
    The state of this node's cluster.
    """

    @property
    def why_degraded(self) -> str:
        """
        The reason why other members are not reached; empty if there is none.
        """

    def report(self) -> dict[str, Any]:
        """
        The state as `/live` has it.
        """

    def figures(self) -> ClusterFigures: ...
