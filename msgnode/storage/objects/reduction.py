"""
The reduction of an object: its messages, applied one after the other, give the object as it was.

docs/objects.md has the rules. They are those of the runtimes: `attribute` is a path into the data of the
object, `attributeType` and `operation` say how an array or a member changes.
"""

from contextlib import suppress
from typing import Any

import msgspec

from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import SHORT_BYTES, recall
from msgnode.storage.objects.object_index import Gap

MAX_PATH = 64  # segments of an attribute
MAX_LISTED = 100  # versions that could not be applied, and gaps, that a state lists
MAX_CHANNELS = 8  # addresses at which one child is published
CHECK_TIMES = 4  # times the limit that is applied before the size is computed again


class ReducedObject(msgspec.Struct, omit_defaults=True):
    """
    An object as it was at a version.

    `skipped` has the versions of messages that could not be applied, `missing` those that the journal does
    not have. `too_large`: the object was larger than the node reduces, since that version. `creator` is known
    in a snapshot only, which may be the first record that is left of the object.
    """

    version: int = 0
    time: int = 0  # of that version, in microseconds since 1970
    exists: bool = False
    value: Any = None
    children: dict[str, dict[str, Any]] = {}
    skipped: list[int] = []
    missing: list[Gap] = []
    too_large: int = 0
    creator: str = ""


class _Created(msgspec.Struct):
    creator: str = ""


_decoder = msgspec.json.Decoder(ReducedObject)
_created = msgspec.json.Decoder(_Created)


def creator_of(state: bytes) -> str:
    """
    The creator of the object of a snapshot. ValueError (msgspec.DecodeError) if it cannot be decoded.
    """
    return _created.decode(state).creator


class Body(msgspec.Struct):
    """
    The body of a message, as far as a reduction needs it.
    """

    value: Any = None
    attribute: Any = None
    attributeType: Any = None
    operation: Any = None
    resource: Any = None


class KeptMessage(msgspec.Struct):
    """
    A message, as far as a reduction needs it.
    """

    id: int | str
    type: str
    to: str
    from_: str = msgspec.field(name="from", default="")
    body: Body | None = None


_read = msgspec.json.Decoder(KeptMessage).decode


def _message_of(data: bytes) -> KeptMessage:
    """
    The message. Raises Malformed if it cannot be decoded.
    """
    if len(data) <= SHORT_BYTES:  # cheap to decode with any content
        with suppress(msgspec.DecodeError, RecursionError):  # a lone surrogate, a number of 5000 digits
            return _read(data)
    found = recall(data)
    fields = found.fields()
    body = Body(**{name: fields.get(name) for name in Body.__struct_fields__})
    return KeptMessage(found.id, found.type, found.to if isinstance(found.to, str) else "", found.from_, body)


class CannotApply(Exception):
    """
    An update that does not fit the object.
    """


