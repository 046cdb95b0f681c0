"""
Binding on request: may this session hear these addresses, and has it room for them?

Allocating and subscribing are the same act, so the checks are made here, once
for both, and before the first address is bound: a request takes effect whole
or not at all.  A request of many addresses is checked and bound in slices.

What a request would make is known by counting: a few names in two lists that
are crossed make far more addresses than there are bytes in it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from msgnode.bus.routing_table import RoutingTable
from msgnode.config.schema import Limits
from msgnode.protocol.address import MAX_ADDRESS_CHARS, Domain
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.access.address_ownership import AddressOwnership
from msgnode.sessions.bindings import SUBSCRIBED
from msgnode.sessions.input_order import InputOrder
from msgnode.sessions.limits.memory_budget import KEYED, Budget, binding_size
from msgnode.sessions.persistence import SessionStore
from msgnode.sessions.session import Session
from msgnode.structures.time_slices import ADDRESSES, Slices

log = Logger()


FLOOR = 1024 * 1024  # bytes that any request may make
TIMES = 16  # as many bytes as the request has, if that is more
EACH = 64  # bytes of memory for an address, beside its characters
POLICIES = 100  # addresses that the policies are asked about in one slice


def flatten_strings(value: object, most: int, what: str = "an address") -> list[str]:
    """
    The strings in a string, a list, or lists in lists; Rejected for anything else in them, and for more
    than `most` (413).
    """
    if value is None:
        return []
    found: list[str] = []
    pending: list[Iterator[object]] = [iter((value,))]
    while pending:
        for item in pending[-1]:
            if isinstance(item, str):
                found.append(item)
                if len(found) > most:
                    raise Rejected(
                        f"one request may name {most} addresses; this one names more", 413, "limit"
                    )
            elif isinstance(item, list):
                pending.append(iter(item))
                break
            else:
                raise Rejected(f"{what} is a string, not {item!r}"[:200])
        else:
            pending.pop()
    return found


class Making(NamedTuple):
    """
    The size of what a request would make: how many addresses, and how many characters they have together.
    """

    addresses: int
    characters: int

    def check(self, size: int, most: int) -> None:
        """
        Rejected (413) if that is too much for a request of `size` bytes.
        """
        number, characters = self.addresses, self.characters
        if number > most:
            raise Rejected(f"the request would make {number} addresses; one may make {most}", 413, "limit")
        if characters + EACH * number > max(FLOOR, TIMES * size):
            raise Rejected(
                f"the request has {size} bytes and would make {number} addresses of {characters} characters "
                "together; ask for fewer at a time",
                413,
                "limit",
            )


class Binder:
    """
    Binds the addresses of one request to its session.
    """

    def __init__(
        self,
        domain: Domain,
        routes: RoutingTable,
        ownership: AddressOwnership,
        limits: Limits,
        budget: Budget,
    ) -> None:
        self._expected: dict[Session, int] = {}  # how many are being bound to a session
        self._domain = domain
        self._routes = routes
        self._ownership = ownership
        self._limits = limits
        self._budget = budget

    def bind(
        self,
        addresses: Iterable[str],
        session: Session,
        kind: int,
        ask: Callable[[str, int], None] | None = None,
        beside: int = 0,
        children: Mapping[str, int] | None = None,
        may_serve: Callable[[str], bool] = lambda address: False,
    ) -> Iterator[None]:
        """
        Bind all of them, or raise Rejected (403, 429) and none; `beside`: bytes remembered with them.

        `children` are those that are bound with an object, and have no owner; with its length.
        In slices of ADDRESSES.  `ask` raises if one may not be bound; it is told how many they are.
        """
        wanted: dict[str, None] = {}
        new, size = 0, beside
        coming = iter(addresses)
        while some := list(islice(coming, ADDRESSES)):
            if len(wanted) >= ADDRESSES:
                yield
            for address in some:
                if address in wanted:
                    continue
                held = session.bindings.get(address, 0)
                if children and address in children and not held & SUBSCRIBED:
                    size += KEYED
                if not held:
                    new += 1
                    size += binding_size(address)
                    self._check(address, session, may_serve)
                self._ownership.check_bind(address, session, kind)
                wanted[address] = None
        if ask is not None:
            for done, address in enumerate(wanted):
                if done and done % POLICIES == 0:
                    yield
                ask(address, len(wanted))
        self._check_room(session, new, size)
        session.used = session.used or bool(wanted)
        self._expect(session, new, size)
        try:
            rest = iter(wanted)
            while some := list(islice(rest, ADDRESSES)):
                if len(wanted) > ADDRESSES:
                    yield
                before, left = len(session.bindings), size
                for address in some:
                    if len(wanted) <= ADDRESSES or self._may_still(address, session, kind):
                        if address not in session.bindings:
                            left -= binding_size(address)
                        object_length = children.get(address, 0) if children else 0
                        own = 0 if object_length else self._ownership.announce(address, session, kind)
                        self._routes.bind(address, session, kind | own, object_length)
                bound = len(session.bindings) - before
                self._expect(session, -bound, left - size)
                new, size = new - bound, left
        finally:
            self._expect(session, -new, -size)

    def _expect(self, session: Session, number: int, size: int) -> None:
        """
        So many more will be bound to it, and find room.
        """
        session.account.charge(size)
        expected = self._expected.pop(session, 0) + number
        if expected:
            self._expected[session] = expected

    def _may_still(self, address: str, session: Session, kind: int) -> bool:
        """
        Is it still nobody else's?  A runtime that opened since it was checked has taken back its own.
        """
        owner = self._routes.runtime(address)
        if owner is not None and owner is not session:
            return False
        try:
            self._ownership.check_bind(address, session, kind)
        except Rejected:
            return False
        return True

    def _check_room(self, session: Session, new: int, size: int) -> None:
        most = self._limits.bindings_per_session
        held = len(session.bindings) + self._expected.get(session, 0)
        if held + new > most:
            raise Rejected(
                f"a session may hold {most} addresses; this one has {held}, not room for {new}",
                429,
                "limit",
            )
        if size:
            self._budget.check(session.account, size)

    def _check(self, address: str, session: Session, may_serve: Callable[[str], bool]) -> None:
        if not address or len(address) > MAX_ADDRESS_CHARS:
            raise Rejected(f"an address has 1 to {MAX_ADDRESS_CHARS} characters, not {len(address)}")
        if self._domain.owns(address) and not may_serve(address):
            raise Rejected(f"{address} is the node's own address", 403, "reserved-address")
        owner = self._routes.runtime(address)
        if owner is not None and owner is not session:
            raise Rejected(f"{address} belongs to the runtime {owner.runtime}", 403, "not-your-address")


class Requests:
    """
    Requests to the node whose work takes more than one turn: what their client sends behind them waits.
    """

    def __init__(self, slices: Slices, input_order: InputOrder, session_store: SessionStore) -> None:
        self._slices = slices
        self._input_order = input_order
        self._session_store = session_store

    def answer(
        self, message: Message, steps: Iterator[None], reply: Callable[[], Message]
    ) -> Message | Deferred[Message]:
        """
        The reply to a request when all its steps are done: now, or when what they changed is on disk.
        """
        rest = self._slices.begin(steps)
        if rest is None:
            return reply()
        work = self._input_order.hold(message.origin)
        answered: Deferred[Message] = Deferred()
        rest.addCallback(lambda done: self._session_store.settled())
        rest.addCallback(lambda done: reply())
        rest.addCallbacks(answered.callback, answered.errback)
        rest.addErrback(partial(log.failure, "answering a request for many addresses"))
        rest.addBoth(lambda done: self._input_order.release(work))
        return answered
