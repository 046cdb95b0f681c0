"""
The seam between carriers and the overlay: a link to one neighbour, and who hears of it.
"""

from typing import Protocol

from msgnode.links.wire.entries import Data, Digest, State, Summary

SERVER, CLIENT = "SERVER", "CLIENT"


class Link(Protocol):
    """
    A link that is up: a neighbour that proved its name, over whichever carrier.

    `cost` is the configured cost, or None if `round_trip` counts: seconds, the least of the last pings, None
    before the first pong. `transit`: may datagrams of this neighbour pass through to others? `kind` is SERVER
    or CLIENT. A link that `is_steady` is used at once, also if it was lost before.
    """

    is_steady: bool

    @property
    def node(self) -> str:
        """
        The neighbour's name, `mn://<domain>/<node>`.
        """

    @property
    def kind(self) -> str: ...
    @property
    def cost(self) -> int | None: ...
    @property
    def round_trip(self) -> float | None: ...
    @property
    def transit(self) -> bool: ...

    def send(self, datagram: Data) -> bool:
        """
        Send, after what has a higher priority; False, and nothing is sent, if the link is full.
        """

    def send_state(self, entry: State | Digest | Summary) -> None:
        """
        Send an entry of the link state, before all datagrams. Bounded by the overlay's own limits.
        """

    def close(self, code: int, reason: str, retry_after: float = 0.0) -> None: ...


class LinkListener(Protocol):
    """
    A listener to links: the overlay.
    """

    def link_up(self, link: Link) -> None: ...

    def link_down(self, link: Link, reason: str) -> None: ...

    def received(self, link: Link, entry: Data | State | Digest | Summary) -> None:
        """
        An entry came. The carrier has decoded it and bounded its size, and nothing else.
        """

    def has_room(self, link: Link) -> None:
        """
        The link refused a datagram, and has room again.
        """

    def round_trip_changed(self, link: Link) -> None: ...
