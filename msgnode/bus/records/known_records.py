"""
The records that the node knows: those of its own namespace SYSTEM, and those of the operator's directory.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from msgnode.policy.decision.context import RecordKind
from msgnode.records.catalogue import page
from msgnode.records.checker import Checker
from msgnode.records.definition import Definitions, Record
from msgnode.records.reader import SYSTEM_FILE, read, system_records
from msgnode.records.writer import as_json, to_json


class PublicRecords(Struct, frozen=True):
    """
    The public catalogue: an index, the definitions as JSON, and a page for people.
    """

    index: bytes
    definitions: bytes
    page: bytes


class RecordSet(Struct, frozen=True):
    """
    Definitions with all that is made of them before they are used. `index` lists the records by name,
    `digest` is that of all.
    """

    definitions: Definitions
    checker: Checker
    index: list[dict[str, Any]]
    public: PublicRecords
    digest: str


def read_records(directory: str, public: Iterable[str]) -> RecordSet:
    """
    The definitions below the directory ("": none) and those of SYSTEM, where the directory has not the same
    ids. `public` has the namespaces of the public catalogue.

    DefinitionsRefused with all problems; OSError if a file cannot be read. It may take seconds.
    """
    found = read(Path(directory)) if directory else Definitions(())
    own = [record for record in system_records() if record.id not in found.by_id]
    names = ", ".join(name for name in (found.source, SYSTEM_FILE) if name)
    definitions = Definitions((*found, *own), names)
    shown = _with_nested(definitions, frozenset(public))
    about = {"digest": shown.digest, "records": _index(shown)}
    made = PublicRecords(
        msgspec.json.format(msgspec.json.encode(about), indent=1) + b"\n",
        to_json(shown).encode(),
        page(shown).encode(),
    )
    checker = Checker(definitions)
    for record in definitions:
        checker.of(record.id)  # compiled here, not between two messages
    return RecordSet(definitions, checker, _index(definitions), made, definitions.digest)


@cache
def _own_records() -> RecordSet:
    return read_records("", ())


def _with_nested(definitions: Definitions, namespaces: frozenset[str]) -> Definitions:
    """
    The records of these namespaces, and those nested in them, without which they could not be filled in.
    """
    pending = [record for record in definitions if namespaces.intersection(record.namespaces)]
    wanted: dict[str, Record] = {}
    while pending:
        record = pending.pop()
        if record.id not in wanted:
            wanted[record.id] = record
            pending += [definitions.nested(slot) for slot in record.slots if slot.type == "RECORD"]
    return Definitions((record for record in definitions if record.id in wanted), definitions.source)


def _index(definitions: Definitions) -> list[dict[str, Any]]:
    entries = [
        {key: value for key, value in as_json(record).items() if key not in ("slots", "reserved")}
        for record in definitions
    ]
    return sorted(entries, key=lambda entry: (entry["name"], entry["id"]))


class KnownRecords:
    """
    The records that the node knows now, and how many messages it has checked.
    """

    def __init__(self) -> None:
        self.checked = 0
        self.refused_reloads = 0
        self.use(_own_records())

    def use(self, records: RecordSet) -> None:
        """
        Knows these from now on, and no others.
        """
        self.definitions = records.definitions
        self.checker = records.checker
        self.index = records.index
        self.public = records.public
        self.digest = records.digest
        self._kinds: dict[str, RecordKind] = {}

    def __len__(self) -> int:
        return len(self.definitions)

    def find(self, id: str) -> Record | None:
        """
        The definition with this id, in lower or upper case.
        """
        return self.definitions.by_id.get(id.lower())

    def kind(self, id: str) -> RecordKind | None:
        """
        The properties of the record with this id that policies may test.
        """
        record = self.find(id)
        if record is None:
            return None
        kind = self._kinds.get(record.id)
        if kind is None:
            keys = {slot.name: str(slot.key) for slot in record.slots}
            kind = self._kinds[record.id] = RecordKind(record.name, record.namespaces, keys)
        return kind
