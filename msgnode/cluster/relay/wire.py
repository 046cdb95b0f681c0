"""
The statements by which a member relays a client's HTTP request to the member that holds its session, and gets
the response.

A body that is longer than a payload follows in parts. Both ends count the bytes of what they send until the
other end says that it has read them, so that no link is filled.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

POLL, MESSAGE, RESOURCE, SOCKET_IO = "poll", "message", "resource", "socket.io"

HEAD_BYTES = 4096  # of a part, around its data; far more than it needs
MAX_QUERY_CHARS = 8192

Number = Annotated[int, Meta(ge=0)]
Word = Annotated[str, Meta(max_length=256)]
Data = Annotated[bytes, Meta(max_length=1024 * 1024)]


class Statement(msgspec.Struct, array_like=True):
    """
    The base of all statements. Items that a later version appends are ignored.
    """


class RelayedRequest(Statement, tag="request"):
    """
    A request of a client, as the member that it reached has checked it: its origin is allowed there, and
    `peer` and `identity` are its address and the name in its certificate as seen there.

    `resource` is POLL, MESSAGE, RESOURCE or SOCKET_IO. `token_hash` is the hash of its session token, empty
    for Socket.IO. The body has `size` bytes, of which `data` is the first part. Of a request to RESOURCE,
    `path` is the address, and `headers` has its conditions and preferences.
    """

    number: Number
    resource: Word
    method: Word
    query: Annotated[str, Meta(max_length=MAX_QUERY_CHARS)]
    token_hash: Annotated[bytes, Meta(max_length=32)]
    peer: Word
    identity: Annotated[str, Meta(max_length=2048)]
    size: Number = 0
    data: Data = b""
    path: Annotated[str, Meta(max_length=MAX_QUERY_CHARS)] = ""
    headers: Annotated[
        list[tuple[Word, Annotated[str, Meta(max_length=MAX_QUERY_CHARS)]]], Meta(max_length=16)
    ] = []


class RelayedResponse(Statement, tag="response"):
    """
    The response to a request; `status` is NOT_HELD if its session is not at the sender.
    """

    number: Number
    status: Annotated[int, Meta(ge=0, le=599)]
    headers: Annotated[list[tuple[Word, Word]], Meta(max_length=16)]
    size: Number = 0
    data: Data = b""


NOT_HELD = 0


class Part(Statement, tag="part"):
    """
    The next part of the body of a request, or of a response.
    """

    number: Number
    is_response: bool
    data: Data


class Cancel(Statement, tag="cancel"):
    """
    The client of a request is gone, or the response is not waited for any more.
    """

    number: Number


class Read(Statement, tag="read"):
    """
    The sender has read so many more bytes of requests, responses and parts.
    """

    size: Number


AnyStatement = RelayedRequest | RelayedResponse | Part | Cancel | Read

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
