"""
Python: a package with one msgspec Struct for each record, and one for each answer.
"""

import base64
import keyword
import re
from collections.abc import Iterator

from msgspec import UNSET

from msgnode.records.definition import Definitions, Record, Slot
from msgnode.records.generate.plan import Files, Module, Plan, asset, paragraphs

_WIDTH = 88  # columns, as ruff and black have it
_TYPES = {
    "BOOLEAN": "bool",
    "BYTE": "int",
    "SHORT": "int",
    "INTEGER": "int",
    "LONG": "int",
    "FLOAT": "float",
    "DOUBLE": "float",
    "UUID": "uuid.UUID",
    "BYTES": "bytes",
    "DATE": "datetime.datetime",
    "MESSAGE": "Message",
    "OBJECT": "Any",
}  # all others are texts
_RUNTIME = ("UNSET", "Enum", "Message", "Record", "Slot", "UnsetType")
_RESERVED_CLASSES = (*keyword.kwlist, "Any", "BadSlot", "ClassVar", *_RUNTIME)
# Members of the runtime, and what annotations and defaults of a class refer to.
_RESERVED_FIELDS = {"extra", "from_body", "to_body", "property", "builtins", "datetime", "uuid"}
_RESERVED_FIELDS |= {"bool", "bytes", "dict", "float", "int", "list", "str", "tuple"}
_RESERVED_MODULES = (*keyword.kwlist, "records_runtime", "builtins", "datetime", "uuid")


def generate(definitions: Definitions) -> Files:
    """
    The files of a package: a module for each namespace, and the runtime.
    """
    plan = Plan(definitions, _RESERVED_CLASSES, _RESERVED_MODULES)
    heading = [f"# {line}" for line in plan.heading()]
    made = {f"{module.name}.py": _module(plan, module) for module in plan.modules}
    made["records_runtime.py"] = "\n".join(
        [*heading, '"""', "The runtime of generated records.", '"""', "", asset("records_runtime.py.txt")]
    )
    made["__init__.py"] = "\n".join([*heading, '"""', "Typed messages.", '"""', ""])
    return made


def _module(plan: Plan, module: Module) -> str:
    body: list[str] = []
    for record in module.records:
        for part in _parts(plan, module, record):
            body += ["", "", *part]
    text = "\n".join(body)
    used = [name for name in _RUNTIME if _uses(text, name)]
    others = sorted({other.name for other in _referred(plan, module)} - {module.name})
    typing = [name for name in ("Any", "ClassVar") if _uses(text, name)]
    heading = [f"# {line}" for line in plan.heading()]
    heading += ['"""', f"Typed messages of the namespace {module.namespace}.", '"""', ""]
    heading += ["from __future__ import annotations", ""]
    standard = [f"import {name}" for name in ("builtins", "datetime", "uuid") if f"{name}." in text]
    heading += [*standard, f"from typing import {', '.join(typing)}", ""]
    heading += [f"from . import {other} as _{other}" for other in others]
    heading.append(f"from .records_runtime import {', '.join(sorted(used, key=_isort))}")
    return "\n".join([*heading, *body, ""])


def _isort(name: str) -> tuple[bool, str]:
    return (not name.isupper(), name)  # constants before classes, as isort has them


def _uses(text: str, name: str) -> bool:
    return re.search(rf'(?<![".\w]){name}(?![\w"])', text) is not None


def _referred(plan: Plan, module: Module) -> Iterator[Module]:
    for record in module.records:
        for slot in record.slots:
            if slot.type == "RECORD":
                yield plan.module_of[slot.record]


def _parts(plan: Plan, module: Module, record: Record) -> Iterator[list[str]]:
    """
    The classes of a record: its enums, its answer, and the record itself.
    """
    for slot in record.slots:
        if slot.type == "ENUM":
            yield _enum(plan, record, slot)
    if record.has_answer:
        answers = [slot for slot in record.slots if slot.is_in("ANSWER")]
        name = plan.answer_name(record)
        yield _class(plan, module, record, name, answers, f"The answer to {plan.class_name(record)}.")
    slots = [slot for slot in record.slots if slot.is_in("REQUEST")]
    yield _class(plan, module, record, plan.class_name(record), slots, record.description)


def _enum(plan: Plan, record: Record, slot: Slot) -> list[str]:
    lines = _opening(plan.enum_name(record, slot), "Enum")
    lines += _docstring(f"Values of {record.name}.{slot.name}.", [])
    for value in slot.values:
        lines += _hash(value.description)
        lines.append(f'    {_member(value.name)} = "{value.name}"')
    return lines


def _opening(name: str, bases: str) -> list[str]:
    line = f"class {name}({bases}):"
    return [line] if len(line) <= _WIDTH else [f"class {name}(", f"    {bases}", "):"]


def _assigned(start: str, value: str) -> list[str]:
    line = f"{start} {value}"
    return [line] if len(line) <= _WIDTH else [f"{start} (", f"        {value}", "    )"]


def _member(name: str) -> str:
    taken = keyword.iskeyword(name) or hasattr(str, name) or name in ("mro", "name", "value", "is_known")
    return name + "_" if taken else name


