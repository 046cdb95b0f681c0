"""
Requests between members: one member asks another a question of its own, and gets one answer.

They are for what must be decided once in the domain. What clients send takes the streams.
"""

from collections.abc import Callable

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.cluster.membership import Members
from msgnode.protocol.errors import FAILED, Rejected

ANSWER_SECONDS = 2.0
MAX_PENDING = 10_000  # requests of this node that are not answered yet
MAX_ANSWERING = 1_000  # requests of one member that this node works on
MAX_SUBJECT_CHARS = 64
log = Logger()

Handler = Callable[[str, bytes], "bytes | Deferred[bytes]"]


class Asked(msgspec.Struct, array_like=True, tag="asked"):
    """
    A request: its number, what it is about, and its content.
    """

    number: int
    subject: str
    body: bytes


class Answered(msgspec.Struct, array_like=True, tag="answered"):
    """
    An answer: 200 with its content, or the code, text and reason of a refusal.
    """

    number: int
    code: int
    body: bytes = b""
    text: str = ""
    reason: str = ""


_decoder = msgspec.msgpack.Decoder(Asked | Answered)
_encode = msgspec.msgpack.Encoder().encode


class NoAnswer(Rejected):
    """
    The refusal where a member is away, or did not answer in time.
    """

    code = 503
    reason = "no-path"


class _Pending(msgspec.Struct, eq=False):
    """
    A request of this node.
    """

    node: str
    answered: Deferred[bytes]
    timer: IDelayedCall


class RequestCounts(msgspec.Struct):
    """
    The counts of requests since the node started. `full` were not asked, as too many waited.
    """

    asked: int = 0
    unanswered: int = 0
    answered: int = 0
    refused: int = 0
    malformed: int = 0
    full: int = 0


