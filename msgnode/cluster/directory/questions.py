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


class _Question(msgspec.Struct, eq=False):
    address: str
    unanswered: set[str]
    held_by: list[str]
    waiters: list[Deferred[tuple[str, ...]]]


class Questions:
    """
    The questions under way, one for each address however often it is asked for, within a bound.
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
        self._reachable = reachable
        self._send = send
        self._most = most
        self._counts = counts
        self._last_id = 0
        self._by_id: dict[int, _Question] = {}
        self._ids: dict[str, int] = {}

    def ask(self, address: str) -> Deferred[tuple[str, ...]]:
        """
        The members that say they hold the address; those that answered in ASK_SECONDS. Beyond the bound of
        questions none is asked, and the result is ().
        """
        id = self._ids.get(address)
        if id is None:
            if len(self._by_id) >= self._most:
                self._counts.unanswered += 1
                return succeed(())
            self._last_id += 1
            id = self._last_id
            asked = {node for node in self._reachable() if self._send(node, Ask(id, address))}
            if not asked:
                return succeed(())
            self._by_id[id] = _Question(address, asked, [], [])
            self._timeouts.start(id)
            self._ids[address] = id
            self._counts.questions += 1
        done: Deferred[tuple[str, ...]] = Deferred()
        self._by_id[id].waiters.append(done)
        return done

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
        for id in list(self._by_id):
            self.answered(node, id, False)

    def _expire(self, id: int) -> None:
        self._counts.unanswered += 1
        self._finish(id)

    def _finish(self, id: int) -> None:
        question = self._by_id.pop(id)
        del self._ids[question.address]
        self._timeouts.cancel(id)
        found = tuple(sorted(question.held_by))
        for waiter in question.waiters:
            waiter.callback(found)

    def stop(self) -> None:
        """
        End all questions with what is known.
        """
        for id in list(self._by_id):
            self._finish(id)
