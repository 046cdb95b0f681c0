"""
Records of ten slots, and bodies that fit them.
"""

from typing import Any

from benchmark.load.frames import MARK, compact

IDS = {
    "plain": "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0b31",
    "mixed": "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0b32",
}
TYPES = {
    "plain": ["STRING"] * 5 + ["INTEGER"] * 3 + ["DOUBLE", "BOOLEAN"],
    "mixed": ["STRING"] * 3 + ["INTEGER"] * 2 + ["DOUBLE", "BOOLEAN", "LONG", "UUID", "DATE"],
}
_VALUES: dict[str, Any] = {
    "STRING": "twelve chars",
    "INTEGER": 123456,
    "DOUBLE": 21.5,
    "BOOLEAN": True,
    "LONG": "1234567890123",
    "UUID": "0b8d5c4e-7f62-4d0f-9c55-2b9d0f1f6a11",
    "DATE": "2026-11-18T10:00:00.123Z",
}


def definitions() -> dict[str, Any]:
    """
    The definitions of both, with mandatory slots, as a node reads them.
    """
    return {"records": [_definition(kind) for kind in IDS]}


def _definition(kind: str) -> dict[str, Any]:
    slots = [
        {"key": number, "name": f"SLOT_{number}", "mandatory": True, "type": type_}
        for number, type_ in enumerate(TYPES[kind], 1)
    ]
    return {"id": IDS[kind], "name": kind.upper(), "slots": slots}


def record_message(number: int, sender: str, receiver: str, kind: str, is_named: bool = True) -> bytes:
    """
    One update with a body of this record; without its name the node does not look into the body.
    """
    body = {f"SLOT_{slot}": _VALUES[type_] for slot, type_ in enumerate(TYPES[kind], 1)}
    body["SLOT_1"] = body["SLOT_1"][:-1] + MARK.decode()
    header = {"id": number, "type": "update", "from": sender, "to": receiver}
    return compact({**header, **({"record": IDS[kind]} if is_named else {}), "body": body})
