"""
The header fields of a request to a resource: conditions (RFC 9110, 13) and preferences (RFC 7240).
"""

import re
from typing import NamedTuple

import msgspec
from msgspec import Raw
from twisted.web.server import Request

from msgnode.connectors.http.requests import MAX_WAIT_SECONDS, WAIT_SECONDS, headers
from msgnode.protocol.errors import Rejected

MAX_TAGS = 100  # in one field
MAX_TAG_CHARS = 200
MAX_FIELD_CHARS = 8192

_TAG = re.compile(r'[ \t,]*((?:W/)?"[\x21\x23-\x7e\x80-\xff]*")[ \t]*(?:,[ \t,]*|$)')
_VERSION = re.compile(r"[\x21\x23-\x7e]+")  # the characters of an entity tag, but not those beyond ASCII
_PREFERENCE = re.compile(r'\s*([A-Za-z-]+)\s*(?:=\s*"?([^";,]*)"?\s*)?(?:;[^,]*)?')

Tags = tuple[str, ...] | None  # entity tags; () for `*`, None if the field is missing


class Conditions(NamedTuple):
    """
    The conditions of a request: the entity tags of If-Match and If-None-Match.
    """

    match: Tags = None
    none_match: Tags = None

    def failure(self, exists: bool, tag: str, is_read: bool) -> int:
        """
        The status if a condition is false, 304 or 412; else 0. `tag` is the one of the resource, or "".
        """
        if self.match is not None and not (exists and _has(self.match, tag, strong=True)):
            return 412
        if self.none_match is not None and exists and _has(self.none_match, tag):
            return 304 if is_read else 412
        return 0

    def __bool__(self) -> bool:
        return self.match is not None or self.none_match is not None


class Preferences(NamedTuple):
    """
    The preferences of a request: the seconds to wait for the response; and whether 202 is the answer if none
    came by then. `applied` is what Preference-Applied says.
    """

    wait: float = WAIT_SECONDS
    is_async: bool = False
    applied: str = ""


def conditions(request: Request) -> Conditions:
    """
    The conditions of a request. Raises Rejected if they are malformed.
    """
    return Conditions(_tags(request, b"If-Match"), _tags(request, b"If-None-Match"))


def _tags(request: Request, name: bytes) -> Tags:
    given = ",".join(headers(request, name))[: MAX_FIELD_CHARS + 1].strip()
    if not given:
        return None
    if given == "*":
        return ()
    found, at = [], 0
    while at < len(given):
        tag = _TAG.match(given, at)
        if tag is None:
            text = f'{name.decode()} has entity tags, such as "7", or is *; it is not {given[at : at + 80]!r}'
            raise Rejected(text[:300])
        found.append(tag[1])
        at = tag.end()
    if not 1 <= len(found) <= MAX_TAGS or len(given) > MAX_FIELD_CHARS:
        raise Rejected(f"{name.decode()} has 1 to {MAX_TAGS} entity tags in {MAX_FIELD_CHARS} characters")
    return tuple(found)


def _has(tags: tuple[str, ...], tag: str, strong: bool = False) -> bool:
    """
    Is the tag one of these? Compared strongly, a weak one equals none.
    """
    if not tags:  # `*`
        return True
    return bool(tag) and any(each == tag or (not strong and each == f"W/{tag}") for each in tags)


def preferences(request: Request, default: float) -> Preferences:
    """
    The preferences of a request, which waits `default` seconds if it has none. Those that are not known, or
    have no meaning, are ignored (RFC 7240, 2).
    """
    given = ",".join(headers(request, b"Prefer"))[:MAX_FIELD_CHARS]
    found: dict[str, str] = {}
    for each in _PREFERENCE.finditer(given):
        found.setdefault(each[1].lower(), each[2] or "")
    wait, applied = default, []
    if re.fullmatch(r"\d{1,6}", found.get("wait", "")):
        wait = min(float(found["wait"]), MAX_WAIT_SECONDS)
        applied.append(f"wait={wait:g}")
    is_async = "respond-async" in found
    if is_async:
        wait = wait if applied else 0.0
        applied.append("respond-async")
    return Preferences(wait, is_async, ", ".join(applied))


class _Body(msgspec.Struct):
    """
    The parts of a response's body in which its version is.
    """

    version: Raw = Raw(b"null")
    value: Raw = Raw(b"null")


def entity_tag(body: bytes) -> str:
    """
    The entity tag of a body with `version`, or `version` in its `value`; "" if it has none.
    """
    try:
        found = msgspec.json.decode(body, type=_Body)
        version = bytes(found.version)
        value = bytes(found.value)
        if version == b"null" and value[:1] == b"{":
            version = bytes(msgspec.json.decode(value, type=_Body).version)
        text = msgspec.json.decode(version, type=int | str | None)
    except (msgspec.DecodeError, RecursionError):
        return ""
    shown = "" if text is None else str(text)
    return f'"{shown}"' if len(shown) <= MAX_TAG_CHARS and _VERSION.fullmatch(shown) else ""
