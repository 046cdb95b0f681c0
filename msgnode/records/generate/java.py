"""
Java: a package for each namespace, with a class `CRecordX` of static getters and setters for each record.
"""

from collections.abc import Iterator

from msgspec import UNSET

from msgnode.records.definition import Definitions, Record, Slot
from msgnode.records.generate.plan import Files, Plan, asset, camel, comment, keywords, paragraphs

PACKAGE = "records"  # of the runtime; the namespaces are packages in it
_WIDTH = 100  # columns, as google-java-format has it
_TYPES = {
    "BOOLEAN": ("Boolean", "CRecord.BOOLEAN"),
    "BYTE": ("Byte", "CRecord.BYTE"),
    "SHORT": ("Short", "CRecord.SHORT"),
    "INTEGER": ("Integer", "CRecord.INTEGER"),
    "LONG": ("Long", "CRecord.LONG"),
    "FLOAT": ("Float", "CRecord.FLOAT"),
    "DOUBLE": ("Double", "CRecord.DOUBLE"),
    "UUID": ("UUID", "CRecord.UUID_"),
    "BYTES": ("byte[]", "CRecord.BYTES"),
    "DATE": ("OffsetDateTime", "CRecord.DATE"),
    "RECORD": ("CRecord", "CRecord.RECORD"),
    "MESSAGE": ("CRecord", "CRecord.MESSAGE"),
    "OBJECT": ("Object", "CRecord.OBJECT"),
    "ID": ("String", "CRecord.IDENTIFIER"),
}  # all others are texts
_KEYWORDS = keywords("java")
_IMPORTS = {
    "Base64": "java.util.Base64",
    "List": "java.util.List",
    "Map": "java.util.Map",
    "OffsetDateTime": "java.time.OffsetDateTime",
    "UUID": "java.util.UUID",
}
_RESERVED_ENUMS = frozenset(
    {"String", "Object", "CRecord", "List", "Map", "UUID", "Boolean", "Byte", "Short"}
)
_RESERVED_ENUMS |= {"Integer", "Long", "Float", "Double", "Uuid", "OffsetDateTime", "Base64"}


def generate(definitions: Definitions) -> Files:
    """
    The runtime, and a file for each record.
    """
    plan = Plan(definitions, modules=_KEYWORDS)
    heading = "".join(f"// {_plain(line)}\n" for line in plan.heading())
    made = {f"{PACKAGE}/CRecord.java": f"{heading}\npackage {PACKAGE};\n\n{asset('CRecord.java.txt')}"}
    for module in plan.modules:
        for record in module.records:
            name = class_name(record)
            package = f"{PACKAGE}.{module.name}"
            body = "\n".join(_class(plan, record, name))
            made[f"{package.replace('.', '/')}/{name}.java"] = (
                f"{heading}\npackage {package};\n\n{_imports(body)}{body}\n"
            )
    return made


def class_name(record: Record) -> str:
    """
    The class of a record.
    """
    return "CRecord" + camel(record.name)


def _imports(body: str) -> str:
    words = set("".join(each if each.isalnum() or each == "_" else " " for each in body).split())
    found = sorted(full for name, full in _IMPORTS.items() if name in words)
    return "".join(f"import {full};\n" for full in (*found, f"{PACKAGE}.CRecord")) + "\n"


def _plain(text: str) -> str:
    """
    A text in ASCII and without backslashes, which javac would read as escapes even in comments.
    """
    return "".join(each if " " <= each < "\x7f" and each != "\\" else "?" for each in text)


def _doc(description: str, indent: str) -> list[str]:
    if not description:
        return []
    lines = paragraphs(description, _WIDTH - len(indent) - 3, _html, "<br>")
    if len(lines) == 1 and len(indent) + 7 + len(lines[0]) <= _WIDTH:
        return [f"{indent}/** {lines[0]} */"]
    return comment(lines, indent)


def _html(text: str) -> str:
    special = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\\": "&#92;", "@": "&#64;", "*": "&#42;"}
    return "".join(
        special.get(each, each) if each in special or " " <= each < "\x7f" else f"&#{ord(each)};"
        for each in text
    )


def _class(plan: Plan, record: Record, name: str) -> Iterator[str]:
    yield from _doc(record.description or f"{record.name}.", "")
    yield f"public final class {name} {{"
    yield "  /** The id of the record, in messages and for handlers. */"
    yield f'  public static final String ID = "{record.id}";'
    yield ""
    for slot in record.slots:
        if slot.type == "ENUM":
            yield from _enum(record, slot)
    for slot in record.slots:
        yield from _doc(slot.description, "  ")
        yield from _constant(slot)
        yield ""
    yield from _slots(record)
    yield ""
    yield from _fixed(name)
    for slot in record.slots:
        yield from _methods(slot)
    yield "}"


def _slots(record: Record) -> Iterator[str]:
    names = [f"SLOT_{slot.name}" for slot in record.slots]
    start = "  public static final List<CRecord.Slot<?>> SLOTS ="
    if len(start) + len(f" CRecord.slots({', '.join(names)});") <= _WIDTH:
        yield f"{start} CRecord.slots({', '.join(names)});"
        return
    yield start
    line = f"      CRecord.slots({', '.join(names)});"
    if len(line) <= _WIDTH:
        yield line
        return
    yield "      CRecord.slots("
    inside = f"          {', '.join(names)});"
    if len(inside) <= _WIDTH:
        yield inside
        return
    yield from (f"          {each}," for each in names[:-1])
    yield f"          {names[-1]});"