def _class(
    plan: Plan, module: Module, record: Record, name: str, slots: list[Slot], description: str
) -> list[str]:
    lines = [*_opening(name, "Record, kw_only=True"), *_docstring(description or f"{record.name}.", [])]
    fields = {slot.name: field_name(slot) for slot in slots}
    for slot in slots:
        lines += _hash(slot.description)
        lines += _field(plan, module, record, slot)
    lines += [""] if slots else []
    lines.append(f'    ID: ClassVar[str] = "{record.id}"')
    lines += _assigned("    NAME: ClassVar[str] =", f'"{record.name}"')
    if record.has_answer and name != plan.answer_name(record):
        answer = plan.answer_name(record)
        kind = "builtins.type" if "type" in fields.values() else "type"
        lines += [f"    ANSWER: ClassVar[{kind}[{answer}]] = {answer}"]
    if record.has_same_answer:
        lines += ["    HAS_SAME_ANSWER: ClassVar[bool] = True"]
    if not slots:
        lines.append("    SLOTS: ClassVar[tuple[Slot, ...]] = ()")
        return lines
    lines.append("    SLOTS: ClassVar[tuple[Slot, ...]] = (")
    for slot in slots:
        lines += _info(plan, module, record, slot, fields[slot.name])
    lines.append("    )")
    for slot in slots:
        lines += _default(plan, record, slot, set(fields.values()))
    return lines


def field_name(slot: Slot) -> str:
    """
    The attribute of a slot.
    """
    name = slot.name.lower()
    return name + "_" if keyword.iskeyword(name) or name in _RESERVED_FIELDS else name


def _field(plan: Plan, module: Module, record: Record, slot: Slot) -> list[str]:
    kind = _type(plan, module, record, slot)
    kind = {"": kind, "[]": f"list[{kind}]", "{}": f"dict[str, {kind}]"}[slot.form]
    name = field_name(slot)
    if slot.mandatory:
        return [f"    {name}: {kind}"]
    line = f"    {name}: {kind} | None | UnsetType = UNSET"
    if len(line) <= _WIDTH:
        return [line]
    inside = f"        {kind} | None | UnsetType"
    if len(inside) <= _WIDTH:
        return [f"    {name}: (", inside, "    ) = UNSET"]
    return [f"    {name}: (", f"        {kind}", "        | None", "        | UnsetType", "    ) = UNSET"]


def _type(plan: Plan, module: Module, record: Record, slot: Slot) -> str:
    if slot.type == "ENUM":
        return plan.enum_name(record, slot)
    if slot.type == "RECORD":
        return _nested(plan, module, slot)
    return _TYPES.get(slot.type, "str")


def _nested(plan: Plan, module: Module, slot: Slot) -> str:
    other = plan.module_of[slot.record]
    name = plan.class_name(plan.definitions.nested(slot))
    return name if other is module else f"_{other.name}.{name}"


def _info(plan: Plan, module: Module, record: Record, slot: Slot, field: str) -> list[str]:
    lines = ["        Slot(", f"            key={slot.key},", f'            name="{slot.name}",']
    lines += [f'            field="{field}",', f'            type="{slot.type}",']
    if slot.form:
        lines.append(f'            form="{slot.form}",')
    if slot.mandatory:
        lines.append("            mandatory=True,")
    if slot.type in ("ENUM", "RECORD"):
        lines.append(f"            nested=lambda: {_type(plan, module, record, slot)},")
    return [*lines, "        ),"]


def _default(plan: Plan, record: Record, slot: Slot, taken: set[str]) -> list[str]:
    """
    The property with the default in the place of an absent value.
    """
    if slot.default is UNSET:
        return []
    name = f"{field_name(slot)}_or_default"
    while name in taken:
        name += "_"
    field, kind = field_name(slot), _TYPES.get(slot.type, "str")
    value = _literal(slot.default)
    if slot.type == "ENUM":
        kind = plan.enum_name(record, slot)
        value = f"{kind}.{_member(str(slot.default))}"
    elif slot.type == "UUID":
        value = f"uuid.UUID({value})"
    elif slot.type == "DATE":
        value = f"datetime.datetime.fromisoformat({_literal(str(slot.default).upper())})"
    elif slot.type == "BYTES":
        value = f'bytes.fromhex("{base64.b64decode(str(slot.default)).hex()}")'
    return [
        "",
        "    @property",
        f"    def {name}(self) -> {kind} | None:",
        '        """',
        f"        {field}, or its default if it is absent.",
        '        """',
        f"        if self.{field} is UNSET:",
        f"            return {value}",
        f"        return self.{field}",
    ]


def _literal(value: object) -> str:
    if not isinstance(value, str):
        return repr(value).replace("e+", "e")
    quote = "'" if value.count('"') > value.count("'") else '"'  # as ruff and black choose
    escaped = []
    for each in value:
        if each in (quote, "\\"):
            escaped.append("\\" + each)
        else:
            escaped.append(each if each.isprintable() else each.encode("unicode_escape").decode("ascii"))
    return quote + "".join(escaped) + quote


def _docstring(text: str, more: list[str]) -> list[str]:
    lines = paragraphs(text, _WIDTH - 8, lambda line: line.replace("\\", "\\\\").replace('"""', '\\"\\"\\"'))
    return ['    """', *(f"    {line}".rstrip() for line in [*lines, *more]), '    """', ""]


def _hash(description: str) -> list[str]:
    if not description:
        return []
    return [f"    # {line}".rstrip() for line in paragraphs(description, _WIDTH - 8)]
