"""
The seam between streams and the exchange: messages to another node, with what became of each.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta

from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import MAX_FROM_CHARS

SEVERAL = "messages"  # the kind of an envelope of several messages
MAX_SEVERAL = 64  # messages in one body
MAX_SEVERAL_BYTES = 16 * 1024  # of their payloads

_Name = Annotated[str, Meta(max_length=512)]
_Signature = Annotated[bytes, Meta(max_length=1024)]

# The fate of a message that was never sent, when its node is replaced by another one of its domain:
# it waits for that node alone, moves to the other one, or ends with the outcome `no-path`.
IfReplaced = Literal["wait", "move", "end"]


class Hop(msgspec.Struct, array_like=True):
    """
    A redirect: the node that sent a message on, to an address of another domain, `home`, with its signature.

    `forwarded`: a client of the node did it, by leave of the sender.
    """

    node: _Name
    to: Annotated[str, Meta(max_length=MAX_FROM_CHARS)]
    home: _Name
    forwarded: bool
    signature: _Signature = b""


class Origin(msgspec.Struct, array_like=True):
    """
    The node whose client sent a message first, with its signature and the redirects since.

    It was signed `at` seconds since 1970, for a message with a time to live of `ttl` seconds.
    """

    node: _Name
    at: int
    ttl: int
    signature: _Signature = b""
    hops: Annotated[list[Hop], Meta(max_length=16)] = []


class Envelope(msgspec.Struct, array_like=True, omit_defaults=False, gc=False):
    """
    An envelope: what travels with a message between nodes, apart from the message's own bytes.

    `id` is (source instance, counter), one for each message, kept over forwarding. `ttl_millis` is what is
    left of its time to live. `kind` is `message`, `receipt`, `directory`, `session` or `subscription`; or
    `messages`, for several messages of which the first has this id and the others those that follow.
    `identity` is who the sender's own domain says it is: `{"issuer", "subject", ...}`, or empty. `origin`
    proves who sent it first, where a message may be passed on. `code` and `text` are a status.
    """

    kind: Annotated[str, Meta(max_length=32)]
    id: tuple[Annotated[bytes, Meta(max_length=64)], int]
    ttl_millis: int
    priority: int
    transaction: str | int | None = None
    answer: bool | None = None
    forward: bool = False
    log: bool = True
    compress: bool | None = None
    encrypt: bool | None = None
    code: int = 0
    text: str = ""
    reason: str = ""
    identity: dict[str, str] = {}
    origin: Origin | None = None


def part_of(envelope: Envelope, index: int) -> Envelope:
    """
    The envelope of one of several messages.
    """
    instance, first = envelope.id
    return msgspec.structs.replace(envelope, kind="message", id=(instance, first + index), compress=None)


class NoRoom(Rejected):
    """
    The stream to the destination is full: code 507, reason `overflow`. Nothing was kept.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text, 507, "overflow")


class Outcome(msgspec.Struct, frozen=True):
    """
    An outcome of a message that was sent: `acknowledged`; or dropped, with a code and a reason of
    interfaces (`stale` 408, `in-doubt` 504, `no-path` 502, `no-key` 502, `peer` 403).

    `path` has the nodes it passed, each with microseconds, as far as known.
    """

    code: int
    reason: str
    text: str = ""
    path: tuple[tuple[str, int], ...] = ()


ACKNOWLEDGED = Outcome(200, "acknowledged")
STALE = Outcome(408, "stale", "its time to live has ended")
NO_PATH = Outcome(502, "no-path", "this node has given up the node of the other domain")
NO_KEY = Outcome(502, "no-key", "it must be encrypted, and the node offers no key for that")
IN_DOUBT = Outcome(504, "in-doubt", "the node has lost its memory of what was sent to it")
UNCONFIRMED = Outcome(504, "in-doubt", "the other node has not acknowledged it; it may have been delivered")
NOT_DECRYPTED = Outcome(502, "no-key", "the other node could not decrypt it")
NOT_READ = Outcome(502, "malformed", "the other node cannot read it, or takes none of its length")
UNREADABLE = Outcome(507, "disk", "it cannot be read back from the disk")


