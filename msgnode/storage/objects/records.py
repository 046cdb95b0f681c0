"""
The records of the journal of objects. Each has a length and a checksum of its own, as a batch of the spool.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from msgnode.storage.spool_recovery import BATCH

MAGIC = b"msgobj\x00\x01"  # the last byte is the version
ENTRY, SNAPSHOT, GAP, FLOOR, BEGIN = 1, 2, 3, 4, 5
FRAME = BATCH  # length, CRC-32
HEAD = Struct("<BQQH")  # kind, version, microseconds since 1970, bytes of the object's address
MAX_RECORD_BYTES = 1 << 28
# How a record may begin: length, checksum, kind, version and time. Messages, which are JSON, have no byte 0.
_BEGINNING = re.compile(rb"(?=.{3}[\x00-\x10].{4}[\x01-\x05].{7}\x00.{7}\x00)", re.DOTALL)
_LENGTH_END = re.compile(rb"[\x00-\x10]")
_BEGUN = FRAME.pack(HEAD.size, 0) + HEAD.pack(ENTRY, 1, 1, 0)  # an example


class Record(NamedTuple):
    """
    A record. The data of an entry is the message, that of a snapshot the reduced object, that of a gap its
    last version and its cause. A floor is the version above which new objects begin, its data the damage that
    was seen before; the version of a beginning is the first of its object.
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


@cache
def _head(length: int) -> Callable[[int, int, int, int, bytes], bytes]:
    """
    Packs the beginning of a payload, with an address of this length.
    """
    return Struct(f"{HEAD.format}{length}s").pack


def packed_entries(version: int, micros: int, address: bytes, messages: list[bytes]) -> list[bytes]:
    """
    Entries of an object, with successive versions and times, of which the first has these.
    """
    size = len(address)
    head, frame, records = _head(size), FRAME.pack, []
    for message in messages:
        payload = head(ENTRY, version, micros, size, address) + message
        records.append(frame(len(payload), crc32(payload)) + payload)
        version += 1
        micros += 1
    return records


def unpacked(payload: bytes) -> Record:
    kind, version, micros, length = HEAD.unpack_from(payload)
    end = HEAD.size + length
    return Record(kind, version, micros, payload[HEAD.size : end].decode(), payload[end:])


def scan(data: bytes, is_last: bool) -> Iterator[Found | None]:
    """
    The records of a segment; None for each part that is damaged. What is behind it is found again. A record
    that is cut off at the end of the last segment is left out.
    """
    at, end = len(MAGIC), len(data)
    while at < end:
        found = _found(data, at)
        if found is not None:
            yield found
            at += found.length
            continue
        behind = _next(data, at + 1)
        if behind < end or not is_last or not _is_cut_off(data[at:]):
            yield None
        at = behind


def _found(data: bytes, at: int) -> Found | None:
    """
    The record at this offset; None if no whole one is there.
    """
    start = at + FRAME.size
    if start > len(data):
        return None
    length, checksum = FRAME.unpack_from(data, at)
    if not HEAD.size <= length <= min(MAX_RECORD_BYTES, len(data) - start):
        return None
    if crc32(memoryview(data)[start : start + length]) != checksum:
        return None
    kind, version, micros, size = HEAD.unpack_from(data, start)
    first = start + HEAD.size
    return Found(at, FRAME.size + length, kind, version, micros, data[first : first + size])


def _next(data: bytes, at: int) -> int:
    """
    The offset of the next record; that of the end if there is none.
    """
    starts = (match.start() for match in _BEGINNING.finditer(data, at))
    return next((start for start in starts if _found(data, start) is not None), len(data))


def _is_cut_off(rest: bytes) -> bool:
    """
    Is this the beginning of a longer record? If it has the checksum of bytes that are all there, only its
    length is damaged, and another one may be cut off behind it.
    """
    if not _BEGINNING.match(rest[: len(_BEGUN)] + _BEGUN[len(rest) :]):
        return False
    if len(rest) < FRAME.size:
        return True
    length, checksum = FRAME.unpack_from(rest)
    payload = rest[FRAME.size :]
    return len(payload) < length <= MAX_RECORD_BYTES and not _has_checksum(payload, checksum)


def _has_checksum(data: bytes, checksum: int) -> bool:
    """
    Is this the checksum of the data, or of the part before a place where a further record may begin?
    """
    behind = [match.start() - 3 for match in _LENGTH_END.finditer(data, HEAD.size + 3)]
    view, found, at = memoryview(data), 0, 0
    for end in [*behind, *range(max(len(data) - 3, HEAD.size), len(data) + 1)]:
        found, at = crc32(view[at:end], found), end
        if found == checksum:
            return True
    return False
