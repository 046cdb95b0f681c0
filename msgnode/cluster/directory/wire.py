"""
The statements that members exchange about their addresses, in MessagePack.

Each is an array whose first item is its tag. Every list and text has a bound that the decoder checks, and a
payload that does not decode is dropped whole: the gap in the numbers that it leaves is found and repaired.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from msgnode.protocol.address import MAX_ADDRESS_CHARS

MAX_ENTRIES = 1000  # addresses in one payload: one or two milliseconds of work for its receiver
MAX_PAYLOAD_BYTES = 64 * 1024
SHARDS = 512  # parts of a member's addresses, by which the position in a snapshot is counted
TOKEN_HASH_BYTES = 16

Address = Annotated[str, Meta(max_length=MAX_ADDRESS_CHARS)]
Counter = Annotated[int, Meta(ge=0)]
Position = Annotated[int, Meta(ge=0, le=SHARDS)]
TokenHash = Annotated[bytes, Meta(min_length=TOKEN_HASH_BYTES, max_length=TOKEN_HASH_BYTES)]


class HeldSession(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """
    A session that a member holds: a name of it, the start of its token's hash, and its generation.
    """

    name: Address
    token_hash: TokenHash
    generation: Counter


Addresses = Annotated[list[Address], Meta(max_length=MAX_ENTRIES)]
HeldSessions = Annotated[list[HeldSession], Meta(max_length=MAX_ENTRIES)]


class Statement(msgspec.Struct, array_like=True):
    """
    The base of all statements. Items that a later version appends are ignored.
    """


class Seen(Statement, tag="seen"):
    """
    The changes that the sender has of the receiver: of its start `(instance, start)`, up to `number`, and of
    a snapshot up to `position`; SHARDS if it is complete.

    `again` asks the receiver to continue from there. Without it this is an acknowledgement, and a sign of
    life. `copied` is the number of the last copy that the sender had made before the changes that it
    acknowledges first here; 0 if it does not say that.
    """

    instance: Annotated[bytes, Meta(max_length=64)]
    start: Counter
    number: Counter
    position: Position
    again: bool
    copied: Counter = 0


class Delta(Statement, tag="delta"):
    """
    The changes after number `after` up to number `upto`: the state of each address that changed.
    """

    after: Counter
    upto: Counter
    bound: Addresses
    sessions: HeldSessions
    unbound: Addresses


class Piece(Statement, tag="piece"):
    """
    A piece of a snapshot, from shard `first` up to `position`; deltas after number `base` follow the piece
    that `begins` it. A shard that is larger than a payload has several pieces, the last of which has the next
    position.
    """

    base: Counter
    first: Position
    position: Position
    bound: Addresses
    sessions: HeldSessions
    begins: bool

    @property
    def count(self) -> int:
        return len(self.bound) + len(self.sessions)


class Ask(Statement, tag="ask"):
    """
    A question: do you hold this address?
    """

    id: Counter
    address: Address


class Found(Statement, tag="found"):
    """
    The answer to an `Ask`.
    """

    id: Counter
    held: bool


class Sync(Statement, tag="sync"):
    """
    Asks for `Synced`, which follows all changes that the receiver has made until now.
    """

    id: Counter


class Synced(Statement, tag="synced"):
    """
    The answer to a `Sync`.
    """

    id: Counter


class Elsewhere(Statement, tag="elsewhere"):
    """
    Sessions that the receiver holds, and `node` with higher generations, which is away.
    """

    node: Address
    sessions: HeldSessions


AnyStatement = Seen | Delta | Piece | Ask | Found | Sync | Synced | Elsewhere

_decoder = msgspec.msgpack.Decoder(AnyStatement)
_encoder = msgspec.msgpack.Encoder()


def encode(statement: AnyStatement) -> bytes:
    return _encoder.encode(statement)


def decode(payload: bytes) -> AnyStatement:
    """
    The statement in a payload. msgspec.DecodeError, with the reason, if it is not one within the bounds.
    """
    try:
        statement: AnyStatement = _decoder.decode(payload)
    except UnicodeDecodeError as why:  # in a key or a tag
        raise msgspec.DecodeError(str(why)) from None
    return statement


def entry_bytes(address: str) -> int:
    """
    The size of an address in a payload, a little rounded up.
    """
    return (len(address) if address.isascii() else len(address.encode())) + 3


SESSION_BYTES = 32  # of a session in a payload, without its name
