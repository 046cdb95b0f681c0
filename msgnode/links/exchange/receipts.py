"""
Receipts across domains: exactly one is final, and says which nodes the message passed.

The home domain gives the receipt of a message that it got. The sender's node gives it if the message never
got there.
"""

from collections.abc import Callable, Iterable, Iterator, Set
from hashlib import blake2b
from math import inf
from typing import Annotated, Any

import msgspec
from twisted.logger import Logger

from msgnode.bus.receipts import RECEIPT, TEXTS
from msgnode.bus.routing_table import RoutingTable
from msgnode.links.exchange.status import (
    AGAIN_SECONDS,
    GRACE_SECONDS,
    HELD_SECONDS,
    UNCONFIRMED,
    WAITING,
    told,
)
from msgnode.links.stream.streams import Envelope
from msgnode.links.wire.datagram import HOP_LIMIT, Name
from msgnode.links.wire.node_name import is_name
from msgnode.protocol.message import MAX_TRANSACTION_CHARS, Message, compose
from msgnode.sessions.session import Session
from msgnode.structures.bounded_cache import BoundedCache
from msgnode.structures.deadlines import TURN, Deadlines
from msgnode.structures.fair_table import FairTable

log = Logger()

MAX_ASKED = 50_000  # receipts that clients here wait for; fewer with long names, in units of UNIT_CHARS
MAX_GIVEN = 10_000  # receipts that were given, and are not given again
UNIT_CHARS = 512  # of names, which cost about as much as the rest of what is kept of a message
MAX_PATH_CHARS = 1024  # of the names in a path that is kept
MAX_MICROS = 1 << 40  # that a message stays at a node

Path = tuple[tuple[str, int], ...]
_Hop = tuple[Name, Annotated[int, msgspec.Meta(ge=0)]]
Key = tuple[str, int | str, str]  # from, id and one address in `to`


class RemoteReceipt(msgspec.Struct, array_like=True):
    """
    The payload of a receipt between nodes: the id and sender of the message, and the address it was sent to.

    The code, reason and text are in the envelope. `path` has the nodes that the message passed, each with the
    microseconds it stayed there; it is the same for a refusal and for an unknown address.
    """

    id: int | str
    from_: str
    to: str
    path: Annotated[tuple[_Hop, ...], msgspec.Meta(max_length=HOP_LIMIT + 2)] = ()


class Asked(msgspec.Struct):
    """
    A receipt that a client here asked for: its message and session, and what the receipt repeats.

    `is_acknowledged`: `node` has the message; `path`, as far as known, is how it got there. Its time to live
    ends at `until`. `is_waiting`: the client knows that it waits for a route.
    """

    key: Key
    sid: int
    transaction: int | str | None
    path: Path = ()
    node: str = ""
    until: float = 0.0
    is_waiting: bool = False
    is_acknowledged: bool = False


