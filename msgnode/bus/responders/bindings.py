"""
Binding on request: may this session bind these addresses, and is there room for them?

Allocation and subscription both bind, so the checks are made here, once for both, and before the first
address is bound: a request takes effect as a whole or not at all. A request with many addresses is checked
and bound in slices.

The size of the result is computed before it is made: the product of two lists with a few names has many more
addresses than the request has bytes.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from msgnode.bus.components import ForeignDomains
from msgnode.bus.routing_table import RoutingTable
from msgnode.config.schema import Limits
from msgnode.protocol.address import MAX_ADDRESS_CHARS, Domain
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.access.address_ownership import AddressOwnership
from msgnode.sessions.input_order import InputOrder
from msgnode.sessions.limits.memory_budget import KEYED, Budget, binding_size
from msgnode.sessions.persistence import SessionStore
from msgnode.sessions.routing import RUNTIMES, SUBSCRIBED
from msgnode.sessions.session import Session
from msgnode.structures.time_slices import ADDRESSES, Slices

log = Logger()


MIN_MADE_BYTES = 1024 * 1024  # bytes of addresses that any request may make
TIMES = 16  # times the bytes of the request, if that is more
ADDRESS_OVERHEAD_BYTES = 64  # bytes of memory for an address, in addition to its characters
POLICIES = 100  # addresses that the policies decide about in one slice


def flatten_strings(value: object, most: int, what: str = "an address") -> list[str]:
    """
    The strings in a string, a list, or lists in lists; raises Rejected for anything else in them, and for
    more than `most` (413).
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
    The size of a request's result: the number of its addresses, and the sum of their characters.
    """

    addresses: int
    characters: int

    def check(self, size: int, most: int) -> None:
        """
        Raises Rejected (413) if that is too much for a request of `size` bytes.
        """
        number, characters = self.addresses, self.characters
        if number > most:
            raise Rejected(f"the request would make {number} addresses; one may make {most}", 413, "limit")
        if characters + ADDRESS_OVERHEAD_BYTES * number > max(MIN_MADE_BYTES, TIMES * size):
            raise Rejected(
                f"the request has {size} bytes and would make {number} addresses of {characters} characters "
                "together; ask for fewer at a time",
                413,
                "limit",
            )


class Binder:
    """
    The binder of a request's addresses to its session.
    """

    def __init__(
        self,
        domain: Domain,
        routes: RoutingTable,
        ownership: AddressOwnership,
        limits: Limits,
        budget: Budget,
    ) -> None:
        self.foreign: ForeignDomains | None = None
        self._expected: dict[Session, int] = {}  # the number of addresses that are being bound to a session
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
        extra_size: int = 0,
        children: Mapping[str, int] | None = None,
        may_serve: Callable[[str], bool] = lambda address: False,
    ) -> Iterator[None]:
        """
        Binds all addresses, or raises Rejected (403, 429) and binds none. `extra_size`: bytes of other state
        with them.

        `children` are bound with an object, and have no owner; the value is the object's length. The work is
        done in slices of ADDRESSES. `ask` raises if an address may not be bound; its second argument is the
        number of addresses.
        """
        wanted: dict[str, None] = {}
        children = {} if children is None else children  # it may be filled while `addresses` is read
        new, size = yield from self._check_all(addresses, wanted, session, kind, children, may_serve)
        size += extra_size
        if ask is not None:
            for done, address in enumerate(wanted):
                if done and done % POLICIES == 0:
                    yield
                ask(address, len(wanted))
        self._check_room(session, new, size)
        session.used = session.used or bool(wanted)
        yield from self._bind_all(wanted, new, size, session, kind, children)

    def _check_all(
        self,
        addresses: Iterable[str],
        wanted: dict[str, None],
        session: Session,
        kind: int,
        children: Mapping[str, int],
        may_serve: Callable[[str], bool],
    ) -> Generator[None, None, tuple[int, int]]:
        """
        Checks each address, and adds it to `wanted`; returns the number of new ones, and the bytes they take.
        """
        new = size = 0
        coming = iter(addresses)
        while some := list(islice(coming, ADDRESSES)):
            if len(wanted) >= ADDRESSES:
                yield
            for address in some:
                if address in wanted:
                    continue
                reasons = session.bindings.get(address, 0)
                if address in children and not reasons & SUBSCRIBED:
                    size += KEYED
                if not reasons:
                    new += 1
                    size += binding_size(address)
                    self._check(address, session, may_serve)
                self._ownership.check_bind(address, session, kind)
                wanted[address] = None
        return new, size

    def _bind_all(
        self,
        wanted: dict[str, None],
        new: int,
        size: int,
        session: Session,
        kind: int,
        children: Mapping[str, int],
    ) -> Iterator[None]:
        """
        Binds the checked addresses; their room is reserved until then.
        """
        self._expect(session, new, size)
        is_one_slice = len(wanted) <= ADDRESSES
        try:
            rest = iter(wanted)
            while some := list(islice(rest, ADDRESSES)):
                if not is_one_slice:
                    yield
                before, left = len(session.bindings), size
                for address in some:
                    if is_one_slice or self._may_still(address, session, kind):
                        if address not in session.bindings:
                            left -= binding_size(address)
                        object_length = children.get(address, 0)
                        own = 0 if object_length else self._announce(address, session, kind)
                        self._routes.bind(address, session, kind | own, object_length)
                bound = len(session.bindings) - before
                self._expect(session, -bound, left - size)
                new, size = new - bound, left
        finally:
            self._expect(session, -new, -size)

    def _is_elsewhere(self, address: str, session: Session) -> bool:
        return self.foreign is not None and self.foreign.is_held_elsewhere(address, session)

    def _announce(self, address: str, session: Session, kind: int) -> int:
        if self._is_elsewhere(address, session):
            return 0  # it only listens: the other domain says whose the address is
        return self._ownership.announce(address, session, kind)

    def _expect(self, session: Session, number: int, size: int) -> None:
        """
        Reserves room for more addresses of the session; a negative number releases it.
        """
        session.account.charge(size)
        expected = self._expected.pop(session, 0) + number
        if expected:
            self._expected[session] = expected

    def _may_still(self, address: str, session: Session, kind: int) -> bool:
        """
        Is the address still free for this session? A runtime may have opened above it since the check.
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
        bound = len(session.bindings) + self._expected.get(session, 0)
        if bound + new > most:
            raise Rejected(
                f"a session may hold {most} addresses; this one has {bound}, not room for {new}",
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
        if address.startswith("domain://") and self._is_elsewhere(address, session):
            raise Rejected(f"{address} is a service of another domain", 403, "reserved-address")
        owner = self._routes.runtime(address)
        if owner is not None and owner is not session:
            raise Rejected(f"{address} belongs to the runtime {owner.runtime}", 403, "not-your-address")
        if owner is None and address.startswith(RUNTIMES) and self._ownership.is_held_elsewhere(address):
            raise Rejected(f"{address} belongs to a runtime at another node", 403, "not-your-address")


class Requests:
    """
    The requests that take more than one turn; their clients' later messages wait.
    """

    def __init__(self, slices: Slices, input_order: InputOrder, session_store: SessionStore) -> None:
        self._slices = slices
        self._input_order = input_order
        self._session_store = session_store

    def answer(
        self, message: Message, steps: Iterator[Deferred[Any] | None], reply: Callable[[], Message]
    ) -> Message | Deferred[Message]:
        """
        The reply to a request when all its steps are done: now, or when its changes are on disk.
        """
        rest = self._slices.begin(steps)
        if rest is None:
            return reply()
        work = self._input_order.hold(message.origin)
        answered: Deferred[Message] = Deferred()
        rest.addCallback(lambda done: self._session_store.committed())
        rest.addCallback(lambda done: reply())
        rest.addCallbacks(answered.callback, answered.errback)
        rest.addErrback(partial(log.failure, "a request for many addresses could not be answered"))
        rest.addBoth(lambda done: self._input_order.release(work))
        return answered
