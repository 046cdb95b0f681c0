"""
The clients of a cluster: each speaks with all others, and comes back at any node.
"""

import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgnode.sessions.queue import RESPONSE_TTL_SECONDS
from soaking.load.member import Member
from soaking.load.member_load import MemberLoad
from soaking.load.resuming_client import Message
from soaking.load.transports import Link
from soaking.peers.member_node import DOMAIN, Balancer, MemberNode
from soaking.verdict import Numbers

SLACK_SECONDS = 0.5  # between what a client writes down, and what a node does


class Key(NamedTuple):
    """
    A message of a client: its runtimeURL, and the message's type and id.
    """

    runtime: str
    type: str
    id: str


class ClusterMember(Member):
    """
    A member that knows when it sent and received each message.

    What the node that held its session had not acknowledged when that node died is sent again in a new epoch,
    and may come twice: `again` has it, of all members. What lay at a node that did not run (`outages`), or
    was sent to it before its client began anew elsewhere, and subscribed there, comes when the node runs
    again, after what was sent later by another way: that is late, not out of order.
    """

    def __init__(
        self,
        number: int,
        link: Callable[[], Link],
        others: "Sequence[ClusterMember]",
        chance: random.Random,
        again: set[Key],
        outages: Callable[[], list[tuple[float, float]]],
    ) -> None:
        super().__init__(DOMAIN, number, str(number), link, others, chance)
        self.sent_at: dict[str, float] = {}  # by id
        self.heard_when: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.came_when: list[
            tuple[float, str, str, int]
        ] = []  # requests and what it was told: type, id, code
        self.began_anew: list[float] = []
        self.subscribed_anew: list[float] = []
        self.client.told_null = self._begins_anew
        self._again = again
        self._outages = outages

    def _begins_anew(self) -> None:
        self.began_anew.append(time.time())
        self.subscribed.clear()
        self.subscribe()
        for data in self.client.kept:
            message = json.loads(data)
            self._again.add(Key(self.runtime, message["type"], str(message["id"])))

    def _send(self, kind: str, recipient: str, from_: str, to: str, **more: Any) -> int:
        number = super()._send(kind, recipient, from_, to, **more)
        self.sent_at[f"{kind} {number} {recipient}"] = time.time()
        return number

    def _heard(self, message: Message) -> None:
        was_subscribed = self.is_subscribed
        super()._heard(message)
        if self.is_subscribed and not was_subscribed:
            self.subscribed_anew.append(time.time())
        if message["type"] == "update":
            kind = str(message["id"]).partition(" ")[0]
            self.heard_when[message["body"]["by"], kind].append(time.time())
        else:
            code = message.get("body", {}).get("code", 0)
            self.came_when.append((time.time(), message["type"], f"{message['from']} {message['id']}", code))

    def wrong_from(self, sender: Member) -> dict[str, Numbers]:
        assert isinstance(sender, ClusterMember)
        found = super().wrong_from(sender)
        for kind, wrong in found.items():
            recipient = self.runtime if kind == "update" else ""
            doubled = [n for n in wrong.doubled if not self._may_double(sender, kind, n, recipient)]
            disordered = [n for n in wrong.disordered if not self._may_be_late(sender, kind, n, recipient)]
            found[kind] = wrong._replace(doubled=doubled, disordered=disordered)
        return found

    def _may_double(self, sender: "ClusterMember", kind: str, number: int, recipient: str) -> bool:
        return Key(sender.runtime, "update", f"{kind} {number} {recipient}") in self._again

    def _may_be_late(self, sender: "ClusterMember", kind: str, number: int, recipient: str) -> bool:
        sent = sender.sent_at[f"{kind} {number} {recipient}"]
        numbers, times = self.heard[sender.runtime, kind], self.heard_when[sender.runtime, kind]
        came = min(when for each, when in zip(numbers, times, strict=True) if each == number)
        return any(
            sent <= self._left(began, kind) + SLACK_SECONDS and came >= ended - SLACK_SECONDS
            for began, ended in self._outages()
        )

    def _left(self, began: float, kind: str) -> float:
        """
        When it left a node that had failed at that time, if it did: until then others sent to it there, and
        what they published until it had subscribed elsewhere.
        """
        left = min((when for when in self.began_anew if when >= began), default=began)
        if kind == "update" or left == began:
            return left
        return min((when for when in self.subscribed_anew if when >= left), default=left)

    def excused(self) -> tuple[int, int]:
        """
        How many messages came twice and late, where that is allowed.
        """
        twice = late = 0
        for sender in self.far:
            plain = super().wrong_from(sender)
            strict = self.wrong_from(sender)
            twice += sum(len(plain[kind].doubled) - len(strict[kind].doubled) for kind in plain)
            late += sum(len(plain[kind].disordered) - len(strict[kind].disordered) for kind in plain)
        return twice, late

    def silent(self) -> int:
        return super().silent() - self.stale_answers()

    def stale_answers(self) -> int:
        """
        Requests without an answer: it may have ended after a minute at a node that did not run.
        """
        missing = [
            f"request {number} {to}"
            for (to, kind), sent in self.sent.items()
            for number in (range(1, sent + 1) if kind == "request" else ())
            if (to, number) not in self.answers
        ]
        return sum(self._may_be_stale(self.sent_at[id]) for id in missing)

    def _may_be_stale(self, sent: float) -> bool:
        return any(began <= sent + RESPONSE_TTL_SECONDS <= ended for began, ended in self._outages())

    def told_twice(self) -> int:
        return sum(len(codes) - 1 for _, codes in self.twice())

    def twice(self) -> list[tuple[str, list[int]]]:
        """
        The ids of requests and messages of which it was told more than once, with the codes.
        """
        found = []
        for (recipient, number), codes in self.answers.items():
            id = f"request {number} {recipient}"
            both = Key(self.runtime, "read", id), Key(recipient, "response", id)
            if len(codes) > 1 and not any(key in self._again for key in both):
                found.append((id, codes))
        for (recipient, number), codes in self.receipts.items():
            id = f"update {number} {recipient}"
            if len(codes) > 1 and Key(self.runtime, "update", id) not in self._again:
                found.append((id, codes))
        return found


class ClusterLoad(MemberLoad):
    """
    So many clients behind a balancer.
    """

    def __init__(
        self, nodes: Sequence[MemberNode], balancer: Balancer, members: int, rate: float, seed: int
    ) -> None:
        chance = random.Random(seed)
        self.again: set[Key] = set()
        everyone: list[ClusterMember] = []

        def outages() -> list[tuple[float, float]]:
            return [outage for node in nodes for outage in node.outages]

        everyone += [
            ClusterMember(number, partial(balancer.link, number), everyone, chance, self.again, outages)
            for number in range(members)
        ]
        self.clients = everyone
        super().__init__(everyone, rate, chance)

    def allow_new_epochs(self, allowed: bool) -> None:
        """
        From now on a client may be told that its epoch has ended, because its session's node does not answer.
        """
        for member in self.clients:
            member.client.may_begin_anew = allowed

    def are_connected(self) -> bool:
        return all(member.client.link is not None for member in self.clients)

    def excused(self) -> tuple[int, int]:
        found = [member.excused() for member in self.clients]
        return sum(twice for twice, _ in found), sum(late for _, late in found)
