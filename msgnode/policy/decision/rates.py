"""
Rate limits and rate counters of policies: token buckets for `rateLimit`, sliding windows for `rate.*`
attributes.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable

from msgnode.policy.decision.attribute import WINDOWS, Attribute
from msgnode.policy.decision.context import Context
from msgnode.policy.decision.obligations import Obligation, RateLimit
from msgnode.policy.decision.values import text_of
from msgnode.protocol.address import MAX_ADDRESS_CHARS
from msgnode.structures.token_bucket import refilled

MAX_BUCKETS = 10_000


class RateLimits:
    """
    The token buckets of `rateLimit`. Beyond `most`, the least recently used is removed.

    `now` returns seconds. A reload of the policy keeps the buckets, since a limit is identified by its rule.
    """

    def __init__(self, now: Callable[[], float], most: int = MAX_BUCKETS) -> None:
        self._now = now
        self._most = most
        # Tokens left, and the time of that.
        self._buckets: OrderedDict[tuple[object, ...], tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def acquire(self, limit: RateLimit, context: Context) -> float:
        """
        Take one token. 0 if the message may pass, else the seconds until the next one may; then nothing is
        taken.
        """
        return self.take_all((limit,), context)[1]

    def take_all(self, obligations: Iterable[Obligation], context: Context) -> tuple[RateLimit | None, float]:
        """
        Take one token from every limit in `obligations`, or from none.

        Returns the limit that is exceeded, and the seconds until it is not; None and 0 if the message may
        pass. A limit that only logs does not stop the message.
        """
        now = self._now()
        paying, refused, longest = [], None, 0.0
        for limit in obligations:
            if limit.__class__ is not RateLimit:
                continue
            assert isinstance(limit, RateLimit)
            key = key_of(limit, context)
            left = self._left(limit, key, now)
            if left >= 1:
                paying.append((key, left - 1))
                continue
            wait = (1 - left) * limit.per / limit.rate
            # A limit that stops the message precedes one that only logs.
            stops, stopped = limit.on_exceed != "log", refused is not None and refused.on_exceed != "log"
            if (stops, wait) > (stopped, longest):
                refused, longest = limit, wait
        if refused is None or refused.on_exceed == "log":
            for key, left in paying:
                self._keep(key, left, now)
        return refused, longest

    def _left(self, limit: RateLimit, key: tuple[object, ...], now: float) -> float:
        left, then = self._buckets.get(key, (limit.burst, now))
        return refilled(left, now - then, limit.rate / limit.per, limit.burst)

    def _keep(self, key: tuple[object, ...], left: float, now: float) -> None:
        self._buckets[key] = (left, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)


def key_of(limit: RateLimit, context: Context) -> tuple[object, ...]:
    """
    The key of the bucket of a limit that a message counts in.
    """
    return limit.path, *(_short(_counted(attribute, context)) for attribute in limit.key)


def _counted(attribute: Attribute, context: Context) -> str | None:
    """
    The text of an attribute in the key. A client that opens a session has none yet, so its address is used.
    """
    text = text_of(context.get(attribute))
    if text is None and attribute.name == "session":
        return context.message.from_ or context.peer
    return text


def _short(text: str | None) -> str | None:
    """
    The text, or a hash of a long one.
    """
    return (
        text
        if text is None or len(text) <= 200
        else hashlib.sha256(text.encode(errors="replace")).hexdigest()
    )


MAX_SENDERS = 10_000
MAX_COUNTERS = 100  # of one sender, who can use any number of types
MAX_TYPE_CHARS = 64  # a longer type is counted as a message only
MAX_WINDOWS = 200_000  # of all senders; each takes about 300 bytes


class RateCounters:
    """
    Sliding-window counters by sender: the count is estimated from the current and the previous window.

    `now` returns seconds. Beyond `most` senders, or `windows` windows in all, the sender that was silent
    longest is removed.
    """

    def __init__(self, now: Callable[[], float], most: int = MAX_SENDERS, windows: int = MAX_WINDOWS) -> None:
        self._now = now
        self._most = most
        self._most_windows = windows
        self.windows = 0  # of all senders
        self._senders: OrderedDict[str, dict[tuple[str, int], list[float]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._senders)

    def count(self, context: Context) -> None:
        """
        Count a message, and let its context read the sender's rates.
        """
        message, sender = context.message, context.session or context.message.from_[:MAX_ADDRESS_CHARS]
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
        if len(kind) > MAX_TYPE_CHARS or (
            (kind, 1) not in windows and len(windows) >= MAX_COUNTERS * len(WINDOWS)
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
        The start of the current window, its count, and the count of the previous window.
        """
        window = windows.setdefault((counter, seconds), [now, 0.0, 0.0])
        passed = now - window[0]
        if passed >= seconds or passed < 0:
            last = window[1] if seconds <= passed < 2 * seconds else 0.0
            begun = window[0] + seconds if last else now
            window[:] = [begun, 0.0, last]
        return window
