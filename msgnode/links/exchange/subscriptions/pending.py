"""
Entries that were sent to other domains and not answered yet, and the clients' requests that wait for them.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from msgnode.links.exchange.subscriptions.entries import Answer
from msgnode.links.exchange.subscriptions.upstream_table import Subscriber
from msgnode.protocol.errors import Rejected

ANSWER_SECONDS = 5.0  # until a client is answered that the other domain has not answered yet


class Request:
    """
    A client's request that waits for the answers of one or several domains. `answered` fires once.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.answered: Deferred[None] = Deferred()
        self.left = 0
        self._refusal: Rejected | None = None
        self._late = clock.callLater(ANSWER_SECONDS, self._time_out)

    def answer(self, refusal: Rejected | None) -> None:
        """
        One of the answers came.
        """
        self.left -= 1
        self._refusal = self._refusal or refusal
        if self.left > 0 or self.answered.called:
            return
        self._late.cancel()
        if self._refusal is not None:
            self._refusal.has_reason_in_reply = True
            self.answered.errback(self._refusal)
        else:
            self.answered.callback(None)

    def _time_out(self) -> None:
        late = "the other domain has not answered yet; the node goes on asking"
        refusal = Rejected(late, 504, "no-path")
        refusal.has_reason_in_reply = True
        self.answered.errback(refusal)


class Asking(Struct):
    """
    An entry that was sent and not answered: its node and the domain that it is for, when it was sent, its
    session and addresses, and what waits for the answer: a client's request, or `report` for a member.
    """

    node: str
    domain: str
    since: float
    session: Subscriber
    addresses: list[str]
    request: Request | None
    report: Callable[[Answer], None] | None = None

    @property
    def is_awaited(self) -> bool:
        return self.report is not None or (self.request is not None and not self.request.answered.called)


class PendingAnswers:
    """
    The table of unanswered entries by generation. `count` is the number of addresses that a domain has not
    answered for.
    """

    def __init__(self) -> None:
        self._asking: dict[int, Asking] = {}  # the generations rise
        self._addresses: Counter[str] = Counter()  # by domain

    def __len__(self) -> int:
        return len(self._asking)

    def count(self, domain: str) -> int:
        return self._addresses[domain]

    def add(self, generation: int, asking: Asking) -> None:
        self._asking[generation] = asking
        self._addresses[asking.domain] += len(asking.addresses)

    def get(self, generation: int) -> Asking | None:
        return self._asking.get(generation)

    def pop(self, generation: int) -> Asking | None:
        asking = self._asking.pop(generation, None)
        if asking is not None:
            domain = asking.domain
            self._addresses[domain] -= len(asking.addresses)
            if not self._addresses[domain]:
                del self._addresses[domain]
        return asking

    def drop_asked_again(self, domain: str, generation: int) -> None:
        """
        Drops what a snapshot of that generation asks for again, unless a client still waits for it.
        """
        self._drop(
            each
            for each, asking in self._asking.items()
            if each < generation and asking.domain == domain and not asking.is_awaited
        )

    def drop_older(self, since: float) -> None:
        self._drop(each for each, asking in self._asking.items() if asking.since < since)

    def _drop(self, generations: Iterable[int]) -> None:
        for generation in list(generations):
            self.pop(generation)
