"""
Close codes: why the node closes a connection, and when the client may connect again.
"""

from typing import NamedTuple


class Closing(NamedTuple):
    """
    A close code, its reason, and `retry_after` in seconds; None means that the client must not connect again.

    docs/protocol.md lists all of them under "Closing and close codes".
    """

    code: int
    word: str
    retry_after: float | None = None

    @property
    def node(self) -> str:
        """
        The URL of the node where the client's session is now; "" if it is here, or not known.
        """
        return ""

    @property
    def reason(self) -> str:
        reason = self.word if self.retry_after is None else f"{self.word}; retry_after={self.retry_after:g}"
        return f"{reason}; node={self.node}" if self.node else reason

    def spread(self, chance: float) -> "Closing":
        """
        The same closing with up to twice the delay (jitter), so that clients do not all connect at once.
        """
        if self.retry_after is None:
            return self
        return self._replace(retry_after=round(self.retry_after * (1 + chance), 1))

    def at(self, node: str) -> "Closing":
        """
        The same closing of a client whose session is now at the node with that URL.
        """
        moved = MovedClosing(*self)
        moved.url = node
        return moved


class MovedClosing(Closing):
    """
    The closing of a client whose session is at another node.
    """

    url = ""

    @property
    def node(self) -> str:
        return self.url

    def spread(self, chance: float) -> Closing:
        return Closing(*super().spread(chance)).at(self.url)


CLOSED = Closing(1000, "closed")
STOPPING = Closing(1001, "going away", 1)
OVER_CAPACITY = Closing(1013, "full", 30)
UNFINISHED = Closing(1013, "unfinished", 1)
DISK = Closing(1013, "disk", 2)
FAILED = Closing(1013, "failed", 30)
POLICY_UNAVAILABLE = Closing(1013, "policy", 30)
TOKEN_REJECTED = Closing(4401, "token")
TOKEN_LATER = Closing(4401, "token", 5)  # the token's provider does not respond
REFUSED = Closing(4403, "refused")
OPEN_TIMEOUT = Closing(4408, "no open", 1)
SUPERSEDED = Closing(4409, "superseded")
REMOVED = Closing(4410, "removed")
SLOW = Closing(4413, "slow consumer", 5)
RATE = Closing(4429, "rate", 10)
