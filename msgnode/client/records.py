"""
Records, as the client needs them: typed bodies, whose classes `msgnode records generate` writes.

The client knows these classes by their interface only, so that a program needs nothing else.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self, TypeGuard

from msgspec import UNSET

BAD_RECORD = "record"  # the reason of the refusal of a body that does not fit its record
# Members of a body that are no slots, and neither the recipient's to return nor to send on.
_OF_THE_ENVELOPE = frozenset({"auth", "code", "desc", "description", "identity", "reason", "via"})


class SlotInfo(Protocol):
    """
    A slot of a generated class; `field` is the attribute that has its value.
    """

    @property
    def field(self) -> str: ...


class Record(Protocol):
    """
    A typed body. ANSWER is the class of its answers; None if they have the same slots (HAS_SAME_ANSWER) or no
    slots at all.
    """

    ID: ClassVar[str]
    NAME: ClassVar[str]
    ANSWER: ClassVar[Any]
    HAS_SAME_ANSWER: ClassVar[bool]
    SLOTS: ClassVar[tuple[Any, ...]]

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """
        The record of a decoded body. ValueError, with the slot's name, if a value does not fit.
        """

    def to_body(self) -> dict[str, Any]:
        """
        The body with slots by name, as JSON has it. ValueError if a value does not fit.
        """


RecordClass = type[Record]


def is_record_class(value: Any) -> TypeGuard[RecordClass]:
    return (
        isinstance(value, type) and isinstance(getattr(value, "ID", None), str) and hasattr(value, "to_body")
    )


def is_record(value: Any) -> TypeGuard[Record]:
    return is_record_class(type(value))


def answer_class(request: RecordClass) -> RecordClass | None:
    """
    The class of the answers to a record, or None if they have no slots.
    """
    found: RecordClass | None = request if request.HAS_SAME_ANSWER else request.ANSWER
    return found


def mismatch(record: RecordClass, why: ValueError) -> dict[str, Any]:
    """
    The body of the refusal of a body that is no such record, as a node has it that knows the definition.
    """
    text = f"this is no {record.NAME}: {why}"
    slot = {name: str(getattr(why, name)) for name in ("slot", "expected") if hasattr(why, name)}
    return {"desc": text, "description": text, "reason": BAD_RECORD, **slot}


def blank_answer(request: Record) -> Any:
    """
    The answer as it is before a handler changes it: the request itself if both have the same slots, else an
    answer with the values of the slots that both have; None if answers have no slots.

    Mandatory slots may still be absent (UNSET).
    """
    made = answer_class(type(request))
    if made is None or isinstance(request, made):
        return request if made else None
    values = {slot.field: getattr(request, slot.field, UNSET) for slot in made.SLOTS}
    return made(**values)


def read(record: RecordClass, body: Any) -> Record:
    """
    The record of a message's body, without what is the envelope's. ValueError if it does not fit.
    """
    if isinstance(body, dict):
        body = {name: value for name, value in body.items() if name not in _OF_THE_ENVELOPE}
    return record.from_body(body)


def answer_body(request: Record, result: Any) -> dict[str, Any]:
    """
    The body of an answer to a record: of a record, or of a dict with its slots.

    TypeError or ValueError if it is no answer to this record.
    """
    made = answer_class(type(request))
    if made is None:
        if is_record(result):
            raise TypeError(f"answers to {request.NAME} have no slots")
        return result if isinstance(result, dict) else {} if result is None else {"value": result}
    if isinstance(result, made):
        return result.to_body()
    if not isinstance(result, dict):
        raise TypeError(f"the answer to {request.NAME} is a {made.__name__}, not a {type(result).__name__}")
    read(made, result)
    return result
