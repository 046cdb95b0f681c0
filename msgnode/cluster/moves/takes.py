"""
The requests of this node for sessions that other members hold.
"""

from collections.abc import Callable

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.cluster.moves.wire import Answer, AnyStatement, Take
from msgnode.structures.timeouts import Timeouts

TAKE_SECONDS = 2.0  # without a sign of the holder
MOST_SECONDS = 6.0  # with signs of it; with RETURN_SECONDS less than clients wait (client/connection.py)
RETRY_SECONDS = 0.1
AGAIN_SECONDS = 1.0  # a holder that only writes to a slow disk, or sends a large state, answers meanwhile
NOT_HERE = 404

TAKEN, REFUSED, GONE, UNANSWERED = "taken", "refused", "gone", "unanswered"
FULL = "full"  # it was refused, because too many are under way


class Outcome(msgspec.Struct, frozen=True):
    """
    The result of a request for a session.

    TAKEN: it is held here now. REFUSED: the client may not have it, for `code` and `reason`. GONE: its holder
    does not know it. UNANSWERED: its holder did not answer; the session begins again here with `generation`,
    and its client has missed what the holder may hand over later.
    """

    kind: str
    generation: int
    code: int = 0
    reason: str = ""


class _Request(msgspec.Struct, eq=False):
    name: str
    claim: bytes
    node: str  # that is asked
    generation: int  # the highest that is known
    waiters: list[Deferred[Outcome]]
    began: float
    again: IDelayedCall | None = None


class Takes:
    """
    The requests under way, one for each session, within a bound. `ended` is called with the kind of each
    outcome, and the seconds that it took. `leaves_to`: is a session on its way from here to that member?
    `holder` gives the newest holder of a session that is known here, and its generation.
    """

    def __init__(
        self,
        node: str,
        clock: IReactorTime,
        send: Callable[[str, AnyStatement], None],
        most: int,
        ended: Callable[[str, float], object],
        leaves_to: Callable[[str, str], bool],
        holder: Callable[[str], tuple[int, str] | None],
    ) -> None:
        self._holder = holder
        self._leaves_to = leaves_to
        self._ended = ended
        self._node = node
        self._clock = clock
        self._send = send
        self._most = most
        self._last_id = 0
        self._by_id: dict[int, _Request] = {}
        self._ids: dict[str, int] = {}
        self._timeouts: Timeouts[int] = Timeouts(clock, TAKE_SECONDS, self._expire)

    def __len__(self) -> int:
        return len(self._by_id)

    def take(self, name: str, claim: bytes, holder: str, generation: int) -> Deferred[Outcome]:
        """
        The outcome of asking `holder`, and the members that it names, for the session.
        """
        done: Deferred[Outcome] = Deferred()
        id = self._ids.get(name)
        if id is not None:
            self._by_id[id].waiters.append(done)
            return done
        if len(self._by_id) >= self._most:
            self._ended(FULL, 0.0)
            return succeed(Outcome(REFUSED, generation, 1013, "full"))
        self._last_id += 1
        id = self._ids[name] = self._last_id
        self._by_id[id] = _Request(name, claim, holder, generation, [done], self._clock.seconds())
        self._timeouts.start(id)
        self._ask(id)
        return done

    def _ask(self, id: int) -> None:
        request = self._by_id[id]
        _cancel(request.again)
        request.again = self._clock.callLater(AGAIN_SECONDS, self._ask, id)
        self._send(request.node, Take(id, request.name, request.claim))

    def answered(self, of: str, answer: Answer) -> None:
        request = self._by_id.get(answer.id)
        if request is None or request.node != of:
            return
        request.generation = max(request.generation, answer.generation)
        is_early = answer.code == NOT_HERE and self._leaves_to(request.name, of)
        if answer.code and not is_early:
            kind = GONE if answer.code == NOT_HERE else REFUSED
            self._finish(answer.id, Outcome(kind, request.generation, answer.code, answer.reason))
            return
        self._wait_longer(answer.id)
        if answer.node != self._node:  # else it is on its way
            request.node = answer.node or of
            _cancel(request.again)
            request.again = self._clock.callLater(RETRY_SECONDS, self._ask, answer.id)

    def offered(self, name: str) -> None:
        """
        A member hands the session over to this node.
        """
        id = self._ids.get(name)
        if id is not None:
            self._wait_longer(id)

    def _wait_longer(self, id: int) -> None:
        """
        The holder is there, but slow: if the session began again here, what it still has would come late.
        """
        if self._clock.seconds() + TAKE_SECONDS <= self._by_id[id].began + MOST_SECONDS:
            self._timeouts.start(id)

    def imported(self, name: str, generation: int) -> None:
        """
        The session is held here now.
        """
        id = self._ids.get(name)
        if id is not None:
            self._finish(id, Outcome(TAKEN, generation))

    def heard_of(self, name: str) -> None:
        """
        A member has said that it holds this session. If it was asked for, ask there: its earlier holder may
        have ended since, and cannot say so any more.
        """
        id = self._ids.get(name)
        found = self._holder(name) if id is not None else None
        if id is None or found is None:
            return
        request = self._by_id[id]
        generation, node = found
        if generation > request.generation and node != request.node:
            request.generation, request.node = found
            self._ask(id)

    def member_up(self, node: str) -> None:
        """
        Ask the member again: its link was down.
        """
        for id, request in self._by_id.items():
            if request.node == node:
                self._ask(id)

    def _expire(self, id: int) -> None:
        self._finish(id, Outcome(UNANSWERED, self._by_id[id].generation + 1))

    def _finish(self, id: int, outcome: Outcome) -> None:
        request = self._by_id.pop(id)
        del self._ids[request.name]
        self._timeouts.cancel(id)
        _cancel(request.again)
        self._ended(outcome.kind, self._clock.seconds() - request.began)
        for waiter in request.waiters:
            waiter.callback(outcome)

    def stop(self) -> None:
        for id in list(self._by_id):
            self._expire(id)


def _cancel(call: IDelayedCall | None) -> None:
    if call is not None and call.active():
        call.cancel()
