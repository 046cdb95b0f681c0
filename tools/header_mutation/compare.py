"""
One message, read by the node and by the reference; and by every part of the node that reads it again.
"""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from header_mutation.reference import (
    ACCEPTED,
    DUPLICATE,
    Pairs,
    Verdict,
    parsed,
    strings,
    surrogates,
    verdict,
)
from msgnode.protocol import lone_surrogates
from msgnode.protocol.body_edit import set_auth_flag
from msgnode.protocol.errors import Malformed
from msgnode.protocol.header_members import members
from msgnode.protocol.message import NO_TOKEN, Message, decode, recall
from msgnode.protocol.token_redaction import loggable, redacted
from msgnode.sessions.access.asserted_identity import KEY, with_asserted_identity

UNKNOWN: Any = SimpleNamespace(identity="", proof=None)  # a session of nobody in particular
FIELD_NAME = re.compile(r'[^"\\\x00-\x1f]*').fullmatch  # what the node asks a body for
HEADER = (
    ("priority", "priority", None),
    ("ttl", "ttl", None),
    ("receipt", "receipt", False),
    ("bulk", "bulk", False),
    ("log", "log", True),
    ("forward", "forward", False),
    ("transaction", "transaction", None),
    ("from", "from_", ""),
)


class Disagreement(AssertionError):
    """
    Two readings of one message differ.
    """


def check(data: bytes, readings: bool = True, read: Callable[[bytes], Message] = decode) -> str:
    """
    What the message is, as Verdict says it; Disagreement if the node, by `read`, says otherwise.

    `readings`: of what is accepted, compare all other readings as well.
    """
    expected = verdict(data)
    try:
        message = read(data)
    except Malformed as why:
        _check_refusal(expected, str(why))
        return expected.kind
    if expected.kind != ACCEPTED:
        raise Disagreement(f"taken for a message; it is {expected.kind} {sorted(expected.doubled)}")
    header = expected.header.last()
    _check_values(message, header)
    if readings:
        _check_readings(message, expected.header)
    return expected.kind


def _check_refusal(expected: Verdict, text: str) -> None:
    if expected.kind == ACCEPTED:
        raise Disagreement(f"refused: {text}")
    if expected.kind == DUPLICATE:
        named = {f"'{key[:80]}' occurs twice in the header" for key in expected.doubled}
        if text not in named:
            raise Disagreement(f"{text!r} for one of {sorted(named)}")


def same(what: str, expected: Any, found: Any) -> None:
    """
    Raises Disagreement where they differ.
    """
    if expected != found or type(expected) is not type(found):
        raise Disagreement(f"{what}: {expected!r}, not {found!r}")


def _check_values(message: Message, header: dict[str, Any]) -> None:
    same("id", header["id"], message.id)
    same("type", header["type"], message.type)
    same("to", header["to"], message.to)
    for key, name, default in HEADER:
        value, found = header.get(key, default), getattr(message, name)
        same(key, float(value) if key == "ttl" and value is not None else value, found)
    same("token", "token" in header, message.token is not NO_TOKEN)
    body = bytes(message.body)
    same("body", "body" in header, bool(body))
    if body:
        same("body", header["body"], parsed(body))


def plain(value: Any) -> Any:
    """
    What the node reads: the last value of each key, and U+FFFD for lone surrogates.
    """
    if isinstance(value, str):
        return (
            "".join("\ufffd" if surrogates(each) else each for each in value) if surrogates(value) else value
        )
    if isinstance(value, Pairs):
        return {plain(key): plain(inner) for key, inner in value}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def merged(value: Any) -> Any:
    """
    The same with the last value of each key only, in whatever order.
    """
    if isinstance(value, Pairs | dict):
        return {key: merged(inner) for key, inner in dict(value).items()}
    return [merged(inner) for inner in value] if isinstance(value, list) else value


def _check_readings(message: Message, header: Pairs) -> None:
    whole, body = header.last(), plain(header.last().get("body")) or {}
    _check_members(message.data, header)
    same("fields", body, message.fields(lossy=True))
    if body == _fields(message):  # else a number in it is too large
        for name in filter(FIELD_NAME, body):
            same(f"field {name!r}", body[name], message.field(name))
    if surrogates("".join(strings(whole.get("body")))) == 0:
        same("via", "via" in body, message.has_via)
    same("recalled", (message.id, message.to), ((again := recall(message.data)).id, again.to))
    _check_copies(message, whole)
    _check_edit(message, whole)
    _check_identity(message, whole)
    _check_redaction(message)


def _fields(message: Message) -> Any:
    try:
        return message.fields()
    except Malformed:
        return None


def _check_members(data: bytes, header: Pairs) -> None:
    found = members(data if not surrogates("".join(strings(header))) else lone_surrogates.replaced(data))
    same("members", [key for key, _ in header], [member.name for member in found])
    for (key, value), member in zip(header, found, strict=True):
        same(f"the place of {key!r}", value, parsed(data[member.start : member.end]))


def _check_copies(message: Message, whole: dict[str, Any]) -> None:
    copy = message.copy_to("copy://1")
    same("copy", {**merged(whole), "to": "copy://1"}, merged(parsed(copy.data)))


def _check_edit(message: Message, whole: dict[str, Any]) -> None:
    edited = decode(message.data)
    set_auth_flag(edited, True)
    header = parsed(edited.data)
    same("auth stands once", 1, sum(key == "auth" for key, _ in header.last()["body"]))
    expected = {**merged(whole), "body": {**(merged(whole.get("body")) or {}), "auth": True}}
    same("edited", expected, merged(header))
    same("keys after an edit", len(expected), len(header))


def _check_identity(message: Message, whole: dict[str, Any]) -> None:
    body = merged(whole.get("body"))
    if body:
        body.pop(KEY, None)
    given = merged(parsed(with_asserted_identity(message, UNKNOWN)))
    same("assertedIdentity", merged(whole) | ({"body": body} if "body" in whole else {}), given)


def _check_redaction(message: Message) -> None:
    try:
        clean = redacted(decode(message.data))
    except Malformed:
        return
    header = parsed(clean.data)
    same("token", False, "token" in header.last())
    for text in strings(header):
        same("a token", text, loggable(text))
