"""
Requests to other domains that are not answered yet: their senders are answered even if the other node never
comes back.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from msgnode.bus.receipts import is_awaited
from msgnode.links.exchange.receipts import digest_of, units_of
from msgnode.links.exchange.status import AGAIN_SECONDS, GRACE_SECONDS, HELD_SECONDS
from msgnode.protocol.address import MAX_ADDRESS_CHARS
from msgnode.protocol.message import Message
from msgnode.structures.bounded_cache import BoundedCache
from msgnode.structures.deadlines import Deadlines
from msgnode.structures.fair_table import FairTable
from msgnode.structures.recent_keys import RecentKeys

MAX_NODES = 4096  # that have begun again
MAX_AWAITED = 50_000  # requests of clients here that other domains have not answered; fewer with long names

MAX_MOVED = 1000  # requests of one session that move with it: the newest ones
LATE_SECONDS = 3600.0  # for which a request is known that was answered in place of its recipient
MAX_SESSIONS = 4096  # whose requests of that kind are known by their session

PROVISIONAL = (b'"code":1', b'"code": 1')

_Address = Annotated[str, Meta(max_length=MAX_ADDRESS_CHARS)]


class MovedRequest(msgspec.Struct, array_like=True):
    """
    A request that moves with the session which waits for its answer. `node` has it; its time to live ends in
    `left_seconds`.
    """

    id: int | str
    type: str
    from_: _Address
    to: _Address
    transaction: int | str | None
    log: bool
    node: _Address
    left_seconds: float


class ToldRequests:
    """
    The digests of at most `most` requests that were answered in place of their recipients, so that what comes
    later for them is too late, and of those of a session that may move.
    """

    def __init__(self, most: int, seconds: Callable[[], float]) -> None:
        self._told: RecentKeys[bytes] = RecentKeys(LATE_SECONDS, most, seconds)
        self._is_any_unknown = False
        self._of: BoundedCache[int, deque[bytes]] = BoundedCache(MAX_SESSIONS)

    def __len__(self) -> int:
        return len(self._told)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._told

    def discard(self, digest: bytes) -> None:
        """
        Forgets a request; its id is used again.
        """
        self._told.discard(digest)

    def add(self, digest: bytes, sid: int) -> None:
        """
        Notes a request of the session with that sid; 0: it is not known.
        """
        self._told.add(digest)
        self._is_any_unknown |= not sid
        if sid:
            told = self._of.get(sid) or deque(maxlen=MAX_MOVED)
            told.append(digest)
            self._of.put(sid, told)

    def knows(self, sid: int) -> bool:
        """
        May there be such a request of that session?
        """
        return self._is_any_unknown or self._of.get(sid) is not None

    def has(self, sid: int) -> bool:
        """
        Is a request of that session known?
        """
        return any(digest in self._told for digest in reversed(self._of.get(sid) or ()))

    def of(self, sid: int) -> list[bytes]:
        """
        The requests of that session, oldest first.
        """
        return [digest for digest in self._of.get(sid) or () if digest in self._told]

    def forget(self, sid: int) -> None:
        """
        The session is at another node.
        """
        self._of.pop(sid)


class Sent:
    """
    A message under way: what is needed to tell its sender what became of it. The bytes are the stream's.

    `awaited` are the addresses whose answers the sender waits for. `node` acknowledged it at
    `acknowledged_at`, None before. The time to live ends at `until`.
    """

    __slots__ = (
        "acknowledged_at",
        "awaited",
        "from_",
        "id",
        "is_answer",
        "is_moved",
        "log",
        "node",
        "receipt",
        "received_at",
        "sid",
        "to",
        "transaction",
        "type",
        "until",
    )

    def __init__(self, message: Message, sid: int, receipt: bool, node: str = "", until: float = 0.0) -> None:
        self.id, self.type, self.from_, self.to = message.id, message.type, message.from_, message.to
        self.transaction, self.log = message.transaction, message.log
        self.sid = sid
        self.receipt = receipt
        self.received_at = message.received_at  # 0: before a restart
        self.node, self.until = node, until
        self.acknowledged_at: float | None = None
        self.is_moved = False  # it was sent by another node of the domain, from which its session came
        self.awaited: Sequence[str]
        if isinstance(message.to, str):
            # A provisional answer has a code below 200, and another one follows it.
            self.is_answer = message.type.lower() == "response" and not any(
                sign in message.data for sign in PROVISIONAL
            )
            self.awaited = (message.to,) if is_awaited(message) else ()
        else:
            self.is_answer = False
            self.awaited = [to for to in message.to if is_awaited(Message(message.id, message.type, to))]

    def header(self, to: str | None = None) -> Message:
        message = Message(self.id, self.type, to or self.to, self.from_, transaction=self.transaction)
        message.log = self.log
        return message

    def answered(self, to: str) -> None:
        """
        The sender waits for no answer of that address any more.
        """
        self.awaited = [each for each in self.awaited if each != to]


class AwaitedAnswers:
    """
    The table of requests that other domains have not answered, by sender, id and address.

    A domain that is reached, and has acknowledged a request, answers it: only its client can leave it without
    an answer, as in one domain.
    """

    def __init__(
        self, has_route: Callable[[str], bool], seconds: Callable[[], float], most: int = MAX_AWAITED
    ) -> None:
        self._has_route = has_route
        self._seconds = seconds
        self._table: FairTable[bytes, tuple[Sent, str]] = FairTable(most)  # each with the address
        self._restarts: BoundedCache[str, float] = BoundedCache(MAX_NODES)  # when nodes began again
        self.in_place = ToldRequests(most, seconds)
        self._answered: RecentKeys[bytes] = RecentKeys(LATE_SECONDS, most, seconds)  # of those that moved
        self._deadlines: Deadlines[bytes] = Deadlines()

    def __len__(self) -> int:
        return len(self._table)

    def put(self, sent: Sent) -> list[tuple[Sent, str]]:
        """
        Notes a request that was sent. If there are too many, the oldest ones of the sender of the most are
        dropped. Returns these, each with its address.
        """
        dropped = []
        for to in sent.awaited:
            key = sent.from_, sent.id, to
            digest = digest_of(key)
            self.in_place.discard(digest)  # the id is used again
            self._answered.discard(digest)
            evicted = self._table.put(digest, (sent, to), sent.sid, sent.sid, units_of(key))
            self._deadlines.set(digest, sent.until + GRACE_SECONDS)
            for each, oldest in evicted:
                self._deadlines.discard(each)
                dropped.append(oldest)
        return dropped

    def answered(self, message: Message, in_place: bool = False, sid: int = 0) -> bool:
        """
        Notes a response of another node. False if it comes too late: its request was answered in its place,
        or it is itself `in_place` of an answer that came. False, too, for a request that comes back here with
        the session of its recipient, when its sender has been answered. `sid` is that of the session that an
        answer in place of another one is for.
        """
        if not isinstance(message.to, str):
            return True
        if message.type.lower() != "response":
            if not len(self.in_place) or not is_awaited(message):
                return True
            return digest_of((message.from_, message.id, message.to)) not in self.in_place
        digest = digest_of((message.to, message.id, message.from_))
        if digest in self.in_place or (in_place and digest in self._answered):
            return False
        found = self._table.pop(digest)
        if found is not None:
            self._deadlines.discard(digest)
            found[0].answered(message.from_)
            if found[0].is_moved:
                self._answered.add(digest)
        if in_place:
            self.in_place.add(digest, sid)
        return True

    def passed_here(self, message: Message, sender: int, recipient: int) -> bool:
        """
        Notes a message from a client of this node to another one, by the sids of their sessions. False for a
        response that comes too late. A request may have an id that was used before.
        """
        if message.type.lower() == "response":
            is_asked = self._table.has(recipient, recipient) or self.in_place.knows(recipient)
            return not is_asked or self.answered(message)
        if self.in_place.knows(sender) and isinstance(message.to, str) and is_awaited(message):
            self.in_place.discard(digest_of((message.from_, message.id, message.to)))
        return True

    def awaits(self, sid: int, to: str) -> bool:
        """
        Does the session with that sid wait for an answer of the address, or may one come that is too late?
        """
        return self.in_place.has(sid) or any(asked == to for _, (_, asked) in self._table.of(sid, sid))

    def told(self, sent: Sent, to: str) -> None:
        """
        Notes that the sender of a request has got an answer in place of that of the address.
        """
        self.in_place.add(digest_of((sent.from_, sent.id, to)), sent.sid)

    def drop(self, sent: Sent) -> None:
        """
        The sender is answered in another way.
        """
        for to in sent.awaited:
            digest = digest_of((sent.from_, sent.id, to))
            found = self._table.get(digest)
            if found is not None and found[0] is sent:
                self._table.remove(digest)
                self._deadlines.discard(digest)

    def take_all(self) -> Iterator[tuple[Sent, str]]:
        """
        Takes out all requests, each with its address.
        """
        for digest, found in list(self._table.items()):
            self._table.remove(digest)
            self._deadlines.discard(digest)
            yield found

    def restarted(self, node: str) -> None:
        """
        A node began again, perhaps without its memory: what it had taken it may have lost.
        """
        self._restarts.put(node, self._seconds())

    def of(self, sid: int) -> list[MovedRequest]:
        """
        The newest requests of the session with that sid, oldest first.
        """
        now = self._seconds()
        return [
            MovedRequest(
                sent.id, sent.type, sent.from_, to, sent.transaction, sent.log, sent.node, sent.until - now
            )
            for _, (sent, to) in self._table.of(sid, sid)[-MAX_MOVED:]
        ]

    def adopt(self, request: MovedRequest, sid: int) -> list[tuple[Sent, str]]:
        """
        Notes a request of a session that came here from another node of the domain. Returns as `put`.
        """
        message = Message(
            request.id, request.type, request.to, request.from_, transaction=request.transaction
        )
        message.log = request.log
        sent = Sent(message, sid, False, request.node, self._seconds() + request.left_seconds)
        sent.acknowledged_at, sent.is_moved = self._seconds(), True
        return self.put(sent)

    def forget(self, sid: int) -> None:
        """
        The session with that sid is at another node, and waits there.
        """
        self.in_place.forget(sid)
        for digest, _ in self._table.of(sid, sid):
            self._table.remove(digest)
            self._deadlines.discard(digest)

    @property
    def is_due(self) -> bool:
        """
        Is there more to take out now?
        """
        return self._deadlines.is_due(self._seconds())

    def overdue(self, is_here: Callable[[str], bool] = lambda address: False) -> Iterator[tuple[Sent, str]]:
        """
        Takes out requests that get no answer any more, as far as one can know, each with its address. It
        looks at a bounded number. A request that was acknowledged follows the session of its recipient, so it
        is here if that `is_here`.
        """
        now = self._seconds()
        for digest in self._deadlines.take(now):
            found = self._table.get(digest)
            assert found is not None, "what leaves the table has no deadline any more"
            sent, to = found
            is_there = self._is_there(sent) or (sent.acknowledged_at is not None and is_here(to))
            if is_there and now < sent.until + HELD_SECONDS:
                self._deadlines.set(digest, now + AGAIN_SECONDS)
                continue
            self._table.remove(digest)
            if not is_there:
                yield found

    def _is_there(self, sent: Sent) -> bool:
        """
        Has the node the request, and is it reached?
        """
        at, restart = sent.acknowledged_at, self._restarts.get(sent.node)
        return at is not None and (restart is None or restart < at) and self._has_route(sent.node)
