"""
The wire format of Engine.IO and Socket.IO: packets, bodies of several packets, and events.

Two versions are supported.  Version 3 of Engine.IO carries Socket.IO 1 and 2:
`length:packet`, one after another, and the client pings.  Version 4 carries
Socket.IO 3 and later: packets with a separator between them, and the node
pings.  docs/protocol.md, "Socket.IO", shows them.

In a body of version 3 the clients of Socket.IO 1 encode UTF-8 twice and count
bytes; those of Socket.IO 2 encode once and count UTF-16 units.  A body does not
say which it is.  The node reads both, and writes ASCII, in which they agree.
"""

import codecs
import json
import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec import Raw

OPEN, CLOSE, PING, PONG, MESSAGE, UPGRADE, NOOP = b"0", b"1", b"2", b"3", b"4", b"5", b"6"
CONNECTED, DISCONNECTED = b"40", b"41"
PROBE, PROBED = b"2probe", b"3probe"
EVENT = b'42["message",'
VERSIONS = (3, 4)
SEPARATOR = b"\x1e"  # of version 4
MAX_DIGITS = 10  # digits of a length
MAX_ACK_DIGITS = 20  # digits of the number by which a client wants a packet acknowledged

encode = msgspec.json.encode
_decoder = msgspec.json.Decoder(tuple[str, Raw])
_SOCKET = re.compile(rb"4([0-6])(?:(/[^,]*)(?:,|$))?([0-9]*)(.*)", re.DOTALL)


class Garbled(ValueError):
    """
    The error of bytes that are neither Engine.IO nor Socket.IO; the text says why.
    """


class TooMany(Garbled):
    """
    The error of a POST with more packets than the limit.
    """


class SocketPacket(NamedTuple):
    """
    A packet of Socket.IO; `ack` is the number by which the client wants it acknowledged, or empty.
    """

    kind: bytes
    namespace: bytes
    ack: bytes
    payload: bytes


# -- bodies ------------------------------------------------------------------


def join(packets: Iterable[bytes], version: int) -> bytes:
    """
    Returns the body of the answer to a poll.
    """
    return b"".join(pieces(packets, version))


def pieces(packets: Iterable[bytes], version: int) -> list[bytes]:
    """
    Returns the same body in pieces; a packet in ASCII is a piece of its own, and not copied.
    """
    found: list[bytes] = []
    for packet in packets:
        if version == 4:
            found += (SEPARATOR, packet)
        else:
            packet = _in_ascii(packet)
            found += (b"%d:" % len(packet), packet)
    return found[1:] if version == 4 else found


def split(body: bytes, version: int, most: int = 10**9) -> list[bytes]:
    """
    Returns the packets of a POST, each valid UTF-8; raises Garbled if a byte of the body is wrong.

    Raises TooMany if there are more than `most`, before they are built.
    """
    if not body:
        raise Garbled("a body holds at least one packet")
    if version == 4:
        _check_text(body)
        packets = body.split(SEPARATOR, most)
        if len(packets) > most:
            raise TooMany(f"a POST has at most {most} packets")
    elif body.isascii():
        packets = _measured(body, 1, most)
    else:
        packets = _from_text(_check_text(body), most)
    if not all(packets):
        raise Garbled("a packet has at least its type")
    return packets


def _from_text(text: str, most: int) -> list[bytes]:
    try:
        found = _measured(text.encode("latin-1"), 1, most)  # encoded twice
        for packet in found:
            _check_text(packet)
        return found
    except TooMany:
        raise
    except (UnicodeEncodeError, Garbled):
        wide = text.encode("utf-16-le")
        return [packet.decode("utf-16-le", "replace").encode() for packet in _measured(wide, 2, most)]


def _measured(body: bytes, width: int, most: int) -> list[bytes]:
    """
    Returns the packet after each length; a character has `width` bytes.
    """
    packets: list[bytes] = []
    at, colon = 0, b":\0"[:width]
    while at < len(body):
        middle = body.find(colon, at, at + (MAX_DIGITS + 1) * width)
        digits = body[at:middle].replace(b"\0", b"") if middle > 0 else b""
        if not digits.isdigit():
            raise Garbled(f"expected a length and a colon, found {body[at : at + 20]!r}")
        begin = middle + width
        at = begin + int(digits) * width
        if at > len(body):
            raise Garbled(f"a packet of {int(digits)} was announced, {(len(body) - begin) // width} came")
        if len(packets) == most:
            raise TooMany(f"a POST has at most {most} packets")
        packets.append(body[begin:at])
    return packets


def _check_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as why:
        raise Garbled(f"not UTF-8 at byte {why.start}") from None


def _escape(why: UnicodeError) -> tuple[str, int]:
    assert isinstance(why, UnicodeEncodeError)
    # Characters outside ASCII occur only in JSON strings.
    return json.dumps(why.object[why.start : why.end])[1:-1], why.end


codecs.register_error("msgnode-json", _escape)


def _in_ascii(packet: bytes) -> bytes:
    return packet if packet.isascii() else packet.decode().encode("ascii", "msgnode-json")


# -- packets -----------------------------------------------------------------


def event(name: str, value: object) -> bytes:
    """
    Returns a Socket.IO event packet.
    """
    return b"42" + encode([name, value])


def no_namespace(namespace: bytes, version: int) -> bytes:
    """
    Returns the answer to a client that connects to another namespace than `/`.
    """
    text = "Invalid namespace"
    return b"44%s,%s" % (namespace, encode(text if version == 3 else {"message": text}))


def message_event(data: bytes) -> bytes:
    """
    Returns the event packet of one message.
    """
    return b"%s%s]" % (EVENT, data)


def socket_packet(packet: bytes) -> SocketPacket:
    """
    Parses an Engine.IO message packet as a Socket.IO packet.
    """
    found = _SOCKET.fullmatch(packet)
    if found is None or len(found[3]) > MAX_ACK_DIGITS:
        raise Garbled(f"not a packet of Socket.IO: {packet[:40]!r}")
    return SocketPacket(found[1], found[2] or b"/", found[3], found[4])


def message_of(payload: bytes) -> bytes:
    """
    Returns the message of an event `["message", m]`, where m is an object or a string that contains one.
    """
    try:
        name, argument = _decoder.decode(payload)
        if name == "message":
            data = bytes(argument)
            return msgspec.json.decode(data, type=str).encode() if data[0] == 34 else data
    except (msgspec.DecodeError, RecursionError):
        pass
    raise Garbled('expected the event ["message", <message>]')
