"""
C (C99): a header for each namespace, with a structure, a writer and a reader of one level for each record.
"""

from collections.abc import Iterator

from msgspec import UNSET

from msgnode.records.definition import FLOATS, INTEGERS, Definitions, Record, Slot
from msgnode.records.generate.plan import (
    Files,
    GenerationRefused,
    Module,
    Plan,
    asset,
    comment,
    keywords,
    paragraphs,
)

_WIDTH = 80  # columns, as clang-format has it
_KEYWORDS = keywords("c")
RESERVED_MODULES = ("records", "records_runtime", *keywords("c_headers"))


def generate(definitions: Definitions) -> Files:
    """
    A header for each namespace, and the runtime that they share.
    """
    plan = Plan(definitions, modules=RESERVED_MODULES)
    _refuse_collisions(plan)
    heading = "".join(f"// {line}\n" for line in plan.heading())
    made = {f"{module.name}.h": _header(plan, module) for module in plan.modules}
    made["records_runtime.h"] = f"{heading}\n{asset('records_runtime.h.txt')}"
    return made


def _refuse_collisions(plan: Plan) -> None:
    structures: dict[str, str] = {}
    macros: dict[str, tuple[str, str]] = {}
    wrong = []
    for module in plan.modules:
        for record in module.records:
            name = prefix(module, record)
            names = [(name, record.name)]
            if record.has_answer:
                names.append((f"{name}_answer", f"the answer of {record.name}"))
            for made, what in names:
                other = structures.setdefault(made, what)
                if other != what:
                    text = f"{made} would be the structure of {other} and of {what}; rename one of them"
                    wrong.append(text)
            for macro, value, what in _macros(record, name):
                first, other = macros.setdefault(macro, (value, what))
                if first != value:
                    wrong.append(f"{macro} would be the macro of {other} and of {what}; rename one of them")
    if wrong:
        raise GenerationRefused("\n".join(wrong))


def prefix(module: Module, record: Record) -> str:
    """
    The name of a record's structure, with which all its names begin.
    """
    return f"{module.name}_{record.name.lower()}"


def _header(plan: Plan, module: Module) -> str:
    guard = f"{module.name.upper()}_RECORDS_H"
    lines = [f"// {line}" for line in plan.heading()]
    lines += ["", f"#ifndef {guard}", f"#define {guard}", "", '#include "records_runtime.h"']
    for record in module.records:
        name = prefix(module, record)
        lines += ["", f"/* {record.name} */", ""]
        lines += [f"#define {macro} {value}" for macro, value, _ in _macros(record, name)]
        slots = [slot for slot in record.slots if slot.is_in("REQUEST")]
        lines += _record(record.description or f"{record.name}.", slots, name)
        if record.has_answer:
            slots = [slot for slot in record.slots if slot.is_in("ANSWER")]
            lines += _record(f"The answer to {record.name}.", slots, f"{name}_answer")
    return "\n".join([*lines, "", "#endif", ""])


def _macros(record: Record, name: str) -> Iterator[tuple[str, str, str]]:
    """
    The macros of a record: the name, the value, and what it is for.
    """
    yield f"{name.upper()}_ID", f'"{record.id}"', f"the id of {record.name}"
    for slot in record.slots:
        start = f"{name.upper()}_{slot.name}"
        values = {value.name for value in slot.values}
        for value in slot.values:
            yield f"{start}_{value.name}", f'"{value.name}"', f"{value.name} of {record.name}.{slot.name}"
        if slot.default is not UNSET:
            end = "_DEFAULT_" if "DEFAULT" in values else "_DEFAULT"
            yield f"{start}{end}", _literal(slot), f"the default of {record.name}.{slot.name}"


def _literal(slot: Slot) -> str:
    value = slot.default
    if slot.type == "BOOLEAN":
        return str(value).lower()
    if slot.type in INTEGERS:
        number = int(str(value))
        return "INT64_MIN" if number == -(2**63) else f"INT64_C({number})"
    if slot.type in FLOATS:
        return repr(value).replace("e+", "e")
    made = []
    for byte in str(value).encode():
        character = chr(byte)
        # Octal escapes end after three digits; a question mark could begin a trigraph.
        plain = " " <= character < "\x7f" and character not in '"\\?'
        made.append(character if plain else f"\\{byte:03o}")
    return '"' + "".join(made) + '"'