class MemberRequests:
    """
    The requests from and to other members (MembersListener). A request to this node itself is answered at
    once. At most `most` wait for an answer.
    """

    def __init__(self, members: Members, clock: IReactorTime, most: int = MAX_PENDING) -> None:
        self._most = most
        self.counts = RequestCounts()
        self.on_up: list[Callable[[str], None]] = []  # called with each member whose link comes up
        self.on_down: list[Callable[[str], None]] = []  # and goes down
        self._members = members
        self._clock = clock
        self._handlers: dict[str, Handler] = {}
        self._pending: dict[int, _Pending] = {}
        self._answering: dict[str, int] = {}
        self._links: dict[str, int] = {}  # how often the link of each member came up
        self._number = 0
        self._logged: set[str] = set()

    @property
    def up(self) -> list[str]:
        """
        The other members that are up.
        """
        return list(self._members.up())

    def offer(self, subject: str, handler: Handler) -> None:
        """
        Answer the requests about `subject`, each with the member that asks and the content. A handler refuses
        by raising Rejected.
        """
        self._handlers[subject] = handler

    def ask(
        self, node: str, subject: str, body: bytes = b"", seconds: float = ANSWER_SECONDS
    ) -> Deferred[bytes]:
        """
        The answer of a member. Fails with Rejected if it refuses, and with NoAnswer if it is away or says
        nothing in time; then it may have done what was asked.
        """
        answered: Deferred[bytes] = Deferred()
        if node == self._members.node:
            self._answer(node, subject, body).chainDeferred(answered)
            return answered
        self.counts.asked += 1
        if len(self._pending) >= self._most:
            self.counts.full += 1
            why = f"{self._most} requests to other nodes wait for an answer"
            answered.errback(NoAnswer(why, reason="limit"))
            return answered
        self._number += 1
        number = self._number
        request = _encode(Asked(number, subject, body))
        if len(request) > self._members.max_payload:
            answered.errback(Rejected(_too_long(request, self._members.max_payload), 413, "too-long"))
            return answered
        if not self._members.send(node, request):
            self.counts.unanswered += 1
            answered.errback(NoAnswer(f"{node} is away"))
            return answered
        timer = self._clock.callLater(
            seconds, self._give_up, number, f"{node} did not answer in {seconds:g} s"
        )
        self._pending[number] = _Pending(node, answered, timer)
        return answered

    def stop(self) -> None:
        for number in list(self._pending):
            self._give_up(number, "the node is stopping")

    def _give_up(self, number: int, why: str) -> None:
        pending = self._pending.pop(number)
        if pending.timer.active():
            pending.timer.cancel()
        self.counts.unanswered += 1
        pending.answered.errback(NoAnswer(why))

    # -- MembersListener ------------------------------------------------------------------

    def member_up(self, node: str, epoch: tuple[bytes, int]) -> None:
        self._links[node] = self._links.get(node, 0) + 1
        for call in self.on_up:
            call(node)

    def member_down(self, node: str) -> None:
        self._answering.pop(node, None)
        for number in [number for number, each in self._pending.items() if each.node == node]:
            self._give_up(number, f"{node} went away before it answered")
        for call in self.on_down:
            call(node)

    def has_room(self, node: str) -> None:
        """
        Does nothing: who asks again has waited.
        """

    def member_heard(self, node: str, payload: bytes) -> None:
        try:
            said = _decoder.decode(payload)
        except ValueError as why:  # also msgspec.DecodeError
            self._drop(node, str(why)[:200])
            return
        if isinstance(said, Answered):
            self._take(node, said)
        elif len(said.subject) > MAX_SUBJECT_CHARS:
            self._drop(node, f"a subject of {len(said.subject)} characters")
        elif self._answering.get(node, 0) >= MAX_ANSWERING:
            busy = f"this node answers {MAX_ANSWERING} requests of one member at a time"
            self._refuse(node, said.number, Rejected(busy, 503, "limit"))
        else:
            link = self._links.get(node, 0)
            self._answering[node] = self._answering.get(node, 0) + 1
            self._answer(node, said.subject, said.body).addBoth(self._reply, node, link, said.number)

    def _drop(self, node: str, why: str) -> None:
        self.counts.malformed += 1
        if node not in self._logged:
            self._logged.add(node)
            log.warn("{node} sent a malformed request: {why}", node=node, why=why)

    def _take(self, node: str, answer: Answered) -> None:
        pending = self._pending.get(answer.number)
        if pending is None or pending.node != node:
            return  # it came too late
        del self._pending[answer.number]
        pending.timer.cancel()
        if answer.code == 200:
            pending.answered.callback(answer.body)
        else:
            code = answer.code if 400 <= answer.code <= 599 else 503
            pending.answered.errback(Rejected(answer.text[:300], code, answer.reason[:64]))

    def _answer(self, node: str, subject: str, body: bytes) -> Deferred[bytes]:
        answered: Deferred[bytes] = Deferred()
        handler = self._handlers.get(subject)
        if handler is None:
            answered.errback(Rejected(f"this node knows no requests about {subject}", 501, "not-handled"))
            return answered
        try:
            made = handler(node, body)
        except Exception:
            answered.errback(Failure())
        else:
            if isinstance(made, Deferred):
                made.chainDeferred(answered)
            else:
                answered.callback(made)
        return answered.addErrback(self._as_refusal, subject)

    def _as_refusal(self, why: Failure, subject: str) -> Failure:
        if isinstance(why.value, Rejected):
            return why
        if isinstance(why.value, ValueError):  # also msgspec.DecodeError
            return Failure(Rejected(f"a request about {subject} is malformed: {why.value}"[:300]))
        log.failure("a request about {subject} could not be answered", why, subject=subject)
        return Failure(Rejected(FAILED, 500, "failed"))

    def _reply(self, made: bytes | Failure, node: str, link: int, number: int) -> None:
        if self._links.get(node, 0) != link:
            return  # the link on which it was asked is gone
        self._answering[node] = max(0, self._answering.get(node, 0) - 1)
        if isinstance(made, Failure):
            assert isinstance(made.value, Rejected)
            self._refuse(node, number, made.value)
            return
        answer = _encode(Answered(number, 200, made))
        if len(answer) > self._members.max_payload:
            too_long = _too_long(answer, self._members.max_payload)
            self._refuse(node, number, Rejected(too_long, 413, "too-long"))
            return
        self.counts.answered += 1
        self._members.send(node, answer)

    def _refuse(self, node: str, number: int, why: Rejected) -> None:
        self.counts.refused += 1
        text = str(why)[:300]
        self._members.send(node, _encode(Answered(number, why.code, b"", text, why.reason[:64])))


def _too_long(data: bytes, most: int) -> str:
    return f"what members ask and answer has at most {most} bytes, not {len(data)}"
