"""
Definitions made of nodes: every problem of a file is noted, and what is right is kept.
"""

import re

from msgnode.records.attributes import Attributes, whole
from msgnode.records.consistency import Placed
from msgnode.records.definition import (
    MAX_KEY,
    MAX_NAME_CHARS,
    MAX_SLOTS,
    Record,
    Slot,
)
from msgnode.records.json_scanner import Node
from msgnode.records.problems import Place, Problem
from msgnode.records.slot_parser import parse_slot, parse_uuid
from msgnode.structures.error_words import shown

MAX_RESERVED = 10_000  # keys of a record
MAX_NAMESPACES = 20  # of a record
_RECORD = ("id", "name", "isService", "namespaces", "description", "slots", "reserved")
_NAMESPACE = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*")


class Parser:
    """
    Reads the records of nodes and collects them with their places, and the problems.
    """

    def __init__(self) -> None:
        self.records: list[Placed] = []
        self.problems: list[Problem] = []

    def parse(self, root: Node, where: str) -> None:
        """
        Read the records of a file.
        """
        if not isinstance(root.value, dict):
            self._refuse(where, root, f"expected an object with 'records', found {shown(root.value)}")
            return
        attributes = Attributes(root, "file", where, self.problems)
        attributes.only(("records", "$schema", "xmlns:xsi", "xsi:noNamespaceSchemaLocation"))
        records = attributes.get("records", needed=True)
        if records is None:
            return
        if not isinstance(records.value, list):
            attributes.expected("records", "a list")
            return
        for node in records.value:
            if not isinstance(node.value, dict):
                self._refuse(where, node, f"expected a record as an object, found {shown(node.value)}")
                continue
            self._record(Attributes(node, "record", where, self.problems))

    def _refuse(self, where: str, node: Node, text: str) -> None:
        self.problems.append(Problem(Place(where, *node.at), text))

    def _record(self, given: Attributes) -> None:
        given.only(_RECORD)
        id_ = parse_uuid(given, "id", needed=True)
        name = given.name("name")
        namespaces = self._namespaces(given)
        reserved = self._reserved(given)
        slots = self._slots(given)
        flag = given.flag("isService")
        description = given.description()
        if id_ is None:  # what is wrong was noted; the slots are still compared with each other
            id_ = f"?{len(self.records)}"
        record = Record(
            id=id_,
            name=name or id_,
            is_service=bool(flag),
            namespaces=namespaces,
            description=description,
            slots=tuple(slot for slot, _ in slots),
            reserved=reserved,
        )
        self.records.append(Placed(record, given.place(), tuple(place for _, place in slots)))

    def _namespaces(self, given: Attributes) -> tuple[str, ...]:
        found: list[str] = []
        for word, at in given.words("namespaces"):
            if not _NAMESPACE.fullmatch(word) or len(word) > MAX_NAME_CHARS:
                given.refuse(f"expected a namespace such as 'SYSTEM', found {word[:80]!r}", at)
            elif word in found:
                given.refuse(f"the namespace '{word}' occurs again", at)
            elif len(found) == MAX_NAMESPACES:
                given.refuse(f"more than {MAX_NAMESPACES} namespaces", at)
                break
            else:
                found.append(word)
        return tuple(found)

    def _reserved(self, given: Attributes) -> tuple[int, ...]:
        found: set[int] = set()
        words = given.words("reserved")
        if len(words) > MAX_RESERVED:
            given.refuse(f"more than {MAX_RESERVED} reserved keys", given.at("reserved"))
            return ()
        for word, at in words:
            key = whole(word)
            if key is None or not 1 <= key <= MAX_KEY:
                given.refuse(f"expected a key from 1 to {MAX_KEY} as 'reserved', found {word[:80]!r}", at)
            else:
                found.add(key)
        return tuple(sorted(found))

    def _slots(self, given: Attributes) -> list[tuple[Slot, Place]]:
        listed = given.get("slots", needed=True)
        if listed is None:
            return []
        if not isinstance(listed.value, list):
            given.expected("slots", "a list")
            return []
        if len(listed.value) > MAX_SLOTS:
            given.refuse(f"a record has at most {MAX_SLOTS} slots, found {len(listed.value)}", listed.at)
            return []
        found = []
        for node in listed.value:
            if not isinstance(node.value, dict):
                self._refuse(given.where, node, f"expected a slot as an object, found {shown(node.value)}")
                continue
            attributes = Attributes(node, "slot", given.where, self.problems)
            slot = parse_slot(attributes)
            if slot is not None:
                found.append((slot, attributes.place()))
        return found
