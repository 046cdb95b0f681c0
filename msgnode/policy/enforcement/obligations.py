"""
Obligations: the actions that a decision requires of the node, and the messages that a rate limit delays.

A rate limit with `"onExceed": "delay"` queues messages: in order for each of its buckets, and with a bound on
their number and their bytes.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from msgnode.policy.decision.context import Context
from msgnode.policy.decision.obligations import (
    Advice,
    Log,
    Notify,
    Obligation,
    RateLimit,
    Redirect,
    edited,
    too_large,
)
from msgnode.policy.decision.rates import RateLimits, key_of
from msgnode.policy.enforcement.points import IN
from msgnode.protocol.body_edit import replace_body
from msgnode.protocol.errors import Blocked
from msgnode.sessions.limits.partial_input import PartialInput

MAX_DELAYED = 1000  # messages, in the whole node
MAX_WAIT_SECONDS = 60.0  # for the first message in a queue
QUIET_SECONDS = 60.0  # between two events of one rule in the node's log

# A function that takes a token: returns the seconds until there is one, or 0 if it was taken.
Take = Callable[[], float]

log = Logger()


class DelayQueue:
    """
    The queues of messages that rate limits delay, one for each token bucket.
    """

    def __init__(self, clock: IReactorTime, partial_input: PartialInput | None = None) -> None:
        self._clock = clock
        self._partial_input = partial_input
        self._queues: dict[object, deque[tuple[Take, Deferred[None]]]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def has_queue(self, key: object) -> bool:
        """
        Are messages queued for this bucket?
        """
        return key in self._queues

    def put(
        self, key: object, wait: float, take: Take, size: int = 0, peer: str = ""
    ) -> Deferred[None] | None:
        """
        Delays a message of `size` bytes from this peer, behind those queued for the same bucket.

        Fires when `take` lets the message pass; None if it cannot be queued.
        """
        if self._length >= MAX_DELAYED or wait > MAX_WAIT_SECONDS:
            return None
        gone: Deferred[None] = Deferred()
        if self._partial_input is not None and not self._partial_input.grow_untimed(gone, size, peer):
            return None
        queue = self._queues.get(key)
        self._length += 1
        if queue is not None:
            queue.append((take, gone))
            return gone
        self._queues[key] = deque([(take, gone)])
        self._clock.callLater(wait, self._pump, key)
        return gone

    def _pump(self, key: object) -> None:
        queue = self._queues[key]
        while queue:
            take, gone = queue[0]
            wait = take()
            if wait > 0:
                self._clock.callLater(wait, self._pump, key)
                return
            queue.popleft()
            self._length -= 1
            if self._partial_input is not None:
                self._partial_input.done(gone)
            gone.callback(None)
        del self._queues[key]


class ObligationRunner:
    """
    A runner of obligations.

    `charge` is called before the message passes, `change` when it does, `notify_operator` in any case.
    """

    def __init__(self, clock: IReactorTime, partial_input: PartialInput | None = None) -> None:
        self._clock = clock
        self.limits = RateLimits(clock.seconds)
        self._delay_queue = DelayQueue(clock, partial_input)
        # By rule: the time of its last logged event, and the number of events omitted since.
        self._logged: dict[str, tuple[float, int]] = {}

    def charge(self, obligations: Iterable[Obligation], context: Context) -> Deferred[None] | None:
        """
        Charges the message to its limits.

        Raises Blocked if it is too large, or exceeds a rate; returns a Deferred if it must wait.
        """
        due = self._not_done(obligations, context)
        large = too_large(due, len(context.message.data))
        if large is not None:
            raise Blocked(f"this may have at most {large.most} bytes here", 413, reason="too-long")
        if not any(type(each) is RateLimit for each in due):
            return None
        limit, wait = self._take(due, context)
        if limit is None or limit.on_exceed == "log":
            if limit is not None:
                self._log(limit.path, "{rule}: the rate is exceeded; the message passes")
            return None
        if limit.on_exceed == "delay" and context.direction is IN:
            message = context.message
            size, peer = len(message.data), getattr(message.origin, "peer", "unix")
            later = self._delay_queue.put(
                key_of(limit, context), wait, lambda: self._take(due, context, True)[1], size, peer
            )
            if later is not None:
                return later
        fast = "more messages than the policies of this node let pass; slow down"
        raise Blocked(fast, 429, round(wait, 3), "rate")

    def _take(
        self, due: list[Obligation], context: Context, in_line: bool = False
    ) -> tuple[RateLimit | None, float]:
        if not in_line:
            for each in due:
                if type(each) is RateLimit and self._delay_queue.has_queue(key_of(each, context)):
                    return each, each.per / each.rate  # behind those already queued
        limit, wait = self.limits.take_all(due, context)
        return limit, wait

    def change(self, obligations: Iterable[Obligation], context: Context) -> str | None:
        """
        Edits the message; returns the address to which it is redirected, or None.
        """
        message = context.message
        due = self._not_done(obligations, context)
        message.applied = (*message.applied, *due)
        if not due:
            return None
        data = edited(due, message)
        if data is not None:
            replace_body(message, data)
        for each in due:
            if type(each) is Redirect and each.to != message.to:
                return each.to
        return None

    def _not_done(self, obligations: Iterable[Obligation], context: Context) -> list[Obligation]:
        """
        The obligations not yet carried out for this message, at `in` or before a redirect.
        """
        applied = context.message.applied
        return [each for each in obligations if not any(each is other for other in applied)]

    def notify_operator(self, obligations: Iterable[Obligation], context: Context) -> bool:
        """
        Logs an event for each obligation that requires one; True if there was any.
        """
        notified = False
        for each in obligations:
            if type(each) is Log:
                self._log(each.path, "{rule}: {text}", text=each.text)
            elif type(each) is Notify:
                self._log(each.path, "{rule}: notify {who}: {text}", who=each.who, text=each.text)
            elif type(each) is Advice:
                value = str(each.value)[:200]
                self._log(each.path, "{rule}: {name}: {value}", name=each.name, value=value)
            else:
                continue
            notified = True
        return notified

    def _log(self, rule: str, format: str, **fields: Any) -> None:
        """
        Logs the event, at most once in QUIET_SECONDS for each rule: the decision log has all of them.
        """
        now = self._clock.seconds()
        last, omitted = self._logged.get(rule, (-QUIET_SECONDS, 0))
        if now - last < QUIET_SECONDS:
            self._logged[rule] = last, omitted + 1
            return
        self._logged[rule] = now, 0
        if omitted:
            format += " ({omitted} more since the last)"
        log.info(format, rule=rule, omitted=omitted, **fields)
