"""
Address allocation: the node makes up addresses and binds them to who asks.

Spoken at three addresses.  A pool is a scheme whose
addresses are finite and come from elsewhere, such as the SIP accounts of an
IMS: they are leased to a session and free again at its end.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from uuid import uuid4

from twisted.internet.defer import Deferred

from msgnode.bus.bindings import Binder, Making, Requests, flatten_strings
from msgnode.bus.routing_table import RoutingTable
from msgnode.config.schema import Config
from msgnode.protocol.address import MAX_ADDRESS_CHARS, Domain, is_scheme
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.allocation_keys import Keys, key_size
from msgnode.sessions.bindings import ALLOCATED
from msgnode.sessions.persistence import SessionStore
from msgnode.sessions.session import Session
from msgnode.structures.time_slices import ADDRESSES

_BESIDE = ("/subscription", "/changes", "/children/")  # what a reporter binds beside its object
_CHILD = "/children/"


class Allocation:
    """
    Answers `create` and `delete` at the three allocation addresses.

    A create makes at most `allocation.per_request` addresses, and with their
    children no more than `limits.addresses_per_request` and Making allow; what
    a delete costs is bounded by what the session holds.
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
        self._pools = {pool.scheme: Pool(pool.all_addresses()) for pool in config.pools.values()}
        self._promised: set[str] = set()  # of pools, to requests that are not done
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
        200 with `value.allocated` to a create, a bare 200 to a delete.
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
    ) -> Iterator[None]:
        """
        Fill `allocated`, in slices.
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
        pool = self._pools.get(scheme)
        if pool is not None:
            yield from pool.look(number, self._is_leased)
        allocated += self._new(scheme, number)
        channels = [f"{address}{_CHILD}{name}" for address in allocated for name in children]
        beside = key_size(key, number) if key is not None else 0
        self._promised.update(allocated)
        try:
            yield from self._binder.bind([*allocated, *channels], session, ALLOCATED, beside=beside)
        finally:
            self._promised.difference_update(allocated)
            for address in allocated:
                self._released(address)
        message.resources = allocated
        if key is not None and not session.ended:
            if session.keys is None:
                session.keys = Keys(session.account)
            session.keys.add(key, allocated)
            self._session_store.keyed(session.sid, key, allocated)

    def _new(self, scheme: str, number: int) -> list[str]:
        pool = self._pools.get(scheme)
        if pool is not None:
            return pool.free(number, self._is_leased)
        return [f"{scheme}://{self._domain.name}/{uuid4()}" for _ in range(number)]

    def _released(self, address: str) -> None:
        """
        A pool has it again; one that is still leased is found to be so.
        """
        for pool in self._pools.values():
            pool.returned(address)

    def _is_leased(self, address: str) -> bool:
        return address in self._promised or self._routes.is_allocated(address)

    # -- delete --------------------------------------------------------------------

    def _release(self, message: Message, body: dict[str, Any], session: Session) -> Iterator[None]:
        """
        Keys, addresses, lists in lists, an object with its children; in slices.
        """
        if "resource" not in body and "childrenResources" not in body:
            raise Rejected("name what to de-allocate in 'resource' or 'childrenResources'")
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
        if freed and children:
            yield from self._drop_children(freed, children, session)

    def _meant(self, named: list[str], session: Session) -> Iterator[str | None]:
        """
        What the session holds of each name, or by it if it is a key; None where that is nothing.
        """
        for name in named:
            if session.keys is not None and name in session.keys:
                yield from session.keys.take(name)
            else:
                yield name if name in session.bindings else None

    def _drop(self, address: str, session: Session) -> None:
        self._routes.unbind(address, session)
        if session.keys is not None:
            session.keys.forget(address)
            self._session_store.unkeyed(session.sid, address)
        for suffix in _BESIDE:
            self._routes.unbind(address + suffix, session)

    def _drop_children(
        self, freed: dict[str, None], children: dict[str, None], session: Session
    ) -> Iterator[None]:
        """
        Every child of every address; where those are more than the session holds, whatever it holds of them.
        """
        if len(freed) * len(children) <= len(session.bindings):
            for done, address in enumerate(freed):
                for beside, name in enumerate(children, done * len(children) + 1):
                    self._routes.unbind(f"{address}{_CHILD}{name}", session)
                    if beside % ADDRESSES == 0:
                        yield
            return
        looked = 0
        for address in list(session.bindings):
            looked += 1 + address.count(_CHILD)
            if looked > ADDRESSES:
                looked = 0
                yield
            if _is_child(address, freed, children):
                self._routes.unbind(address, session)


def _making(number: int, scheme: str, domain: str, children: list[str]) -> Making:
    """
    So many addresses, each with its children.
    """
    long = len(scheme) + len(domain) + 40  # at least, with what stands between, and a UUID
    channels = sum(map(len, children)) + (long + len(_CHILD)) * len(children)
    return Making(number * (1 + len(children)), number * (long + channels))


def _is_child(address: str, parents: dict[str, None], names: dict[str, None]) -> bool:
    """
    Is it `<parent>/children/<name>`, wherever the one ends and the other begins?
    """
    at = address.find(_CHILD)
    while at >= 0:
        if address[:at] in parents and address[at + len(_CHILD) :] in names:
            return True
        at = address.find(_CHILD, at + 1)
    return False


class Pool:
    """
    Goes round its addresses, so that one just returned is the last to be leased again.

    Those found leased are not looked at again until they are returned: what a
    request costs does not grow with the pool.
    """

    def __init__(self, addresses: Iterable[str]) -> None:
        self._queue = OrderedDict.fromkeys(addresses)
        self._leased: set[str] = set()  # those taken out of the queue

    def look(self, number: int, is_leased: Callable[[str], bool]) -> Iterator[None]:
        """
        Take what is leased out of the queue, in slices, until `free` finds that many at once or none is left.
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
        That many free addresses, or Rejected with 503 and none.
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
        The next that are free, of the next `most`.
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

    def returned(self, address: str) -> None:
        """
        Whoever leased this address, if it is one of these, has it no more.
        """
        if address in self._leased:
            self._leased.remove(address)
            self._queue[address] = None
