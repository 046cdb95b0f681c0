"""
Origins: proof of who sent a message first, where its `from` is not of the domain it comes from.

The home domain of an object fans out what others send to it, also to nodes of third domains and back to the
sender's own node; and it may redirect a message, or let a client forward it, to a third domain. These accept
it only as what its origin sent: signed by the node of origin, and by each node that redirected it.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import msgspec

from msgnode.links.stream.streams import Envelope, Hop, Origin
from msgnode.links.wire.node_name import domain_of
from msgnode.protocol.address import is_multicast
from msgnode.protocol.message import Message, recall
from msgnode.structures.bounded_cache import BoundedCache

MAX_SENT = 10_000  # own messages that may come back
MAX_RECEIVED = 10_000  # messages of others that may be passed on
MAX_RECEIVED_BYTES = 16 * 1024 * 1024
MAX_SEEN = 30_000  # proofs that are accepted once
MAX_HOP_BYTES = 1024  # of memory for a node's name and its signature, about
MAX_HOPS = 8  # redirects across domains
SKEW_SECONDS = 3600  # that the clocks of two nodes may differ
REDIRECTS = "redirects"  # the feature of a node that asks for a signature of each message, to redirect it

_CLIENTS = ("hyperty://", "runtime://")  # an update to another address may have several recipients
_OF_NODES = {"auth", "assertedIdentity"}
_FIRST, _NEXT = b"msgnode-origin.1", b"msgnode-redirect.1"


class Signer(Protocol):
    """
    The signing key of this node, and those of others.
    """

    def sign(self, data: bytes) -> bytes: ...

    def verify(self, node: str, data: bytes, signature: bytes) -> str:
        """
        Why that node has not signed this, as far as known here; "" if it has.
        """


class Passed(NamedTuple):
    """
    A message that may be passed on: its id, its origin, and the bytes that its origin signed.
    """

    id: tuple[bytes, int]
    origin: Origin
    payload: bytes

    @property
    def size(self) -> int:
        """
        The bytes that it keeps, about.
        """
        hops = sum(len(hop.to) + 2 * MAX_HOP_BYTES for hop in self.origin.hops)
        return len(self.payload) + MAX_HOP_BYTES + hops


class Origins:
    """
    The proofs of this node: those that it makes, and those that it accepts, each of them once.

    `asks` says whether a node asks for a signature of each message. Without a `signer`, nothing is proven but
    that an own message came back.
    """

    def __init__(
        self,
        node: str,
        signer: Signer | None,
        asks: Callable[[str], bool] = lambda node: False,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._node, self._domain = node, domain_of(node)
        self._signer = signer
        self._asks = asks
        self._wall = wall
        self._sent: BoundedCache[tuple[bytes, int], tuple[bytes, int]] = BoundedCache(MAX_SENT)
        self._received: OrderedDict[bytes, Passed] = OrderedDict()
        self.remembered_bytes = 0
        self._seen: BoundedCache[bytes, None] = BoundedCache(MAX_SEEN)

    # -- of messages sent from here ------------------------------------------------------

    def sign(
        self, envelope: Envelope, message: Message, payload: bytes, sid: int, gateway: str, home: str
    ) -> None:
        """
        Signs a message that its home domain may pass on; `sid` is the sender's, if it must not hear itself.

        These are publications, messages that may be forwarded, and those to a gateway that asks for it.
        """
        if not self.may_be_passed_on(message, gateway):
            return
        made = Origin(self._node, int(self._wall()), envelope.ttl_millis // 1000 + 1)
        data = _digest(envelope.id, made, message.from_, home, payload)
        self._sent.put(envelope.id, (data, sid))
        if self._signer is not None:
            made.signature = self._signer.sign(data)
            envelope.origin = made

    def may_be_passed_on(self, message: Message, gateway: str) -> bool:
        """
        May the home domain pass the message on, so that it must be signed?
        """
        to, kind = message.to, message.type.lower()
        if message.forward or (is_multicast(to) if isinstance(to, str) else any(map(is_multicast, to))):
            return True
        if kind == "update" and isinstance(to, str) and not to.startswith(_CLIENTS):
            return True
        return kind != "response" and self._asks(gateway)

    def sender(self, id: tuple[bytes, int]) -> int:
        """
        The sid of the session here that sent the message, if it must not hear itself; else 0.
        """
        sent = self._sent.get(id)
        return sent[1] if sent is not None else 0

    # -- of messages of others -------------------------------------------------------------

    def check(self, envelope: Envelope, from_: str, payload: bytes, source: str, home: str) -> str:
        """
        Why it is not proven that the sender's domain `home` sent this to the domain of the node `source`, or
        that it came there by redirects; "" if it is.
        """
        origin = envelope.origin
        if origin is None:
            return "it is not signed by the node that sent it first"
        hops = origin.hops
        if len(hops) > MAX_HOPS:
            return f"it was redirected more than {MAX_HOPS} times"
        nodes = [origin.node, *(hop.node for hop in hops)]
        try:
            domains = [domain_of(node) for node in nodes]
        except ValueError as why:
            return str(why)
        if domains[0] != home:
            return f"{domains[0]} does not speak for the sender"
        came_from = domain_of(source)
        if hops and came_from != (domains[-1] if hops[-1].home == self._domain else hops[-1].home):
            return "it comes from another domain than the one that redirected it"
        if any(hop.home != domain for hop, domain in zip(hops, domains[2:], strict=False)):
            return "it was redirected by a domain that it was not sent to"
        late = self._late(origin)
        return late or self._check_signatures(envelope, from_, payload, (*domains, came_from)[1])

    def _late(self, origin: Origin) -> str:
        now = self._wall()
        if origin.at > now + SKEW_SECONDS:
            return "it was signed in the future; are the clocks right?"
        if origin.at + origin.ttl + SKEW_SECONDS <= now:
            return "its signature is too old; are the clocks right?"
        return ""

    def _check_signatures(self, envelope: Envelope, from_: str, payload: bytes, first: str) -> str:
        """
        `first` is the domain that the origin sent it to.
        """
        origin, signer = envelope.origin, self._signer
        assert origin is not None
        data = _digest(envelope.id, origin, from_, first, payload)
        sent = self._sent.get(envelope.id)
        is_own = origin.node == self._node and sent is not None and sent[0] == data
        if signer is None:
            return "" if is_own and not origin.hops else "this node verifies no signatures"
        why = "" if is_own else signer.verify(origin.node, data, origin.signature)
        for hop in origin.hops:
            if why:
                return why
            data = _next_digest(data, hop)
            why = signer.verify(hop.node, data, hop.signature)
        return why

    def is_repeated(self, envelope: Envelope, from_: str, payload: bytes, source: str) -> bool:
        """
        Was this very proof accepted before? From now on it was. Call it after `check`.
        """
        origin = envelope.origin
        assert origin is not None
        first = domain_of(origin.hops[0].node if origin.hops else source)
        data = _digest(envelope.id, origin, from_, first, payload)
        for hop in origin.hops:
            data = _next_digest(data, hop)
        if data in self._seen:
            return True
        self._seen.put(data, None)
        return False

    # -- of messages that are passed on ----------------------------------------------------

    def remember(
        self, envelope: Envelope, payload: bytes, message: Message, forms: Collection[bytes]
    ) -> None:
        """
        Remembers a signed message that may be passed on; `forms` are its body as it may be by then.
        """
        if envelope.origin is None:
            return
        passed = Passed(envelope.id, envelope.origin, payload)
        keys = [_key(message, form) for form in forms]
        if message.forward:
            keys.append(_key(message, None))
        for key in keys:
            before = self._received.pop(key, None)
            self.remembered_bytes += passed.size - (before.size if before is not None else 0)
            self._received[key] = passed
        while len(self._received) > MAX_RECEIVED or self.remembered_bytes > MAX_RECEIVED_BYTES:
            _, oldest = self._received.popitem(last=False)
            self.remembered_bytes -= oldest.size

    def passed(self, message: Message) -> Passed | None:
        """
        A message as it is remembered; None if it has changed since.
        """
        return self._received.get(_key(message, bytes(message.body)))

    def forwarded(self, message: Message) -> Passed | None:
        """
        A message that a client forwards, as it is remembered; None if the client has changed its body.
        """
        found = self._received.get(_key(message, None))
        if found is None or _content(recall(found.payload)) != _content(message):
            return None
        return found

    def redirect(self, passed: Passed, message: Message, home: str, is_forwarded: bool) -> Origin:
        """
        The origin of a message with this node's signature that it goes on, to an address of another domain.
        """
        origin, from_, to = passed.origin, message.from_, str(message.to)
        first = domain_of(origin.hops[0].node if origin.hops else self._node)
        data = _digest(passed.id, origin, from_, first, passed.payload)
        for each in origin.hops:
            data = _next_digest(data, each)
        hop = Hop(self._node, to, home, is_forwarded)
        if self._signer is not None:
            hop.signature = self._signer.sign(_next_digest(data, hop))
        return Origin(origin.node, origin.at, origin.ttl, origin.signature, [*origin.hops, hop])


def _digest(id: tuple[bytes, int], origin: Origin, from_: str, home: str, payload: bytes) -> bytes:
    """
    The digest that the origin of a message signs: over its id, `from` and bytes, where it goes, and when.
    """
    sender = from_.encode(errors="surrogatepass")
    what = (_FIRST, id, origin.node, origin.at, origin.ttl, sender, home, _hash(payload))
    return _hash(msgspec.msgpack.encode(what))


def _next_digest(before: bytes, hop: Hop) -> bytes:
    """
    The digest that a node signs that redirects a message: over all before, and where it goes now.
    """
    to = hop.to.encode(errors="surrogatepass")
    return _hash(msgspec.msgpack.encode((_NEXT, before, hop.node, to, hop.home, hop.forwarded)))


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=32).digest()


def _key(message: Message, body: bytes | None) -> bytes:
    what = repr((message.from_, message.id, message.type, None if body is None else _hash(body)))
    return _hash(what.encode(errors="surrogatepass"))


def _content(message: Message) -> Any:
    """
    The content of the body, whichever way it is written, but for what nodes put into it.
    """
    fields = message.fields(lossy=True)
    return {key: value for key, value in fields.items() if key not in _OF_NODES}
