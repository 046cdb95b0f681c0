"""
A client that is away while more is sent to it than may wait: it must be told exactly how many it missed.
"""

from collections.abc import Iterator
from typing import NamedTuple

from soaking.load.publisher import SM, Ports
from soaking.load.resuming_client import Message, ResumingClient
from soaking.load.transports import LineLink
from soaking.verdict import Damage, Numbers, Verdict, find, misdelivered, ranges


class Stretch(NamedTuple):
    """
    The end of a stretch between two damages: how many messages and answers had come, of how many.

    `told` is how many it had been told are missed by then; `is_exact`: it should have had all others.
    """

    received: int
    answered: int
    sent: int
    asked: int
    told: int
    is_exact: bool


class Judged(NamedTuple):
    """
    A stretch with its wrong messages and answers, and how many it was told in it that it missed.

    `doubtful` is how many it does not have of those that were sent before `missed: null`. Some of them may
    have reached the node only after it had said that, and then it told how many of them are missed.
    """

    end: Stretch
    messages: Numbers
    answers: Numbers
    told: int
    doubtful: int

    @property
    def lost(self) -> int:
        """
        How many messages are gone untold, or told as missed and not gone.
        """
        gone = len(self.messages.lost) + len(self.answers.lost)
        return max(gone - self.told, self.told - gone - self.doubtful, 0)


class FloodedClient:
    """
    A client that `sender` sends to, one flood after another.

    `sent` is the number of the last message to it, `asked` that of its own last request. An answer to it
    waits in the same queue as the flood, so it may be among the messages that the client is told it missed.
    """

    def __init__(self, ports: Ports, sender: ResumingClient) -> None:
        self.runtime = "runtime://soak/flooded"
        self.received: list[int] = []
        self.addresses: list[str] = []  # what messages to it were addressed to
        self.sent = self.asked = 0
        self.answered: list[int] = []
        self.client = ResumingClient(self.runtime, lambda: LineLink(ports.line_port), self._heard)
        self.client.told_null = self.told_null
        self._ends: list[Stretch] = []
        self._sender = sender

    def _heard(self, message: Message) -> None:
        self.addresses.append(message["to"])
        if message["type"] == "update":
            self.received.append(message["id"])
        elif message["type"] == "response":
            self.answered.append(message["id"])

    def subscribe(self) -> None:
        """
        Bind an address: a session that never bound anything lives for a minute only.
        """
        self.asked += 1
        subscribe = {"id": self.asked, "type": "subscribe", "from": self.runtime, "to": SM}
        self.client.send({**subscribe, "body": {"resources": ["comm://flooded"]}})

    def flood(self, number: int) -> None:
        for _ in range(number):
            self.sent += 1
            to = f"{self.runtime}/x"
            self._sender.send({"id": self.sent, "type": "update", "from": self._sender.runtime, "to": to})

    def damaged(self) -> None:
        """
        Files of the node were damaged, when it had received all there was.
        """
        self.client.may_restart = True
        self._ends.append(self._now())

    def told_null(self) -> None:
        """
        It was told `missed: null`: any number of what had been sent before may be gone.
        """
        self._ends.append(self._now(is_exact=False))
        self.subscribe()

    def _now(self, is_exact: bool = True) -> Stretch:
        came = len(self.received), len(self.answered)
        return Stretch(*came, self.sent, self.asked, self.client.missed, is_exact)

    def stretches(self) -> Iterator[Judged]:
        """
        From one damage to the next. What had been sent before may come again after it, and is not looked at.
        """
        begin = exact = Stretch(0, 0, 0, 0, 0, True)
        for end in [*self._ends, self._now()]:
            messages = find(end.sent, self.received[begin.received : end.received], [Damage(0, begin.sent)])
            answers = find(end.asked, self.answered[begin.answered : end.answered], [Damage(0, begin.asked)])
            came = set(self.received[exact.received : end.received])
            doubtful = set(range(exact.sent + 1, begin.sent + 1)) - came
            answered = set(self.answered[exact.answered : end.answered])
            unanswered = set(range(exact.asked + 1, begin.asked + 1)) - answered
            yield Judged(end, messages, answers, end.told - begin.told, len(doubtful) + len(unanswered))
            begin = end
            if end.is_exact:
                exact = end

    def verdict(self) -> Verdict:
        """
        What was sent before `missed: null` may be gone.
        """
        judged = [one for one in self.stretches() if one.end.is_exact]
        return sum((Verdict.of(one.messages)._replace(lost=one.lost) for one in judged), Verdict())

    def evidence(self) -> list[str]:
        """
        What is wrong with each stretch, in words.
        """
        if not sum(self.verdict()):
            return []
        return [
            f"{self.runtime} up to number {one.end.sent}: was told that it missed {one.told}; "
            f"did not get {ranges(one.messages.lost)} and the answers {ranges(one.answers.lost)}; "
            f"doubled {ranges(one.messages.doubled)}, disordered {ranges(one.messages.disordered)}"
            for one in self.stretches()
            if one.end.is_exact
        ]

    def misdelivered(self) -> int:
        return misdelivered(self.addresses, set(), self.runtime)
