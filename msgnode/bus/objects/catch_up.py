"""
Catching up: a subscriber that was away gets what it missed, in order, then what comes now.

Messages that come for it meanwhile are held. They have versions, so nothing is delivered twice, and nothing
between the two is left out.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from copy import copy
from typing import Any, Protocol

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.bus.objects.channels import object_of
from msgnode.bus.objects.history_request import MAX_CHANGES, Page
from msgnode.protocol.errors import Blocked, Rejected
from msgnode.protocol.message import Message, part, recall
from msgnode.sessions.session import Session
from msgnode.structures.time_slices import Slices

log = Logger()

MAX_HELD = 1000  # messages that are held for one subscriber
MAX_HELD_BYTES = 8 * 1024 * 1024
MAX_CATCHING = 1000  # subscribers that catch up at the same time
DELIVERED_STEP = 50  # messages that are delivered in one slice
WAIT_SECONDS = 0.05  # between two looks whether the subscriber takes more
MAX_WAITS = 1200  # a minute
AGAIN_SECONDS = 1.0  # before a page is asked for again
MAX_AGAIN = 60  # times, while the keeper is away
_AWAY = (502, 503, 504)  # codes of a keeper that does not answer


class Pages(Protocol):
    """
    The source of what was missed.
    """

    def page(self, object: str, first: int, limit: int, message: Message, session: Session) -> Deferred[Page]:
        """
        The changes of an object from a version on; `message` is the subscriber's request.

        Fails with Rejected.
        """


class CatchUpCounts(msgspec.Struct):
    """
    The counts of subscribers that caught up.
    """

    begun: int = 0
    replayed: int = 0  # messages
    refused: int = 0
    ended: int = 0  # before they had everything


class CatchUp:
    """
    One subscriber that catches up with one object: `last` is the version that it has.
    """

    def __init__(self, object: str, since: int, message: Message, session: Session) -> None:
        self.object = object
        self.last = since
        self.message = message
        self.session = session
        self.replayed: dict[tuple[str, int | str], None] = {}  # senders and ids of the last messages
        self.held: list[Message] = []
        self.held_bytes = 0

    @property
    def is_overrun(self) -> bool:
        return len(self.held) > MAX_HELD or self.held_bytes > MAX_HELD_BYTES

    def note_replayed(self, key: tuple[str, int | str]) -> None:
        self.replayed.pop(key, None)
        self.replayed[key] = None
        while len(self.replayed) > MAX_HELD:
            del self.replayed[next(iter(self.replayed))]

    def hold(self, message: Message) -> None:
        if not self.is_overrun:
            self.held.append(copy(message))
            self.held_bytes += len(message.data)


class CatchUps:
    """
    The subscribers that catch up. `deliver` delivers a message to one session; it raises Blocked.

    `most` is the number of messages that one may have missed.
    """

    def __init__(
        self,
        pages: Pages,
        deliver: Callable[[Message, Session], object],
        slices: Slices,
        clock: IReactorTime,
        most: Callable[[], int],
    ) -> None:
        self.counts = CatchUpCounts()
        self.together: AbstractContextManager[Any] = nullcontext()
        self.changed: Callable[[], None] = lambda: None  # called when the first begins or the last ends
        self._pages = pages
        self._deliver = deliver
        self._slices = slices
        self._clock = clock
        self._most = most
        self._catching: dict[str, list[CatchUp]] = {}  # by object

    def __len__(self) -> int:
        return sum(map(len, self._catching.values()))

    def hold(self, message: Message, recipients: tuple[Session, ...]) -> tuple[Session, ...]:
        """
        Those of the recipients that do not catch up with the object of this message.

        It is held for the others.
        """
        to = message.to
        waiting = self._catching.get(object_of(to)) if isinstance(to, str) else None
        if not waiting:
            return recipients
        for each in waiting:
            if each.session in recipients:
                each.hold(message)
                recipients = tuple(other for other in recipients if other is not each.session)
        return recipients

    # -- one subscriber ------------------------------------------------------------------

    def begin(self, object: str, since: int, message: Message, session: Session) -> CatchUp:
        """
        Holds what comes for the session from now on, until `run` or `end`.
        """
        if any(each.session is session for each in self._catching.get(object, ())):
            raise Rejected(f"this session is catching up with {object} already"[:300], 409)
        if len(self) >= MAX_CATCHING:
            raise Rejected("too many subscribers catch up now; try again later", 503, "limit")
        self.counts.begun += 1
        catching = CatchUp(object, since, message, session)
        self._catching.setdefault(object, []).append(catching)
        self.changed()
        return catching

    def end(self, catching: CatchUp) -> None:
        waiting = self._catching.get(catching.object, [])
        if catching in waiting:
            waiting.remove(catching)
            if not waiting:
                del self._catching[catching.object]
            self.changed()

    def run(self, catching: CatchUp) -> Deferred[Message]:
        """
        The answer, with the version from which on the session gets what comes; what it missed is delivered
        behind that. Fails with Rejected, and nothing is delivered.
        """
        first = self._pages.page(
            catching.object, catching.last + 1, MAX_CHANGES, catching.message, catching.session
        )
        return first.addCallback(self._answered, catching).addErrback(self._refused, catching)

    def _answered(self, page: Page, catching: CatchUp) -> Message:
        after, most = max(catching.last, page.oldest - 1), self._most()
        gone = sum(gap.last - max(gap.first - 1, after) for gap in page.missing if gap.last > after)
        missed = page.version - after - gone
        if catching.last > page.version:
            raise Rejected(
                f"{catching.object} has versions up to {page.version}, not {catching.last}"[:400], 404
            )
        if missed > most:
            raise Rejected(
                f"{missed} messages were missed, and a subscriber catches up with {most} at most; read the "
                f"history, and subscribe since {page.version - most} or later",
                413,
                "limit",
            )
        body: dict[str, Any] = {"code": 200, "version": page.version}
        if page.missing:
            body["missing"] = page.missing
        work = self._slices.work(self._replay(catching, page, page.version))
        work.addErrback(self._failed, catching)
        return catching.message.reply(body)

    def _refused(self, why: Failure, catching: CatchUp) -> Failure:
        self.counts.refused += 1
        self.end(catching)
        return why

    def _failed(self, why: Failure, catching: CatchUp) -> None:
        """
        The session has its answer: its next message shows that versions are missing.
        """
        if not why.check(Rejected):
            log.failure("a subscriber of {object} could not catch up", why, object=catching.object)
        self._stop(catching)

    def _stop(self, catching: CatchUp) -> None:
        self.counts.ended += 1
        self.end(catching)
        if not catching.session.ended:
            catching.session.mailbox.note_gap()
            with self.together:
                for message in catching.held:
                    self._give(catching, message)

    # -- the messages ------------------------------------------------------------------

    def _replay(self, catching: CatchUp, page: Page, until: int) -> Iterator[Deferred[Any] | None]:
        """
        Delivers the pages, then what was held.
        """
        while True:
            yield from self._deliver_page(catching, page, until)
            if not page.next or page.next > until:
                break
            found: list[Page] = []
            yield from self._fetch(catching, page.next, found)
            page = found[0]
        while catching.held:
            some, catching.held = catching.held[:DELIVERED_STEP], catching.held[DELIVERED_STEP:]
            with self.together:
                for message in some:
                    self._give(catching, message)
            if catching.held:
                yield from self._wait(catching)
        self.end(catching)

    def _fetch(self, catching: CatchUp, first: int, found: list[Page]) -> Iterator[Deferred[Any] | None]:
        """
        Gets a page, again and again if the node that keeps the object was killed meanwhile.
        """

        def away(why: Failure) -> None:
            refused = why.trap(Rejected) and why.value
            if not isinstance(refused, Rejected) or refused.code not in _AWAY:
                why.raiseException()

        for _ in range(MAX_AGAIN):
            asked = self._pages.page(catching.object, first, MAX_CHANGES, catching.message, catching.session)
            yield asked.addCallbacks(found.append, away)
            if found:
                return
            yield from self._wait(catching)
            yield deferLater(self._clock, AGAIN_SECONDS)
        raise Rejected(f"the history of {catching.object} was not answered"[:300], 504, "back-end")

    def _deliver_page(self, catching: CatchUp, page: Page, until: int) -> Iterator[Deferred[Any] | None]:
        for at in range(0, len(page.changes), DELIVERED_STEP):
            yield from self._wait(catching)
            with self.together:
                for change in page.changes[at : at + DELIVERED_STEP]:
                    if change.version <= until:
                        self.counts.replayed += 1
                        self._give(catching, recall(bytes(change.message)), change.version)
            yield None

    def _wait(self, catching: CatchUp) -> Iterator[Deferred[Any] | None]:
        """
        Waits until the session takes more. Raises Rejected if it went away, or too much is held for it.
        """
        for _ in range(MAX_WAITS):
            session = catching.session
            if session.ended or session.connection is None or catching.is_overrun:
                raise Rejected("the subscriber went away, or does not keep up", 503, "overflow")
            mailbox = session.mailbox
            if session.ready is not None or (mailbox.overlap is not None and not mailbox.queued):
                return  # a session that has just moved has its messages queued, and sent at the end of a turn
            yield deferLater(self._clock, WAIT_SECONDS)
        raise Rejected("the subscriber does not keep up", 503, "overflow")

    def _give(self, catching: CatchUp, message: Message, version: int = 0) -> None:
        """
        Delivers a message that the session is subscribed to and has not had yet.
        """
        if not version:
            found = part(message.data, "version")
            version = int(found) if found is not None and found.isdigit() else 0
        key = message.from_, message.id
        if version <= catching.last if version else key in catching.replayed:
            return  # a message that came by a third domain has no version
        catching.note_replayed(key)
        catching.last = max(catching.last, version)
        if message.to in catching.session.bindings:
            with suppress(Blocked):  # as when it was published
                self._deliver(message, catching.session)
