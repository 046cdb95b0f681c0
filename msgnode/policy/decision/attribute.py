"""
Attributes: their names, kinds, and sources.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from msgnode.policy.decision import addresses

# The sources of attributes, as bits. Those of HEADER are equal for all messages with the same from, to and
# type; all others may differ between messages.
HEADER, ID, SIZE, RECIPIENTS, BODY, IDENTITY, CLOCK, SESSION, LINK, RATE = 0, 1, 2, 4, 8, 16, 32, 64, 128, 256
RECORD = 1024  # of the header field `record`, and of the definition it names
UNTRACKED = 512  # of what a condition reads by other ways

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
OWNERS = ("mine", "other", "none")
SHOWN = ("state", "user", "idp", "expires")  # the fields of message_tokens.Shown
DIRECTIONS = ("connect", "in", "out", "subscribe")
WINDOWS = {"lastSecond": 1, "lastMinute": 60, "lastHour": 3600}


class Attribute(Struct, frozen=True, gc=False):
    """
    An attribute of a message.

    `kind` says how it is compared: `text` exactly, `name` without case, `address` without case in scheme and
    host, `number`, `flag`, `time`, `date`, `weekday`, `names` (any of several), or `any`.
    """

    name: str
    kind: str
    source: int
    read: Callable[[Any], Any]
    about: str = ""

    @property
    def is_text(self) -> bool:
        """
        Is its value always a text, as operators compare it?
        """
        return self.kind in ("text", "name", "address", "time", "date", "weekday")

    def fold(self, text: str) -> str:
        """
        A text of a policy, normalized like the attribute's value.
        """
        if self.kind in ("name", "names", "weekday"):
            return text.casefold()
        if self.kind == "address":
            return addresses.folded(text)
        return text
