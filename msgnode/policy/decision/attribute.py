"""
An attribute: what it is called, what it holds, and what it comes from.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from msgnode.policy.decision import addresses

# What an attribute comes from.  The header's are known for all messages with
# the same from, to and type; all others may change from message to message.
HEADER, ID, SIZE, RECIPIENTS, BODY, IDENTITY, CLOCK, SESSION, LINK, RATE = 0, 1, 2, 4, 8, 16, 32, 64, 128, 256

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
OWNERS = ("mine", "other", "none")
SHOWN = ("state", "user", "idp", "expires")  # what they prove
DIRECTIONS = ("connect", "in", "out", "subscribe")
WINDOWS = {"lastSecond": 1, "lastMinute": 60, "lastHour": 3600}


class Attribute(Struct, frozen=True, gc=False):
    """
    One attribute.

    `kind` says how it is compared: `text` as it stands, `name` without regard
    to case, `address` without regard to the case of scheme and host, `number`,
    `flag`, `time`, `date`, `weekday`, `names` (any of several), or `any`.
    """

    name: str
    kind: str
    source: int
    read: Callable[[Any], Any]
    about: str = ""

    @property
    def is_text(self) -> bool:
        """
        Is its value always a text, as tests compare it?
        """
        return self.kind in ("text", "name", "address", "time", "date", "weekday")

    def fold(self, text: str) -> str:
        """
        A text of a policy, as the attribute's value would write it.
        """
        if self.kind in ("name", "names", "weekday"):
            return text.casefold()
        if self.kind == "address":
            return addresses.folded(text)
        return text
