"""
Address allocation: the node makes addresses and binds them to the session that asks.

It answers at three addresses. A pool is a scheme with a finite set of addresses that come from elsewhere, for
example the SIP accounts of an IMS: they are leased to a session and free again when it ends.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from twisted.internet.defer import Deferred

from msgnode.bus.components import PoolLeases
from msgnode.bus.responders.bindings import Binder, Making, Requests, flatten_strings
from msgnode.bus.routing_table import RoutingTable
from msgnode.config.schema import Config, Leasers
from msgnode.protocol.address import MAX_ADDRESS_CHARS, Domain, is_scheme
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message, compose
from msgnode.sessions.allocation_keys import Keys, key_size
from msgnode.sessions.persistence import SessionStore
from msgnode.sessions.routing import ALLOCATED, LEARNED, OWNED
from msgnode.sessions.session import Session
from msgnode.structures.time_slices import ADDRESSES

_OBJECT_CHANNELS = ("/subscription", "/changes", "/children/")  # bound by a reporter with its object
_CHILD = "/children/"


class Allocation:
    """
    The responder to `create` and `delete` at the three allocation addresses.

    A create makes at most `allocation.per_request` addresses, and with their children no more than
    `limits.addresses_per_request` and Making allow; the cost of a delete is bounded by the number of the
    session's bindings.
    """

    def __init__(
        self,
        config: Config,
        domain: Domain,
        routes: RoutingTable,
        binder: Binder,
        requests: Requests,
        session_store: SessionStore,
    ) -> None:
        self._session_store = session_store
        self._config = config
        self._pools = {
            pool.scheme: Pool(pool.all_addresses(), name, pool.clients, pool.per_session)
            for name, pool in config.pools.items()
        }
        self.is_verified: Callable[[Message], bool] = _is_never
        self.on_taken: Callable[[Session, Message], object] = _ignore_notice
        self.leases: PoolLeases | None = None  # None: this node alone leases the addresses of its pools
        self._promised: set[str] = set()  # addresses of pools that are reserved for pending requests
        # By node of another domain and address: the names of its children. Made at the first delete.
        self._children: WeakKeyDictionary[Session, dict[str, list[str]]] = WeakKeyDictionary()
        if self._pools:
            routes.released = self._released
        self._domain = domain
        self._routes = routes
        self._binder = binder
        self._requests = requests
        self._hyperties = f"{domain.node}/hyperty-address-allocation"

    @property
    def addresses(self) -> tuple[str, ...]:
        node = self._domain.node
        return (f"{node}/address-allocation", self._hyperties, f"{node}/object-address-allocation")

    def respond(self, message: Message, session: Session) -> Message | Deferred[Message]:
        """
        Answers 200 with `value.allocated` to a create, a bare 200 to a delete.
        """
        kind = message.type.lower()
        body = message.fields()
        if kind == "create":
            allocated: list[str] = []
            steps = self._allocate(message, body, session, allocated)
            answer = {"code": 200, "value": {"allocated": allocated}}
            return self._requests.answer(message, steps, lambda: message.reply(answer))
        if kind == "delete":
            steps = self._release(message, body, session)
            return self._requests.answer(message, steps, lambda: message.reply({"code": 200}))
        raise Rejected(f"allocation understands create and delete, not {message.type!r}")

    # -- create ------------------------------------------------------------------

    def _allocate(
        self, message: Message, body: dict[str, Any], session: Session, allocated: list[str]
    ) -> Iterator[Deferred[Any] | None]:
        """
        Fills `allocated`, in slices.
        """
        value = body.get("value")
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise Rejected(f"'value' must be an object, not {value!r}"[:200])
        number, most = value.get("number", 1), self._config.allocation.per_request
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= most:
            raise Rejected(f"'number' must be an integer from 1 to {most}, not {number!r}"[:200])
        key = value.get("allocationKey")
        if key is not None and not (isinstance(key, str) and len(key) <= MAX_ADDRESS_CHARS):
            raise Rejected(
                f"'allocationKey' must be a string of at most {MAX_ADDRESS_CHARS}, not {key!r}"[:200]
            )
        scheme = "hyperty" if message.to == self._hyperties else body.get("scheme") or "hyperty"
        if not isinstance(scheme, str) or not is_scheme(scheme):
            raise Rejected(f"'scheme' must be the scheme of a URL, such as 'comm', not {scheme!r}"[:200])
        most = self._config.limits.addresses_per_request
        children = [
            name for name in flatten_strings(body.get("childrenResources"), most) if "://" not in name
        ]
        _making(number, scheme, self._domain.name, children).check(len(message.data), most)
        extra_size = key_size(key, number) if key is not None else 0
        pool = self._pools.get(scheme)
        if pool is None:
            allocated += [f"{scheme}://{self._domain.name}/{uuid4()}" for _ in range(number)]
            yield from self._bind(allocated, children, session, extra_size)
        else:
            pool.check(self.is_verified(message))
            with pool.asked_for(session, number):
                yield from self._lease(scheme, pool, number, session, allocated)
                yield from self._bind(allocated, children, session, extra_size)
        if children and session in self._children:
            self._children[session].update((address, list(children)) for address in allocated)
        message.resources = allocated
        if key is not None and not session.ended:
            if session.keys is None:
                session.keys = Keys(session.account)
            session.keys.add(key, allocated)
            self._session_store.keyed(session.sid, key, allocated)

    def _bind(
        self, allocated: list[str], children: list[str], session: Session, extra_size: int
    ) -> Iterator[Deferred[Any] | None]:
        channels = [f"{address}{_CHILD}{name}" for address in allocated for name in children]
        self._promised.update(allocated)
        try:
            yield from self._binder.bind([*allocated, *channels], session, ALLOCATED, extra_size=extra_size)
        finally:
            self._promised.difference_update(allocated)
            for address in allocated:
                self._released(address)

    def _lease(
        self, scheme: str, pool: "Pool", number: int, session: Session, allocated: list[str]
    ) -> Iterator[Deferred[Any] | None]:
        """
        Fills `allocated` with addresses of a pool, in slices. Raises Rejected.
        """
        yield from pool.check_share(session)
        if self.leases is None:
            yield from self.free(scheme, number, self.is_leased, allocated)
            return
        yield None  # what follows is not the first step, which is taken at once
        yield self.leases.lease(scheme, number).addCallback(allocated.extend)
        if session.ended:
            raise Rejected("the session has ended", 401, "no-session")

    # -- pools (Pools of the cluster) ----------------------------------------------

    def free(
        self, scheme: str, number: int, is_leased: Callable[[str], bool], found: list[str]
    ) -> Iterator[None]:
        """
        Finds free addresses of a pool, in slices. Raises Rejected (503) if there are too few, or no such
        pool.
        """
        pool = self._pools.get(scheme)
        if pool is None:
            raise Rejected(f"this node has no pool of the scheme {scheme}", 503, "pool-empty")
        yield from pool.skip_leased(number, is_leased)
        found += pool.free(number, is_leased)

    def has(self, scheme: str, address: str) -> bool:
        pool = self._pools.get(scheme)
        return pool is not None and address in pool

    def is_leased(self, address: str) -> bool:
        return address in self._promised or self._routes.is_allocated(address)

    def schemes(self) -> Iterable[str]:
        return self._pools

    def pool(self, scheme: str) -> "Pool | None":
        return self._pools.get(scheme)

    def all_of(self) -> Iterator[tuple[str, str]]:
        """
        All addresses of the pools, with their schemes.
        """
        for scheme, pool in self._pools.items():
            for address in pool:
                yield scheme, address

    def look_again(self, scheme: str) -> None:
        """
        Have addresses of the pool that were found leased examined again: other nodes do not say when they
        return them.
        """
        pool = self._pools.get(scheme)
        if pool is not None:
            pool.look_again()

    def holder(self, address: str) -> Session | None:
        """
        The session of this node to which an address is allocated.
        """
        for session in self._routes.resolve(address):
            if session.bindings.get(address, 0) & ALLOCATED:
                return session
        return None

    def lose(self, address: str, reason: str) -> None:
        """
        Takes an address from the session to which it is allocated, and tells it so.
        """
        session = self.holder(address)
        if session is None:
            return
        self._drop(address, session)
        body = {"resource": address, "reason": reason}
        notice = compose(0, "delete", f"{self._domain.node}/address-allocation", session.runtime, body)
        self.on_taken(session, notice)

    def _released(self, address: str) -> None:
        """
        Returns the address to its pool, which skips it if it is still leased.
        """
        for pool in self._pools.values():
            pool.returned(address)

    # -- delete --------------------------------------------------------------------

    def _release(self, message: Message, body: dict[str, Any], session: Session) -> Iterator[None]:
        """
        Releases keys, addresses, lists in lists, and an object with its children; in slices.
        """
        if "resource" not in body and "childrenResources" not in body:
            raise Rejected("name the addresses to de-allocate in 'resource' or 'childrenResources'")
        most = self._config.limits.addresses_per_request
        named = flatten_strings(body.get("resource"), most) + flatten_strings(
            body.get("childrenResources"), most
        )
        message.resources = named
        freed: dict[str, None] = {}
        for done, address in enumerate(self._meant(named, session), 1):
            if address is not None:
                self._drop(address, session)
                freed[address] = None
            if done % ADDRESSES == 0:
                yield
        children = dict.fromkeys(name for name in named if "://" not in name)
        if freed and session.is_node:
            yield from self._drop_all_children(freed, session)
        elif freed and children:
            yield from self._drop_children(freed, children, session)

    def _meant(self, named: list[str], session: Session) -> Iterator[str | None]:
        """
        The session's addresses for each name, which may be an allocation key; None for none.
        """
        for name in named:
            if session.keys is not None and name in session.keys:
                yield from session.keys.pop(name)
            else:
                yield name if name in session.bindings else None

    def _unbind(self, address: str, session: Session) -> None:
        """
        Unbinds the address. Other clients of another domain's node may have subscribed to it: its session
        stays bound for these.
        """
        if not session.is_node:
            self._routes.unbind(address, session)
            return
        self._routes.unbind(address, session, ALLOCATED | LEARNED)
        if session.bindings.get(address, 0) & OWNED:
            self._routes.disown(address, session)

    def _drop(self, address: str, session: Session) -> None:
        self._unbind(address, session)
        if session.keys is not None:
            session.keys.forget(address)
            self._session_store.unkeyed(session.sid, address)
        for suffix in _OBJECT_CHANNELS:
            self._unbind(address + suffix, session)

    def _drop_all_children(self, freed: dict[str, None], session: Session) -> Iterator[None]:
        """
        Unbinds every child of every address: the node of another domain need not know them.
        """
        known = self._children.get(session)
        if known is None or len(known) > len(session.bindings) + ADDRESSES:  # many are of addresses of before
            known = self._children[session] = _children_of(session)
        children = (f"{address}{_CHILD}{name}" for address in freed for name in known.pop(address, ()))
        for done, child in enumerate(children, 1):
            self._unbind(child, session)
            if done % ADDRESSES == 0:
                yield

    def _drop_children(
        self, freed: dict[str, None], children: dict[str, None], session: Session
    ) -> Iterator[None]:
        """
        Unbinds every child of every address; if those are more than the session's bindings, searches the
        bindings instead.
        """
        if len(freed) * len(children) <= len(session.bindings):
            for done, address in enumerate(freed):
                for number, name in enumerate(children, done * len(children) + 1):
                    self._unbind(f"{address}{_CHILD}{name}", session)
                    if number % ADDRESSES == 0:
                        yield
            return
        looked = 0
        for address in list(session.bindings):
            looked += 1 + address.count(_CHILD)
            if looked > ADDRESSES:
                looked = 0
                yield
            if _is_child(address, freed, children):
                self._unbind(address, session)


def _is_never(message: Message) -> bool:
    return False


def _ignore_notice(session: Session, notice: Message) -> None:
    pass


def _making(number: int, scheme: str, domain: str, children: list[str]) -> Making:
    """
    The size of `number` addresses, each with its children.
    """
    long = len(scheme) + len(domain) + 40  # at least, with the separators and a UUID
    channels = sum(map(len, children)) + (long + len(_CHILD)) * len(children)
    return Making(number * (1 + len(children)), number * (long + channels))


def _children_of(session: Session) -> dict[str, list[str]]:
    """
    The names of the children of each address that is allocated to the session.
    """
    found: dict[str, list[str]] = {}
    for address, kinds in session.bindings.items():
        parent, separator, name = address.partition(_CHILD)
        if separator and kinds & ALLOCATED:
            found.setdefault(parent, []).append(name)
    return found


def _is_child(address: str, parents: dict[str, None], names: dict[str, None]) -> bool:
    """
    Is it `<parent>/children/<name>`, for any split into a parent and a name?
    """
    at = address.find(_CHILD)
    while at >= 0:
        if address[:at] in parents and address[at + len(_CHILD) :] in names:
            return True
        at = address.find(_CHILD, at + 1)
    return False


class Pool:
    """
    A pool of addresses, leased in turn: one just returned is the last to be leased again.

    Addresses found leased are not examined again until they are returned, so the cost of a request does not
    grow with the pool.
    """

    def __init__(
        self,
        addresses: Iterable[str],
        name: str = "",
        clients: Leasers = "anybody",
        per_session: int = 0,
    ) -> None:
        self.name = name
        self.clients = clients
        self._per_session = per_session
        self._asked: Counter[Session] = Counter()  # addresses that are about to be leased
        self._all = dict.fromkeys(addresses)
        self._queue = OrderedDict.fromkeys(self._all)
        self._leased: set[str] = set()  # addresses removed from the queue

    def check(self, is_verified: bool) -> None:
        """
        Raises Rejected if the pool is for other clients than one that is authenticated, or is not.
        """
        if self.clients != "anybody" and is_verified != (self.clients == "verified"):
            which = "the node has authenticated" if self.clients == "verified" else "are not authenticated"
            text = f"the pool {self.name} is for clients that {which}"
            raise Rejected(text, 403, "identity")

    @contextmanager
    def asked_for(self, session: Session, number: int) -> Iterator[None]:
        """
        Counts addresses for the session that are not bound yet.
        """
        self._asked[session] += number
        try:
            yield
        finally:
            self._asked[session] -= number
            if not self._asked[session]:
                del self._asked[session]

    def check_share(self, session: Session) -> Iterator[None]:
        """
        Raises Rejected (429) if the session would have more addresses than it may; in slices.
        """
        if not self._per_session:
            return
        held = 0
        for done, address in enumerate(list(session.bindings), 1):
            held += address in self._all and bool(session.bindings.get(address, 0) & ALLOCATED)
            if done % ADDRESSES == 0:
                yield
        if held + self._asked[session] > self._per_session:
            text = f"a session has at most {self._per_session} addresses of the pool {self.name}"
            raise Rejected(text, 429, "limit")

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __contains__(self, address: str) -> bool:
        return address in self._all

    def skip_leased(self, number: int, is_leased: Callable[[str], bool]) -> Iterator[None]:
        """
        Removes leased addresses from the queue, in slices, until `free` finds enough at once or none is left.
        """
        while True:
            found = self._take(number, is_leased, number + ADDRESSES)
            is_over = len(found) == number or not self._queue
            self._put_back(found, last=False)
            if is_over:
                return
            yield

    def free(self, number: int, is_leased: Callable[[str], bool]) -> list[str]:
        """
        Returns that many free addresses, or raises Rejected with 503 and takes none.
        """
        found = self._take(number, is_leased, len(self._queue))
        is_enough = len(found) == number
        self._put_back(found, last=is_enough)
        if not is_enough:
            raise Rejected(
                f"too few addresses of this pool are free: {len(found)}, not {number}", 503, "pool-empty"
            )
        return found

    def _take(self, number: int, is_leased: Callable[[str], bool], most: int) -> list[str]:
        """
        The next free addresses, of the next `most`.
        """
        found: list[str] = []
        for _ in range(min(most, len(self._queue))):
            address, _none = self._queue.popitem(last=False)
            if is_leased(address):
                self._leased.add(address)
            else:
                found.append(address)
                if len(found) == number:
                    break
        return found

    def _put_back(self, found: list[str], last: bool) -> None:
        for address in found if last else reversed(found):
            self._queue[address] = None
            self._queue.move_to_end(address, last)

    def look_again(self) -> None:
        """
        Puts what was found leased at the end of the queue, where it is examined again.
        """
        for address in self._leased:
            self._queue[address] = None
        self._leased.clear()

    def returned(self, address: str) -> None:
        """
        Marks the address as not leased any more, if it is one of these.
        """
        if address in self._leased:
            self._leased.remove(address)
            self._queue[address] = None
