"""
Allocations at other domains: the addresses that the node of another domain gave to a session here.

To that domain they belong to this node, which passes what is sent to them on to the session, and gives them
back when the session ends.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple, Protocol

from msgspec import Struct
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.bus.responders.bindings import flatten_strings
from msgnode.links.exchange.node_parts import NodeParts
from msgnode.links.exchange.receipts import UNIT_CHARS, digest_of
from msgnode.links.exchange.status import AGAIN_SECONDS, UNCONFIRMED, response_body
from msgnode.protocol.address import MAX_ADDRESS_CHARS, Domain
from msgnode.protocol.errors import NotOffered, Rejected
from msgnode.protocol.message import Message, compose, decode
from msgnode.sessions.limits.memory_budget import binding_size
from msgnode.sessions.routing import ALLOCATED, OWNED
from msgnode.sessions.session import Session
from msgnode.structures.fair_table import FairTable
from msgnode.structures.time_slices import ADDRESSES

MAX_REQUESTED = 10_000  # requests that other domains have not answered; fewer with children
UNIT_CHILDREN = 8  # names of children, which cost about as much as the rest of what is kept of a request
UNIT_ADDRESSES = 8  # that are given back by one request
BUSY = (429, 503, 504, 507)  # codes of a domain that takes the same request later
LOOK_SECONDS = 5.0  # between two looks whether another member holds the addresses of sessions that have left
MAX_AT_ONCE = 1000  # addresses in one request, or given back by one message
TOO_LATE = "its answer came too late, and is void"
_CHILD = "/children/"
_MANAGER, _SERVICE = "domain://msg-node.", "-allocation"


class Requested(Struct):
    """
    A request for addresses: the session that asked, their number, and the names of children that it wants
    with each.
    """

    session: Session
    number: int
    children: list[str]


class Deleted(NamedTuple):
    """
    Addresses that are being given back to the service that gave them; `sid` is the session that does so, 0
    for the node itself.
    """

    service: str
    addresses: list[str]
    sid: int

    @property
    def units(self) -> int:
        return 1 + len(self.addresses) // UNIT_ADDRESSES


def _nothing(address: str, session: Session) -> None:
    """
    Does nothing.
    """


class Homes(Protocol):
    """
    The domain of each address; `own` is this node's.
    """

    own: str

    def home(self, address: str) -> str: ...


class Noting(Protocol):
    """
    A counter of events of other domains.
    """

    def note(self, of: str, event: str) -> None: ...


class Allocations:
    """
    The table of addresses that sessions here have from other domains, with the service that gave them.

    `send` sends a message of the node's own to another domain, and calls `lost` if that has not got it. It
    returns False if there is no room now. `bound` is called for each address that a session here gets.
    """

    def __init__(
        self,
        node: NodeParts,
        homes: Homes,
        send: Callable[[Message, Callable[[], None]], bool],
        clock: IReactorTime,
        counts: Noting,
        bound: Callable[[str, Session], None] = _nothing,
    ) -> None:
        self._node = node
        self._homes = homes
        self._send = send
        self._clock = clock
        self._counts = counts
        self._bound = bound
        self._domain = Domain(node.config.domain)
        self._requested: FairTable[bytes, Requested] = FairTable(MAX_REQUESTED)
        self._held: dict[str, str] = {}  # the service of each address
        self._children: dict[str, list[str]] = {}  # the names of those of each address that has any
        self._given_back: dict[str, dict[str, None]] = {}  # by service, until it is sent
        self._deleted: FairTable[bytes, Deleted] = FairTable(MAX_REQUESTED)  # deletes that are not answered
        self._number = 0  # of the last request of the node itself
        self._sending: IDelayedCall | None = None
        self._left: dict[str, None] = {}  # those of sessions that have gone to other members
        self._looking: IDelayedCall | None = None

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, address: str) -> bool:
        return address in self._held

    def start(self) -> None:
        """
        Takes the allocations of before a restart.
        """
        for session in [session for session in self._node.sessions if not session.is_node]:
            for address, kinds in session.bindings.items():
                if kinds & ALLOCATED:
                    self.adopt(address)

    def adopt(self, address: str) -> None:
        """
        Takes an allocated address of before a restart, if it is of another domain.
        """
        home = self._homes.home(address)
        if home in ("", self._homes.own):
            return
        self._held[address] = f"{_MANAGER}{home}/address{_SERVICE}"
        parent, separator, name = address.partition(_CHILD)
        if separator:
            self._children.setdefault(parent, []).append(name)

    @staticmethod
    def is_service(to: object) -> bool:
        return isinstance(to, str) and to.startswith(_MANAGER) and to.endswith(_SERVICE)

    def check(self, message: Message, session: Session) -> None:
        """
        Raises Rejected if a request for the allocation service of another domain is about too many addresses,
        names those of others, or a key: all sessions of this node would share it.
        """
        if message.type.lower() == "create":
            value = message.fields().get("value")
            if isinstance(value, dict) and value.get("allocationKey") is not None:
                raise NotOffered("another domain allocates without a key only")
            number, children = _wanted(message)
            _check_count(number * (1 + len(children)))
            return
        named = self._named(message)
        _check_count(len(named))
        for address in named:
            if not session.bindings.get(address, 0) & ALLOCATED:
                raise Rejected(f"{address} is not allocated to this session"[:300], 403, "not-your-address")

    def _named(self, message: Message) -> list[str]:
        """
        The addresses that a request gives back.
        """
        body, most = message.fields(), self._node.config.limits.addresses_per_request
        below = flatten_strings(body.get("childrenResources"), most)
        return flatten_strings(body.get("resource"), most) + [each for each in below if "://" in each]

    def sent(self, message: Message, session: Session) -> None:
        """
        Notes a request that has left for the allocation service of another domain.
        """
        assert isinstance(message.to, str)
        if message.type.lower() != "create":
            named = self._named(message)
            for address in named:
                below = [address + _CHILD + name for name in self._children.pop(address, ())]
                for each in (address, *below):  # the other domain frees the children, too
                    self._held.pop(each, None)
                    self._node.routes.unbind(each, session, ALLOCATED)
            if named:
                self._note_deleted(message, named, session.sid)
            return
        number, children = _wanted(message)
        units = 1 + sum(map(len, children)) // UNIT_CHARS + len(children) // UNIT_CHILDREN
        requested = Requested(session, number, children)
        self._requested.put(_digest_of(message), requested, session.sid, session.sid, units)

    def not_delivered(self, request: Message) -> None:
        """
        A request did not get to the other domain: what it was to give back, the node itself does.
        """
        deleted = self._deleted.pop(_digest_of(request))
        if deleted is not None:
            self._give_back_all(deleted.service, deleted.addresses)

    def not_delivered_before(self, request: Message) -> None:
        """
        As `not_delivered`, for a request from before a restart.
        """
        if self.is_service(request.to) and request.type.lower() == "delete":
            self._give_back_all(str(request.to), self._named(request)[:MAX_AT_ONCE])

    def answered(self, message: Message) -> Rejected | None:
        """
        Binds the addresses in the answer of another domain to the session that asked. If that is not known
        any more, or has no room for them, they are given back; returns why.
        """
        granted = self._granted(message)
        if granted is None or self._is_of_delete(message):
            return None
        requested = self._requested.pop(_digest_of_request(message))
        if requested is None:
            self._give_back_all(message.from_, granted)
            return Rejected(TOO_LATE, UNCONFIRMED.code, UNCONFIRMED.reason) if granted else None
        return self._bind(message.from_, granted, requested)

    def refuse(self, message: Message) -> None:
        """
        Gives back the addresses in an answer that comes too late for the session that asked.
        """
        granted = self._granted(message)
        if granted is not None and not self._is_of_delete(message):
            self._requested.pop(_digest_of_request(message))
            self._give_back_all(message.from_, granted)

    def answered_node(self, message: Message) -> None:
        """
        Gives addresses back again if the other domain had no time or room for it.
        """
        if self._granted(message) is None:
            return
        deleted = self._deleted.pop(_digest_of_request(message))
        if deleted is not None and message.fields().get("code") in BUSY:
            self._give_back_later(deleted)

    def _is_of_delete(self, answer: Message) -> bool:
        """
        Is it the answer to a client's delete? If that was refused, the node itself gives the addresses back.
        """
        deleted = self._deleted.pop(_digest_of_request(answer))
        if deleted is not None and answer.fields().get("code") != 200:
            self._give_back_all(deleted.service, deleted.addresses)
        return deleted is not None

    def _granted(self, message: Message) -> list[str] | None:
        """
        The addresses in the final answer of an allocation service; None for another message.
        """
        if not isinstance(message.to, str) or not self.is_service(message.from_):
            return None
        if message.type.lower() != "response":
            return None
        body = message.fields()
        code, value = body.get("code"), body.get("value")
        if isinstance(code, int) and code < 200:
            return None
        allocated = value.get("allocated") if isinstance(value, dict) else None
        if code != 200 or not isinstance(allocated, list):
            return []
        home, granted = self._homes.home(message.from_), []
        for address in allocated[:MAX_AT_ONCE]:  # no request is about more
            if not isinstance(address, str) or len(address) > MAX_ADDRESS_CHARS:
                continue
            if self._homes.home(address) != home or address.startswith("domain://"):
                self._counts.note(home, "peer")
                continue
            granted.append(address)
        return granted

    def _bind(self, service: str, granted: list[str], requested: Requested) -> Rejected | None:
        """
        Binds as many addresses as were asked for, or none if there is no room; others are given back.
        """
        session, wanted = requested.session, granted[: requested.number]
        names = [
            each
            for address in wanted
            for each in (address, *(address + _CHILD + name for name in requested.children))
        ]
        try:
            if not session.ended:
                self._check_room(names, session)
        except Rejected as why:
            self._give_back_all(service, granted)
            return why
        if session.ended:
            self._give_back_all(service, granted)
            return None
        self._give_back_all(service, granted[requested.number :])
        own = frozenset(wanted)
        if requested.children:
            self._children.update((address, requested.children) for address in wanted)
        for each in names:
            self._held[each] = service
            self._node.routes.bind(each, session, ALLOCATED | (OWNED if each in own else 0))
            self._bound(each, session)
        return None

    def _check_room(self, names: list[str], session: Session) -> None:
        most, bound = self._node.config.limits.bindings_per_session, len(session.bindings)
        if bound + len(names) > most:
            text = f"a session may hold {most} addresses; this one has {bound}, not room for {len(names)}"
            raise Rejected(text, 429, "limit")
        self._node.budget.check(session.account, sum(map(binding_size, names)))

    # -- the way back ------------------------------------------------------------------

    def unbound(self, address: str, session: Session) -> None:
        """
        A session is no longer bound to the address: if it was allocated elsewhere, it is given back. If the
        session has gone to another member, this node keeps the address as long as any member holds it.
        """
        if session.has_left and address in self._held:
            self._left[address] = None
            self._look_later()
        else:
            self._forget(address)

    def _look_later(self) -> None:
        if self._left and self._looking is None:
            self._looking = self._clock.callLater(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """
        Gives back what no session of the domain is bound to any more, and looks at the rest again.
        """
        self._looking = None
        cluster = self._node.router.cluster
        for address in list(islice(self._left, ADDRESSES)):
            del self._left[address]
            if self._node.routes.resolve(address):
                continue  # the session has come back
            if cluster is not None and cluster.holders(address, False):
                self._left[address] = None
            else:
                self._forget(address)
        self._look_later()

    def _forget(self, address: str) -> None:
        service = self._held.pop(address, None)
        if service is not None:
            self._children.pop(address, None)
            self._give_back(service, address)

    def _give_back_all(self, service: str, addresses: list[str]) -> None:
        for address in addresses:
            if address not in self._held:
                self._give_back(service, address)

    def _note_deleted(self, request: Message, addresses: list[str], sid: int) -> None:
        digest, deleted = _digest_of(request), Deleted(str(request.to), addresses, sid)
        before = self._deleted.pop(digest)  # if a client uses the id again
        evicted = self._deleted.put(digest, deleted, sid, sid, deleted.units)
        for each in (before, *(oldest for _, oldest in evicted)):
            if each is not None and each.sid:  # its answer is not looked at any more
                self._give_back_all(each.service, each.addresses)

    def _give_back_later(self, deleted: Deleted) -> None:
        again = [address for address in deleted.addresses if address not in self._held]
        if not again:
            return
        self._given_back.setdefault(deleted.service, {}).update(dict.fromkeys(again))
        if self._sending is None:
            self._sending = self._clock.callLater(AGAIN_SECONDS, self._send_back)

    def _give_back(self, service: str, address: str) -> None:
        self._given_back.setdefault(service, {})[address] = None
        if self._sending is None:
            self._sending = self._clock.callLater(0, self._send_back)

    def _send_back(self) -> None:
        """
        Gives back what was released in this turn, and not moved to another session, as the node itself. What
        finds no room in the stream is given back later.
        """
        self._sending, wait = None, 0.0
        given_back, self._given_back = self._given_back, {}
        for service, addresses in given_back.items():
            self._given_back[service] = rest = dict.fromkeys(islice(addresses, MAX_AT_ONCE, None))
            gone = []
            for address in islice(addresses, MAX_AT_ONCE):
                if self._node.routes.is_allocated(address):
                    self._held[address] = service
                else:
                    gone.append(address)
            if gone and not self._send_delete(service, gone):
                rest.update(dict.fromkeys(gone))
                wait = AGAIN_SECONDS
            if not rest:
                del self._given_back[service]
        if self._given_back and self._sending is None:
            self._sending = self._clock.callLater(wait, self._send_back)

    def _send_delete(self, service: str, addresses: list[str]) -> bool:
        self._number += 1
        body = {"resource": addresses}
        request = decode(compose(self._number, "delete", own_address(self._domain), service, body).data)
        self._note_deleted(request, addresses, 0)

        def lost() -> None:
            deleted = self._deleted.pop(_digest_of(request))
            if deleted is not None:
                self._give_back_later(deleted)

        is_sent = self._send(request, lost)
        if not is_sent:
            self._deleted.pop(_digest_of(request))
        return is_sent

    # -- grants of this node --------------------------------------------------------------

    def lost(self, node: str, answer: Message) -> None:
        """
        Takes back what this node's allocation service gave to a session of another node, which has not got
        the answer.
        """
        if not answer.from_.startswith(f"{self._domain.node}/") or not answer.from_.endswith(_SERVICE):
            return
        value = answer.fields().get("value")
        allocated = value.get("allocated") if isinstance(value, dict) else None
        session = self._node.sessions.get(node)
        if session is not None and isinstance(allocated, list):
            self._node.slices.work(self._take_back(frozenset(allocated), session))

    def _take_back(self, allocated: frozenset[str], session: Session) -> Iterator[None]:
        for done, address in enumerate(list(session.bindings), 1):
            if address in allocated or address.partition(_CHILD)[0] in allocated:
                self._node.routes.unbind(address, session, ALLOCATED)
            if done % ADDRESSES == 0:
                yield

    def stop(self) -> None:
        for call in (self._sending, self._looking):
            if call is not None and call.active():
                call.cancel()


def _wanted(message: Message) -> tuple[int, list[str]]:
    """
    The number of addresses that a request asks for, and the names of their children.
    """
    body = message.fields()
    value = body.get("value")
    number = value.get("number", 1) if isinstance(value, dict) else 1
    below = flatten_strings(body.get("childrenResources"), MAX_AT_ONCE)
    children = [each for each in below if "://" not in each]
    return (number if isinstance(number, int) and number > 0 else 1), children


def _check_count(number: int) -> None:
    if number > MAX_AT_ONCE:
        text = f"a request to another domain is about at most {MAX_AT_ONCE} addresses, with their children"
        raise Rejected(f"{text}, not {number}"[:300], 413, "limit")


def _digest_of(request: Message) -> bytes:
    return digest_of((request.from_, request.id, str(request.to)))


def _digest_of_request(answer: Message) -> bytes:
    return digest_of((str(answer.to), answer.id, answer.from_))


def own_address(domain: Domain) -> str:
    """
    The address from which a node gives addresses back; answers to it are of no use.
    """
    return f"{domain.node}/links"


def make_void(answer: Message, why: Rejected) -> None:
    """
    Makes an answer say why it is void.
    """
    body = response_body(why.code, str(why), why.reason)
    made = decode(compose(answer.id, "response", answer.from_, str(answer.to), body, answer.transaction).data)
    answer.data, answer.body = made.data, made.body
