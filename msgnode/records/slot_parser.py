"""
Slots made of nodes: types, limits, values of enums and defaults.
"""

from typing import Any

import msgspec

from msgnode.records.attributes import ENUM_VALUE, Attributes, number, whole
from msgnode.records.definition import (
    DIRECTIONS,
    INTEGERS,
    MAX_KEY,
    MAX_NAME_CHARS,
    MAX_VALUES,
    MEASURED,
    NUMBERS,
    STRUCTURES,
    SYNONYMS,
    TEXTS,
    TYPES,
    EnumValue,
    Slot,
)
from msgnode.records.json_scanner import Node
from msgnode.records.values import LONG_TEXT, UUID_TEXT, check_of, compiled

_MOST = 2**31 - 1
_LIMITS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
_SLOT: tuple[str, ...] = (
    "key",
    "name",
    "direction",
    "answer",
    "mandatory",
    "type",
    "description",
    "record",
    "values",
)
_SLOT += (*_LIMITS, "pattern", "default")
_ARRAY = "_ARRAY"


def parse_slot(given: Attributes) -> Slot | None:
    """
    A slot; None if there is a problem that leaves nothing to check further.

    A slot of an unknown type becomes an OBJECT, so that its key and name are compared with those of others.
    """
    given.only(_SLOT)
    key = given.whole("key", 1, MAX_KEY, needed=True)
    name = given.name("name")
    kind, form = _type(given)
    direction = _direction(given)
    mandatory = given.flag("mandatory")
    description = given.description()
    if key is None or name is None:
        return None
    if kind is None:
        return Slot(key=key, name=name, type="OBJECT", direction=direction)
    slot = Slot(
        key=key,
        name=name,
        type=kind,
        form=form,
        direction=direction,
        mandatory=bool(mandatory),
        description=description,
        record=_nested(given, kind),
        values=_values(given, kind),
        pattern=_pattern(given, kind),
        **_limits(given, kind, form),
    )
    return _with_default(given, slot)


def _type(given: Attributes) -> tuple[str | None, Any]:
    text = given.text("type", needed=True)
    if text is None:
        return None, ""
    form = ""
    text = SYNONYMS.get(text, text)
    if text.endswith(_ARRAY):
        text = text.removesuffix(_ARRAY) + "[]"
    if text.endswith(("[]", "{}")):
        text, form = text[:-2], text[-2:]
        if text.endswith(("[]", "{}")):
            given.refuse(
                "an array or a map has no arrays or maps in it; use a nested RECORD", given.at("type")
            )
            return None, ""
    known = SYNONYMS.get(text, text)
    if known == "OBJECT{}" and form:
        known = "OBJECT"  # an array of maps: each element is any object
    return given.one_of("type", TYPES, known), form


def _direction(given: Attributes) -> Any:
    text = given.text("direction")
    if text == "RESPONSE":
        text = "ANSWER"
    answer = given.flag("answer")
    if text is None:
        return "ANSWER" if answer else "REQUEST"
    found = given.one_of("direction", DIRECTIONS, text)
    if answer is not None and found not in (None, "ANSWER" if answer else "REQUEST"):
        given.refuse(f"'answer' and 'direction' contradict each other: {text}", given.at("answer"))
    return found or "REQUEST"


def parse_uuid(given: Attributes, key: str, needed: bool) -> str | None:
    text = given.text(key, needed)
    if text is None:
        return None
    if not UUID_TEXT.fullmatch(text):
        given.expected(key, "a UUID such as 'be125fa3-b4a7-493c-ad9a-5fa1a23be84d'")
        return None
    return text.lower()


def _nested(given: Attributes, kind: str) -> str:
    if kind != "RECORD":
        if given.get("record") is not None:
            given.refuse("only a slot of type RECORD has 'record'", given.node.keys["record"])
        return ""
    return parse_uuid(given, "record", needed=True) or ""


