"""
This node's subscriptions at a foreign node: for clients here that listen to addresses of the foreign domain,
and for clients here that send there, for the foreign node knows no other way back to them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice

from msgspec import Struct, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.links.exchange.status import refusal
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message, compose
from msgnode.sessions.session import Session

ANSWER_SECONDS = 5.0  # in which the foreign node answers
AGAIN_SECONDS = 60.0  # after which it is asked again
ADDRESSES_AT_ONCE = 100  # in one message
TIMED_OUT = 504
SHARE = 4  # one session may have a quarter of the addresses


class Subscribed(Struct, eq=False):
    """
    One address: who needs it, and whether the foreign node has it.

    `is_asked`: a request for it is under way. `is_decided`: it was answered, or the answer is late, so that
    messages from it need not wait. `refused` is the last refusal.
    """

    senders: set[Session] = field(default_factory=set)
    observers: set[Session] = field(default_factory=set)
    waiting: dict[Deferred[None], None] = field(default_factory=dict)
    is_asked: bool = False
    is_decided: bool = False
    is_confirmed: bool = False
    refused: Rejected | None = None


class Request(Struct):
    """
    A request to the foreign node that is not answered yet.
    """

    addresses: list[str]
    timer: IDelayedCall


class Subscriptions:
    """
    The subscriptions at one foreign node.

    `post` sends a message to its stub; False if it takes none. `me` is this node's name there. `decided` is
    called for addresses from which messages may be sent now.
    """

    def __init__(
        self,
        domain: str,
        post: Callable[[bytes], bool],
        me: Callable[[], str],
        decided: Callable[[list[str]], None],
        clock: IReactorTime,
        most: Callable[[], int],
    ) -> None:
        self._manager = f"domain://msg-node.{domain}/sm"
        self._post = post
        self._me = me
        self._decided = decided
        self._clock = clock
        self._most = most
        self._addresses: dict[str, Subscribed] = {}
        self._requests: dict[int, Request] = {}
        self._fresh: dict[str, None] = {}  # to be asked for
        self._by_session: Counter[Session] = Counter()  # addresses that it needs
        self._last_id = 0
        self._is_up = False
        self._again: IDelayedCall | None = None
        self.observed = 0  # addresses that clients here listen to
        # Called with addresses that are subscribed now, from which sessions of other members send.
        self.moved_here: Callable[[list[str]], None] = lambda addresses: None

    def __len__(self) -> int:
        return len(self._addresses)

    # -- who needs what ------------------------------------------------------------------

    def send_from(self, address: str, session: Session) -> bool:
        """
        Notes that the session sends from the address. May its message leave now? Raises Rejected if there are
        too many addresses.
        """
        found = self._find(address, session)
        self._add(session, found.senders, found)
        if not found.is_decided:
            self._ask_soon(address, found)
            self.flush()
        return found.is_decided

    def given(self, address: str, session: Session) -> None:
        """
        Notes an address that the foreign node has given to the session: it is subscribed there if the node is
        reached again, perhaps without its memory. Raises Rejected if there are too many addresses.
        """
        found = self._find(address, session)
        self._add(session, found.senders, found)
        found.is_decided = found.is_confirmed = True
        self._fresh.pop(address, None)

    def given_back(self, address: str, session: Session) -> None:
        """
        The session has an address no more that the foreign node had given to it.
        """
        found = self._addresses.get(address)
        if found is not None and session in found.senders:
            self._remove(session, found.senders, found)
            if not found.senders and not found.observers:
                del self._addresses[address]

    def moved_away(self, addresses: Iterable[str]) -> None:
        """
        Another member has subscribed these addresses for sessions that have moved there.
        """
        known = [address for address in addresses if address in self._addresses]
        for address in known:
            found = self._addresses[address]
            for session in [each for each in found.senders if each.ended or each.has_left]:
                self._remove(session, found.senders, found)
        self._drop_unused(known)

    def is_decided(self, address: str) -> bool:
        found = self._addresses.get(address)
        return found is None or found.is_decided

    def observe(self, addresses: Iterable[str], session: Session) -> Deferred[None]:
        """
        Subscribes for a client here; fails with Rejected if the foreign node refuses one of the addresses, or
        (504) does not answer in time. Raises Rejected if there are too many.
        """
        left: list[tuple[Subscribed, Deferred[None]]] = []
        for address, found in self._observed(addresses, session).items():
            if found.is_confirmed:
                continue
            waiting: Deferred[None] = Deferred()
            found.waiting[waiting] = None
            left.append((found, waiting))
            self._ask_soon(address, found)
        self.flush()
        if left:
            self._clock.callLater(ANSWER_SECONDS, _late, left)
        return _all([waiting for _, waiting in left])

    def _observed(self, addresses: Iterable[str], session: Session) -> dict[str, Subscribed]:
        """
        The entries of the addresses, which the session observes now; none of them without room for all.
        """
        entries: dict[str, Subscribed] = {}
        fresh: list[str] = []
        for address in addresses:
            try:
                found = entries[address] = self._find(address, session)
            except Rejected:
                for each in fresh:
                    self.unbound(each, session)
                raise
            if session not in found.observers:
                fresh.append(address)
                self.observed += not found.observers
                self._add(session, found.observers, found)
        return entries

    def unbound(self, address: str, session: Session) -> None:
        """
        The session is not bound to the address any more.
        """
        found = self._addresses.get(address)
        if found is not None and session in found.observers:
            self._remove(session, found.observers, found)
            self.observed -= not found.observers
            self._drop_unused([address])

    def sweep(self) -> Iterator[None]:
        """
        Drops the addresses of sessions that have ended, in slices.
        """
        addresses = iter(list(self._addresses))
        while some := list(islice(addresses, 10 * ADDRESSES_AT_ONCE)):
            for address in some:
                found = self._addresses.get(address)
                if found is not None:
                    for session in [each for each in found.senders if each.ended]:
                        self._remove(session, found.senders, found)
            self._drop_unused(some)
            yield

    def _find(self, address: str, session: Session) -> Subscribed:
        found = self._addresses.get(address)
        if found is None or not (session in found.senders or session in found.observers):
            text = "too many addresses of this {} are subscribed at the foreign node"
            if self._by_session[session] >= max(1, self._most() // SHARE):
                raise Rejected(text.format("session"), 429, "limit")
            if found is None and len(self._addresses) >= self._most():
                raise Rejected(text.format("node"), 429, "limit")
        if found is None:
            found = self._addresses[address] = Subscribed()
        return found

    def _add(self, session: Session, to: set[Session], found: Subscribed) -> None:
        self._by_session[session] += not (session in found.senders or session in found.observers)
        to.add(session)

    def _remove(self, session: Session, from_: set[Session], found: Subscribed) -> None:
        from_.discard(session)
        if not (session in found.senders or session in found.observers):
            self._by_session[session] -= 1
            if not self._by_session[session]:
                del self._by_session[session]

    def _drop_unused(self, addresses: list[str]) -> None:
        unused = [
            address
            for address in addresses
            if (found := self._addresses.get(address)) and not found.senders and not found.observers
        ]
        for address in unused:
            self._fresh.pop(address, None)
            del self._addresses[address]
        if unused and self._is_up:
            for start in range(0, len(unused), ADDRESSES_AT_ONCE):
                self._send("unsubscribe", unused[start : start + ADDRESSES_AT_ONCE])

    # -- the foreign node ------------------------------------------------------------------

    def up(self) -> None:
        """
        The foreign node is reached, perhaps again: it gets all addresses.
        """
        self._forget_requests()
        self._is_up = True
        for address, found in self._addresses.items():
            found.is_asked = found.is_decided = found.is_confirmed = False
            self._fresh[address] = None
        self.flush()

    def down(self) -> None:
        self._is_up = False
        self._forget_requests()
        for found in self._addresses.values():
            found.is_asked = found.is_decided = found.is_confirmed = False

    def prod(self) -> bool:
        """
        Sends one request although the foreign node is not reached: some stubs connect when they are to send.
        """
        address = next(iter(self._addresses), "")
        return bool(address) and self._send("subscribe", [address])

    def flush(self) -> None:
        """
        Asks for what is new.
        """
        while self._is_up and self._fresh:
            some = list(islice(self._fresh, ADDRESSES_AT_ONCE))
            for address in some:
                del self._fresh[address]
            if not self._ask(some):
                self._fresh = dict.fromkeys(some) | self._fresh
                return  # until the stub is ready

    def answered(self, message: Message) -> bool:
        """
        Takes the answer to a request of this node; False if it is none.
        """
        if message.to != self._me() or message.type.lower() != "response" or not isinstance(message.id, int):
            return False
        body = message.fields()
        code = body.get("code")
        if not isinstance(code, int) or code < 200:
            return True  # another one follows
        request = self._requests.pop(message.id, None)
        if request is None:
            return True
        request.timer.cancel()
        why = None
        if code >= 300:
            text = str(body.get("description") or body.get("desc") or "the foreign node has refused it")
            why = refusal(code, text, str(body.get("reason") or "refused"))
        self._decide(request.addresses, why)
        return True

    def stop(self) -> None:
        self._forget_requests()
        if self._again is not None and self._again.active():
            self._again.cancel()
        for found in self._addresses.values():
            waiting, found.waiting = found.waiting, {}
            for each in waiting:
                if not each.called:
                    each.errback(Rejected("the stub of this domain was stopped", 504, "no-path"))

    def _ask_soon(self, address: str, found: Subscribed) -> None:
        if not found.is_asked and not found.is_confirmed:
            self._fresh[address] = None

    def _ask(self, addresses: list[str]) -> bool:
        id = self._last_id + 1
        self._requests[id] = Request(addresses, self._clock.callLater(ANSWER_SECONDS, self._too_late, id))
        for address in addresses:
            self._addresses[address].is_asked = True
        if self._send("subscribe", addresses):
            return True
        self._requests.pop(id).timer.cancel()
        for address in addresses:
            self._addresses[address].is_asked = False
        return False

    def _send(self, type: str, addresses: list[str]) -> bool:
        self._last_id += 1
        body = {"resources": addresses}
        return self._post(compose(self._last_id, type, self._me(), self._manager, body).data)

    def _too_late(self, id: int) -> None:
        """
        The foreign node does not answer: messages need not wait any more, and it is asked again later.
        """
        addresses = self._requests.pop(id).addresses
        late = []
        for address in addresses:
            found = self._addresses.get(address)
            if found is not None:
                found.is_asked, found.is_decided = False, True
                late.append(address)
        if self._again is None or not self._again.active():
            self._again = self._clock.callLater(AGAIN_SECONDS, self._ask_again)
        self._decided(late)

    def _ask_again(self) -> None:
        for address, found in self._addresses.items():
            if not found.is_confirmed and not found.is_asked and found.refused is None:
                self._fresh[address] = None
        self.flush()

    def _decide(self, addresses: list[str], why: Rejected | None) -> None:
        if why is not None and len(addresses) > 1:
            self._ask_each(addresses)  # perhaps it refuses one of them
            return
        decided = []
        for address in addresses:
            found = self._addresses.get(address)
            if found is None:
                continue
            found.is_asked, found.is_decided = False, True
            found.is_confirmed, found.refused = why is None, why
            decided.append(address)
            waiting, found.waiting = found.waiting, {}
            for each in waiting:
                if not each.called:
                    each.callback(None) if why is None else each.errback(why)
            if why is not None:
                self.observed -= bool(found.observers)
                for session in list(found.observers):
                    self._remove(session, found.observers, found)
        self._decided(decided)
        self._drop_unused(decided)
        moved = [address for address in decided if self._is_of_moved(address)] if why is None else []
        if moved:
            self.moved_here(moved)

    def _is_of_moved(self, address: str) -> bool:
        found = self._addresses.get(address)
        return found is not None and any(session.is_moved for session in found.senders)

    def _ask_each(self, addresses: list[str]) -> None:
        for address in addresses:
            found = self._addresses.get(address)
            if found is not None:
                found.is_asked = False
                if not self._ask([address]):
                    self._fresh[address] = None

    def _forget_requests(self) -> None:
        for request in self._requests.values():
            request.timer.cancel()
        self._requests.clear()


def _late(waiting: list[tuple[Subscribed, Deferred[None]]]) -> None:
    for found, each in waiting:
        found.waiting.pop(each, None)
        if not each.called:
            text = "the foreign node has not answered; it is asked again"
            each.errback(Rejected(text, TIMED_OUT, "in-doubt"))


def _all(waiting: list[Deferred[None]]) -> Deferred[None]:
    """
    Fires when all have fired; fails with the first failure.
    """
    whole: Deferred[None] = Deferred()
    left = len(waiting)

    def done(result: object) -> None:
        nonlocal left
        left -= 1
        if left == 0 and not whole.called:
            whole.callback(None)

    def failed(why: object) -> None:
        if not whole.called:
            whole.errback(why)  # type: ignore[arg-type]

    for each in waiting:
        each.addCallbacks(partial(done), failed)
    if not waiting:
        whole.callback(None)
    return whole