class AskedReceipts:
    """
    The receipts that clients of this node asked for, of messages to other domains.

    A receipt that no client asked for is dropped. This node does not remember what was asked for before a
    restart, so the sessions of before it get their receipts for as long as a message may wait.
    """

    def __init__(self, routes: RoutingTable, seconds: Callable[[], float], most: int = MAX_ASKED) -> None:
        # Sends a final receipt to the other node of the domain to which the session that asked has moved.
        self.send_elsewhere: Callable[[Message], object] = lambda receipt: None
        self._routes = routes
        self._seconds = seconds
        self._restored: frozenset[int] = frozenset()
        self._restored_until = 0.0
        self._asked: FairTable[bytes, Asked] = FairTable(most)
        self._deadlines: Deadlines[bytes] = Deadlines()
        self._given: BoundedCache[bytes, None] = BoundedCache(MAX_GIVEN)

    def __len__(self) -> int:
        return len(self._asked)

    def start(self, restored: Iterable[Session], wait_seconds: float) -> None:
        """
        Notes the sessions of before a restart; a message of theirs waits for at most `wait_seconds`.
        """
        self._restored = frozenset(session.sid for session in restored)
        self._restored_until = self._seconds() + wait_seconds

    def ask(self, message: Message, session: Session, node: str = "", until: float = inf) -> None:
        """
        Notes that the sender wants a receipt for each address of the message, which goes to `node`.

        If too many are awaited, the sender of the most gets a last one for its oldest message, which says so.
        """
        for key in keys_of(message):
            digest = digest_of(key)
            self._given.pop(digest)
            asked = Asked(key, session.sid, message.transaction, (), node, until)
            evicted = self._asked.put(digest, asked, session.sid, session.sid, units_of(key))
            self._deadlines.set(digest, until + GRACE_SECONDS)
            for each, oldest in evicted:
                self._deadlines.discard(each)
                self._give(oldest, 507, "too many receipts are awaited; it may be delivered", "limit")

    def passed(self, message: Message, path: Path) -> None:
        """
        Notes which nodes the message passed on its way to the home domain.
        """
        for key in keys_of(message):
            asked = self._asked.get(digest_of(key))
            if asked is not None:
                asked.path, asked.is_acknowledged = short_path(path), True

    def wait(self, message: Message, session: Session) -> None:
        """
        Tells the sender that its message waits; the final receipt follows.
        """
        for key in keys_of(message):
            asked = self._asked.get(digest_of(key))
            if asked is not None:
                self._tell_waiting(asked, session)

    def routes_lost(self, nodes: Set[str]) -> Iterator[None]:
        """
        Tells the senders whose messages these nodes have not acknowledged that they wait, in slices.
        """
        for done, (digest, asked) in enumerate(list(self._asked.items()), 1):
            if done % TURN == 0:
                yield
            is_sent = asked.node in nodes and not asked.is_acknowledged
            if is_sent and not asked.is_waiting and self._asked.get(digest) is asked:
                session = self._session(asked)
                if session is not None:
                    self._tell_waiting(asked, session)

    @staticmethod
    def _tell_waiting(asked: Asked, session: Session) -> None:
        from_, id, to = asked.key
        asked.is_waiting = True
        if session.is_node:
            return  # its node tells its client so, and waits for the final one
        body = {"code": 202, "description": WAITING, "to": to, "final": False}
        session.deliver(compose(id, "receipt", RECEIPT, from_, body, asked.transaction))

    @property
    def is_due(self) -> bool:
        """
        Is there more to end now?
        """
        return self._deadlines.is_due(self._seconds())

    def end_overdue(self, has_route: Callable[[str], bool], here: Path) -> None:
        """
        Gives the final receipt for messages whose time has ended, and of which nothing is known. It looks at
        a bounded number.
        """
        now = self._seconds()
        for digest in self._deadlines.take(now):
            asked = self._asked.get(digest)
            assert asked is not None, "what leaves the table has no deadline any more"
            if asked.is_acknowledged and has_route(asked.node) and now < asked.until + HELD_SECONDS:
                self._deadlines.set(digest, now + AGAIN_SECONDS)
                continue
            code, reason, text = UNCONFIRMED.code, UNCONFIRMED.reason, UNCONFIRMED.text
            self._finish(asked.key, code, text, reason, asked.path or here, asked.transaction)

    def finish(self, message: Message, code: int, text: str, reason: str, path: Path = ()) -> None:
        """
        Gives the final receipt for each address of a message that did not reach the home domain.
        """
        for key in keys_of(message):
            self._finish(key, code, text, reason, path, message.transaction)

    def receive(self, envelope: Envelope, receipt: RemoteReceipt, is_trusted: bool = False) -> bool:
        """
        Gives the receipt of the home domain to the client that asked. False if none did, unless `is_trusted`:
        then a client asked for it whose session has moved.
        """
        key = receipt.from_, receipt.id, receipt.to
        digest = digest_of(key)
        if digest in self._given:
            return True
        if self._asked.get(digest) is None and not is_trusted and not self._may_be_restored(receipt.from_):
            return False
        text = envelope.text or TEXTS.get(envelope.code, "")
        transaction = envelope.transaction
        if isinstance(transaction, str) and len(transaction) > MAX_TRANSACTION_CHARS:
            transaction = None
        self._finish(key, envelope.code, text, envelope.reason, _sound(receipt.path), transaction)
        return True

    def _may_be_restored(self, from_: str) -> bool:
        """
        May a session of before a restart have asked, which has that address?
        """
        if not self._restored or self._seconds() >= self._restored_until:
            self._restored = frozenset()
            return False
        return any(session.sid in self._restored for session in self._routes.resolve(from_)[:1])

    def is_asked(self, message: Message) -> bool:
        """
        Does a client still wait for a receipt of the message?
        """
        return any(self._asked.get(digest_of(key)) is not None for key in keys_of(message))

    def _finish(
        self, key: Key, code: int, text: str, reason: str, path: Path, transaction: int | str | None
    ) -> None:
        digest = digest_of(key)
        if digest in self._given:
            return
        asked = self._asked.pop(digest)
        self._deadlines.discard(digest)
        self._give(asked or Asked(key, 0, transaction), code, text, reason, path)

    def _give(self, asked: Asked, code: int, text: str, reason: str, path: Path = ()) -> None:
        self._given.put(digest_of(asked.key), None)
        from_, id, to = asked.key
        body: dict[str, Any] = {"code": code, "description": text}
        if reason:
            body["reason"] = reason
        passed = path or asked.path
        body |= {"to": to, "path": [{"node": node, "micros": micros} for node, micros in passed]}
        body["final"] = True
        receipt = compose(id, "receipt", RECEIPT, from_, body, asked.transaction)
        session = self._session(asked)
        if session is not None:
            session.deliver(receipt)
        else:
            self.send_elsewhere(receipt)

    def _session(self, asked: Asked) -> Session | None:
        """
        The session that asked; after a restart, the one that holds the address it sent from.
        """
        from_ = asked.key[0]
        session = self._routes.listener(from_, asked.sid) if asked.sid else None
        if session is not None:
            return session
        found = self._routes.resolve(from_)
        return found[0] if found and not found[0].is_node else None


