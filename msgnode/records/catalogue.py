"""
The catalogue: an HTML page, one file without scripts, that shows records to people.
"""

import json
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from msgspec import UNSET

from msgnode.records.definition import FLOATS, INTEGERS, Definitions, Record, Slot

_PAGE = Template((files("msgnode.records") / "assets" / "catalogue.html").read_text("utf-8"))
_EXAMPLES = {
    "BOOLEAN": True,
    "LONG": "1",
    "STRING": "text",
    "UUID": "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a11",
    "BYTES": "AAEC",
    "DATE": "2026-11-18T10:00:00Z",
    "URL": "https://example.org/",
    "ADDRESS": "hyperty://example.org/1",
    "NODE_ADDRESS": "mn://example.org/node",
    "TARGET_ADDRESS": "hyperty://example.org/1",
    "ID": "id",
    "MESSAGE": {
        "id": 1,
        "type": "update",
        "from": "hyperty://example.org/1",
        "to": "hyperty://example.org/2",
    },
    "OBJECT": {},
}
_MAX_EXAMPLE_DEPTH = 3


def page(definitions: Definitions, title: str = "Records") -> str:
    """
    The page, with a chapter for each namespace.
    """
    chapters: dict[str, list[Record]] = {}
    for record in definitions:
        for namespace in record.namespaces or ("",):
            chapters.setdefault(namespace, []).append(record)
    contents, body = [], []
    for namespace, records in sorted(chapters.items()):
        heading = escape(namespace) or "Without namespace"
        records = sorted(records, key=lambda record: record.name)
        links = "".join(f'<li><a href="#{each.id}">{escape(each.name)}</a></li>' for each in records)
        contents.append(f"<h2>{heading}</h2><ul>{links}</ul>")
        # A record of several namespaces is described in the first.
        described = [each for each in records if (each.namespaces or ("",))[0] == namespace]
        body += [f"<h2>{heading}</h2>"] if described else []
        body += [_record(definitions, each) for each in described]
    return _PAGE.substitute(
        title=escape(title),
        contents="".join(contents),
        body="\n".join(body) or "<p>There are no records.</p>",
        digest=definitions.digest,
    )


def _text(description: str) -> str:
    return "<br>".join(escape(line) for line in description.split("\n"))


def _record(definitions: Definitions, record: Record) -> str:
    parts = [f'<section id="{record.id}"><h3>{escape(record.name)}</h3>']
    kind = (
        "Service: it asks, and an answer is expected."
        if record.is_service
        else "It tells something; no answer is expected."
    )
    parts.append(f'<p class="id"><code>{record.id}</code> {kind}</p><p>{_text(record.description)}</p>')
    if record.slots:
        rows = "".join(_slot(definitions, slot) for slot in record.slots)
        head = "".join(f"<th>{word}</th>" for word in ("Key", "Slot", "Type", "In", "Description"))
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
    if record.reserved:
        parts.append(f"<p>Reserved keys: {', '.join(map(str, record.reserved))}.</p>")
    for word, direction in (("Request", "REQUEST"), ("Answer", "ANSWER")):
        if any(slot.is_in(direction) for slot in record.slots):
            example = json.dumps(_example(definitions, record, direction, 0), indent=2, ensure_ascii=False)
            parts.append(f"<details><summary>{word} body</summary><pre>{escape(example)}</pre></details>")
    return "".join([*parts, "</section>"])


def _slot(definitions: Definitions, slot: Slot) -> str:
    kind = escape(slot.full_type)
    if slot.type == "RECORD":
        kind += f' <a href="#{slot.record}">{escape(definitions.nested(slot).name)}</a>'
    where = {"REQUEST": "request", "ANSWER": "answer", "BOTH": "both"}[slot.direction]
    notes = [_text(slot.description)] if slot.description else []
    notes += [escape(limit) for limit in _limits(slot)]
    if slot.values:
        values = "".join(
            f"<dt><code>{escape(value.name)}</code></dt><dd>{_text(value.description)}</dd>"
            for value in slot.values
        )
        notes.append(f"<dl>{values}</dl>")
    name = f"<code>{escape(slot.name)}</code>" + ("<br><small>mandatory</small>" if slot.mandatory else "")
    cells = (str(slot.key), name, kind, where, "<br>".join(notes))
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _limits(slot: Slot) -> list[str]:
    found = []
    for low, high, word in (
        (slot.minimum, slot.maximum, "Range"),
        (slot.min_length, slot.max_length, "Length"),
        (slot.min_items, slot.max_items, "Elements"),
    ):
        if low is not None or high is not None:
            limits = ("" if low is None else f"at least {low}", "" if high is None else f"at most {high}")
            found.append(f"{word}: {', '.join(filter(None, limits))}.")
    if slot.pattern:
        found.append(f"Pattern: {slot.pattern}")
    if slot.default is not UNSET:
        found.append(f"Default: {slot.default}")
    return found


def _example(definitions: Definitions, record: Record, direction: str, depth: int) -> dict[str, Any]:
    return {
        slot.name: _value(definitions, slot, depth)
        for slot in record.slots
        if (slot.is_in(direction) or depth) and (slot.mandatory or depth < _MAX_EXAMPLE_DEPTH)
        if depth < 2 * _MAX_EXAMPLE_DEPTH
    }


def _value(definitions: Definitions, slot: Slot, depth: int) -> Any:
    value: Any = _EXAMPLES.get(slot.type)
    if slot.default is not UNSET:
        value = str(slot.default) if slot.type == "LONG" else slot.default
    elif slot.type == "ENUM":
        value = slot.values[0].name
    elif slot.type == "RECORD":
        value = _example(definitions, definitions.nested(slot), "REQUEST", depth + 1)
    elif slot.type in INTEGERS or slot.type in FLOATS:
        low, high = slot.minimum or 0, slot.maximum
        value = low if high is None or low <= high else high
        value = str(value) if slot.type == "LONG" else value
    if slot.form == "[]":
        return [value]
    return {"key": value} if slot.form else value
