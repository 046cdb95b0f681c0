"""
Messages as text for a terminal: whatever a peer wrote cannot control the terminal.
"""

import json
import re
import unicodedata
from typing import Any

import click

_JOINERS = "\u200c\u200d"  # of scripts and emojis; they do no harm
_CONTROL = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}|\{\{|\}\}")


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in _CONTROL and character not in _JOINERS


def _escape(character: str) -> str:
    code = ord(character)
    if code > 0xFFFF:  # as JSON has it: a surrogate pair
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\u{code:04x}"


def escaped(text: str, keep: str = "") -> str:
    """
    Returns the text with control characters, and those that reorder text, as `\\u001b`; `keep` are left.
    """
    if text.isprintable():
        return text
    return "".join(_escape(c) if _is_control(c) and c not in keep else c for c in text)


def as_json(value: Any, indent: int | None = None) -> str:
    """
    Returns JSON that is readable, and safe to print on a terminal.
    """
    return escaped(json.dumps(value, ensure_ascii=False, indent=indent), keep="\n")


class Template:
    """
    A format of messages: `{from}`, `{body.value}` and the like name a value; `\\t` and `\\n` are characters.

    click.BadParameter if there is a brace that names nothing.
    """

    def __init__(self, text: str) -> None:
        left = _PLACE.sub("", text)
        if "{" in left or "}" in left:
            raise click.BadParameter(
                f"expected places such as {{from}} or {{body.value}}, and {{{{ for a brace, found {text!r}",
                param_hint="--format",
            )
        self._text = text.replace("\\t", "\t").replace("\\n", "\n")

    def fill(self, fields: dict[str, Any], time: str) -> str:
        """
        Returns the text for a message; what the message does not have is empty.
        """

        def place(found: re.Match[str]) -> str:
            if found[1] is None:
                return found[0][0]
            if found[1] == "time":
                return time
            value: Any = fields
            for key in found[1].split("."):
                value = value.get(key) if isinstance(value, dict) else None
            if value is None:
                return ""
            return escaped(value) if isinstance(value, str) else as_json(value)

        return _PLACE.sub(place, self._text)
