"""
The statements by which a member relays a superseded connection to the member that its session moved to.

All of one member arrive in order. A message comes in pieces; both ends count their bytes, and report what
they have read.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from msgnode.cluster.directory.wire import Address, Counter

HEAD_BYTES = 64  # of a piece, around its data

Word = Annotated[str, Meta(max_length=256)]
Name = Annotated[str, Meta(max_length=2048)]


class Statement(msgspec.Struct, array_like=True):
    """
    The base of all statements, each about a connection by its number at the member that has it. Items that a
    later version appends are ignored.
    """

    number: Counter


class Attach(Statement, tag="attach"):
    """
    A connection whose session, of that name and generation, has moved. `owner` is the user of the session
    there; the receiver's has to have the same one.
    """

    runtime: Address
    generation: Counter
    owner: Name
    connector: Word
    peer: Word
    identity: Name


class Attached(Statement, tag="attached"):
    """
    The connection belongs to the session at the sender.
    """


class Detached(Statement, tag="detached"):
    """
    The connection does not belong to a session at the sender: it has `ended`, or it is at another member.
    """

    ended: bool


class Gone(Statement, tag="gone"):
    """
    The connection is lost, or has opened a session where it is.
    """


class Piece(Statement, tag="piece"):
    """
    A piece of a message: of the client's, or with `is_back` for it.
    """

    is_back: bool
    is_last: bool
    data: Annotated[bytes, Meta(max_length=1024 * 1024)]


class Pause(Statement, tag="pause"):
    """
    Read from the client no more, until `on` is false: the sender is still processing its messages.
    """

    on: bool


class Close(Statement, tag="close"):
    """
    The sender closes the connection, for that reason.
    """

    code: Annotated[int, Meta(ge=1000, le=4999)]
    word: Annotated[str, Meta(max_length=64)]
    retry_after: float | None


class Read(Statement, tag="read"):
    """
    The sender has read `number` more bytes of pieces.
    """


AnyStatement = Attach | Attached | Detached | Gone | Piece | Pause | Close | Read

_decoder = msgspec.msgpack.Decoder(AnyStatement)
_encoder = msgspec.msgpack.Encoder()


def encode(statement: AnyStatement) -> bytes:
    return _encoder.encode(statement)


def decode(payload: bytes) -> AnyStatement:
    """
    The statement in a payload. ValueError, with the reason, if it is not one within the bounds.
    """
    statement: AnyStatement = _decoder.decode(payload)
    return statement
