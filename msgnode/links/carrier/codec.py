"""
The codec of one WebSocket message: a MessagePack array of entries.

Entries are encoded one at a time, when they are queued, so that the size of a queue is known. Unknown tags
are skipped; an entry of a known tag that does not decode, and a message out of bounds, are a CodecError.
"""

from collections.abc import Sequence

import msgspec

from msgnode.links.wire.entries import MAX_ENTRIES, MAX_MESSAGE_BYTES, AnyEntry

_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode  # of one entry


class CodecError(ValueError):
    """
    A message that is no array of entries, or an entry of a known tag that does not decode.
    """


class _Tagged(msgspec.Struct, array_like=True):
    """
    An entry of which only the tag is read.
    """

    tag: str


_KNOWN = frozenset(kind.__struct_config__.tag for kind in AnyEntry.__args__)
_entries = msgspec.msgpack.Decoder(list[AnyEntry])
_entry = msgspec.msgpack.Decoder(AnyEntry)
_tagged = msgspec.msgpack.Decoder(_Tagged)
_raw = msgspec.msgpack.Decoder(list[msgspec.Raw])


def message(entries: Sequence[bytes]) -> bytes:
    """
    The message of entries that `encode` has encoded, at most MAX_ENTRIES.
    """
    number = len(entries)
    head = bytes((0x90 | number,)) if number < 16 else b"\xdc" + number.to_bytes(2, "big")
    return head + b"".join(entries)


def decode(data: bytes) -> list[AnyEntry]:
    """
    The entries of a message whose tags are known. CodecError if it is out of bounds or malformed.
    """
    if len(data) > MAX_MESSAGE_BYTES:
        raise CodecError(f"expected at most {MAX_MESSAGE_BYTES} bytes, found {len(data)}")
    number = _length(data)
    if number > MAX_ENTRIES:
        raise CodecError(f"expected at most {MAX_ENTRIES} entries, found {number}")
    try:
        return _entries.decode(data)
    except (ValueError, RecursionError):
        return _decode_known(data)


def _decode_known(data: bytes) -> list[AnyEntry]:
    """
    Decode entry by entry, for a message that has unknown tags or is malformed.
    """
    try:
        found = []
        for each in _raw.decode(data):
            if _tagged.decode(each).tag in _KNOWN:
                found.append(_entry.decode(each))
        return found
    except (ValueError, RecursionError) as why:
        raise CodecError(f"expected an array of entries: {str(why)[:200]}") from None


def _length(data: bytes) -> int:
    """
    The number of items that the header of a MessagePack array announces. CodecError if it is another type.
    """
    first = data[0] if data else 0xC1
    if first & 0xF0 == 0x90:
        return first & 0x0F
    if first == 0xDC and len(data) >= 3:
        return int.from_bytes(data[1:3], "big")
    if first == 0xDD and len(data) >= 5:
        return int.from_bytes(data[1:5], "big")
    raise CodecError("expected an array of entries")
