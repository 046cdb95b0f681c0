"""
Failures that nobody foresaw, in the log with their traceback, but not each of a million.
"""

from collections import Counter
from typing import Any

from twisted.logger import Logger
from twisted.python.failure import Failure

MOST_KINDS = 1000


class Failures:
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
        if kind not in self._seen and len(self._seen) >= MOST_KINDS:
            return
        self._seen[kind] += 1
        times = self._seen[kind]
        if str(times).strip("0") == "1":
            count = f"; {times} times so far" if times > 1 else ""
            self._log.failure(text + count, why, **fields)
