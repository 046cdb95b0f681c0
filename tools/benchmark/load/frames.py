"""
The bytes that go out, built before the clock starts.

The same JSON goes through every peer.  The text in `body.value` ends with MARK
and has it nowhere else, so to count the messages in a chunk of bytes is to
count that character, wherever a peer cut its packets.
"""

import json
import zlib

MARK = b"~"
TEXT, BINARY = 1, 2  # WebSocket opcodes
COMPRESSED = 0x40  # RSV1, with an opcode
TAIL = b"\x00\x00\xff\xff"  # of a compressed message, not sent
KEY = bytes.fromhex("37fa213d")  # any mask will do that is not zero


def compact(value: object) -> bytes:
    """
    JSON as the peers forward it: UTF-8, no spaces.
    """
    return json.dumps(value, separators=(",", ":")).encode()


def message(number: int, sender: str, receiver: str, size: int, spaces: bool = False) -> bytes:
    """
    One update whose text has `size` bytes; with `spaces` where Python's json puts them.
    """
    text = "x" * (size - 1) + MARK.decode()
    update = {"id": number, "type": "update", "from": sender, "to": receiver, "body": {"value": text}}
    return json.dumps(update).encode() if spaces else compact(update)


def masked(payload: bytes, opcode: int) -> bytes:
    """
    A final, masked WebSocket frame, as a client sends it.
    """
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 65536:
        length = bytes([0x80 | 126]) + size.to_bytes(2, "big")
    else:
        length = bytes([0x80 | 127]) + size.to_bytes(8, "big")
    key = (KEY * (size // 4 + 1))[:size]
    cover = int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")
    return bytes([0x80 | opcode]) + length + KEY + cover.to_bytes(size, "big")


def frame_end(data: bytes, at: int) -> tuple[int, int] | None:
    """
    Where the payload of the server's frame begins and ends; None: it is not complete.
    """
    if len(data) < at + 2:
        return None
    length, start = data[at + 1], at + 2
    if length >= 126:
        more = 2 if length == 126 else 8
        if len(data) < start + more:
            return None
        length = int.from_bytes(data[start : start + more], "big")
        start += more
    return (start, start + length) if len(data) >= start + length else None


def deflated(payload: bytes) -> bytes:
    """
    The payload as one message carries it.
    """
    stream = zlib.compressobj(wbits=-15)
    return (stream.compress(payload) + stream.flush(zlib.Z_SYNC_FLUSH)).removesuffix(TAIL)


def inflated(payload: bytes) -> bytes:
    return zlib.decompressobj(wbits=-15).decompress(payload + TAIL)


def topic(address: str) -> str:
    """
    The NATS subject and the WAMP topic that stand for a hyperty address.
    """
    return "bench." + address.rpartition("/")[2]


def nats_publish(address: str, payload: bytes) -> bytes:
    """
    A PUB of the NATS client protocol.
    """
    return b"PUB %s %d\r\n%s\r\n" % (topic(address).encode(), len(payload), payload)


def wamp_publish(address: str, payload: bytes) -> bytes:
    """
    A PUBLISH whose one argument is the message.
    """
    return b'[16,1,{},"%s",[%s]]' % (topic(address).encode(), payload)


def http_post(path: str, token: str, payload: bytes) -> bytes:
    """
    A POST of JSON on a connection that is kept.
    """
    fields = b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % len(payload)
    return b"POST %s HTTP/1.1\r\n%s%s\r\n%s" % (path.encode(), fields, _bearer(token), payload)


def http_get(path: str, token: str) -> bytes:
    """
    A GET on a connection that is kept.
    """
    return b"GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (path.encode(), _bearer(token))


def _bearer(token: str) -> bytes:
    return b"Authorization: Bearer %s\r\n" % token.encode() if token else b""
