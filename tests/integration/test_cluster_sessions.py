"""
Sessions that move between real nodes of one domain, on a real nats-server.
"""

import re
import threading
import time
from collections.abc import Iterator

import pytest

from .clustered import DOMAIN, MANAGER, Cluster, Member, until
from .process import fetched
from .resuming import ResumingClient

TOPIC = f"comm://{DOMAIN}/chat/changes"


@pytest.fixture(scope="module")
def whole() -> Iterator[Cluster]:
    """
    A cluster that no test harms.
    """
    found = Cluster(3)
    yield found
    found.stop()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster(3)
    yield found
    found.stop()


def opened(name: str, node: Member) -> ResumingClient:
    client = ResumingClient(f"runtime://{DOMAIN}/{name}")
    client.connect(node.lines)
    assert client.told, client.closed
    return client


def subscribe(client: ResumingClient, topic: str) -> None:
    answer = client.ask(id=2, type="subscribe", to=f"{MANAGER}/sm", body={"resources": [topic]})
    assert answer["body"]["code"] == 200, answer


def tell(client: ResumingClient, to: str, *numbers: int) -> None:
    for n in numbers:
        client.send(id=n, type="update", to=to, body={"n": n})


def has(client: ResumingClient, *numbers: int) -> bool:
    return set(numbers) <= set(client.numbers())


def test_resume_at_another_node_with_messages_waiting(whole: Cluster) -> None:
    """
    A client that comes back at another node gets what waited for it at the first, once and in order, is
    bound to what it was bound to, and its messages go on being counted.
    """
    first, second, third = whole.nodes
    ann, bob = opened("ann", third), opened("bob", first)
    subscribe(bob, TOPIC)
    for n in range(5):
        bob.send(id=100 + n, type="update", to=f"{ann.runtime}/x", body={"n": n})
    tell(ann, TOPIC, *range(30))
    bob.read_until(lambda: has(bob, *range(30)))
    bob.drop()
    tell(ann, TOPIC, *range(30, 60))
    tell(ann, f"{bob.runtime}/x", *range(60, 90))
    ann.read_until(lambda: has(ann, *range(5)))

    bob.connect(second.lines)
    tell(ann, TOPIC, *range(90, 120))
    bob.read_until(lambda: has(bob, *range(120)))

    assert bob.told["recovered"]
    assert bob.told["received"] == 6
    assert bob.numbers() == list(range(120))
    assert ann.numbers() == list(range(5))


def test_stranger_does_not_get_a_session_of_another_node() -> None:
    """
    With `takeover = "token"`, a client without the session's token is refused at every node as it would be
    where the session is, and the session stays; its own client moves it.
    """
    cluster = Cluster(2, session='takeover = "token"')
    try:
        first, second = cluster.nodes
        bob = opened("bob", first)
        stranger = ResumingClient(bob.runtime)
        stranger.connect(first.lines)
        at_home = stranger.closed
        stranger.connect(second.lines)
        guesser = ResumingClient(bob.runtime)
        guesser.token, guesser.epoch = f"mns_{'x' * 43}", bob.epoch
        guesser.connect(second.lines)

        bob.connect(second.lines)

        assert not stranger.told
        assert stranger.closed == at_home
        assert not guesser.told
        assert bob.told["recovered"]
    finally:
        cluster.stop()


def test_client_that_came_elsewhere_is_superseded(whole: Cluster) -> None:
    """
    Of two clients with one session at two nodes the later one has it; the other is closed.
    """
    first, second, _ = whole.nodes
    eve = opened("eve", first)
    other = ResumingClient(eve.runtime)
    other.token, other.epoch, other.received = eve.token, eve.epoch, eve.received

    other.connect(second.lines)

    assert other.told["recovered"]
    eve.read_until(lambda: eve.closed != "")


def test_two_clients_race_for_a_session(whole: Cluster) -> None:
    """
    Two clients that open one session again and again at two nodes at the same time never both have it, and
    one has it in the end, with every message once.
    """
    first, second, third = whole.nodes
    ann, one = opened("racer-friend", third), opened("racer", first)
    two = ResumingClient(one.runtime)
    two.token, two.epoch = one.token, one.epoch

    for number in range(10):
        tell(ann, f"{one.runtime}/x", number)
        threads = [
            threading.Thread(target=client.connect, args=(node.lines, 5.0))
            for client, node in ((one, (first, second)[number % 2]), (two, (second, first)[number % 2]))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    time.sleep(1)

    last = ResumingClient(one.runtime)
    last.token = one.token
    last.connect(third.lines)
    last.read_until(lambda: last.told != {})
    tell(ann, f"{one.runtime}/x", 99)
    last.read_until(lambda: has(last, 99))
    for client in (one, two):
        client.read(0.1)
        assert client.closed


def test_holder_is_killed_and_comes_back(cluster: Cluster) -> None:
    """
    A client whose node is killed begins again at another one, which tells it so; what waited for it at the
    dead node comes when that is back, once and in order.
    """
    first, second, third = cluster.nodes
    ann, bob = opened("ann", third), opened("bob", first)
    tell(ann, f"{bob.runtime}/x", *range(10))
    bob.read_until(lambda: has(bob, *range(10)))
    bob.drop()
    until(lambda: first.live()["sessions"]["away"] == 1)
    tell(ann, f"{bob.runtime}/x", *range(10, 40))
    until(lambda: waiting(first) == 30)
    first.kill()
    tell(ann, f"{bob.runtime}/x", *range(40, 50))

    seconds = bob.connect(second.lines)
    assert not bob.told["recovered"]
    assert seconds < 4
    time.sleep(0.5)  # the third node hears of it
    tell(ann, f"{bob.runtime}/x", *range(100, 110))
    bob.read_until(lambda: has(bob, *range(100, 110)))
    first.start()
    bob.read_until(lambda: has(bob, *range(50)))

    time.sleep(0.5)
    bob.read(0.1)
    assert sorted(bob.numbers()) == [*range(50), *range(100, 110)]
    assert [n for n in bob.numbers() if n < 50] == list(range(50))
    until(lambda: sessions(first) == 0)


def waiting(node: Member) -> float:
    """
    The messages that wait at the node for its clients.
    """
    assert node.process is not None
    found = re.search(
        r"^msgnode_waiting_messages (\S+)", fetched(node.process, "admin", "/metrics"), re.MULTILINE
    )
    assert found is not None
    return float(found[1])


def sessions(node: Member) -> int:
    found: dict[str, int] = node.live()["sessions"]
    return sum(found.values())
