"""
How often a sender did something of late: what the attributes `rate.COUNTER.WINDOW` tell.

Counters are `messages`, `alloc` (addresses asked for) and each type of message.
What is counted includes the message that is decided on.
"""

from collections import OrderedDict
from collections.abc import Callable

from msgnode.policy.attributes import WINDOWS
from msgnode.policy.context import Context
from msgnode.protocol.address import LONGEST

MOST_SENDERS = 10_000
MOST_COUNTERS = 100  # of one sender, who may think of any number of types
LONGEST_TYPE = 64  # characters; what is longer is counted as a message only
MOST_WINDOWS = 200_000  # of all senders; each takes some 300 bytes


class Counters:
    """
    For each sender and counter the present window and the last; between them a sliding one is estimated.

    `now` gives seconds.  Of more than `most` senders, or where they have more than `windows` of
    them together, the sender that was silent longest is forgotten.
    """

    def __init__(
        self, now: Callable[[], float], most: int = MOST_SENDERS, windows: int = MOST_WINDOWS
    ) -> None:
        self._now = now
        self._most = most
        self._most_windows = windows
        self.windows = 0  # of all senders
        self._senders: OrderedDict[str, dict[tuple[str, int], list[float]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._senders)

    def count(self, context: Context) -> None:
        """
        A message came; from now on the context can tell its sender's rates.
        """
        message, sender = context.message, context.session or context.message.from_[:LONGEST]
        kind = message.type.casefold()
        counted = {"messages": 1.0, kind: 1.0}
        if kind == "create" and context.to.endswith("/address-allocation"):
            value = context.body.get("value")
            number = value.get("number") if isinstance(value, dict) else None
            counted["alloc"] = number if isinstance(number, int) and 0 < number < 1e6 else 1
        windows = self._senders.setdefault(sender, {})
        self._senders.move_to_end(sender)
        if len(self._senders) > self._most:
            self._forget_one()
        now, before = self._now(), len(windows)
        if len(kind) > LONGEST_TYPE or (
            (kind, 1) not in windows and len(windows) >= MOST_COUNTERS * len(WINDOWS)
        ):
            del counted[kind]
        for counter, amount in counted.items():
            for seconds in WINDOWS.values():
                present = self._present(windows, counter, seconds, now)
                present[1] += amount
        self.windows += len(windows) - before
        while self.windows > self._most_windows and len(self._senders) > 1:
            self._forget_one()
        context.rates = self._teller(windows)

    def _forget_one(self) -> None:
        self.windows -= len(self._senders.popitem(last=False)[1])

    def _teller(self, windows: dict[tuple[str, int], list[float]]) -> Callable[[str, int], float]:
        def tell(counter: str, seconds: int) -> float:
            now = self._now()
            begun, present, last = self._present(dict(windows), counter, seconds, now)
            return present + last * max(0.0, 1 - (now - begun) / seconds)

        return tell

    def _present(
        self, windows: dict[tuple[str, int], list[float]], counter: str, seconds: int, now: float
    ) -> list[float]:
        """
        When the present window began, what was counted in it, and in the one before.
        """
        window = windows.setdefault((counter, seconds), [now, 0.0, 0.0])
        passed = now - window[0]
        if passed >= seconds or passed < 0:
            last = window[1] if seconds <= passed < 2 * seconds else 0.0
            begun = window[0] + seconds if last else now
            window[:] = [begun, 0.0, last]
        return window
