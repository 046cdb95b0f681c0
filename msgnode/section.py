"""
What the configuration is made of: sections, and the kinds of numbers in them.
"""

from typing import Annotated

from msgspec import Meta, Struct

MOST_SECONDS = 3_153_600_000  # a century; no timer waits for infinity
Seconds = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
Positive = Annotated[float, Meta(gt=0, le=MOST_SECONDS)]
Count = Annotated[int, Meta(ge=1)]
Bytes = Annotated[int, Meta(ge=1)]
OrOff = Annotated[int, Meta(ge=0)]


class Section(Struct, forbid_unknown_fields=True, kw_only=True):
    """
    A table of the file; a key that it does not know is a mistake.
    """
