"""
What may happen a million times, in the log, but not each time: failures that nobody foresaw, with their
traceback, and what strangers do wrong.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from twisted.logger import Logger
from twisted.python.failure import Failure

MAX_KINDS = 1000
MAX_LINES = 10  # in LINES_WITHIN seconds, of what strangers do wrong
LINES_WITHIN = 60.0


class FailureLog:
    """
    The log has the first of each kind, the tenth, the hundredth and so on, with how many there were.

    A kind is an exception's class and the line it comes from.
    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._seen: Counter[tuple[type[BaseException] | None, str, int]] = Counter()

    def note(self, text: str, why: Failure, **fields: Any) -> None:
        """
        It happened; `text` says at what, with `fields` as of any log event.
        """
        where = why.frames[-1] if why.frames else ("", "", 0)
        kind = (why.type, where[1], where[2])
        if kind not in self._seen and len(self._seen) >= MAX_KINDS:
            return
        self._seen[kind] += 1
        times = self._seen[kind]
        if str(times).strip("0") == "1":
            count = f"; {times} times so far" if times > 1 else ""
            self._log.failure(text + count, why, **fields)


class StrangerLog:
    """
    A rate limit for log lines about what clients do wrong: some lines a minute, and how many were left out.
    """

    def __init__(self, log: Logger, seconds: Callable[[], float]) -> None:
        self._log = log
        self._seconds = seconds
        self._since = seconds()
        self._lines = self._left_out = 0

    def note(self, text: str, **fields: Any) -> None:
        """
        It happened; `text` says what, with `fields` as of any log event.
        """
        now = self._seconds()
        if now >= self._since + LINES_WITHIN:
            self._since, self._lines = now, 0
        if self._lines == MAX_LINES:
            self._left_out += 1
            return
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        more = f" ({left_out} more such lines were left out)" if left_out else ""
        self._log.info(text + more, **fields)
