"""
Periods of time, as people write them: `2026-07-31T14:00..2026-07-31T15:30@mn1`.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_FORMS = ("%Y-%m-%d", "%Y-%m-%dT%H", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S")
SECOND = 1_000_000_000
_MINUTE = 60 * SECOND


@dataclass(frozen=True)
class Period:
    """
    A period from `begin` to before `end`, in nanoseconds since 1970; `node` is "" for all nodes.
    """

    begin: int
    end: int
    node: str = ""

    @property
    def seconds(self) -> float:
        return (self.end - self.begin) / SECOND

    @property
    def days(self) -> tuple[str, str]:
        """
        The first and the last date that it touches.
        """
        return _text(self.begin, "%Y-%m-%d"), _text(self.end - 1, "%Y-%m-%d")

    @property
    def file_name(self) -> str:
        """
        Its name in the name of a file.
        """
        return f"{_text(self.begin, '%Y%m%dT%H%M%S')}-{_text(self.end, '%Y%m%dT%H%M%S')}"

    def __str__(self) -> str:
        exact = bool(self.begin % _MINUTE or self.end % _MINUTE)
        node = f" at {self.node}" if self.node else ""
        return f"{said(self.begin, exact)} to {said(self.end, exact)}{node}"


def parse_moment(text: str) -> int:
    """
    A time in UTC as nanoseconds since 1970. ValueError says which forms there are.
    """
    plain = text.strip().removesuffix("Z").replace(" ", "T")
    for form in _FORMS:
        try:
            found = datetime.strptime(plain, form).replace(tzinfo=UTC)
        except ValueError:
            continue
        return (found - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1) * SECOND
    raise ValueError(
        f"{text!r} is not a time in UTC; expected 2026-07-31, 2026-07-31T14, "
        "2026-07-31T14:05 or 2026-07-31T14:05:30"
    )


def parse_period(text: str) -> Period:
    """
    A period as FROM..TO or FROM..TO@NODE. ValueError if it is not one, or ends before it begins.
    """
    span, _, node = text.partition("@")
    begin, dots, end = span.partition("..")
    if not dots:
        raise ValueError(f"{text!r} is not a period; expected FROM..TO or FROM..TO@NODE")
    if "@" in text and not node:
        raise ValueError(f"{text!r} names no node after '@'")
    return checked(Period(parse_moment(begin), parse_moment(end), node))


def checked(period: Period) -> Period:
    """
    The period itself. ValueError if it is empty or reversed.
    """
    if period.begin == period.end:
        raise ValueError(f"the period {period} is empty: its end is not part of it")
    if period.begin > period.end:
        raise ValueError(f"the period {period} ends before it begins")
    return period


def said(moment: int, exact: bool = False) -> str:
    """
    A time as people read it, with seconds if it has some, or if `exact`.
    """
    return _text(moment, "%Y-%m-%d %H:%M:%S" if exact or moment % _MINUTE else "%Y-%m-%d %H:%M")


def _text(nanoseconds: int, form: str) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=nanoseconds // SECOND)).strftime(form)
