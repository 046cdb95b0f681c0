"""
TypeScript: a module for each namespace, with an interface and a RecordType for each record.
"""

import base64
import json

from msgspec import UNSET

from msgnode.records.definition import NUMBERS, Definitions, Record, Slot
from msgnode.records.generate.plan import (
    Files,
    Module,
    Plan,
    asset,
    comment,
    keywords,
    lower_camel,
    paragraphs,
)

_WIDTH = 80  # columns, as prettier has it
_TYPES = {
    "BOOLEAN": "boolean",
    "LONG": "bigint",
    "BYTES": "Uint8Array",
    "MESSAGE": "{ [member: string]: unknown }",
    "OBJECT": "unknown",
}
_RESERVED_CLASSES = ("Uint8Array", "Extra", "RecordType", "AnyRecordType")
_RESERVED_FIELDS = keywords("typescript")


def generate(definitions: Definitions) -> Files:
    """
    A module for each namespace, and the runtime that they share.
    """
    plan = Plan(definitions, _RESERVED_CLASSES, ["records_runtime"])
    made = {f"{module.name}.ts": _module(plan, module) for module in plan.modules}
    heading = "\n".join(f"// {line}" for line in plan.heading())
    made["records_runtime.ts"] = f"{heading}\n\n{asset('records_runtime.ts.txt')}"
    return made


def _module(plan: Plan, module: Module) -> str:
    lines = [f"// {line}" for line in plan.heading()]
    nested = [
        plan.module_of[slot.record] for record in module.records for slot in record.slots if slot.record
    ]
    types = ["  RecordType,", "  type AnyRecordType,", "  type Extra,"]
    imported = ["import {", *types, "}"] if nested else ["import { RecordType, type Extra }"]
    lines += ["", *imported[:-1], f'{imported[-1]} from "./records_runtime.js";']
    lines += [
        f'import * as ns_{other} from "./{other}.js";'
        for other in sorted({other.name for other in nested} - {module.name})
    ]
    for record in module.records:
        for slot in record.slots:
            if slot.type == "ENUM":
                lines += _enum(plan, record, slot)
        answer = ""
        if record.has_answer:
            answer = plan.answer_name(record)
            slots = [slot for slot in record.slots if slot.is_in("ANSWER")]
            lines += _record(
                plan, module, record, answer, slots, f"The answer to {plan.class_name(record)}.", ""
            )
        slots = [slot for slot in record.slots if slot.is_in("REQUEST")]
        description = record.description or f"{record.name}."
        lines += _record(plan, module, record, plan.class_name(record), slots, description, answer)
    return "\n".join([*lines, ""])


def _enum(plan: Plan, record: Record, slot: Slot) -> list[str]:
    name = plan.enum_name(record, slot)
    lines = ["", *comment([f"Values of {record.name}.{slot.name}; others are kept."])]
    lines.append(f"export const {name} = {{")
    for value in slot.values:
        lines += _documented(value.description, "  ")
        lines.append(f'  {value.name}: "{value.name}",')
    lines.append("} as const;")
    values = f"(typeof {name})[keyof typeof {name}]"
    if len(values) + 19 <= _WIDTH:
        return [*lines, *_assigned(f"export type {name} =", f"{values} | (string & {{}});")]
    return [*lines, f"export type {name} =", f"  | {values}", "  | (string & {});"]


def _assigned(start: str, value: str) -> list[str]:
    line = f"{start} {value}"
    return [line] if len(line) <= _WIDTH else [start, f"  {value}"]


def _documented(description: str, indent: str) -> list[str]:
    if not description:
        return []
    lines = paragraphs(description, _WIDTH - len(indent) - 4, lambda text: text.replace("*/", "* /"))
    return comment(lines, indent)


