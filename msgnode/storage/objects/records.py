"""
The records of the journal of objects. Each has a length and a checksum of its own, as a batch of the spool.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from msgnode.storage.spool_recovery import BATCH

MAGIC = b"msgobj\x00\x01"  # the last byte is the version
ENTRY, SNAPSHOT, GAP, FLOOR, BEGIN = 1, 2, 3, 4, 5
FRAME = BATCH  # length, CRC-32
HEAD = Struct("<BQQH")  # kind, version, microseconds since 1970, bytes of the object's address
MAX_RECORD_BYTES = 1 << 28


class Record(NamedTuple):
    """
    A record. The data of an entry is the message, that of a snapshot the reduced object, that of a gap its
    last version and its cause. A floor is the version above which new objects begin; the version of a
    beginning is the first of its object.
    """

    kind: int
    version: int
    micros: int
    address: str
    data: bytes


class Found(NamedTuple):
    """
    A record found by `scan`, without its data: its offset, its length with the frame, and its beginning.
    """

    offset: int
    length: int
    kind: int
    version: int
    micros: int
    address: bytes


class Damaged(Exception):
    """
    A record that differs from what was written.
    """


def packed(kind: int, version: int, micros: int, address: bytes, data: bytes) -> bytes:
    payload = b"".join((HEAD.pack(kind, version, micros, len(address)), address, data))
    return FRAME.pack(len(payload), crc32(payload)) + payload


def unpacked(payload: bytes) -> Record:
    kind, version, micros, length = HEAD.unpack_from(payload)
    end = HEAD.size + length
    return Record(kind, version, micros, payload[HEAD.size : end].decode(), payload[end:])


def scan(data: bytes) -> Iterator[Found | None]:
    """
    The records of a segment; None for each part that is damaged. A record that is cut off at the end is left
    out.
    """
    at, end = len(MAGIC), len(data)
    view = memoryview(data)
    while at + FRAME.size <= end:
        length, checksum = FRAME.unpack_from(data, at)
        start = at + FRAME.size
        if not HEAD.size <= length <= MAX_RECORD_BYTES:
            yield None
            return
        if start + length > end:
            return
        if crc32(view[start : start + length]) != checksum:
            yield None
        else:
            kind, version, micros, size = HEAD.unpack_from(data, start)
            first = start + HEAD.size
            yield Found(at, FRAME.size + length, kind, version, micros, data[first : first + size])
        at = start + length
