"""
Times and durations of operators: `90s`, `10m`, `24h`, `7d`.
"""

import time
from typing import Any, ClassVar

import click

from msgnode.cli.links.layout import duration

FOREVER = "forever"


class Duration(click.ParamType):  # type: ignore[type-arg]
    """
    A time such as 90, 90s, 5m, 1h or 7d; it becomes seconds. With `allows_forever` that word becomes 0.
    """

    name = "time"
    units: ClassVar[dict[str, int]] = {"s": 1, "m": 60, "h": 3600, "d": 86400}

    def __init__(self, allows_forever: bool = False) -> None:
        self._allows_forever = allows_forever

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        if self._allows_forever and value == FOREVER:
            return 0.0
        number, unit = (value[:-1], self.units[value[-1]]) if value[-1:] in self.units else (value, 1)
        if not (number.isascii() and number.isdecimal()) or len(number) > 9:
            self.fail(f"{value!r} is not a time such as 90s, 5m, 1h or 7d.", param, ctx)
        return float(int(number) * unit)


def ago(at: float | None) -> str:
    """
    Returns how long ago a time in seconds since 1970 is.
    """
    return "" if not at else duration(max(0.0, time.time() - at))


def left(at: float | None) -> str:
    """
    Returns how long it is until a time; `ended` for one that has passed.
    """
    if at is None:
        return ""
    rest = at - time.time()
    return duration(rest) if rest > 0 else "ended"


def clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def date(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
