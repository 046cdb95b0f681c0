"""
Rate limits and rate counters of policies: token buckets for `rateLimit`, sliding windows for `rate.*`
attributes.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TypeVar

from msgnode.policy.decision.attribute import WINDOWS, Attribute
from msgnode.policy.decision.context import Context
from msgnode.policy.decision.obligations import Obligation, RateLimit
from msgnode.policy.decision.values import text_of
from msgnode.protocol.address import MAX_ADDRESS_CHARS
from msgnode.structures.token_bucket import Share, Take, refilled

MAX_BUCKETS = 10_000
MAX_DEBT_SECONDS = 86_400.0  # of a bucket that other nodes draw from as well

_Key = TypeVar("_Key")


class RateLimits:
    """
    The token buckets of `rateLimit`. Beyond `most`, the least recently used is removed.

    `now` returns seconds. A reload of the policy keeps the buckets, since a limit is identified by its rule.

    A limit that is shared with the other nodes of the domain has its buckets by the hash of their key, as the
    seconds of its rate that were taken: what another node took counts before this node knows the rate.
    """

    def __init__(self, now: Callable[[], float], most: int = MAX_BUCKETS) -> None:
        self._now = now
        self._most = most
        # Tokens left, and the time of that.
        self._buckets: OrderedDict[tuple[object, ...], tuple[float, float]] = OrderedDict()
        # Seconds that were taken, and the time of that.
        self._shared: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._taken: Take | None = None  # None: there are no other nodes

    def __len__(self) -> int:
        return len(self._buckets) + len(self._shared)

    def share(self, share: Share) -> None:
        """
        Share limits that are `shared` with other nodes.
        """
        self._taken = share("policy", self._take_elsewhere)

    def _take_elsewhere(self, name: str, seconds: float, nothing: float) -> None:
        now = self._now()
        taken = self._taken_seconds(name, now) + seconds
        self._put(self._shared, name, (min(taken, MAX_DEBT_SECONDS), now))

    def _taken_seconds(self, name: str, now: float) -> float:
        taken, then = self._shared.get(name, (0.0, now))
        return max(0.0, taken - max(0.0, now - then))

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
                paying.append((limit, key, left - 1))
                continue
            wait = (1 - left) * limit.per / limit.rate
            # A limit that stops the message precedes one that only logs.
            stops, stopped = limit.on_exceed != "log", refused is not None and refused.on_exceed != "log"
            if (stops, wait) > (stopped, longest):
                refused, longest = limit, wait
        if refused is None or refused.on_exceed == "log":
            for limit, key, left in paying:
                self._keep(limit, key, left, now)
        return refused, longest

    def _left(self, limit: RateLimit, key: tuple[object, ...], now: float) -> float:
        if limit.shared and self._taken is not None:
            return limit.burst - self._taken_seconds(_name(key), now) * limit.rate / limit.per
        left, then = self._buckets.get(key, (limit.burst, now))
        return refilled(left, now - then, limit.rate / limit.per, limit.burst)

    def _keep(self, limit: RateLimit, key: tuple[object, ...], left: float, now: float) -> None:
        if limit.shared and self._taken is not None:
            name, seconds = _name(key), limit.per / limit.rate
            self._put(self._shared, name, (self._taken_seconds(name, now) + seconds, now))
            self._taken(name, seconds, 0)
        else:
            self._put(self._buckets, key, (left, now))

    def _put(
        self, buckets: OrderedDict[_Key, tuple[float, float]], key: _Key, bucket: tuple[float, float]
    ) -> None:
        buckets[key] = bucket
        buckets.move_to_end(key)
        if len(buckets) > self._most:
            buckets.popitem(last=False)


def key_of(limit: RateLimit, context: Context) -> tuple[object, ...]:
    """
    The key of the bucket of a limit that a message counts in.
    """
    return limit.path, *(_short(_counted(attribute, context)) for attribute in limit.key)


def _name(key: tuple[object, ...]) -> str:
    """
    The name of a shared bucket: the same at all nodes.
    """
    text = json.dumps(key, default=str)
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()


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
