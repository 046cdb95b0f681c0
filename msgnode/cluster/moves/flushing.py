"""
Flushing: the wait until all that members have sent so far has arrived.

A session's earlier holder ends a handover only then. So nothing comes late to it, no message overtakes an
earlier one of its sender, and each copy of a publication is known at the new holder when the other comes.
A member may keep an acknowledgement back for a while, so each is asked for it.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.cluster.membership import Members
from msgnode.cluster.moves.wire import AnyStatement, Flush, Flushed

FLUSH_SECONDS = 2.0  # what a member cannot flush in that time is late, and is waited for again
OWN_SECONDS = 1.0
LOOK_SECONDS = 0.002  # between two looks whether all is acknowledged, and two questions
MAX_LOOK_SECONDS = 0.05
MAX_ASKED = 64  # nodes of one question


class SendingStreams(Protocol):
    """
    The streams to other nodes, as this wait uses them (links/stream/node_streams.py).
    """

    def unacknowledged(self, destination: str) -> Callable[[], bool]: ...
    def ask(self, destination: str) -> None: ...


class _Wait(msgspec.Struct, eq=False):
    tests: dict[str, Callable[[], bool]]  # by node: is something not acknowledged yet?
    done: Deferred[None]


class Acknowledgements:
    """
    The waits under way. One timer serves all of them, and at each look a member is asked once. `decided`
    fires when what policies decide about now is queued for sessions here.
    """

    def __init__(
        self,
        streams: SendingStreams,
        clock: IReactorTime,
        decided: Callable[[], Deferred[None]] = lambda: succeed(None),
    ) -> None:
        self._decided = decided
        self._streams = streams
        self._clock = clock
        self._waits: list[_Wait] = []
        self._timer: IDelayedCall | None = None
        self._seconds = LOOK_SECONDS

    def wait(self, nodes: Iterable[str]) -> Deferred[None]:
        """
        Fires when these members have acknowledged all that is sent to them until now, and sessions here have
        what was for them.
        """
        return self._decided().addCallback(lambda done: self._wait(nodes))

    def is_owed(self, node: str) -> bool:
        """
        Has this node not acknowledged all that is sent to it until now?
        """
        return self._streams.unacknowledged(node)()

    def _wait(self, nodes: Iterable[str]) -> Deferred[None]:
        tests = {node: self._streams.unacknowledged(node) for node in nodes}
        tests = {node: test for node, test in tests.items() if test()}
        if not tests:
            return succeed(None)
        wait = _Wait(tests, Deferred())
        self._waits.append(wait)
        self._seconds = LOOK_SECONDS
        if self._timer is None:
            self._ask()
        elif self._timer.getTime() > self._clock.seconds() + LOOK_SECONDS:
            self._timer.reset(LOOK_SECONDS)
        return wait.done

    def _ask(self) -> None:
        for node in dict.fromkeys(node for wait in self._waits for node in wait.tests):
            self._streams.ask(node)
        self._timer = self._clock.callLater(self._seconds, self._look)
        self._seconds = min(2 * self._seconds, MAX_LOOK_SECONDS)

    def _look(self) -> None:
        self._timer = None
        for wait in self._waits:
            wait.tests = {node: test for node, test in wait.tests.items() if test()}
        over = [wait for wait in self._waits if not wait.tests]
        self._waits = [wait for wait in self._waits if wait.tests]
        if self._waits:
            self._ask()
        for wait in over:
            wait.done.callback(None)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waits = []


class _Round(msgspec.Struct, eq=False):
    missing: set[str]
    waiters: list[tuple[str, Deferred[bool]]]  # with their nodes
    timer: IDelayedCall
    asked: list[str]
    late: set[str]  # the members that are away
    is_slow: bool = False  # has a member not answered in time that is not away?
    owed: set[str] = set()  # nodes for which a member without a link to them has something


class Flushing:
    """
    The questions of this node to all members, and theirs to it. One question is under way at a time: those
    who come meanwhile wait for the next. `acknowledged` fires when all that this node has sent to some
    members is acknowledged; `expected` are members without a link that will have one soon, or are not up any
    more since a moment. `owes`: has this node sent a node something that is not acknowledged? `send` sends a
    statement to a member.

    Members that are `away` will be back later. Nothing waits for them, but what they have sent is late.
    """

    def __init__(
        self,
        members: Members,
        clock: IReactorTime,
        acknowledged: Callable[[Iterable[str]], Deferred[None]] = lambda nodes: succeed(None),
        expected: Callable[[], Iterable[str]] = tuple,
        away: Callable[[], Iterable[str]] = tuple,
        owes: Callable[[str], bool] = lambda node: False,
    ) -> None:
        self.is_slow = False  # was a member late the last time that is not away?
        self._expected = expected
        self._away = away
        self._owes = owes
        self.send: Callable[[str, AnyStatement], None] = lambda node, statement: None
        self.timeouts = 0
        self._late_members: set[str] = set()
        self._members = members
        self._clock = clock
        self._acknowledged = acknowledged
        self._last_id = 0
        self._round: _Round | None = None
        self._next: list[tuple[str, Deferred[bool]]] = []

    def own(self) -> Deferred[None]:
        """
        Fires when all that this node has sent to members is acknowledged, or cannot be in time.
        """
        flushed = self._in_time(self._acknowledged(list(self._members.up())), OWN_SECONDS)
        return flushed.addCallback(lambda is_late: None)

    def late_members(self) -> set[str] | None:
        """
        The members of which something was late the last time; None if any member may be one.
        """
        return None if self.is_slow else self._late_members

    def flush(self, node: str) -> Deferred[bool]:
        """
        Fires when all that any member has sent until now to this node and to `node` has arrived; with True if
        some of it is late. Then ask again.
        """
        done: Deferred[bool] = Deferred()
        self._next.append((node, done))
        if self._round is None:
            self._clock.callLater(0, self._begin)
        return done

    def _begin(self) -> None:
        if self._round is not None or not self._next:
            return
        asked = dict.fromkeys(node for node, _ in self._next[:MAX_ASKED])
        waiters: list[tuple[str, Deferred[bool]]] = []
        rest = []
        for node, done in self._next:
            if node in asked:
                waiters.append((node, done))
            else:
                rest.append((node, done))
        self._next = rest
        self._last_id += 1
        up, own = set(self._members.up()), self._members.node
        members = {*up, *self._expected()} - {own}
        timer = self._clock.callLater(FLUSH_SECONDS, self._late)
        late = set(self._away()) - members
        self._round = _Round({own, *members}, waiters, timer, list(asked), late)
        for node in up:
            self._ask(node)
        others = [node for node in asked if node in up]
        acknowledged = self._acknowledged(others).addCallback(lambda done: False)
        acknowledged.addCallback(self._heard, own, self._last_id, ())

    def _ask(self, node: str) -> None:
        if self._round is not None and node in self._round.missing:
            others = [each for each in self._round.asked if each != node]
            self.send(node, Flush(self._last_id, others))

    def answered(self, node: str, flushed: Flushed) -> None:
        self._heard(flushed.late, node, flushed.id, flushed.unreached)

    def member_up(self, node: str) -> None:
        self._ask(node)

    def _heard(self, is_late: bool, node: str, id: int, owed: Iterable[str]) -> None:
        if self._round is not None and id == self._last_id:
            self._round.is_slow |= is_late
            self._round.owed.update(owed)
            self._round.missing.discard(node)
            if not self._round.missing:
                self._end()

    def _late(self) -> None:
        self.timeouts += 1
        if self._round is not None:
            self._round.is_slow = True
        self._end()

    def _end(self) -> None:
        ended, self._round = self._round, None
        if ended is None:
            return
        self.is_slow, self._late_members = ended.is_slow, ended.late
        if ended.timer.active():
            ended.timer.cancel()
        if self._next:
            self._clock.callLater(0, self._begin)
        for node, done in ended.waiters:
            done.callback(bool(ended.late) or ended.is_slow or node in ended.owed)

    def asked(self, node: str, flush: Flush) -> None:
        """
        A member asks this node. What is for nodes without a link is late; it is not waited for.
        """
        others = {node, *flush.nodes} - {self._members.node}
        reached = others.intersection(self._members.up())
        owed = {each for each in others - reached if self._owes(each)}
        done = self._in_time(self._acknowledged(reached), FLUSH_SECONDS)
        done.addCallback(
            lambda is_late: self.send(node, Flushed(flush.id, is_late or node in owed, sorted(owed - {node})))
        )

    def stop(self) -> None:
        self._next = []
        if self._round is not None:
            self._round.timer.cancel()
            self._round = None

    def _in_time(self, done: Deferred[None], seconds: float) -> Deferred[bool]:
        """
        Fires when it is done, or with True after so many seconds.
        """
        over: Deferred[bool] = Deferred()
        timer = self._clock.callLater(seconds, over.callback, True)

        def finished(result: object) -> None:
            if timer.active():
                timer.cancel()
                over.callback(False)

        done.addBoth(finished)
        return over
