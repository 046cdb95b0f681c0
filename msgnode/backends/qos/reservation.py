"""
Reservations of relay bandwidth, as clients ask for them and as they are kept.
"""

from typing import Any

import msgspec

from msgnode.backends.identity.grants import GrantHolder, serves
from msgnode.protocol.errors import Rejected

MAX_PARTIES = 100
MAX_TEXT_CHARS = 512
MAX_BITS = 10**15


class Reservation(msgspec.Struct, kw_only=True):
    """
    Bandwidth at the relay: `up` and `down` in bits per second, for an application session between `parties`,
    `until` then, in seconds since 1970.

    `runtime`, `user` and `token` (the hash of the session token) say whose it is; `host` is where the session
    was opened from, "" if that has no limit.
    """

    id: str
    runtime: str
    user: str
    token: str
    session: str
    parties: list[str]
    up: int
    down: int
    until: int
    host: str = ""

    @property
    def payer(self) -> str:
        """
        The user or host in whose share it is; "" if it is in none.
        """
        return self.user or self.host

    def belongs_to(self, session: GrantHolder) -> bool:
        if self.user or self.token:
            return serves(self.user, self.token, session)
        # Of a client that knows no session tokens: until another client opens its session.
        return self.runtime == session.runtime and not session.identity and not session.token_hash

    def shown(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "session": self.session,
            "parties": self.parties,
            "up": self.up,
            "down": self.down,
            "expires": self.until,
        }


class Wanted(msgspec.Struct):
    """
    The amount and the time that a client asks for.
    """

    up: int
    down: int
    seconds: float


def wanted(value: dict[str, Any], before: Wanted | None = None) -> Wanted:
    """
    The amount in a request; a change leaves the rest as it was. Rejected if it is wrong.
    """
    found: dict[str, Any] = {}
    for name in ("up", "down", "seconds"):
        given = found[name] = value.get(name, getattr(before, name, None))
        is_time = name == "seconds"
        if isinstance(given, bool) or not isinstance(given, (int, float) if is_time else int):
            raise _wrong(name, given)
        if not (1 if is_time else 0) <= given <= MAX_BITS:
            raise _wrong(name, given)
    if not found["up"] and not found["down"]:
        raise Rejected("'value.up' and 'value.down' cannot both be 0")
    return Wanted(**found)


def _wrong(name: str, given: Any) -> Rejected:
    unit = "seconds, at least 1" if name == "seconds" else "bits per second, a whole number"
    return Rejected(f"'value.{name}' must be {unit}, not {given!r}"[:200])


def session_and_parties(value: dict[str, Any]) -> tuple[str, list[str]]:
    session, parties = value.get("session"), value.get("parties")
    if not isinstance(session, str) or not 0 < len(session) <= MAX_TEXT_CHARS:
        raise Rejected(f"'value.session' must name the application session, in {MAX_TEXT_CHARS} characters")
    if (
        not isinstance(parties, list)
        or not 1 <= len(parties) <= MAX_PARTIES
        or not all(isinstance(party, str) and 0 < len(party) <= MAX_TEXT_CHARS for party in parties)
    ):
        raise Rejected(f"'value.parties' must be a list of 1 to {MAX_PARTIES} addresses")
    return session, parties