def _sound(path: Path) -> Path:
    """
    The path without what is no name of a node: each node on the way adds to it.
    """
    return tuple((node, min(micros, MAX_MICROS)) for node, micros in path if is_name(node))


def short_path(path: Path) -> Path:
    """
    The path; empty if its names are too long to be kept for many messages.
    """
    return path if sum(len(node) for node, _ in path) <= MAX_PATH_CHARS else ()


def units_of(key: Key) -> int:
    """
    The units that a message counts in a table which keeps its names.
    """
    return 1 + sum(len(str(name)) for name in key) // UNIT_CHARS


def digest_of(key: tuple[int | str, ...]) -> bytes:
    """
    A digest of the names of a message, short for names of any length.
    """
    return blake2b(repr(key).encode(errors="surrogatepass"), digest_size=16).digest()


def keys_of(message: Message) -> list[Key]:
    addresses = [message.to] if isinstance(message.to, str) else message.to
    return [(message.from_, message.id, to) for to in addresses]


def to_remote(
    receipt: Message, id: tuple[bytes, int], is_exposed: bool, path: Path = ()
) -> tuple[Envelope, bytes]:
    """
    A receipt of this node for the sender's node; it says no more than a foreign sender may know.

    `path` is the one that the message came by.
    """
    body = receipt.fields()
    code, text, reason = told(
        int(body.get("code", 0)), body.get("description", ""), body.get("reason", ""), is_exposed
    )
    envelope = Envelope(
        "receipt",
        id,
        0,
        receipt.effective_priority,
        transaction=receipt.transaction,
        code=code,
        text=text,
        reason=reason,
    )
    to = receipt.to if isinstance(receipt.to, str) else receipt.to[0]
    about = RemoteReceipt(receipt.id, to, str(body.get("to", "")), path)
    return envelope, msgspec.msgpack.encode(about)