def _record(description: str, slots: list[Slot], name: str) -> Iterator[str]:
    yield ""
    lines = paragraphs(description, _WIDTH - 3, _commented)
    yield from comment(lines)
    yield f"struct {name} {{"
    for slot in slots:
        if slot.description:
            yield from comment(paragraphs(slot.description, _WIDTH - 5, _commented), "  ")
        yield f"  struct {_type(slot)} {field_name(slot)};"
    yield "  /** The body that was read: its members that are no slots are written. */"
    yield "  struct records_json extra;"
    yield "  /** The name of the slot that was refused when a body was read, or NULL. */"
    yield "  const char *bad_slot;"
    yield "};"
    yield ""
    yield from _table(slots, name)
    yield from _functions(name)


def _commented(text: str) -> str:
    return text.replace("*/", "* /").replace("/*", "/ *").replace("??/", "? ?/")


def field_name(slot: Slot) -> str:
    """
    The member of a slot.
    """
    name = slot.name.lower()
    return name + "_" if name in _KEYWORDS or name in ("extra", "bad_slot") else name


def _type(slot: Slot) -> str:
    if slot.form or slot.type in ("RECORD", "MESSAGE", "OBJECT"):
        return "records_json"
    if slot.type in INTEGERS:
        return "records_integer"
    if slot.type in FLOATS:
        return "records_number"
    return "records_boolean" if slot.type == "BOOLEAN" else "records_string"


def _kind(slot: Slot) -> str:
    kind = _type(slot).removeprefix("records_").upper()
    return slot.type if slot.type in ("LONG", "FLOAT") and not slot.form else kind


def _table(slots: list[Slot], name: str) -> Iterator[str]:
    # Tables are read by columns, not by lines of 80 characters.
    yield "// clang-format off"
    if slots:
        yield f"static const struct records_slot {name}_slots[] = {{"
        for slot in slots:
            low, high = INTEGERS.get(slot.type, (0, 0)) if _type(slot) == "records_integer" else (0, 0)
            least = "INT64_MIN" if low == -(2**63) else str(low)
            most = "INT64_MAX" if high == 2**63 - 1 else str(high)
            mandatory = "true" if slot.mandatory else "false"
            offset = f"offsetof(struct {name}, {field_name(slot)})"
            row = (slot.key, f'"{slot.name}"', f"RECORDS_{_kind(slot)}", mandatory, offset, least, most)
            yield f"    {{{', '.join(map(str, row))}}},"
        yield "};"
        yield ""
    first = f"{name}_slots" if slots else "NULL"
    yield f"static const struct records_type {name}_type = {{"
    offsets = ", ".join(f"offsetof(struct {name}, {member})" for member in ("extra", "bad_slot"))
    yield f"    {first}, {len(slots)}, {offsets}}};"
    yield "// clang-format on"


def _functions(name: str) -> Iterator[str]:
    """
    The writer and the reader, laid out as clang-format does it with names of any length.
    """
    yield ""
    yield from comment(paragraphs("Writes a body with a zero at its end.", _WIDTH))
    yield "// clang-format off"
    yield "static inline enum records_result"
    yield f"{name}_write(const struct {name} *value, char *out, size_t size, size_t *length) {{"
    yield f"  return records_write(&{name}_type, value, out, size, length);"
    yield "}"
    yield ""
    yield "/** Reads a body; texts stay in it, or in `memory` if they have escapes. */"
    yield "static inline enum records_result"
    yield f"{name}_read(struct {name} *to, const char *json, size_t length, char *memory, size_t size) {{"
    yield f"  return records_read(&{name}_type, to, sizeof *to, json, length, memory, size);"
    yield "}"
    yield "// clang-format on"
