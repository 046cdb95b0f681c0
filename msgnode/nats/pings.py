"""
Pings: they find half-open connections, and their answers say that the server has processed all before them.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime


class Pings:
    """
    The pings of a client. A server answers them in their order.

    While a connection is up one is sent every `seconds`, unless an earlier one is unanswered. `silent` is
    called when nothing at all has come for `most` intervals.
    """

    def __init__(
        self,
        clock: IReactorTime,
        seconds: float,
        most: int,
        send: Callable[[], None],
        silent: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._most = most
        self._send = send
        self._silent = silent
        self._expected: deque[Deferred[Any] | None] = deque()
        self._missed = 0  # intervals in a row in which nothing came
        self._timer: IDelayedCall | None = None
        self.is_reading = True  # a client that does not read hears no answer
        self.was_heard = False

    def __len__(self) -> int:
        return len(self._expected)

    def start(self) -> None:
        self._missed = 0
        self.was_heard = True
        self._timer = self._clock.callLater(self._seconds, self._tick)

    def stop(self) -> list[Deferred[Any]]:
        """
        The connection is gone; the answers that will not come.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lost = [each for each in self._expected if each is not None]
        self._expected.clear()
        return lost

    def ping(self) -> Deferred[Any]:
        """
        Send a ping now; fires with its answer.
        """
        answered: Deferred[Any] = Deferred()
        self._expected.append(answered)
        self._send()
        return answered

    def pong(self) -> None:
        """
        The server answered the oldest ping.
        """
        answered = self._expected.popleft() if self._expected else None
        if answered is not None and not answered.called:
            answered.callback(None)

    def _tick(self) -> None:
        self._timer = self._clock.callLater(self._seconds, self._tick)
        self._missed = 0 if self.was_heard or not self.is_reading else self._missed + 1
        self.was_heard = False
        if self._missed >= self._most:
            self._silent()
            return
        if not self._expected:
            self._expected.append(None)
            self._send()
