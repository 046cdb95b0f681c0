"""
Explains, for the sender, why bytes are not a message.

Used only after decoding failed, so it may be slow.
"""

import re
from typing import Any

import msgspec
from msgspec import Raw

from msgnode.protocol.errors import Malformed
from msgnode.structures.error_words import shown

UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"  # a regular expression
_EXPECTED = {
    "id": "an integer or a string",
    "type": "a string",
    "from": "a string",
    "to": "a string or a list of strings",
    "priority": "an integer from 0 to 9",
    "ttl": "a number of seconds from 0",
    "receipt": "true or false",
    "forward": "true or false",
    "bulk": "true or false",
    "log": "true or false",
    "transaction": "a text of at most 64 characters, or an integer of at most 64 bits",
    "record": "the UUID of a record",
}
LONG_BYTES = 64 * 1024  # of a longer message only the header is decoded
_raw = msgspec.json.Decoder(
    msgspec.defstruct(
        "Header",
        [
            (key + "_", Raw | msgspec.UnsetType, msgspec.field(name=key, default=msgspec.UNSET))
            for key in _EXPECTED
        ],
    )
).decode
_OPTIONAL = ("from", "priority", "ttl", "receipt", "bulk", "log", "forward", "transaction", "record")


def decode_error(data: bytes, why: Exception) -> Malformed:
    """
    The error for `data`, with its id and its from if they can be read.
    """
    if isinstance(why, RecursionError):
        return Malformed("nested too deeply")
    try:
        fields = _header(data)
    except RecursionError:
        return Malformed("nested too deeply")
    except msgspec.DecodeError:
        position = re.search(r"byte (\d+)", str(why))
        where = f" at byte {position[1]}" if position else ""
        return Malformed(f"not JSON{where}")
    if not isinstance(fields, dict):
        return Malformed(f"a message is an object, not {_kind(fields)}")
    id, from_ = fields.get("id"), fields.get("from")
    text = "not a message"
    for key, expected in _EXPECTED.items():
        if key not in fields and key not in _OPTIONAL:
            text = f"'{key}' is missing"
            break
        if key in fields and not _fits(key, fields[key]):
            text = f"'{key}' must be {expected}, not {_found(key, fields[key])}"
            break
    log = fields.get("log") is not False
    if not _fits("id", id) or not isinstance(from_, str):
        return Malformed(text, log=log)
    given = fields.get("transaction")
    transaction = given if _fits("transaction", given) else None
    return Malformed(text, id, from_, transaction=transaction, log=log)


class Long:
    """
    A placeholder for a long value that is not decoded.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind


def _header(data: bytes) -> Any:
    """
    The header as far as it can be decoded. Of a long message nothing but the header is decoded.
    """
    if len(data) <= LONG_BYTES:
        return msgspec.json.decode(data)
    try:
        header = _raw(data)
    except msgspec.ValidationError:  # not an object
        return _short(bytes(msgspec.json.decode(data, type=Raw)))
    given = {key: getattr(header, key + "_") for key in _EXPECTED}
    return {key: _short(bytes(value)) for key, value in given.items() if value is not msgspec.UNSET}


def _short(value: bytes) -> Any:
    if len(value) <= LONG_BYTES or value[:1] not in (b"[", b"{"):
        return msgspec.json.decode(value)
    try:
        return msgspec.json.decode(value, type=list[str])
    except msgspec.ValidationError:
        return Long("an object" if value[:1] == b"{" else "a list")


def _fits(key: str, value: object) -> bool:
    if key == "id":
        return isinstance(value, int | str) and not isinstance(value, bool)
    if key == "to" and isinstance(value, list):
        return all(isinstance(address, str) for address in value)
    if key in ("receipt", "bulk", "log", "forward"):
        return isinstance(value, bool)
    if key == "transaction":
        return value is None or _is_transaction(value)
    if key == "record":
        return value is None or (isinstance(value, str) and re.fullmatch(UUID, value) is not None)
    if key in ("priority", "ttl"):
        if value is None or isinstance(value, bool):
            return value is None
        return isinstance(value, int) and 0 <= value <= 9 if key == "priority" else _is_time(value)
    return isinstance(value, str)


def _is_transaction(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= 64
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and value >= 0


def _found(key: str, value: object) -> str:
    if isinstance(value, str) and key == "record":
        return shown(value)
    if isinstance(value, str) and key == "transaction":
        return f"a text of {len(value)}"
    return _kind(value)


def _kind(value: object) -> str:
    if isinstance(value, list):
        strange = [item for item in value if not isinstance(item, str)]
        return f"a list that holds {strange[0]!r}"[:80] if strange else "a list"
    if isinstance(value, Long):
        return value.kind
    names = {dict: "an object", str: "a string", type(None): "null", bool: "true or false"}
    return names.get(type(value), f"the number {value!r}"[:80])
