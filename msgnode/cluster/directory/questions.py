"""
Questions to all members about an address that the directory does not know.
"""

from collections.abc import Callable, Iterable

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime

from msgnode.cluster.directory.limits import DirectoryCounts
from msgnode.cluster.directory.wire import Ask
from msgnode.structures.timeouts import Timeouts

ASK_SECONDS = 0.5
ANSWER_SECONDS = 5.0  # for which members are waited for that do not answer, if no other one holds the address
JOIN_SECONDS = 2.0  # those who ask later ask all members again: one may have come, or bound the address

Answer = tuple[str, ...] | None


class _Waiter(msgspec.Struct, eq=False):
    until: float
    done: Deferred[Answer]


class _Question(msgspec.Struct, eq=False):
    address: str
    began: float
    asked: set[str]
    unanswered: set[str]
    held_by: list[str]
    waiters: list[_Waiter]
    is_sure: bool = True  # has every member that was asked answered?
    times: int = 1  # that its timeout was started


class Questions:
    """
    The questions under way, within a bound. Those who ask for the same address at about the same time share
    one. A member that does not answer is asked again, less and less often: it may be busy, or the question
    was lost.
    """

    def __init__(
        self,
        clock: IReactorTime,
        reachable: Callable[[], Iterable[str]],
        send: Callable[[str, Ask], bool],
        most: int,
        counts: DirectoryCounts,
    ) -> None:
        self._timeouts: Timeouts[int] = Timeouts(clock, ASK_SECONDS, self._expire)
        self._clock = clock
        self._reachable = reachable
        self._send = send
        self._most = most
        self._counts = counts
        self._last_id = 0
        self._by_id: dict[int, _Question] = {}
        self._ids: dict[str, int] = {}

    def ask(self, address: str, seconds: float = ANSWER_SECONDS) -> Deferred[Answer]:
        """
        The members that say they hold the address; those that answered in ASK_SECONDS, if any. () if all say
        that they do not. None if that is not known in so many seconds, or not asked: beyond the bound of
        questions, and where no member is reached.
        """
        id = self._ids.get(address)
        if id is None:
            if len(self._by_id) >= self._most:
                self._counts.unanswered += 1
                return succeed(None)
            self._last_id += 1
            id = self._last_id
            asked = {node for node in self._reachable() if self._send(node, Ask(id, address))}
            if not asked:
                return succeed(None)
            self._by_id[id] = _Question(address, self._clock.seconds(), asked, set(asked), [], [])
            self._timeouts.start(id)
            self._ids[address] = id
            self._counts.questions += 1
        waiter = _Waiter(self._clock.seconds() + seconds, Deferred())
        self._by_id[id].waiters.append(waiter)
        return waiter.done

    def answered(self, node: str, id: int, is_held: bool) -> None:
        question = self._by_id.get(id)
        if question is None or node not in question.unanswered:
            return
        question.unanswered.discard(node)
        if is_held:
            question.held_by.append(node)
        if not question.unanswered:
            self._finish(id)

    def unreachable(self, node: str) -> None:
        """
        Wait for no answer of that member any more.
        """
        for id, question in list(self._by_id.items()):
            if node in question.unanswered:
                question.is_sure = False
                self.answered(node, id, False)

    def _expire(self, id: int) -> None:
        question, now = self._by_id[id], self._clock.seconds()
        if now >= question.began + JOIN_SECONDS:
            self._take_no_more(id, question)
        late = [waiter for waiter in question.waiters if waiter.until <= now]
        question.waiters = [waiter for waiter in question.waiters if waiter.until > now]
        if question.held_by or not question.waiters:
            self._counts.unanswered += 1
            question.is_sure = False
            question.waiters += late
            self._finish(id)
            return
        if not question.times & (question.times - 1):
            for node in question.unanswered:
                self._send(node, Ask(id, question.address))
        question.times += 1
        self._timeouts.start(id)
        for waiter in late:
            waiter.done.callback(None)

    def _take_no_more(self, id: int, question: _Question) -> None:
        if self._ids.get(question.address) == id:
            del self._ids[question.address]

    def _finish(self, id: int) -> None:
        question = self._by_id.pop(id)
        self._take_no_more(id, question)
        self._timeouts.cancel(id)
        found = tuple(sorted(question.held_by))
        is_sure = question.is_sure and question.asked.issuperset(self._reachable())
        for waiter in question.waiters:
            waiter.done.callback(found if found or is_sure else None)

    def stop(self) -> None:
        """
        End all questions with what is known.
        """
        for id, question in list(self._by_id.items()):
            question.is_sure = False
            self._finish(id)