def _fixed(name: str) -> Iterator[str]:
    yield f"  private {name}() {{}}"
    yield from ("", "  /** A record without values. */", "  public static CRecord create() {")
    yield from ("    return new CRecord();", "  }")
    yield from (
        "",
        "  /** The record of a body in JSON. */",
        "  public static CRecord create(final String json) {",
    )
    yield from ("    return CRecord.parse(json);", "  }")
    yield from ("", "  /** Checks a record; a slot that does not fit is named by the exception. */")
    yield from ("  public static void check(final CRecord record, final boolean isAnswer) {",)
    yield from ("    CRecord.check(record, SLOTS, isAnswer);", "  }")


def enum_name(slot: Slot) -> str:
    """
    The class of an enum within the class of its record.
    """
    name = camel(slot.name)
    return name + "_" if name in _RESERVED_ENUMS or name.startswith("CRecord") else name


def _enum(record: Record, slot: Slot) -> Iterator[str]:
    name = enum_name(slot)
    yield f"  /** Values of {record.name}.{slot.name}; others are kept. */"
    yield f"  public static final class {name} extends CRecord.EnumValue {{"
    for index, value in enumerate(slot.values):
        if index and (value.description or slot.values[index - 1].description):
            yield ""
        yield from _doc(value.description, "    ")
        member = value.name + "_" if value.name in _KEYWORDS or value.name == "of" else value.name
        yield f'    public static final {name} {member} = new {name}("{value.name}");'
    yield from ("", f"    private {name}(final String value) {{", "      super(value);", "    }", "")
    yield "    /** The value with this text. */"
    yield from (f"    public static {name} of(final String value) {{", f"      return new {name}(value);")
    yield from ("    }", "  }", "")


def _type(slot: Slot) -> tuple[str, str]:
    """
    The type in Java, and the expression of its CRecord.Type.
    """
    if slot.type == "ENUM":
        kind, made = enum_name(slot), f"CRecord.enumOf({enum_name(slot)}::of)"
    else:
        kind, made = _TYPES.get(slot.type, ("String", f"CRecord.{slot.type}"))
    if slot.form == "[]":
        return f"List<{kind}>", f"{made}.array()"
    if slot.form:
        return f"Map<String, {kind}>", f"{made}.map()"
    return kind, made


def _constant(slot: Slot) -> Iterator[str]:
    kind, made = _type(slot)
    flags = (slot.is_in("REQUEST"), slot.is_in("ANSWER"), slot.mandatory)
    arguments = [str(slot.key), f'"{slot.name}"', made, *(str(flag).lower() for flag in flags)]
    start = f"  public static final CRecord.Slot<{kind}> SLOT_{slot.name} ="
    line = f"      new CRecord.Slot<>({', '.join(arguments)});"
    if len(start) + len(line) - 5 <= _WIDTH:
        yield start + line[5:]
        return
    yield start
    if len(line) <= _WIDTH:
        yield line
        return
    yield "      new CRecord.Slot<>("
    yield f"          {', '.join(arguments)});"


def _methods(slot: Slot) -> Iterator[str]:
    kind, _ = _type(slot)
    made, constant = camel(slot.name), f"SLOT_{slot.name}"
    yield ""
    if slot.default is not UNSET:
        yield f"  /** The value of {slot.name}; null if it is null, its default if it is absent. */"
        yield f"  public static {kind} get{made}(final CRecord record) {{"
        yield f"    return {constant}.get(record, {_literal(slot)});"
        yield from ("  }", "")
    yield f"  /** The value of {slot.name}; null if it is null, the fallback if it is absent. */"
    yield from _signature(
        f"public static {kind} get{made}", ("final CRecord record", f"final {kind} fallback")
    )
    yield from (f"    return {constant}.get(record, fallback);", "  }", "")
    yield f"  /** Sets {slot.name}. */"
    yield from _signature(f"public static void set{made}", ("final CRecord record", f"final {kind} value"))
    yield from (f"    {constant}.set(record, value);", "  }")


def _signature(start: str, parameters: tuple[str, ...]) -> Iterator[str]:
    line = f"  {start}({', '.join(parameters)}) {{"
    if len(line) <= _WIDTH:
        yield line
        return
    yield f"  {start}("
    yield f"      {', '.join(parameters)}) {{"


def _literal(slot: Slot) -> str:
    value = slot.default
    match slot.type:
        case "BOOLEAN":
            return str(value).lower()
        case "BYTE" | "SHORT":
            return f"({slot.type.lower()}) {value}"
        case "INTEGER":
            return str(value)
        case "LONG":
            return f"{int(str(value))}L"
        case "FLOAT":
            return f"{value}f"
        case "DOUBLE":
            return str(value)
        case "ENUM":
            return f"{enum_name(slot)}.of({_quoted(str(value))})"
        case "UUID":
            return f"UUID.fromString({_quoted(str(value))})"
        case "DATE":
            return f"OffsetDateTime.parse({_quoted(str(value).upper())})"
        case "BYTES":
            return f"Base64.getDecoder().decode({_quoted(str(value))})"
    return _quoted(str(value))


def _quoted(text: str) -> str:
    made = []
    for each in text.encode("utf-16-be", "surrogatepass").decode("utf-16-be"):
        if each in '"\\':
            made.append("\\" + each)
        elif " " <= each < "\x7f":
            made.append(each)
        else:
            units = each.encode("utf-16-be")
            made += [_unit(units[i : i + 2]) for i in range(0, len(units), 2)]
    return '"' + "".join(made) + '"'


def _unit(pair: bytes) -> str:
    code = int.from_bytes(pair, "big")
    # javac replaces \\uXXXX before it reads the text: a line break needs another escape.
    return {10: "\\n", 13: "\\r", 9: "\\t"}.get(code, f"\\u{code:04x}")
