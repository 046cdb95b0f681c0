"""
The statements by which a session moves from the member that holds it to the one where its client is.

The taker sends `Take`. The holder writes to disk that it has released the session, and sends `Offer`; the
taker answers with `Want`, and gets `State`, `Messages` and `End`. It answers each with `Got` once that is on
its disk. Whatever is lost with a link is repeated from an `Offer`.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from msgnode.cluster.directory.wire import Address, Counter

PART_BYTES = 256 * 1024
MAX_STATE_BYTES = 64 * 1024 * 1024
MAX_CLAIMS = 16
HEAD_BYTES = 10_000  # of a statement, without its data: a name has at most 2048 characters

Id = Annotated[bytes, Meta(min_length=8, max_length=8)]
Node = Annotated[str, Meta(max_length=512)]
Data = Annotated[bytes, Meta(max_length=PART_BYTES)]
Word = Annotated[str, Meta(max_length=128)]
Epoch = Annotated[str, Meta(max_length=256)]
Claims = Annotated[list[tuple[Epoch, Counter]], Meta(max_length=MAX_CLAIMS)]


class Statement(msgspec.Struct, array_like=True):
    """
    The base of all statements. Items that a later version appends are ignored.
    """


class Take(Statement, tag="take"):
    """
    A client has opened the session at the sender. `claim` proves that it may; the holder checks it.
    """

    id: Counter
    name: Address
    claim: Annotated[bytes, Meta(max_length=64 * 1024)]


class Answer(Statement, tag="answer"):
    """
    The session is not released. `code` is 0 if `node` has it, or if it is on its way and `node` is empty; 404
    if it is not known here; else why the client is refused.
    """

    id: Counter
    code: Annotated[int, Meta(ge=0, le=9999)]
    reason: Word
    node: Node
    generation: Counter


class Offer(Statement, tag="offer"):
    """
    The sender has released the session to the receiver, by handover `id`.
    """

    id: Id
    name: Address
    generation: Counter


class Want(Statement, tag="want"):
    """
    The receiver of an offer has the messages up to `key`; -1: not the state, either.

    `claims` are the counts of messages that the client of the session has, by epoch.
    """

    id: Id
    key: Annotated[int, Meta(ge=-1)]
    claims: Claims


class State(Statement, tag="state"):
    """
    A part of the session's state, from `offset` on, of `size` bytes.
    """

    id: Id
    offset: Counter
    size: Annotated[int, Meta(ge=0, le=MAX_STATE_BYTES)]
    data: Data


class Messages(Statement, tag="messages"):
    """
    The messages after the one with key `after`, up to `key`. `begun` are bytes of the first that `Fragment`
    brought.
    """

    id: Id
    after: Counter
    key: Counter
    begun: Counter
    data: Annotated[list[Data], Meta(max_length=1000)]


class Fragment(Statement, tag="fragment"):
    """
    A part of the message after `after`, which is larger than a payload, from `offset` on.
    """

    id: Id
    after: Counter
    offset: Counter
    data: Data


class End(Statement, tag="end"):
    """
    The messages up to `key` were all; or, if it is `early`, all that came in time: more may follow.
    """

    id: Id
    key: Counter
    early: bool = False


class Got(Statement, tag="got"):
    """
    The messages up to `key` are on the disk of the sender; with `ended` the end, too.
    """

    id: Id
    key: Counter
    ended: bool


class Flush(Statement, tag="flush"):
    """
    The sender asks whether all that the receiver has sent, to it and to each of `nodes`, is acknowledged.
    """

    id: Counter
    nodes: Annotated[list[Node], Meta(max_length=64)]


class Flushed(Statement, tag="flushed"):
    """
    All that the sender had sent when it was asked is acknowledged, unless it is `late`; but not what it had
    sent to the `unreached` nodes, to which it has no link.
    """

    id: Counter
    late: bool = False
    unreached: Annotated[list[Node], Meta(max_length=64)] = []


class Introduction(Statement, tag="introduction"):
    """
    The URL by which clients reach the sender, empty if it is not known, and whether it takes sessions.
    """

    url: Annotated[str, Meta(max_length=100)]
    takes_sessions: bool


AnyStatement = (
    Take | Answer | Offer | Want | State | Messages | Fragment | End | Got | Flush | Flushed | Introduction
)

_decoder = msgspec.msgpack.Decoder(AnyStatement)
_encoder = msgspec.msgpack.Encoder()


def encode(statement: AnyStatement) -> bytes:
    return _encoder.encode(statement)


def decode(payload: bytes) -> AnyStatement:
    """
    The statement in a payload. msgspec.DecodeError, with the reason, if it is not one within the bounds.
    """
    statement: AnyStatement = _decoder.decode(payload)
    return statement