class Reduction:
    """
    The reduction of one object. `max_bytes` bounds what is reduced, as JSON.
    """

    def __init__(self, max_bytes: int, state: bytes | None = None) -> None:
        self.state = _decoder.decode(state) if state else ReducedObject()
        self._max_bytes = max_bytes
        self._unchecked = 0

    def apply(self, object: str, version: int, micros: int, data: bytes) -> None:
        """
        Applies one message to the object with this address.
        """
        state = self.state
        state.version, state.time = version, micros
        try:
            message = _message_of(data)
            self._apply(object, message, version, micros)
        except (Malformed, CannotApply, RecursionError):
            if len(state.skipped) < MAX_LISTED:
                state.skipped.append(version)
        self._unchecked += len(data)
        if self._unchecked > CHECK_TIMES * self._max_bytes:
            self.encoded()

    def skip(self, gap: Gap) -> None:
        """
        Notes versions that are missing.
        """
        if len(self.state.missing) < MAX_LISTED:
            self.state.missing.append(gap)

    def encoded(self) -> bytes:
        """
        The state as JSON; without the object if that is too large.
        """
        self._unchecked = 0
        try:
            found = msgspec.json.encode(self.state)
            if len(found) <= self._max_bytes:
                return found
        except RecursionError:
            pass
        self._empty(self.state.exists)
        self.state.too_large = self.state.too_large or self.state.version
        return msgspec.json.encode(self.state)

    def _empty(self, exists: bool, value: Any = None) -> None:
        state = self.state
        state.exists, state.value, state.children = exists, value, {}

    def _apply(self, object: str, message: KeptMessage, version: int, micros: int) -> None:
        state, kind, to = self.state, message.type.lower(), message.to
        body = message.body or Body()
        if to.startswith(f"{object}/children/"):
            if not state.too_large:
                name = to[len(object) + 10 :].removesuffix("/changes")
                self._apply_to_child(name, kind, message, body, version, micros)
        elif kind == "update":
            if not state.too_large:
                state.value = _updated(state.value, body)
                state.exists = True
        else:
            self._empty(kind == "create", body.value)
            state.skipped, state.missing, state.too_large = [], [], 0

    def _apply_to_child(
        self, name: str, kind: str, message: KeptMessage, body: Body, version: int, micros: int
    ) -> None:
        resource = body.resource
        key = resource if isinstance(resource, str) and resource else name
        if not key:
            key = f"{message.from_}#{message.id}"
        children = self.state.children
        if kind == "delete":
            children.pop(key, None)
            return
        before = children.get(key, {}) if kind != "create" else {}
        value = body.value if kind == "create" else _updated(before.get("value"), body)
        channels = before.get("channels", [])
        if message.to not in channels:
            channels = [*channels, message.to]
        if len(channels) > MAX_CHANNELS:
            raise CannotApply
        from_ = before.get("from", message.from_)
        if not before:
            children.pop(key, None)  # a new one comes last
        children[key] = {
            "value": value,
            "from": from_,
            "version": version,
            "time": micros,
            "channels": channels,
        }


def _updated(before: Any, body: Body) -> Any:
    """
    The value after an update of all of it, or of the attribute that the body names.
    """
    attribute = body.attribute
    if attribute is None:
        return body.value
    if not isinstance(attribute, str) or not attribute or attribute.count(".") >= MAX_PATH:
        raise CannotApply
    after = {} if before is None else before
    _change(_data_of(after), attribute.split("."), body)
    return after


def _data_of(value: Any) -> Any:
    """
    The part of the value that attributes are paths into: `data` of a data object with its metadata, or all.
    """
    if isinstance(value, dict) and isinstance(value.get("data"), dict):
        return value["data"]
    return value


def _change(data: Any, path: list[str], body: Body) -> None:
    for segment in path[:-1]:
        data = _step(data, segment)
    last, operation, value = path[-1], body.operation, body.value
    if isinstance(data, list):
        _change_array(data, _number(last, len(data)), body.attributeType, operation, value)
    elif not isinstance(data, dict):
        raise CannotApply
    elif operation == "remove":
        data.pop(last, None)
    else:
        data[last] = value


def _step(data: Any, segment: str) -> Any:
    """
    The member of this name, or an empty object in its place.
    """
    if isinstance(data, list):
        number = _number(segment, len(data) - 1)
        return data[number]
    if not isinstance(data, dict):
        raise CannotApply
    if data.get(segment) is None:
        data[segment] = {}
    return data[segment]


def _number(segment: str, most: int) -> int:
    if not segment.isascii() or not segment.isdigit() or len(segment) > 9 or int(segment) > most:
        raise CannotApply
    return int(segment)


def _change_array(data: list[Any], at: int, kind: Any, operation: Any, value: Any) -> None:
    """
    Changes an array as JavaScript's splice does.
    """
    if operation == "add":
        data[at:at] = value if isinstance(value, list) else [value]
    elif operation == "remove":
        number = value if isinstance(value, int) and not isinstance(value, bool) else 1
        del data[at : at + max(0, number)]
    elif at == len(data):
        data.append(value)
    else:
        data[at] = value
