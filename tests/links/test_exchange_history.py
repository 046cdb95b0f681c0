"""
The history of objects of another domain: reads, and subscribers that catch up across links.
"""

from pathlib import Path
from typing import Any

import pytest

from msgnode.storage.objects.journal import ObjectJournal
from tests.support.links_exchange import Far, MemoryNetwork
from tests.support.policy_case import rule

A, B, C = "a.example", "b.example", "c.example"
OBJECT = "comm://b.example/rooms/1"
CHANGES = f"{OBJECT}/changes"


def keep(far: Far, directory: Path) -> ObjectJournal:
    """
    Have the node of a domain keep its rooms.
    """
    options = far.node.config.objects
    options.keep = [f"comm://{far.domain}/rooms/*"]
    journal = ObjectJournal(directory, options, wall=far.node.wall)
    journal.open()
    far.node.objects.keep(journal)
    return journal


@pytest.fixture
def network(tmp_path: Path) -> MemoryNetwork:
    found = MemoryNetwork(A, B, C)
    keep(found[B], tmp_path)
    return found


def publish(network: MemoryNetwork, reporter: Any, *values: Any) -> None:
    for value in values:
        reporter.tell({"id": 3, "type": "update", "from": OBJECT, "to": CHANGES, "body": {"value": value}})
    network.flow()


def settle(network: MemoryNetwork) -> None:
    for _ in range(40):
        network.clock.turn()
        network.flow()


def since(network: MemoryNetwork, client: Any, version: int, domain: str = A) -> list[dict[str, Any]]:
    body = {"resources": [CHANGES], "since": version}
    network[domain].subscribe(client, body=body)
    settle(network)
    got: list[dict[str, Any]] = client.take()
    return got


def versions(messages: list[dict[str, Any]]) -> list[int]:
    return [message["version"] for message in messages if "version" in message]


def test_history_is_read_across_domains(network: MemoryNetwork) -> None:
    """
    A client of another domain reads the changes of an object, and the object as it was.
    """
    bob, ann = network[B].client("bob"), network[A].client("ann")
    publish(network, bob, 1, 2, 3)

    ann.request(f"{OBJECT}/history", "read", body={"from": 2})
    settle(network)
    [changes] = ann.take()
    ann.request(f"{OBJECT}/history", "read", body={"at": 2})
    settle(network)
    [state] = ann.take()

    assert [2, 3] == [change["version"] for change in changes["body"]["value"]["changes"]]
    assert 2 == state["body"]["value"]["value"]


def test_observer_of_another_domain_catches_up(network: MemoryNetwork) -> None:
    """
    An observer of another domain gets what it missed, then what comes; the others there get nothing twice.
    """
    bob, ann, al = network[B].client("bob"), network[A].client("ann"), network[A].client("al")
    network[A].subscribe(al, CHANGES)
    network.flow()
    publish(network, bob, 1, 2, 3)
    al.take()

    answer, *missed = since(network, ann, 1)
    publish(network, bob, 4)

    assert {"code": 200, "version": 3} == answer["body"]
    assert [2, 3] == versions(missed)
    assert [4] == versions(ann.take())
    assert [4] == versions(al.take())


def test_publications_while_it_catches_up(network: MemoryNetwork) -> None:
    """
    What is published on the way between the domains, while an observer catches up, comes once and in order.
    """
    bob, ann = network[B].client("bob"), network[A].client("ann")
    publish(network, bob, *range(300))

    network[A].subscribe(ann, body={"resources": [CHANGES], "since": 100})
    for number in range(100):
        bob.tell({"id": 3, "type": "update", "from": OBJECT, "to": CHANGES, "body": {"value": number}})
        if network.wire:
            network.step()
        network.clock.turn()
    settle(network)

    assert list(range(101, 401)) == versions(ann.take())


def test_refused_observer(network: MemoryNetwork) -> None:
    """
    Who may not subscribe at the home domain reads nothing there: as other refusals, that is a 404.
    """
    bob, ann = network[B].client("bob"), network[A].client("ann")
    publish(network, bob, 1)
    network[B].use(rule("deny", {"direction": {"equals": "subscribe"}, "msgTo": {"equals": CHANGES}}))

    [answer] = since(network, ann, 0)
    ann.request(f"{OBJECT}/history", "read")
    settle(network)
    [refused] = ann.take()

    assert (404, 404) == (answer["body"]["code"], refused["body"]["code"])
    assert 0 == len(network[A].node.objects.catch_ups)


def test_home_domain_is_away(network: MemoryNetwork) -> None:
    """
    While the home domain is not reached, an observer cannot catch up, and is told so.
    """
    bob, ann = network[B].client("bob"), network[A].client("ann")
    publish(network, bob, 1)
    network.cut.add(frozenset((network[A].name, network[B].name)))

    network[A].subscribe(ann, body={"resources": [CHANGES], "since": 0})
    network.flow()
    network.clock.advance(20)
    settle(network)

    assert [502] == [message["body"]["code"] for message in ann.take()]
    assert 0 == len(network[A].node.objects.catch_ups)


def test_publication_of_another_domain_is_kept(network: MemoryNetwork) -> None:
    """
    What clients of other domains publish to an object is kept by its home, and has its versions.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    network[B].subscribe(bob, CHANGES)
    network.flow()
    bob.take()

    ann.tell({"id": 3, "type": "update", "from": ann.hyperty, "to": CHANGES, "body": {"value": 1}})
    network.flow()

    assert [1] == versions(bob.take())
