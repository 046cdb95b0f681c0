"""
Rate limits for log lines that may be repeated a million times: unexpected failures with their traceback, and
errors of clients.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from twisted.logger import Logger
from twisted.python.failure import Failure

MAX_KINDS = 1000
MAX_LINES = 10  # about client errors, in WINDOW_SECONDS seconds
WINDOW_SECONDS = 60.0

MAX_LOGGED_ADDRESSES = 1000  # in one line of the traffic log; a replay cannot judge a line with more


def printable(text: str) -> str:
    """
    The text without control characters: a stranger may have written it, and this is a log or a terminal.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


class FailureLog:
    """
    Logs the first failure of each kind, then the tenth, the hundredth and so on, with the number so far.

    The kind is the class of the exception and the line that raised it.
    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._seen: Counter[tuple[type[BaseException] | None, str, int]] = Counter()

    def note(self, text: str, why: Failure, **fields: Any) -> None:
        """
        Log the failure `why`, unless its kind was logged too often. `text` and `fields` are those of any log
        event.
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
    A rate limit for log lines about client errors: MAX_LINES in WINDOW_SECONDS. The next line says how
    many were suppressed.
    """

    def __init__(self, log: Logger, seconds: Callable[[], float]) -> None:
        self._log = log
        self._seconds = seconds
        self._since = seconds()
        self._lines = self._left_out = 0

    def note(self, text: str, **fields: Any) -> None:
        """
        Log an event unless the limit is reached. `text` and `fields` are those of any log event.
        """
        now = self._seconds()
        if now >= self._since + WINDOW_SECONDS:
            self._since, self._lines = now, 0
        if self._lines == MAX_LINES:
            self._left_out += 1
            return
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        more = f" ({left_out} similar lines were suppressed)" if left_out else ""
        self._log.info(text + more, **fields)
