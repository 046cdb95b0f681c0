"""
A client that resumes and speaks with clients of other groups, which are domains for instance; it keeps what
it sent, received and was told.
"""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from soaking.load.resuming_client import Message, ResumingClient
from soaking.load.transports import Link
from soaking.verdict import Numbers, Verdict, find

TEXT = "x" * 100
MAX_UNHEARD = 3000  # messages of one member to another that have not come
# What it does at each step, by chance.
KINDS, WEIGHTS = ("update", "receipt", "request", "publication"), (5, 2, 2, 1)

Pair = tuple[str, str]  # runtime of the sender, runtime of the recipient


class Member:
    """
    A client called `runtime`. `others` are all members, its own included; it speaks with those of another
    `group`. `link` makes its next connection.

    What it sends to another one is numbered, whether a receipt is asked for or not; so are its publications
    and its requests. `heard` has the numbers that came, by sender and kind; `answers` has what its requests
    were answered, `receipts` the final receipts, both by number and recipient. `heard_at` has, by sender's
    group, when the newest message that came had been sent.
    """

    def __init__(
        self,
        domain: str,
        number: int,
        group: str,
        link: Callable[[], Link],
        others: "Sequence[Member]",
        chance: random.Random,
    ) -> None:
        self.domain = domain
        self.group = group
        self.runtime = f"runtime://{domain}/{number}"
        self.topic = f"comm://{domain}/{number}/changes"
        self.client = ResumingClient(self.runtime, link, self._heard)
        self.sent: dict[tuple[str, str], int] = defaultdict(int)  # by recipient and kind
        self.heard: dict[tuple[str, str], list[int]] = defaultdict(list)  # by sender and kind
        self.answers: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.receipts: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.asked_for: set[tuple[str, int]] = set()  # receipts, by recipient and number
        self.heard_at: dict[str, float] = defaultdict(float)
        self.told_code: Callable[[str, int], None] = lambda kind, code: None
        self.subscribed: set[str] = set()
        self.strange: list[Message] = []  # that it expected nothing of
        self._others = others
        self._chance = chance

    @property
    def far(self) -> "list[Member]":
        return [other for other in self._others if other.group != self.group]

    def subscribe(self) -> None:
        """
        Observe the topics of all other groups; again until each is accepted.
        """
        for other in self.far:
            if other.topic not in self.subscribed:
                self.client.send({
                    "id": f"s {other.topic}", "type": "subscribe", "from": self.runtime,
                    "to": f"domain://msg-node.{self.domain}/sm", "body": {"resources": [other.topic]},
                })  # fmt: skip

    @property
    def is_subscribed(self) -> bool:
        return all(other.topic in self.subscribed for other in self.far)

    def step(self) -> None:
        """
        Send one message to a member of another group, unless that is too far behind.
        """
        far = self.far
        kind = self._chance.choices(KINDS, WEIGHTS)[0]
        if kind == "publication":
            if all(self.sent["", "publication"] - len(other.came(self, kind)) < MAX_UNHEARD for other in far):
                self._send("publication", "", self.topic.removesuffix("/changes"), self.topic)
            return
        other = self._chance.choice(far)
        if kind == "request":
            self._send("request", other.runtime, self.runtime, other.runtime + "/echo", type="read")
        elif self.sent[other.runtime, "update"] - len(other.came(self, "update")) < MAX_UNHEARD:
            receipt = {"receipt": True} if kind == "receipt" else {}
            number = self._send("update", other.runtime, self.runtime, other.runtime, **receipt)
            if receipt:
                self.asked_for.add((other.runtime, number))

    def _send(self, kind: str, recipient: str, from_: str, to: str, **more: Any) -> int:
        self.sent[recipient, kind] += 1
        number = self.sent[recipient, kind]
        header = {"id": f"{kind} {number} {recipient}", "type": "update", "from": from_, "to": to, **more}
        about = {"at": time.time(), "by": self.runtime, "group": self.group}
        self.client.send({**header, "body": {**about, "value": TEXT}})
        return number

    def came(self, sender: "Member", kind: str) -> list[int]:
        return self.heard[sender.runtime, kind]

    # -- what it receives ----------------------------------------------------

    def _heard(self, message: Message) -> None:
        kind, _, rest = str(message["id"]).partition(" ")
        body = message.get("body", {})
        if kind == "s" and message["type"] == "response":
            if body["code"] == 200:
                self.subscribed.add(rest)
            return
        number, _, recipient = rest.partition(" ")
        if message["type"] == "receipt":
            if body.get("final", True):  # the only one, where the recipient is at the same node
                self.receipts[recipient, int(number)].append(body["code"])
                self.told_code("receipt", body["code"])
        elif message["type"] == "response":
            self.answers[recipient, int(number)].append(body.get("code", 0))
            self.told_code("answer", body.get("code", 0))
        elif message["type"] == "read":
            reply = {"id": message["id"], "type": "response", "from": message["to"], "to": message["from"]}
            self.client.send({**reply, "body": {"code": 200}})
        elif kind in ("update", "publication"):
            self.heard[body["by"], kind].append(int(number))
            self.heard_at[body["group"]] = max(self.heard_at[body["group"]], body["at"])
        else:
            self.strange.append(message)

    # -- what came of it -----------------------------------------------------

    def wrong_from(self, sender: "Member") -> dict[str, Numbers]:
        """
        The numbers of a member of another group, by kind, that came never, twice or out of order here.

        A message whose sender was told that it failed is not lost.
        """
        failed = {
            number
            for (recipient, number), codes in sender.receipts.items()
            if recipient == self.runtime and codes[0] >= 300
        }
        sent = sender.sent[self.runtime, "update"]
        updates = find(sent, self.came(sender, "update"))
        updates = updates._replace(lost=[number for number in updates.lost if number not in failed])
        publications = find(sender.sent["", "publication"], self.came(sender, "publication"))
        return {"update": updates, "publication": publications}

    def verdict_from(self, sender: "Member") -> Verdict:
        return sum(map(Verdict.of, self.wrong_from(sender).values()), Verdict())

    def verdict(self) -> Verdict:
        return sum(map(self.verdict_from, self.far), Verdict())

    def silent(self) -> int:
        """
        Requests without any answer, and messages without the final receipt that was asked for.
        """
        requests = sum(number for (_, kind), number in self.sent.items() if kind == "request")
        return requests - len(self.answers) + len(self.asked_for - self.receipts.keys())

    def told_twice(self) -> int:
        """
        Requests with two answers, and messages with two final receipts.
        """
        return sum(len(codes) - 1 for told in (self.answers, self.receipts) for codes in told.values())
