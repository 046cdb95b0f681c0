"""
The buckets of `rateLimit`: one for each value of the attributes it counts by, and not too many of them.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable

from msgnode.policy.attributes import Attribute
from msgnode.policy.context import Context
from msgnode.policy.obligations import Obligation, RateLimit
from msgnode.policy.values import text_of

MOST_BUCKETS = 10_000


class RateLimits:
    """
    Token buckets, filled by the clock; of more than `most` the one used longest ago is forgotten.

    `now` gives seconds.  A reload of the policy keeps the buckets: a limit is
    known by the rule it stands in.
    """

    def __init__(self, now: Callable[[], float], most: int = MOST_BUCKETS) -> None:
        self._now = now
        self._most = most
        # What is left, and since when.
        self._buckets: OrderedDict[tuple[object, ...], tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, limit: RateLimit, context: Context) -> float:
        """
        Count one message: 0 if it may pass, else the seconds until the next may.  What may not costs nothing.
        """
        return self.take_all((limit,), context)[1]

    def take_all(self, obligations: Iterable[Obligation], context: Context) -> tuple[RateLimit | None, float]:
        """
        Count one message with every limit among these, or with none of them.

        Gives the limit that is exceeded and the seconds until it is not; None and 0 if it may pass.
        One that only logs does not stop the message.
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
            # What stops a message weighs more than what is only noted.
            stops, stopped = limit.on_exceed != "log", refused is not None and refused.on_exceed != "log"
            if (stops, wait) > (stopped, longest):
                refused, longest = limit, wait
        if refused is None or refused.on_exceed == "log":
            for key, left in paying:
                self._keep(key, left, now)
        return refused, longest

    def _left(self, limit: RateLimit, key: tuple[object, ...], now: float) -> float:
        left, then = self._buckets.get(key, (limit.burst, now))
        return min(limit.burst, left + max(0.0, now - then) * limit.rate / limit.per)

    def _keep(self, key: tuple[object, ...], left: float, now: float) -> None:
        self._buckets[key] = (left, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)


def key_of(limit: RateLimit, context: Context) -> tuple[object, ...]:
    """
    Which bucket of the limit a message is counted in.
    """
    return limit.path, *(_short(_counted(attribute, context)) for attribute in limit.key)


def _counted(attribute: Attribute, context: Context) -> str | None:
    """
    The text to count by: who opens a session has none yet, but an address it comes from.
    """
    text = text_of(context.get(attribute))
    if text is None and attribute.name == "session":
        return context.message.from_ or context.peer
    return text


def _short(text: str | None) -> str | None:
    """
    A text, or what stands for a long one.
    """
    return (
        text
        if text is None or len(text) <= 200
        else hashlib.sha256(text.encode(errors="replace")).hexdigest()
    )
