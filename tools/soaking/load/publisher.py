"""
The clients that publish, observe each other, ask each other and answer, by acknowledged resume.
"""

import random
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

from soaking.load.resuming_client import Message, ResumingClient
from soaking.load.transports import LineLink, Link, PollLink, WebSocketLink
from soaking.verdict import Damage, Numbers, Verdict, find, misdelivered

SM = "domain://msg-node.localhost/sm"
NEIGHBOURS = 3  # whom each client observes
TEXT = "x" * 100
# Not more is on its way at any time, so that no queue overflows, also when all comes twice after a damage.
MOST_UNHEARD = 100  # messages of a publisher that one who observes it has not received
MOST_UNANSWERED = 400  # requests of all clients


class Ports(Protocol):
    """
    The ports that clients connect to.
    """

    @property
    def web_port(self) -> int: ...
    @property
    def line_port(self) -> int: ...


class Publisher:
    """
    A client that publishes on a topic of its own, observes its neighbours, asks and answers.

    `sent_at` has the number of each message it published, and when; `heard` what it received, by publisher,
    and `heard_at` when. `asked_at` has whom it asked, and when; `requests` what it was asked, and when.
    """

    def __init__(self, number: int, all_of_them: "Sequence[Publisher]", count: int, ports: Ports) -> None:
        self.number = number
        self.runtime = f"runtime://soak/{number}"
        self.client = ResumingClient(self.runtime, self._link, self._heard)
        self.published = self.asked = 0
        self.sent_at: dict[str, tuple[int, float]] = {}
        self.asked_at: dict[int, tuple[str, float]] = {}
        self.requests: dict[tuple[str, str], float] = {}  # by the asker's runtime and the id
        self.heard: dict[int, list[int]] = defaultdict(list)
        self.heard_at: dict[int, list[float]] = defaultdict(list)
        self.answers: list[int] = []
        self.refusals: list[Message] = []
        self.addresses: list[str] = []  # what messages to it were addressed to
        self.is_subscribed = False
        self._last: dict[int, int] = defaultdict(int)  # the highest heard, by publisher
        self._damages: dict[int, list[Damage]] = defaultdict(list)  # by publisher
        self._damages_to_answers: list[Damage] = []
        self._unanswered: set[int] = set()
        self._publishers = all_of_them
        self._count = count
        self._ports = ports
        self.client.told_null = self.subscribe

    def topic(self, number: int) -> str:
        return f"comm://soak/{number}/changes"

    def neighbours(self) -> list[int]:
        return [(self.number + step) % self._count for step in range(1, NEIGHBOURS + 1)]

    def subscribe(self) -> None:
        resources = [self.topic(number) for number in self.neighbours()]
        self.client.send(
            {"id": "s", "type": "subscribe", "from": self.runtime, "to": SM, "body": {"resources": resources}}
        )

    # -- what it sends -------------------------------------------------------

    def publish(self) -> bool:
        """
        Publish one message.  False: not yet, because a client that observes it is too far behind.
        """
        observers = [
            self._publishers[(self.number - step) % self._count] for step in range(1, NEIGHBOURS + 1)
        ]
        if any(self.published - one._last[self.number] >= MOST_UNHEARD for one in observers):
            return False
        self.published += 1
        message = {
            "id": self.published,
            "type": "update",
            "from": self.runtime,
            "to": self.topic(self.number),
        }
        number = self.client.send({**message, "body": {"value": TEXT}})
        self.sent_at[f"{self.runtime} {self.published}"] = number, time.time()
        return True

    def ask(self) -> None:
        """
        Ask another one, unless too many requests have no answer yet.
        """
        if len(self._unanswered) >= MOST_UNANSWERED // self._count:
            return
        self.asked += 1
        self._unanswered.add(self.asked)
        peer = random.choice([number for number in range(self._count) if number != self.number])
        to = f"runtime://soak/{peer}"
        self.asked_at[self.asked] = to, time.time()
        read = {"id": f"q{self.asked}", "type": "read", "from": self.runtime}
        self.client.send({**read, "to": f"{to}/echo"})

    # -- what it receives ----------------------------------------------------

    def _link(self) -> Link:
        """
        Each connection by another transport, perhaps.
        """
        kind = random.choice((WebSocketLink, LineLink, PollLink))
        return kind(self._ports.line_port if kind is LineLink else self._ports.web_port)

    def _heard(self, message: Message) -> None:
        kind, id = message["type"], message["id"]
        self.addresses.append(message["to"])
        if kind == "update":
            publisher = int(message["from"].rpartition("/")[2])
            self.heard[publisher].append(id)
            self.heard_at[publisher].append(time.time())
            self._last[publisher] = max(id, self._last[publisher])
        elif kind == "read":
            self.requests[message["from"], id] = time.time()
            self.client.send({"id": id, "type": "response", "from": message["to"], "to": message["from"]})
        elif id == "s":
            if message["body"]["code"] == 200:
                self.is_subscribed = True
            else:
                self.subscribe()
        elif isinstance(id, str) and id.startswith("q") and "code" not in message.get("body", {}):
            self.answers.append(int(id[1:]))
            self._unanswered.discard(int(id[1:]))
        else:
            self.refusals.append({**message, "came": time.time()})

    def damaged(self) -> None:
        """
        Files of the node were damaged: what was sent until now may be lost, or come twice.
        """
        self.client.may_restart = True
        self._damages_to_answers.append(Damage(len(self.answers), self.asked))
        self._unanswered.clear()
        for number in self.neighbours():
            published = self._publishers[number].published
            self._damages[number].append(Damage(len(self.heard[number]), published))
            self._last[number] = max(published, self._last[number])

    # -- what came of it -----------------------------------------------------

    def verdict(self) -> Verdict:
        wrong = [self.wrong_answers(), *map(self.wrong_messages, self.neighbours())]
        return sum(map(Verdict.of, wrong), Verdict())

    def wrong_answers(self) -> Numbers:
        """
        The numbers of its requests that were answered never or twice.
        """
        found = find(self.asked, self.answers, self._damages_to_answers)
        return found._replace(disordered=[])

    def wrong_messages(self, publisher: int) -> Numbers:
        """
        The numbers of that publisher's messages that came never, twice or out of order.
        """
        sent = self._publishers[publisher].published
        return find(sent, self.heard[publisher], self._damages[publisher])

    def misdelivered(self) -> int:
        allowed = {self.topic(number) for number in self.neighbours()}
        return misdelivered(self.addresses, allowed, self.runtime)
