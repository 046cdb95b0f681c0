"""
Messages of clients here to a foreign domain: they wait until its stub is live, and their senders learn what
became of them.
"""

from collections.abc import Callable
from time import time_ns

from msgspec import Struct
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.bus.router import Router
from msgnode.bus.routing_table import RoutingTable
from msgnode.foreign.header_edit import edited
from msgnode.links.exchange.awaited import AwaitedAnswers, Sent
from msgnode.links.exchange.envelopes import time_to_live, without_via
from msgnode.links.exchange.node_parts import ExchangeOptions
from msgnode.links.exchange.receipts import AskedReceipts, Path
from msgnode.links.exchange.status import UNCONFIRMED, response_body, text_of
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.queue import MessageQueue, QueuedMessage
from msgnode.sessions.session import Session

HANDED_OVER = "handed to a foreign node"
SHARE = 4  # one sender may have a quarter of the queue
LOOK_SECONDS = 1.0
UNBOUNDED = 1 << 62
_STALE = (408, "stale", "its time to live ended before the foreign domain was reached")
_NO_ROOM = "there is no room for more messages to this domain"


class Waiting(Struct):
    """
    A message that waits: its payload, and the facts by which its sender is answered.
    """

    sent: Sent
    payload: bytes


class Outbound:
    """
    The queue to one domain's stub. Beyond its bounds the newest message is refused.

    `post` gives a message to the stub; False if it takes none now. `may_leave` says if answers to an address
    find their way back. `is_live`: is the foreign node reached? `undelivered` gets the header of a message
    that did not leave.
    """

    def __init__(
        self,
        domain: str,
        node: str,
        router: Router,
        routes: RoutingTable,
        post: Callable[[bytes], bool],
        may_leave: Callable[[str], bool],
        is_live: Callable[[], bool],
        note: Callable[[str], None],
        undelivered: Callable[[Message], None],
        options: Callable[[], tuple[int, int, float]],
        clock: IReactorTime,
    ) -> None:
        self._domain = domain
        self._node = node
        self._router = router
        self._routes = routes
        self._post = post
        self._may_leave = may_leave
        self._is_live = is_live
        self._note = note
        self._undelivered = undelivered
        self._options = options
        self._clock = clock
        self._queue = MessageQueue(UNBOUNDED, UNBOUNDED)  # `_check_room` has the bounds, which may change
        self._items: dict[int, Waiting] = {}
        self._held: dict[str, list[QueuedMessage]] = {}  # until their `from` is subscribed
        self._by_sender: dict[int, int] = {}  # bytes that wait, by sid
        self._last_key = self._bytes = 0
        self._blocked: QueuedMessage | None = None  # that the stub has not taken
        self._look: IDelayedCall | None = None
        self.receipts = AskedReceipts(routes, clock.seconds)
        self.awaited = AwaitedAnswers(lambda node: is_live(), clock.seconds)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_needed(self) -> bool:
        """
        Does a message wait, or a sender for an answer?
        """
        return bool(self._items) or len(self.awaited) > 0

    # -- in ------------------------------------------------------------------------------

    def send(self, message: Message, session: Session) -> None:
        """
        Sends the message, or lets it wait. Raises Rejected if there is no room.
        """
        wait = self._options()[2]
        seconds = time_to_live(message, ExchangeOptions(max_wait_seconds=wait))
        until = self._clock.seconds() + seconds
        payload = without_via(message)
        if message.receipt:
            payload = edited(payload, receipt=None)  # which this node gives
        self._check_room(session, len(payload))
        asked, message.receipt = message.receipt, False
        sent = Sent(message, session.sid, asked, self._domain, until)
        self._last_key += 1
        kept = QueuedMessage(
            self._last_key, None, len(payload), until, message.effective_priority, place=session.sid
        )
        self._items[kept.key] = Waiting(sent, payload)
        self._by_sender[session.sid] = self._by_sender.get(session.sid, 0) + len(payload)
        self._bytes += len(payload)
        if asked:
            self.receipts.ask(message, session, self._domain, until)
        self._queue.put(kept)
        self.flush()
        if kept.key not in self._items:
            message.outcome, message.recipients = "delivered", 1
            return
        message.outcome, message.waiting, message.reason = "waiting", 1, "no-path"
        if asked:
            self.receipts.wait(message, session)
        self._look_in(LOOK_SECONDS)

    def _check_room(self, session: Session, size: int) -> None:
        messages, most, _ = self._options()
        if len(self._items) >= messages or self._bytes + size > most:
            raise Rejected(_NO_ROOM, 507, "overflow")
        if self._items and self._by_sender.get(session.sid, 0) + size > max(most // SHARE, size):
            raise Rejected(f"{_NO_ROOM} from this session", 507, "overflow")

    # -- out -----------------------------------------------------------------------------

    def flush(self) -> None:
        """
        Gives waiting messages to the stub, as many as it takes.
        """
        while self._is_live() and self._blocked is None:
            kept = self._queue.pop()
            if kept is None:
                return
            item = self._items[kept.key]
            if kept.until <= self._clock.seconds():
                self._forget(kept)
                self._fail(item.sent, *_STALE)
            elif item.sent.from_ in self._held or not self._may_leave(item.sent.from_):
                self._held.setdefault(item.sent.from_, []).append(kept)
            else:
                self._give(kept, item)

    def _give(self, kept: QueuedMessage, item: Waiting) -> None:
        if not self._post(item.payload):
            self._blocked = kept
            return
        self._forget(kept)
        self._note("sent")
        item.sent.acknowledged_at = self._clock.seconds()
        if item.sent.receipt:
            header = item.sent.header()
            self.receipts.finish(header, 202, HANDED_OVER, "", self._here(item.sent))
        if item.sent.awaited:
            for sent, to in self.awaited.put(item.sent):
                self._answer(sent, to, 504, "too many requests wait for an answer", "limit")
            self._look_in(LOOK_SECONDS)

    def may_send(self) -> None:
        """
        The stub takes messages again.
        """
        blocked, self._blocked = self._blocked, None
        if blocked is not None:
            self._give(blocked, self._items[blocked.key])
        self.flush()

    def released(self, addresses: list[str]) -> None:
        """
        Sends the messages that waited for the subscription of these addresses.
        """
        self._put_back([kept for address in addresses for kept in self._held.pop(address, ())])
        self.flush()

    def lost(self) -> None:
        """
        The foreign node is not reached any more: what was held waits again.
        """
        self._put_back(self._take_out())
        if len(self.awaited):
            self.awaited.restarted(self._domain)
            self._look_in(LOOK_SECONDS)

    def _take_out(self) -> list[QueuedMessage]:
        """
        Takes out what is not in the queue, but waits for the stub or a subscription.
        """
        out = [] if self._blocked is None else [self._blocked]
        self._blocked = None
        out += [kept for held in self._held.values() for kept in held]
        self._held.clear()
        return out

    def _put_back(self, out: list[QueuedMessage]) -> None:
        """
        Puts messages into their places in the order of arrival.
        """
        if out:
            for kept in sorted(out + self._queue.remove(lambda kept: True), key=lambda kept: kept.key):
                self._queue.put(kept)

    def _forget(self, kept: QueuedMessage) -> None:
        del self._items[kept.key]
        self._bytes -= kept.size
        left = self._by_sender[kept.place] - kept.size
        if left:
            self._by_sender[kept.place] = left
        else:
            del self._by_sender[kept.place]

    # -- outcomes ------------------------------------------------------------------------

    def refuse_all(self, why: Rejected) -> None:
        """
        Tells the senders of all that waits that it cannot be sent.
        """
        gone = self._take_out() + self._queue.remove(lambda kept: True)
        for kept in sorted(gone, key=lambda kept: kept.key):
            sent = self._items[kept.key].sent
            self._forget(kept)
            self._fail(sent, why.code, why.reason, str(why))

    def stop(self, why: Rejected) -> None:
        """
        Tells the senders of all that waits, and of requests that the stub has taken, that no answer comes.
        """
        self.refuse_all(why)
        for sent, to in self.awaited.take_all():
            self._answer(sent, to, UNCONFIRMED.code, text_of(UNCONFIRMED), UNCONFIRMED.reason)
        if self._look is not None and self._look.active():
            self._look.cancel()

    def _look_again(self) -> None:
        self._look = None
        now = self._clock.seconds()
        stale = self._queue.stale(now)
        for address, held in list(self._held.items()):
            stale += [kept for kept in held if kept.until <= now]
            self._held[address] = [kept for kept in held if kept.until > now]
            if not self._held[address]:
                del self._held[address]
        for kept in stale:
            sent = self._items[kept.key].sent
            self._forget(kept)
            self._fail(sent, *_STALE)
        for sent, to in self.awaited.overdue():
            self._answer(sent, to, UNCONFIRMED.code, text_of(UNCONFIRMED), UNCONFIRMED.reason)
            self.awaited.told(sent, to)
        if self.is_needed:
            self._look_in(LOOK_SECONDS)

    def _look_in(self, seconds: float) -> None:
        if self._look is None:
            self._look = self._clock.callLater(seconds, self._look_again)

    def _fail(self, sent: Sent, code: int, reason: str, text: str) -> None:
        self._note(reason)
        self._undelivered(sent.header())
        if sent.receipt:
            self.receipts.finish(sent.header(), code, text, reason, self._here(sent))
        for to in sent.awaited:
            self._answer(sent, to, code, text, reason)

    def _answer(self, sent: Sent, to: str, code: int, text: str, reason: str) -> None:
        message = sent.header(to)
        session = self._routes.listener(message.from_, sent.sid) if sent.sid else None
        found = (session,) if session is not None else self._routes.resolve(message.from_)
        reply = message.reply(response_body(code, text, reason))
        expected = self._router.expected_responses
        if found:
            found[0].deliver(reply)
        elif expected.waiting:
            expected.deliver(reply, None)

    def _here(self, sent: Sent) -> Path:
        micros = max(0, time_ns() - sent.received_at) // 1000 if sent.received_at else 0
        return ((self._node, micros),)