def _values(given: Attributes, kind: str) -> tuple[EnumValue, ...]:
    node = given.get("values", needed=kind == "ENUM")
    if node is None:
        return ()
    if kind != "ENUM":
        given.refuse("only a slot of type ENUM has 'values'", given.node.keys["values"])
        return ()
    if not isinstance(node.value, list) or not 1 <= len(node.value) <= MAX_VALUES:
        given.expected("values", f"a list of 1 to {MAX_VALUES} values")
        return ()
    found: dict[str, EnumValue] = {}
    for each in node.value:
        if isinstance(each.value, str):
            each = Node({"name": each}, each.at, {"name": each.at}, [])
        if not isinstance(each.value, dict):
            given.expected("values", "a name, or an object with 'name' and 'description'", each)
            continue
        value = Attributes(each, "value", given.where, given.problems)
        value.only(("name", "description"))
        name = value.text("name", needed=True)
        if name is None:
            continue
        if not ENUM_VALUE.fullmatch(name) or len(name) > MAX_NAME_CHARS:
            value.expected("name", "letters, digits and single underscores")
        elif name in found:
            value.refuse(f"the value '{name}' occurs again", value.at("name"))
        else:
            found[name] = EnumValue(name, value.description())
    return tuple(found.values())


def _pattern(given: Attributes, kind: str) -> str:
    text = given.text("pattern")
    if not text:
        return ""
    if kind not in TEXTS:
        given.refuse(
            f"only {', '.join(sorted(TEXTS))} have a 'pattern', not {kind}", given.node.keys["pattern"]
        )
        return ""
    try:
        compiled(text)
    except ValueError as why:
        given.refuse(f"'pattern' is not a regular expression of RE2: {why}", given.at("pattern"))
        return ""
    return text


def _limits(given: Attributes, kind: str, form: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in _LIMITS:
        if given.get(key) is None:
            continue
        allowed = (
            kind in NUMBERS if key.endswith("imum") else form if key.endswith("Items") else kind in MEASURED
        )
        if not allowed:
            given.refuse(f"a slot of type {kind}{form} has no '{key}'", given.node.keys[key])
            continue
        if key.endswith("imum"):
            value = given.whole(key, *INTEGERS[kind]) if kind in INTEGERS else given.number(key)
        else:
            value = given.whole(key, 0, _MOST)
        found[key.replace("Length", "_length").replace("Items", "_items")] = value
    for low, high in zip(_LIMITS[::2], _LIMITS[1::2], strict=True):
        least, most = (
            found.get(key.replace("Length", "_length").replace("Items", "_items")) for key in (low, high)
        )
        if least is not None and most is not None and least > most:
            given.refuse(f"'{low}' is greater than '{high}'", given.at(low))
            found[high.replace("Length", "_length").replace("Items", "_items")] = None
    return found


def _with_default(given: Attributes, slot: Slot) -> Slot:
    node = given.get("default")
    if node is None:
        return slot
    at = given.node.keys["default"]
    if slot.form or slot.type in STRUCTURES:
        given.refuse(f"a slot of type {slot.full_type} has no 'default'", at)
        return slot
    if slot.mandatory:
        given.refuse("a mandatory slot has no 'default': it is never absent", at)
        return slot
    value = _default(slot.type, node.value)
    if isinstance(value, str) and given.text("default") is None:
        return slot
    wrong = check_of(slot)(value)
    if wrong:
        given.expected("default", wrong)
        return slot
    return msgspec.structs.replace(slot, default=value)


def _default(kind: str, value: Any) -> Any:
    """
    A default as the type has it: numbers and booleans may be texts.
    """
    if kind == "LONG" and isinstance(value, str) and not LONG_TEXT.fullmatch(value):
        return value
    if kind in NUMBERS:
        found = whole(value) if kind in INTEGERS else number(value)
        return value if found is None else found if kind in INTEGERS else float(found)
    if kind == "BOOLEAN" and value in ("true", "false"):
        return value == "true"
    return value
