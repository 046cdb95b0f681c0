"""
Binding on request: may this session hear these addresses, and has it room for them?

Allocating and subscribing are the same act, so the checks are made here, once
for both, and before the first address is bound: a request takes effect whole
or not at all.
"""

from collections.abc import Iterable

from msgnode.address import LONGEST, Domain
from msgnode.config import Limits
from msgnode.errors import Rejected
from msgnode.owners import AddressOwnership
from msgnode.routes import RoutingTable
from msgnode.session import Session


def flat(value: object, what: str = "an address") -> list[str]:
    """
    The strings in a string, a list, or lists in lists; Rejected for anything else in them.
    """
    if value is None:
        return []
    found: list[str] = []
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, list):
            pending.extend(reversed(item))
        else:
            raise Rejected(f"{what} is a string, not {item!r}"[:200])
    return found


class Binder:
    """
    Binds the addresses of one request to its session.
    """

    def __init__(
        self, domain: Domain, routes: RoutingTable, ownership: AddressOwnership, limits: Limits
    ) -> None:
        self._domain = domain
        self._routes = routes
        self._ownership = ownership
        self._limits = limits

    def bind(self, addresses: Iterable[str], session: Session, kind: int) -> None:
        """
        Bind all of them, or raise Rejected (403, 429) and none.
        """
        addresses = list(dict.fromkeys(addresses))
        new = 0
        for address in addresses:
            if address not in session.bindings:
                new += 1
                self._check(address, session)
            self._ownership.check_bind(address, session, kind)
        most = self._limits.bindings_per_session
        if len(session.bindings) + new > most:
            held = len(session.bindings)
            raise Rejected(
                f"a session may hold {most} addresses; this one has {held}, not room for {new}", 429
            )
        for address in addresses:
            self._routes.bind(address, session, kind | self._ownership.announce(address, session, kind))
        session.used = session.used or bool(addresses)

    def _check(self, address: str, session: Session) -> None:
        if not address or len(address) > LONGEST:
            raise Rejected(f"an address has 1 to {LONGEST} characters, not {len(address)}")
        if self._domain.owns(address):
            raise Rejected(f"{address} is the node's own address", 403)
        owner = self._routes.runtime(address)
        if owner is not None and owner is not session:
            raise Rejected(f"{address} belongs to the runtime {owner.runtime}", 403)
