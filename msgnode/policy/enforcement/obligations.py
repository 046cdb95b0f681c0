"""
Messages that wait because a rate limit says `"onExceed": "delay"`.

In order for each bucket, and not too many of them, nor too many bytes.
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
MAX_WAIT_SECONDS = 60.0  # seconds that the first in line may have to wait

# Seconds until it may go; 0: it went.
Take = Callable[[], float]


class DelayQueue:
    """
    A queue of messages that a rate limit delays.

    `put` a message behind those that wait for the same bucket.
    """

    def __init__(self, clock: IReactorTime, partial_input: PartialInput | None = None) -> None:
        self._clock = clock
        self._partial_input = partial_input
        self._lines: dict[object, deque[tuple[Take, Deferred[None]]]] = {}
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def waits(self, key: object) -> bool:
        """
        Is there a line for this bucket?
        """
        return key in self._lines

    def put(
        self, key: object, wait: float, take: Take, size: int = 0, peer: str = ""
    ) -> Deferred[None] | None:
        """
        Fires when `take` lets it go; None where it cannot wait.  `size`: bytes that wait, from that peer.
        """
        if self._number >= MAX_DELAYED or wait > MAX_WAIT_SECONDS:
            return None
        gone: Deferred[None] = Deferred()
        if self._partial_input is not None and not self._partial_input.grow_untimed(gone, size, peer):
            return None
        line = self._lines.get(key)
        self._number += 1
        if line is not None:
            line.append((take, gone))
            return gone
        self._lines[key] = deque([(take, gone)])
        self._clock.callLater(wait, self._go_on, key)
        return gone

    def _go_on(self, key: object) -> None:
        line = self._lines[key]
        while line:
            take, gone = line[0]
            wait = take()
            if wait > 0:
                self._clock.callLater(wait, self._go_on, key)
                return
            line.popleft()
            self._number -= 1
            if self._partial_input is not None:
                self._partial_input.done(gone)
            gone.callback(None)
        del self._lines[key]


log = Logger()

QUIET = 60.0  # seconds between two events of one rule in the node's log


class ObligationRunner:
    """
    Carries out obligations.

    `charge` before the message passes, `change` when it does, `tell` whatever becomes of it.
    """

    def __init__(self, clock: IReactorTime, partial_input: PartialInput | None = None) -> None:
        self._clock = clock
        self._limits = RateLimits(clock.seconds)
        self._delay_queue = DelayQueue(clock, partial_input)
        self._told: dict[str, tuple[float, int]] = {}  # when a rule last had its event, and how often since

    def charge(self, obligations: Iterable[Obligation], context: Context) -> Deferred[None] | None:
        """
        Count it with its limits.

        Blocked when it is too large, or one too many; a Deferred where it has to wait.
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
                self._say(limit.path, "{rule}: more than its rate, and let pass")
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
                if type(each) is RateLimit and self._delay_queue.waits(key_of(each, context)):
                    return each, each.per / each.rate  # behind those who wait already
        limit, wait = self._limits.take_all(due, context)
        return limit, wait

    def change(self, obligations: Iterable[Obligation], context: Context) -> str | None:
        """
        Change the message as asked; where it shall go instead, if anywhere.
        """
        message = context.message
        due = self._not_done(obligations, context)
        message.done = (*message.done, *due)
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
        Without what was done for this very message on its way in, or before it was redirected.
        """
        done = context.message.done
        return [each for each in obligations if not any(each is other for other in done)]

    def tell(self, obligations: Iterable[Obligation], context: Context) -> bool:
        """
        Events for what is to be logged or told to somebody; True if there was any.
        """
        told = False
        for each in obligations:
            if type(each) is Log:
                self._say(each.path, "{rule}: {text}", text=each.text)
            elif type(each) is Notify:
                self._say(each.path, "{rule}: notify {who}: {text}", who=each.who, text=each.text)
            elif type(each) is Advice:
                value = str(each.value)[:200]
                self._say(each.path, "{rule}: {name}: {value}", name=each.name, value=value)
            else:
                continue
            told = True
        return told

    def _say(self, rule: str, format: str, **fields: Any) -> None:
        """
        Not for each message: the log of decisions has them all.
        """
        now = self._clock.seconds()
        last, unsaid = self._told.get(rule, (-QUIET, 0))
        if now - last < QUIET:
            self._told[rule] = last, unsaid + 1
            return
        self._told[rule] = now, 0
        if unsaid:
            format += " ({unsaid} more since the last)"
        log.info(format, rule=rule, unsaid=unsaid, **fields)
