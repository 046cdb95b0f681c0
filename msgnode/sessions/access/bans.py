"""
Bans: clients that an operator keeps out, by name, user, network or origin, for a while or for good.
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from msgnode.protocol.close_codes import REMOVED, Closing
from msgnode.protocol.errors import Rejected
from msgnode.protocol.peer_address import IPNetwork, ip_of, network_of

RUNTIME, USER, PEER, ORIGIN, DEVICE = "runtime", "user", "peer", "origin", "device"
KINDS = (RUNTIME, USER, PEER, ORIGIN, DEVICE)
MAX_BANS = 10_000
MAX_NETWORKS = 1000  # each connection is compared with all of them
MAX_VALUE_CHARS = 500
MAX_RETRY_SECONDS = 300.0  # after which a banned client asks again
MAX_SPREAD_SECONDS = 15.0  # later, so that not all ask at once


class BanClosing(Closing):
    """
    The closing of a banned client, which asks again when the ban ends, or up to MAX_SPREAD_SECONDS later.
    """

    def spread(self, chance: float) -> Closing:
        if self.retry_after is None:
            return self
        late = min(self.retry_after, MAX_SPREAD_SECONDS) * chance
        return self._replace(retry_after=round(self.retry_after + late, 1))


def closing_for(seconds: float | None) -> Closing:
    """
    The close code of a ban that ends in so many seconds; None: never. The client may ask again after a while
    at most, for an operator may lift the ban.
    """
    if seconds is None:
        return REMOVED
    return BanClosing(*REMOVED)._replace(retry_after=min(max(1.0, round(seconds, 1)), MAX_RETRY_SECONDS))


class Ban(Struct):
    """
    A ban: its kind, whom it concerns, and its end in seconds since 1970; None: it has none.
    """

    id: str
    kind: str
    value: str
    until: float | None
    reason: str
    by: str
    created: float

    def is_over(self, now: float) -> bool:
        return self.until is not None and self.until <= now

    def closing(self, now: float) -> Closing:
        """
        The close code for a banned client.
        """
        return closing_for(None if self.until is None else self.until - now)


class Bans:
    """
    The bans of the node. `wall` gives seconds since 1970; `refused` counts the clients that were kept out.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self.refused = 0
        self._wall = wall
        self._by_id: dict[str, Ban] = {}
        self._by_value: dict[tuple[str, str], Ban] = {}  # by kind and value
        self._networks: dict[str, tuple[IPNetwork, Ban]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __bool__(self) -> bool:
        return bool(self._by_id)

    @property
    def room(self) -> int:
        """
        How many bans more there may be.
        """
        self._forget_ended()
        return MAX_BANS - len(self._by_id)

    def all(self) -> list[Ban]:
        """
        The bans that are not over.
        """
        self._forget_ended()
        return list(self._by_id.values())

    def add(self, ban: Ban) -> None:
        """
        Adds a ban; one of the same kind and value is replaced. Raises Rejected.
        """
        check(ban.kind, ban.value)
        other = self._by_value.get((ban.kind, ban.value))
        if other is not None:
            self.remove(other.id)
        if self._is_full(ban.kind):
            self._forget_ended()
        if self._is_full(ban.kind):
            raise Rejected(f"there are {len(self._by_id)} bans; lift one first", 429, "limit")
        self._by_id[ban.id] = self._by_value[ban.kind, ban.value] = ban
        if ban.kind == PEER:
            self._networks[ban.id] = network_of(ban.value), ban

    def _is_full(self, kind: str) -> bool:
        return len(self._by_id) >= MAX_BANS or (kind == PEER and len(self._networks) >= MAX_NETWORKS)

    def remove(self, id: str) -> Ban:
        """
        Lifts a ban. Raises Rejected if there is none of this id.
        """
        ban = self._by_id.pop(id, None)
        if ban is None:
            raise Rejected(f"there is no ban {id[:80]!r}", 404, "not-found")
        self._networks.pop(id, None)
        del self._by_value[ban.kind, ban.value]
        return ban

    def restore(self, bans: Iterable[Ban]) -> None:
        """
        Adds the bans of before a restart; one that cannot be used is left out.
        """
        for ban in bans:
            try:
                self.add(ban)
            except Rejected:
                continue

    # -- who is banned ------------------------------------------------------------------

    def of_connection(self, connection: Any) -> Closing | None:
        """
        The close code for a new connection from a banned network, or a page of a banned origin.
        """
        if not self._by_id:
            return None
        return self._closing(
            self._of_peer(connection.peer) or self._named(ORIGIN, getattr(connection, "origin", ""))
        )

    def of_session(self, runtime: str, user: str, connection: Any) -> Closing | None:
        """
        The close code for a client that opens this session, or is this user; or whose connection is banned,
        of which less was known when it was made: the PROXY protocol names a peer late.
        """
        if not self._by_id:
            return None
        why = self.of_connection(connection)
        if why is not None:
            return why
        # A device is the user of its token.
        return self._closing(
            self._named(RUNTIME, runtime) or self._named(USER, user) or self._named(DEVICE, user)
        )

    def matches(self, ban: Ban, runtime: str, user: str, connection: Any) -> bool:
        """
        Does the ban concern this session, with this connection (None: it has none)?
        """
        if ban.kind == RUNTIME:
            return runtime == ban.value
        if ban.kind in (USER, DEVICE):
            return user == ban.value
        if connection is None:
            return False
        if ban.kind == ORIGIN:
            return bool(getattr(connection, "origin", "") == ban.value)
        address = ip_of(connection.peer)
        return address is not None and address in network_of(ban.value)

    def _closing(self, ban: Ban | None) -> Closing | None:
        if ban is None:
            return None
        self.refused += 1
        return ban.closing(self._wall())

    def _named(self, kind: str, value: str) -> Ban | None:
        return self._good(self._by_value.get((kind, value))) if value else None

    def _of_peer(self, peer: str) -> Ban | None:
        if not self._networks:
            return None
        address = ip_of(peer)
        if address is None:
            return None
        for network, ban in self._networks.values():
            if address in network and self._good(ban) is not None:
                return ban
        return None

    def _good(self, ban: Ban | None) -> Ban | None:
        return None if ban is None or ban.is_over(self._wall()) else ban

    def _forget_ended(self) -> None:
        now = self._wall()
        for ban in [each for each in self._by_id.values() if each.is_over(now)]:
            self.remove(ban.id)


def check(kind: str, value: str) -> None:
    """
    Raises Rejected if there is no such ban.
    """
    if kind not in KINDS:
        raise Rejected(f"kind: expected {', '.join(KINDS)}, found {kind[:40]!r}")
    if not value or len(value) > MAX_VALUE_CHARS:
        raise Rejected(f"value: expected 1 to {MAX_VALUE_CHARS} characters")
    if kind == PEER:
        try:
            network_of(value)
        except ValueError:
            raise Rejected(
                f"value: expected an IP address or a network such as 10.0.0.0/8, found {value[:80]!r}"
            ) from None