class Streams(Protocol):
    """
    All streams of this node.
    """

    def send(
        self,
        destination: str,
        envelope: Envelope,
        payload: bytes,
        done: Callable[[Envelope, Outcome], None] | None = None,
        sender: str = "",
        if_replaced: IfReplaced = "wait",
        is_answer: bool = False,
    ) -> None:
        """
        Send to a node. Raises NoRoom before anything is kept. `sender` names the local session or component:
        no sender may take more than a quarter of the destination's queue; empty: the node itself. An answer
        (`is_answer`) to what was accepted before passes while the domain is drained.

        The entry is in the journal's batch of this reactor turn: it is on disk when what the same turn
        acknowledges to clients is. `done` is called once, unless the process ends before: after a restart the
        listener's `ended` is called instead.
        """

    def send_several(
        self,
        destination: str,
        envelope: Envelope,
        payloads: Sequence[bytes],
        ended: Callable[[Envelope, bytes, Outcome], None],
        sender: str = "",
        if_replaced: IfReplaced = "wait",
    ) -> None:
        """
        Send several short messages with one envelope, of the kind SEVERAL, as one: they have one number, and
        their ids count up from that of the envelope. At most MAX_SEVERAL, of MAX_SEVERAL_BYTES.

        `ended` is called with each of them if they end otherwise than by an acknowledgement.
        """

    def would_take(self, destination: str, sender: str, messages: int, size: int) -> bool:
        """
        Would so many messages with that many bytes in all be taken now?
        """

    def begin_epoch(self, destination: str) -> None: ...

    def undelivered(self, destination: str) -> int:
        """
        The number of messages that a node has not acknowledged.
        """

    def waiting(self) -> Iterator[str]:
        """
        The nodes that have not acknowledged something.
        """

    def replace(self, destination: str, other: str, done: Callable[[], None] = lambda: None) -> None:
        """
        Replace a node by another one of its domain. What was sent with "move" or "end" and is not
        acknowledged is in doubt (504); what of it was never sent moves to the other node with its message id,
        or ends. What only that node can take goes on waiting for it.

        A bounded number of messages moves in each turn. `done` is called after the last: until then new ones
        for the first node are taken, and move, too.
        """

    def forget(self, destination: str) -> int:
        """
        Drop all that is unacknowledged by a node, each with an Outcome 502 `no-path`, a bounded number in
        each turn. Returns how many there are.
        """


class StreamListener(Protocol):
    """
    A receiver of what streams deliver: the exchange.
    """

    def received(
        self,
        source: str,
        envelope: Envelope,
        payload: bytes,
        path: tuple[tuple[str, int], ...],
        done: Callable[[], None],
    ) -> None:
        """
        A message came, once and in order within its lane. `source` is authenticated.

        `done` is called when this node need not remember it any more: it is in the spool for its session,
        was answered, or was dropped. Until then it is in the inbound journal, and comes again after a
        restart. What the listener writes to the delivery journal before it calls `done`, or returns, is in
        one batch with the stream's count: so it calls `done` before it settles the journal.
        """

    def received_several(
        self,
        source: str,
        envelope: Envelope,
        payloads: Iterator[bytes],
        path: tuple[tuple[str, int], ...],
        keep: Callable[[], Callable[[], None]],
    ) -> None:
        """
        Several messages came. The listener takes each from the iterator when it is done with the one before;
        one that takes longer it keeps: `keep` returns the `done` of the message that was taken last.
        """

    def ended(self, destination: str, envelope: Envelope, payload: bytes, outcome: Outcome) -> None:
        """
        The outcome of a message that was sent before the last restart; `payload` as it was given to `send`.
        """

    def restarted(self, source: str) -> None:
        """
        A node began a new epoch, and its subscriptions are made again.
        """
