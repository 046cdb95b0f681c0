"""
Kept objects in a cluster: one member keeps each, whatever member its publishers and observers are at.
"""

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from msgnode.cluster.member_requests import NoAnswer
from msgnode.cluster.ownership.object_keepers import MISSED, ObjectKeepers
from msgnode.protocol.message import Message
from msgnode.storage.objects.journal import ObjectJournal
from tests.support.cluster_nodes import DOMAIN, MemoryCluster
from tests.support.policy_case import rule

B = "b.example"
OBJECT = f"comm://{DOMAIN}/rooms/1"
CHANGES, HISTORY = f"{OBJECT}/changes", f"{OBJECT}/history"
NAMES = tuple(f"mn://{DOMAIN}/n{number}" for number in (1, 2, 3))


class FixedOwners:
    """
    Owners that name one member for all keys.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner

    def of(self, key: str) -> list[str]:
        return [self.owner]


class MemoryRequests:
    """
    The requests between members, answered at once while the member is up.
    """

    def __init__(self, all: dict[str, "MemoryRequests"], node: str) -> None:
        self.on_up: list[Any] = []
        self.handlers: dict[str, Any] = {}
        self._all, self._node = all, node
        self.down: set[str] = set()
        all[node] = self

    def offer(self, subject: str, handler: Any) -> None:
        self.handlers[subject] = handler

    def ask(self, node: str, subject: str, body: bytes = b"") -> Deferred[bytes]:
        if node in self.down:
            return fail(NoAnswer(f"{node} is away"))
        return succeed(self._all[node].handlers[subject](self._node, body))


class Kept:
    """
    A cluster whose second member keeps all rooms.
    """

    def __init__(self, directory: Path, foreign: str = "") -> None:
        self.cluster = cluster = MemoryCluster(3, foreign=foreign)
        self.down: set[str] = set()
        self.journals: dict[str, ObjectJournal] = {}
        self.requests: dict[str, MemoryRequests] = {}
        for name in NAMES:
            node = cluster.nodes[name].node
            node.config.objects.keep = [f"comm://{DOMAIN}/rooms/*"]
            journal = ObjectJournal(directory / name[-2:], node.config.objects, wall=node.wall)
            journal.open()
            self.journals[name] = journal
            requests = MemoryRequests(self.requests, name)
            requests.down = self.down
            keepers = ObjectKeepers(
                name,
                FixedOwners(NAMES[1]),  # type: ignore[arg-type]
                requests,  # type: ignore[arg-type]
                lambda: set(NAMES) - self.down,
            )
            node.objects.share(keepers)
            node.objects.keep(journal)
            keepers.missed = node.objects.kept.note_missed

    def settle(self) -> None:
        for _ in range(30):
            self.cluster.clock.turn()
            self.cluster.flow()

    def publish(self, client: Any, *values: Any, to: str = CHANGES) -> None:
        for value in values:
            client.tell({"id": 3, "type": "update", "from": OBJECT, "to": to, "body": {"value": value}})
        self.settle()

    def subscribe(self, member: str, client: Any, **body: Any) -> list[dict[str, Any]]:
        self.cluster[member].subscribe(client, body={"resources": [CHANGES], **body})
        self.settle()
        got: list[dict[str, Any]] = client.take()
        return got


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def values(messages: list[dict[str, Any]]) -> list[Any]:
    return [message["body"]["value"] for message in messages if "version" in message]


def test_one_member_gives_the_versions(kept: Kept) -> None:
    """
    Publications at two members reach the observers at all three with the versions of one of them.
    """
    clients = [kept.cluster[f"n{number}"].client(f"c{number}") for number in (1, 2, 3)]
    for number, client in enumerate(clients, 1):
        kept.subscribe(f"n{number}", client)

    for value in range(6):
        kept.publish(clients[value % 3], value)

    got = [client.take() for client in clients]
    assert [list(range(6))] * 3 == [values(each) for each in got]
    found = [message["version"] for message in got[0]]
    assert list(range(found[0], found[0] + 6)) == found
    assert [[message["version"] for message in each] for each in got] == [found] * 3
    assert [0, 6, 0] == [journal.counts.written for journal in kept.journals.values()]


def test_history_is_read_at_any_member(kept: Kept) -> None:
    """
    Any member answers for the history: the changes, the object as it was, and what is wrong with a request.
    """
    ann, bob = kept.cluster["n1"].client("ann"), kept.cluster["n3"].client("bob")
    kept.publish(ann, 1, 2, 3)

    answers = []
    for body in ({}, {"at": "2999-01-01"}, {"limit": 0}):
        bob.request(HISTORY, "read", body=body)
        kept.settle()
        answers += bob.take()

    changes, state, refused = (answer["body"] for answer in answers)
    assert [1, 2, 3] == [each["message"]["body"]["value"] for each in changes["value"]["changes"]]
    assert 3 == state["value"]["value"]
    assert 400 == refused["code"]


def test_observer_at_another_member_catches_up(kept: Kept) -> None:
    """
    An observer at a member that keeps nothing gets what it missed, then what comes.
    """
    ann, bob = kept.cluster["n1"].client("ann"), kept.cluster["n3"].client("bob")
    kept.publish(ann, 1, 2, 3)

    answer, *missed = kept.subscribe("n3", bob, since=0)
    kept.publish(ann, 4)
    more = bob.take()
    _, *again = kept.subscribe("n3", bob, since=missed[0]["version"])

    assert [1, 2, 3] == values(missed)
    assert answer["body"]["version"] == missed[-1]["version"]
    assert [4] == values(more)
    assert [2, 3, 4] == values(again)


def test_keeper_is_away_while_an_observer_catches_up(kept: Kept) -> None:
    """
    A keeper that does not answer for a while is asked again: the observer misses nothing, and gets nothing
    twice.
    """
    ann, bob = kept.cluster["n1"].client("ann"), kept.cluster["n3"].client("bob")
    kept.publish(ann, *range(1500))
    history = kept.cluster["n2"].node.objects.history
    answer_member, asked = history.answer_member, []

    def answer(object: str, message: Message) -> Deferred[Message]:
        asked.append(message)
        if len(asked) in (2, 3):
            return Deferred()  # it was killed
        return answer_member(object, message)

    history.answer_member = answer
    kept.cluster["n3"].subscribe(bob, body={"resources": [CHANGES], "since": 0})
    for _ in range(60):
        kept.cluster.clock.advance(1)
        kept.settle()
    kept.publish(ann, 1500)
    got = bob.take()

    assert 4 == len(asked)
    assert list(range(1501)) == values(got)


def test_hidden_messages_at_another_member(kept: Kept) -> None:
    """
    The policies at egress decide about the changes of another member, too.
    """
    ann, bob = kept.cluster["n1"].client("ann"), kept.cluster["n3"].client("bob")
    kept.publish(ann, 1)
    kept.cluster["n3"].use(rule("deny", {"direction": {"equals": "out"}, "msgTo": {"equals": CHANGES}}))

    bob.request(HISTORY, "read")
    kept.settle()
    [changes] = bob.take()

    assert [] == changes["body"]["value"].get("changes", [])
    assert 1 == changes["body"]["value"]["hidden"]
    assert [] == values(kept.subscribe("n3", bob, since=0))


def test_keeper_is_away(kept: Kept) -> None:
    """
    While the keeper is away publications go on without versions, and it notes afterwards that it missed some.
    """
    ann, bob = kept.cluster["n1"].client("ann"), kept.cluster["n3"].client("bob")
    kept.subscribe("n3", bob)
    kept.publish(ann, 1)
    first = bob.take()[0]["version"]
    kept.down.add(NAMES[1])

    kept.publish(ann, 2)
    alone = bob.take()
    kept.down.clear()
    for call in kept.requests[NAMES[0]].on_up:
        call(NAMES[1])
    kept.publish(ann, 3)

    assert [2] == [message["body"]["value"] for message in alone]
    assert ["version" in message for message in alone] == [False]
    assert first + 2 == bob.take()[0]["version"]
    bob.request(HISTORY, "read")
    kept.settle()
    missing = bob.take()[0]["body"]["value"]["missing"]
    assert [{"from": first + 1, "to": first + 1, "why": "away"}] == missing


def test_keeper_is_told_again(kept: Kept) -> None:
    """
    A keeper that goes away before it has noted what it missed is told when it is back.
    """
    ann = kept.cluster["n1"].client("ann")
    kept.publish(ann, 1)
    kept.down.add(NAMES[1])
    kept.publish(ann, 2)
    for call in kept.requests[NAMES[0]].on_up:
        call(NAMES[1])  # it is away again already
    kept.down.clear()

    for call in kept.requests[NAMES[0]].on_up:
        call(NAMES[1])

    assert 1 == len(kept.journals[NAMES[1]].index(OBJECT).gaps)
    assert MISSED in kept.requests[NAMES[1]].handlers


def test_other_domain_and_a_cluster(tmp_path: Path) -> None:
    """
    Clients of another domain, which one member reaches, publish, read and catch up.
    """
    kept = Kept(tmp_path, B)
    far = kept.cluster.nodes[f"mn://{B}/n1"]
    ann, bob = kept.cluster["n3"].client("ann"), far.client("bob")
    kept.publish(ann, 1, 2)

    bob.request(HISTORY, "read")
    kept.settle()
    [changes] = bob.take()
    far.subscribe(bob, body={"resources": [CHANGES], "since": 0})
    kept.settle()
    _, *missed = bob.take()
    kept.publish(ann, 3)
    live = bob.take()
    bob.tell({"id": 3, "type": "update", "from": bob.hyperty, "to": CHANGES, "body": {"value": 4}})
    kept.settle()

    assert [1, 2] == [each["message"]["body"]["value"] for each in changes["body"]["value"]["changes"]]
    assert ([1, 2], [3]) == (values(missed), values(live))
    assert 4 == kept.journals[NAMES[1]].counts.written