def _record(
    plan: Plan, module: Module, record: Record, name: str, slots: list[Slot], description: str, answer: str
) -> list[str]:
    lines = ["", *_documented(description, ""), f"export interface {name} {{"]
    for slot in slots:
        lines += _documented(slot.description, "  ")
        lines += _property(plan, module, record, slot)
    lines += [*comment(["Members of the body that are no slots."], "  "), "  extra?: Extra;", "}"]
    lines += ["", *comment([f"Reads and writes bodies of {record.name}."])]
    has_same_answer = record.has_same_answer
    answered = answer or (name if has_same_answer else "")
    types = f"{name}, {answered}" if answered else name
    opening = f"export const {name} = new RecordType<{types}>({{"
    if answered and len(opening) > _WIDTH:
        lines += [f"export const {name} = new RecordType<", f"  {name},", f"  {answered}", ">({"]
    else:
        lines.append(opening)
    lines += [f'  id: "{record.id}",', f'  name: "{record.name}",']
    if slots:
        lines += ["  slots: [", *(line for slot in slots for line in _info(plan, module, slot)), "  ],"]
    else:
        lines.append("  slots: [],")
    lines += [f"  answer: {answer},"] if answer else []
    lines += ["  hasSameAnswer: true,"] if has_same_answer else []
    return [*lines, "});", *_defaults(plan, record, name, slots)]


def _property(plan: Plan, module: Module, record: Record, slot: Slot) -> list[str]:
    kind = _type(plan, module, record, slot)
    if slot.form == "[]":
        kind = f"{kind}[]"
    elif slot.form:
        kind = f"{{ [key: string]: {kind} }}"
    name = field_name(slot)
    if slot.mandatory:
        return [f"  {name}: {kind};"]
    return [f"  {name}?: {kind} | null;"]


def field_name(slot: Slot) -> str:
    """
    The property of a slot.
    """
    name = lower_camel(slot.name)
    return name + "_" if name in _RESERVED_FIELDS else name


def _type(plan: Plan, module: Module, record: Record, slot: Slot) -> str:
    if slot.type == "ENUM":
        return plan.enum_name(record, slot)
    if slot.type == "RECORD":
        return _nested(plan, module, slot)
    return _TYPES.get(slot.type, "number" if slot.type in NUMBERS else "string")


def _nested(plan: Plan, module: Module, slot: Slot) -> str:
    other = plan.module_of[slot.record]
    name = plan.class_name(plan.definitions.nested(slot))
    return name if other is module else f"ns_{other.name}.{name}"


def _info(plan: Plan, module: Module, slot: Slot) -> list[str]:
    lines = ["    {", f"      key: {slot.key},", f'      name: "{slot.name}",']
    lines += [f'      field: "{field_name(slot)}",', f'      type: "{slot.type}",']
    if slot.form:
        lines.append(f'      form: "{slot.form}",')
    if slot.mandatory:
        lines.append("      mandatory: true,")
    if slot.type == "RECORD":
        lines.append(f"      nested: (): AnyRecordType => {_nested(plan, module, slot)},")
    return [*lines, "    },"]


def _defaults(plan: Plan, record: Record, name: str, slots: list[Slot]) -> list[str]:
    found = [slot for slot in slots if slot.default is not UNSET]
    if not found:
        return []
    made = f"{name[:1].lower()}{name[1:]}Defaults"
    lines = ["", *comment([f"The values of absent slots of {name}."]), f"export const {made} = {{"]
    return [*lines, *(f"  {field_name(slot)}: {_literal(slot)}," for slot in found), "};"]


def _literal(slot: Slot) -> str:
    value = slot.default
    if slot.type == "LONG":
        return f"{int(str(value))}n"
    if slot.type == "BYTES":
        data = base64.b64decode(str(value))
        return f"new Uint8Array([{', '.join(map(str, data))}])"
    if isinstance(value, str):
        return _quoted(value)
    return json.dumps(value).replace("e+", "e")


def _quoted(text: str) -> str:
    """
    A text as prettier quotes it: in double quotes, unless single ones need fewer escapes.
    """
    made = "".join(
        each if each.isprintable() else json.dumps(each)[1:-1] for each in text.replace("\\", "\\\\")
    )
    if made.count('"') > made.count("'"):
        return "'" + made.replace("'", "\\'") + "'"
    return '"' + made.replace('"', '\\"') + '"'
