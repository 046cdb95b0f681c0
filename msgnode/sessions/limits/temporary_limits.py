"""
Temporary rate limits: an operator throttles one session, one user or one IP address for a while.
"""

from collections.abc import Callable

from msgspec import Struct

from msgnode.protocol.address import is_scheme
from msgnode.protocol.errors import Rejected
from msgnode.protocol.peer_address import ip_of, peer_host

SESSION, USER, PEER = "session", "user", "peer"
KINDS = (SESSION, USER, PEER)
MAX_VALUE_CHARS = 500


def checked(kind: str, value: str) -> str:
    """
    The value as a limit compares it: an IPv6 address stands for its /64 network, as in other limits. Raises
    Rejected if a limit of this kind and value would never take effect.
    """
    if kind not in KINDS:
        raise Rejected(f"kind: expected {', '.join(KINDS)}, found {kind[:40]!r}")
    if not 0 < len(value) <= MAX_VALUE_CHARS:
        raise Rejected(f"value: expected 1 to {MAX_VALUE_CHARS} characters")
    scheme, found, _ = value.partition("://")
    if kind == SESSION and not (found and is_scheme(scheme)):
        raise Rejected(f"value: expected a runtimeURL, found {value[:80]!r}")
    if kind != PEER:
        return value
    address = ip_of(value.removesuffix("/64") if ":" in value else value)
    if address is None:
        raise Rejected(f"value: expected an IP address, found {value[:80]!r}; a ban may be of a network")
    return peer_host(str(address))


class TemporaryLimit(Struct):
    """
    A limit of messages and bytes per second (0: none) for one session, user or IP address, until a time in
    seconds since 1970.
    """

    id: str
    kind: str
    value: str
    rate_messages: int
    rate_bytes: int
    until: float
    reason: str
    by: str


class TemporaryLimits:
    """
    The temporary limits by kind and value.
    """

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], TemporaryLimit] = {}

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def all(self) -> list[TemporaryLimit]:
        return list(self._by_name.values())

    def put(self, limit: TemporaryLimit) -> None:
        self._by_name[limit.kind, limit.value] = limit

    def remove(self, which: Callable[[TemporaryLimit], bool]) -> list[TemporaryLimit]:
        """
        Removes the limits that match, and returns them.
        """
        gone = [each for each in self._by_name.values() if which(each)]
        for each in gone:
            del self._by_name[each.kind, each.value]
        return gone

    def of(self, runtime: str, user: str, host: str) -> list[TemporaryLimit]:
        """
        The limits of a message of this session, user and IP address.
        """
        names = ((SESSION, runtime), (USER, user), (PEER, host))
        return [found for name in names if (found := self._by_name.get(name)) is not None]
