"""
Receipts: what became of a message, and over which nodes it went (docs/protocol.md, "Receipts").
"""

from typing import Any, NamedTuple

from msgnode.client.message import Message


class Hop(NamedTuple):
    """
    A node that a message passed, and the microseconds that it stayed there.
    """

    node: str
    micros: int


class Delivery(Message):
    """
    A receipt: `code` and `text` say what became of the message, `reason` is one word for programs.

    `path` has the nodes of all domains that the message passed, the sender's first, which is alone if the
    message did not get to the other domain. It is empty for a message within one domain.
    """

    __slots__ = ()

    @property
    def code(self) -> int:
        return whole(self.body.get("code"), 200)

    @property
    def text(self) -> str:
        return str(self.body.get("description") or "")

    @property
    def reason(self) -> str:
        return str(self.body.get("reason") or "")

    @property
    def is_final(self) -> bool:
        """
        Is it the last receipt? The one before it says that the message waits for a route.
        """
        return self.body.get("final") is not False

    @property
    def path(self) -> tuple[Hop, ...]:
        hops = self.body.get("path")
        if not isinstance(hops, list):
            return ()
        found = [hop for hop in hops if isinstance(hop, dict)]
        return tuple(Hop(str(hop.get("node") or ""), whole(hop.get("micros"), 0)) for hop in found)


def whole(value: Any, otherwise: int) -> int:
    """
    Returns a number of a message as an integer; some clients write it as a text, or leave it out.
    """
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return otherwise
