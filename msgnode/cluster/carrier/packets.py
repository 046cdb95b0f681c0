"""
Packets: what one publication has for a member, and the subjects of NATS.

A packet is a byte with the version of the format, the length of its head in two bytes, the head, and a
MessagePack array of entries, as on a link between domains (links/wire/entries.py). An unknown tag is skipped,
so that nodes of two releases understand each other.
"""

import re
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from msgnode.links.wire.datagram import Name
from msgnode.links.wire.entries import Close, Counter, Data, Digest, Entry, Ping, Pong, State, Summary, Word
from msgnode.links.wire.node_name import NodeName, parse
from msgnode.links.wire.stream_header import Instance

FORMAT = 1
MAX_PACKET_BYTES = 256 * 1024
MIN_PACKET_BYTES = 64 * 1024  # that a NATS server must take: the longest entry fits
MAX_ENTRIES = 1024  # in one packet
MAX_PAYLOAD_BYTES = 32 * 1024  # of one Told
TOKEN_BYTES = 8
KEY_BYTES = 32
MAX_FEATURES = 64

Token = Annotated[bytes, Meta(max_length=TOKEN_BYTES)]
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


class Head(msgspec.Struct, array_like=True):
    """
    The sender of a packet, and the token it has for this link. `to` is the receiver's token, as far as known.

    Each end makes a new token when its link is down, so both have the same idea of one life of the link. What
    is for all members has no tokens.
    """

    source: Name
    link: Token = b""
    to: Token = b""


class Greeting(Entry, tag="greeting"):
    """
    The sender of the packet: its version, and its start, (instance, counter).

    `key` is the SHA-256 of the public key by which it signs its advertisements until it stops. `max_bytes` is
    the longest packet it takes. `features` are optional parts; unknown ones are ignored.
    """

    version: Word
    epoch: tuple[Instance, Counter]
    key: Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    max_bytes: Counter
    features: Annotated[list[Word], Meta(max_length=MAX_FEATURES)]


class Told(Entry, tag="told"):
    """
    The number of a payload in its run, which counts from 1, and the payload.
    """

    run: Counter
    number: Counter
    payload: Annotated[bytes, Meta(max_length=MAX_PAYLOAD_BYTES)]


class At(Entry, tag="at"):
    """
    The number of the last Told that was sent, so that a loss at the end is noticed.
    """

    run: Counter
    number: Counter


class Lost(Entry, tag="lost"):
    """
    A number of the run did not come: the other end begins a new run.
    """

    run: Counter


class Claim(msgspec.Struct, array_like=True):
    """
    A claim to the name of a node: by which start of a process, and whether that still asks for it.
    """

    start: Instance
    is_asking: bool


AnyEntry = Greeting | Told | At | Lost | Data | State | Digest | Summary | Ping | Pong | Close


class PacketError(ValueError):
    """
    A packet that is out of bounds or malformed.
    """


class _Tagged(msgspec.Struct, array_like=True):
    """
    An entry of which only the tag is read.
    """

    tag: str


encode = msgspec.msgpack.Encoder().encode  # of one entry
_head = msgspec.msgpack.Decoder(Head)
_entries = msgspec.msgpack.Decoder(list[AnyEntry])
_entry = msgspec.msgpack.Decoder(AnyEntry)
_tagged = msgspec.msgpack.Decoder(_Tagged)
_raw = msgspec.msgpack.Decoder(list[msgspec.Raw])
_claim = msgspec.msgpack.Decoder(Claim)
_KNOWN = frozenset(kind.__struct_config__.tag for kind in AnyEntry.__args__)


def packet(head: bytes, entries: Sequence[bytes]) -> bytes:
    """
    The packet with this head and these entries, both encoded; at most MAX_ENTRIES.
    """
    number = len(entries)
    array = bytes((0x90 | number,)) if number < 16 else b"\xdc" + number.to_bytes(2, "big")
    return bytes((FORMAT,)) + len(head).to_bytes(2, "big") + head + array + b"".join(entries)


def decode(data: bytes) -> tuple[Head, list[AnyEntry]]:
    """
    The head, whose source is the name of a node, and the entries whose tags are known. PacketError if it is
    malformed.
    """
    if len(data) > MAX_PACKET_BYTES:
        raise PacketError(f"expected at most {MAX_PACKET_BYTES} bytes, found {len(data)}")
    if len(data) < 4 or data[0] != FORMAT:
        raise PacketError(f"expected a packet of format {FORMAT}, found {data[:1].hex() or 'nothing'}")
    end = 3 + int.from_bytes(data[1:3], "big")
    try:
        head = _head.decode(data[3:end])
        parse(head.source)
    except (ValueError, RecursionError) as why:
        raise PacketError(f"expected the head of a packet: {str(why)[:200]}") from None
    rest = data[end:]
    try:
        found = _entries.decode(rest)
    except (ValueError, RecursionError):
        found = _decode_known(rest)
    if len(found) > MAX_ENTRIES:
        raise PacketError(f"expected at most {MAX_ENTRIES} entries, found {len(found)}")
    return head, found


def _decode_known(data: bytes) -> list[AnyEntry]:
    try:
        raw = _raw.decode(data)
        return [_entry.decode(each) for each in raw if _tagged.decode(each).tag in _KNOWN]
    except (ValueError, RecursionError) as why:
        raise PacketError(f"expected an array of entries: {str(why)[:200]}") from None


def decode_claim(data: bytes) -> Claim:
    """
    The claim in a publication. PacketError if it is none.
    """
    try:
        return _claim.decode(data)
    except (ValueError, RecursionError) as why:
        raise PacketError(f"expected a claim: {str(why)[:200]}") from None


# -- subjects ----------------------------------------------------------------------------


def inbound(name: NodeName) -> str:
    """
    The subject to which others publish for this node.
    """
    return f"msgnode.{_token(name.domain)}.node.{_token(name.node)}"


def presence(domain: str) -> str:
    """
    The subject to which each member publishes that it is there.
    """
    return f"msgnode.{_token(domain)}.presence"


def claims(name: NodeName) -> str:
    """
    The subject on which processes with the name of this node find each other.
    """
    return f"msgnode.{_token(name.domain)}.claim.{_token(name.node)}"


def _token(text: str) -> str:
    """
    The text as one token of a subject: no two texts give the same.
    """
    return _UNSAFE.sub(lambda found: f"={ord(found[0]):02X}", text)
