"""
Definitions of records: the types that a slot may have, slots, records and sets of records.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

MAX_SLOTS = 1000  # in a record
MAX_RECORDS = 10_000  # in one set of definitions
MAX_KEY = 2**29 - 1  # as in Protocol Buffers, so that a binary form can use the same tags
MAX_NAME_CHARS = 64
MAX_VALUES = 1000  # of an enum
MAX_DEPTH = 32  # records within records, in a message

INTEGERS = {
    "BYTE": (-(2**7), 2**7 - 1),
    "SHORT": (-(2**15), 2**15 - 1),
    "INTEGER": (-(2**31), 2**31 - 1),
    "LONG": (-(2**63), 2**63 - 1),
}
# The largest values; the largest of 32 bits as Java, JavaScript and C write it with eight digits.
FLOATS = {"FLOAT": 3.4028235e38, "DOUBLE": 1.7976931348623157e308}
NUMBERS = frozenset({*INTEGERS, *FLOATS})
ADDRESSES = frozenset({"ADDRESS", "NODE_ADDRESS", "TARGET_ADDRESS"})
TEXTS = frozenset({"STRING", "URL", "ID"})  # those that may have a length and a pattern
MEASURED = frozenset({*TEXTS, "BYTES"})
STRUCTURES = frozenset({"RECORD", "MESSAGE", "OBJECT"})  # these have no default
TYPES = (
    "BOOLEAN",
    *INTEGERS,
    *FLOATS,
    "STRING",
    "UUID",
    "BYTES",
    "DATE",
    "URL",
    "ADDRESS",
    "NODE_ADDRESS",
    "TARGET_ADDRESS",
    "RECORD",
    "ENUM",
    "ID",
    "MESSAGE",
    "OBJECT",
)
SYNONYMS = {"DATE_TIME": "DATE", "MAP": "OBJECT{}"}
DIRECTIONS = ("REQUEST", "ANSWER", "BOTH")
Direction = Literal["REQUEST", "ANSWER", "BOTH"]
Form = Literal["", "[]", "{}"]


class EnumValue(Struct, frozen=True):
    """
    A value of an enum, as it is in messages.
    """

    name: str
    description: str = ""


class Slot(Struct, frozen=True, kw_only=True):
    """
    A named value of a record. `form` is "[]" for an array and "{}" for a map from strings.

    `record` is the id of the nested record, in lower case. Limits of None are not limited; `min_items` and
    `max_items` count the elements of an array or a map. `default` is the value that a reader takes if the
    slot is absent: UNSET, a bool, an int, a float, or the text that is in messages.
    """

    key: int
    name: str
    type: str
    form: Form = ""
    direction: Direction = "REQUEST"
    mandatory: bool = False
    description: str = ""
    record: str = ""
    values: tuple[EnumValue, ...] = ()
    minimum: int | float | None = None
    maximum: int | float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    pattern: str = ""
    default: Any | UnsetType = UNSET

    @property
    def full_type(self) -> str:
        return self.type + self.form

    def is_in(self, direction: str) -> bool:
        """
        Is the slot a part of requests ("REQUEST"), or of answers ("ANSWER")?
        """
        return self.direction in (direction, "BOTH")


class Record(Struct, frozen=True, kw_only=True):
    """
    The definition of a kind of message. `id` is a UUID in lower case; descriptions have "\\n" for `^`.
    """

    id: str
    name: str
    is_service: bool = False
    namespaces: tuple[str, ...] = ()
    description: str = ""
    slots: tuple[Slot, ...] = ()
    reserved: tuple[int, ...] = ()

    @property
    def has_same_answer(self) -> bool:
        """
        Do answers have the same slots as requests, at least one?
        """
        return bool(self.slots) and all(slot.direction == "BOTH" for slot in self.slots)

    @property
    def has_answer(self) -> bool:
        """
        Do answers have other slots than requests, and any at all?
        """
        return any(slot.is_in("ANSWER") for slot in self.slots) and not self.has_same_answer


class Definitions:
    """
    A set of records, by id and in the order of their files.

    `source` has the names of the files without directories.
    """

    def __init__(self, records: Iterable[Record], source: str = "") -> None:
        self.records = tuple(records)
        self.by_id = {record.id: record for record in self.records}
        self.source = source

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def nested(self, slot: Slot) -> Record:
        """
        The record of a slot of type RECORD.
        """
        return self.by_id[slot.record]

    @property
    def digest(self) -> str:
        """
        The SHA-256 of the content in hexadecimal: the same for JSON and XML, and however it is laid out.
        """
        return hashlib.sha256(msgspec.json.encode(self.records, order="deterministic")).hexdigest()
