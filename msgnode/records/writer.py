"""
Definitions written as JSON and as XML; reading either gives the same records.
"""

import json
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from msgspec import UNSET

from msgnode.records.definition import Definitions, Record, Slot

_LIMITS = {
    "minimum": "minimum",
    "maximum": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "min_items": "minItems",
    "max_items": "maxItems",
}


def to_json(definitions: Definitions) -> str:
    """
    The JSON form, one line for each slot.
    """
    records = [_record_lines(record) for record in definitions]
    return '{\n  "records": [\n' + ",\n".join(records) + "\n  ]\n}\n" if records else '{"records": []}\n'


def _record_lines(record: Record) -> str:
    lines = [
        f"      {_dumps(key)}: {_dumps(value)}" for key, value in as_json(record).items() if key != "slots"
    ]
    slots = [f"        {_dumps(_slot(slot))}" for slot in record.slots]
    lines.append('      "slots": [' + ("\n" + ",\n".join(slots) + "\n      ]" if slots else "]"))
    return "    {\n" + ",\n".join(lines) + "\n    }"


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def as_json(record: Record) -> dict[str, Any]:
    """
    A record as its JSON form has it.
    """
    made: dict[str, Any] = {"id": record.id, "name": record.name, "isService": record.is_service}
    if record.namespaces:
        made["namespaces"] = list(record.namespaces)
    if record.description:
        made["description"] = _marked(record.description)
    if record.reserved:
        made["reserved"] = list(record.reserved)
    return made | {"slots": [_slot(slot) for slot in record.slots]}


def _slot(slot: Slot) -> dict[str, Any]:
    made: dict[str, Any] = {"key": slot.key, "name": slot.name, "direction": slot.direction}
    made |= {"mandatory": slot.mandatory, "type": slot.full_type}
    if slot.record:
        made["record"] = slot.record
    if slot.values:
        made["values"] = [
            {"name": value.name, "description": _marked(value.description)}
            if value.description
            else value.name
            for value in slot.values
        ]
    made |= {
        name: getattr(slot, field) for field, name in _LIMITS.items() if getattr(slot, field) is not None
    }
    if slot.pattern:
        made["pattern"] = slot.pattern
    if slot.default is not UNSET:
        made["default"] = str(slot.default) if slot.type == "LONG" else slot.default
    if slot.description:
        made["description"] = _marked(slot.description)
    return made


def _marked(description: str) -> str:
    return description.replace("\n", "^")


def to_xml(definitions: Definitions) -> str:
    """
    The XML form.
    """
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<records>"]
    for record in definitions:
        made = as_json(record)
        attributes = _attributes(made, ("id", "name", "isService"))
        lines.append(f"  <record{attributes}>")
        if "description" in made:
            lines.append(f"    <description>{escape(made['description'])}</description>")
        for key in ("namespaces", "reserved"):
            if key in made:
                lines.append(f"    <{key}>{' '.join(map(str, made[key]))}</{key}>")
        for slot in made["slots"]:
            lines += _slot_lines(slot)
        lines.append("  </record>")
    return "\n".join([*lines, "</records>", ""])


def _slot_lines(slot: dict[str, Any]) -> list[str]:
    attributes = _attributes(slot, [key for key in slot if key not in ("description", "values")])
    inside = []
    if "description" in slot:
        inside.append(f"      <description>{escape(slot['description'])}</description>")
    for value in slot.get("values", ()):
        if isinstance(value, str):
            inside.append(f"      <value name={quoteattr(value)}/>")
        else:
            described = f"<description>{escape(value['description'])}</description>"
            inside.append(f"      <value name={quoteattr(value['name'])}>{described}</value>")
    return [f"    <slot{attributes}>", *inside, "    </slot>"] if inside else [f"    <slot{attributes}/>"]


def _attributes(values: dict[str, Any], keys: Any) -> str:
    return "".join(f" {key}={quoteattr(_text(values[key]))}" for key in keys)


def _text(value: Any) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else repr(value)
        if isinstance(value, float)
        else str(value)
    )
