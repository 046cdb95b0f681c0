"""
Event ring: the last events of a node, numbered, for streams that can resume where they were cut.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from secrets import token_hex
from typing import Any, NamedTuple

MAX_EVENTS = 10_000
KINDS = ("session", "refusal", "slow", "shed", "backend", "config", "policy", "audit", "traffic")
SESSION_KINDS = ("session", "slow")
STORED_KINDS = KINDS[:-1]  # traffic is only seen live


class Event(NamedTuple):
    """
    One event; `time` is in seconds since 1970, `fields` has what its kind tells.
    """

    number: int
    kind: str
    time: float
    fields: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "time": self.time, **self.fields}


class EventRing:
    """
    The last MAX_EVENTS events. Their ids are `epoch-number`; a restart makes a new epoch.
    """

    def __init__(self, wall: Callable[[], float], epoch: str = "") -> None:
        self.epoch = epoch or token_hex(4)
        self.last_number = 0
        self._wall = wall
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)

    def __reversed__(self) -> Iterator[Event]:
        yield from reversed(self._events)

    def add(self, kind: str, fields: dict[str, Any], time: float | None = None) -> None:
        self.last_number += 1
        self._events.append(Event(self.last_number, kind, self._wall() if time is None else time, fields))

    def id(self, number: int) -> str:
        return f"{self.epoch}-{number}"

    def position(self, last_id: str) -> tuple[int, bool]:
        """
        After which number a stream goes on that had this id last; and whether it missed none.
        """
        epoch, _, number = last_id.rpartition("-")
        if not last_id:
            return self.last_number, True
        oldest = self._events[0].number - 1 if self._events else self.last_number
        if epoch != self.epoch or not number.isdecimal() or len(number) > 18:
            return oldest, False
        at = int(number)
        if at > self.last_number:
            return oldest, False
        return max(at, oldest), at >= oldest

    def of_session(self, runtime: str, most: int) -> list[dict[str, Any]]:
        """
        The newest events of one session, the newest first, at most so many.
        """
        found = (
            event.as_dict()
            for event in reversed(self._events)
            if event.kind in SESSION_KINDS and event.fields.get("session") == runtime
        )
        return list(islice(found, most))

    def after(self, number: int) -> list[Event]:
        """
        The events with higher numbers, oldest first.
        """
        newer = []
        for event in reversed(self._events):
            if event.number <= number:
                break
            newer.append(event)
        newer.reverse()
        return newer
