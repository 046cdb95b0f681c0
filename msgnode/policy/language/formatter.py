"""
The formatter of policy documents: keys in a fixed order, short values on one line.
"""

import json
from typing import Any

from msgnode.policy.language.document import DOCUMENT, OURS, POLICY, RULE, SET

WIDTH = 100
_FIRST = (
    "id",
    "name",
    "version",
    "update",
    "description",
    "enforce",
    "priority",
    "groups",
    "target",
    "condition",
)
_KNOWN = (*_FIRST, "effect", *DOCUMENT, *SET, *POLICY, *RULE, *OURS)
_ORDER = {name: i for i, name in enumerate(dict.fromkeys(_KNOWN))}
# Long values come last.
_LAST = {"policies": 1, "rules": 1, "policySets": 1, "tests": 2}


def lay_out(value: Any) -> str:
    """
    The formatted text of a document, with a final newline. Formatting it again changes nothing.
    """
    return _text(_sorted(value), 0, 0) + "\n"


def _sorted(value: Any) -> Any:
    """
    Sets, policies and rules with sorted keys. Conditions and messages keep the order of their keys.
    """
    if isinstance(value, list):
        return [_sorted(each) for each in value]
    if not isinstance(value, dict):
        return value
    keys = sorted(value, key=lambda key: (_LAST.get(key, 0), _ORDER.get(key, len(_ORDER))))
    below = ("policies", "rules", "policySets")
    return {key: _sorted(value[key]) if key in below else value[key] for key in keys}


def _text(value: Any, indent: int, used: int) -> str:
    """
    The text of a value, on one line if it fits after what is on the line already.
    """
    flat = json.dumps(value, ensure_ascii=False)
    fits = indent + used + len(flat) < WIDTH and not _must_break(value)
    if fits or not isinstance(value, dict | list) or not value:
        return flat
    inner, pad = indent + 2, " " * (indent + 2)
    if isinstance(value, list):
        lines = [pad + _text(each, inner, 0) for each in value]
        opened, closed = "[", "]"
    else:
        lines = []
        for key, each in value.items():
            name = json.dumps(key, ensure_ascii=False) + ": "
            lines.append(pad + name + _text(each, inner, len(name)))
        opened, closed = "{", "}"
    return f"{opened}\n" + ",\n".join(lines) + f"\n{' ' * indent}{closed}"


def _must_break(value: Any) -> bool:
    """
    Is the value a set or a policy, or a list of them?
    """
    if isinstance(value, list):
        return any(map(_must_break, value))
    return isinstance(value, dict) and bool(value.keys() & {"policies", "rules", "policySets"})
