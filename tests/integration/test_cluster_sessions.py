"""
Sessions that move between real nodes of one domain, on a real nats-server.
"""

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

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
    until(lambda: first.live()["sessions"]["away"] == 0)


def test_publications_that_waited_for_a_dead_holder_do_not_come_twice(cluster: Cluster) -> None:
    """
    A client whose node is killed subscribes again at another one. What was published then, and waited for the
    dead node, too, does not come again when that is back; what only waited there comes.
    """
    first, second, third = cluster.nodes
    ann, bob = opened("ann", third), opened("bob", first)
    subscribe(bob, TOPIC)
    tell(ann, TOPIC, *range(10))
    bob.read_until(lambda: has(bob, *range(10)))
    first.kill()
    tell(ann, TOPIC, *range(10, 20))
    time.sleep(0.5)
    bob.connect(second.lines)
    subscribe(bob, TOPIC)
    while not has(bob, -1):  # until Ann's node knows of the subscription
        tell(ann, TOPIC, -1)
        bob.read(0.05)
    tell(ann, TOPIC, *range(20, 50))
    bob.read_until(lambda: has(bob, *range(20, 50)))

    first.start()
    bob.read_until(lambda: has(bob, *range(50)))
    tell(ann, TOPIC, *range(50, 60))
    bob.read_until(lambda: has(bob, *range(60)))
    until(lambda: first.live()["cluster"]["moves"]["leaving"] == 0)
    bob.read(0.2)

    assert sorted(n for n in bob.numbers() if n >= 0) == list(range(60))
    assert [n for n in bob.numbers() if n >= 20] == list(range(20, 60))


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


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """
    A cluster without the compiled data plane.
    """
    monkeypatch.setenv("MSGNODE_NATIVE", "0")
    found = Cluster(3)
    yield found
    found.stop()


def stand_still(node: Member) -> int:
    """
    Stop the node's process, and return its id when it has stopped.
    """
    assert node.process is not None
    pid = node.process.process.pid
    os.kill(pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    return pid


def test_holder_that_stood_still_reads_nothing_for_sessions_that_moved(interpreted: Cluster) -> None:
    """
    A node that stood still while clients of it went elsewhere compares with the other members before it
    reads what those clients had sent to it, which they have sent again: nothing comes twice, and each session
    is at one node. (The compiled data plane may have read some of it before.)
    """
    first, second, third = interpreted.nodes
    ann, eve = opened("ann", third), opened("eve", first)
    clients = [opened(f"bob{number}", first) for number in range(5)]
    for bob in clients:
        tell(ann, f"{bob.runtime}/x", *range(5))
        bob.read_until(lambda bob=bob: has(bob, *range(5)))  # type: ignore[misc]
    olds = []
    pid = stand_still(first)
    try:
        for bob in clients:
            tell(bob, f"{ann.runtime}/x", *range(100, 120))
            tell(eve, f"{bob.runtime}/x", *range(50, 60))
            old, bob.socket = bob.socket, None
            olds.append(old)
            bob.connect(second.lines)
            assert not bob.told["recovered"]
            while not has(bob, -1):  # until Ann's node knows that it is there
                tell(ann, f"{bob.runtime}/x", -1)
                bob.read(0.05)
            tell(ann, f"{bob.runtime}/x", *range(5, 10))
        ann.read_until(lambda: len(ann.got) >= 20 * len(clients))
        time.sleep(2)
    finally:
        os.kill(pid, signal.SIGCONT)
    for bob in clients:
        bob.read_until(lambda bob=bob: has(bob, *range(10), *range(50, 60)))  # type: ignore[misc]
    time.sleep(1)
    ann.read(0.1)

    assert first.live()["sessions"]["away"] == 0
    for bob in clients:
        bob.read(0.1)
        by_bob = [m["body"]["n"] for m in ann.got if m["from"] == bob.runtime]
        assert by_bob == list(range(100, 120))
        assert [n for n in bob.numbers() if 0 <= n < 50] == list(range(10))
        assert [n for n in bob.numbers() if n >= 50] == list(range(50, 60))
    for old in olds:
        assert old is not None
        old.close()


def test_move_under_load(whole: Cluster) -> None:
    """
    A client that goes from node to node while two others send to it, to two of its addresses, loses nothing,
    gets nothing twice, and what one sender has sent in order.
    """
    ann, eve = opened("load-ann", whole.nodes[2]), opened("load-eve", whole.nodes[0])
    bob = opened("load-bob", whole.nodes[0])
    topic = f"comm://{DOMAIN}/load/changes"
    subscribe(bob, topic)
    stopping = threading.Event()
    sent = {ann.runtime: 0, eve.runtime: 0}

    def send(client: ResumingClient) -> None:
        while not stopping.is_set():
            if sum(sent.values()) - len(bob.got) > 500:  # a slow machine need not be more behind
                client.read(0.01)
                continue
            n = sent[client.runtime]
            tell(client, (topic, f"{bob.runtime}/x")[n % 2], n)
            sent[client.runtime] = n + 1
            client.read(0.002)

    threads = [threading.Thread(target=send, args=(client,)) for client in (ann, eve)]
    for thread in threads:
        thread.start()
    for number in range(30):
        bob.connect(whole.nodes[(number + 1) % 3].lines)
        assert bob.told["recovered"], number
        end = time.monotonic() + (0.05, 0.3)[number % 2]
        while time.monotonic() < end:
            bob.read(0.01)
    stopping.set()
    for thread in threads:
        thread.join()
    bob.read_until(lambda: len(bob.got) >= sum(sent.values()) + 1)

    time.sleep(0.5)
    bob.read(0.1)
    for sender, count in sent.items():
        assert count > 100
        assert [m["body"]["n"] for m in bob.got if m["from"] == sender] == list(range(count))


def test_node_that_is_stopped_hands_its_sessions_over(cluster: Cluster) -> None:
    """
    The sessions of a node that gets SIGTERM are at the others before it ends: clients come back there at
    once, with their numbers and what waited.
    """
    first, second, third = cluster.nodes
    ann = opened("ann", third)
    clients = [opened(f"client{number}", first) for number in range(40)]
    for client in clients[:20]:
        client.drop()
    until(lambda: first.live()["sessions"]["away"] == 20)
    for number, client in enumerate(clients):
        tell(ann, f"{client.runtime}/x", number, number + 100)
    until(lambda: waiting(first) == 40)

    assert first.process is not None
    begun = time.monotonic()
    first.process.stop()
    seconds = time.monotonic() - begun

    for client in clients[20:]:
        client.read_until(lambda client=client: client.closed != "")  # type: ignore[misc]
        assert client.closed == "going away"
    assert seconds < 8
    for number, client in enumerate(clients):
        client.connect((second, third)[number % 2].lines)
        assert client.told["recovered"], number
        client.read_until(lambda client=client: len(client.got) >= 2)  # type: ignore[misc]
        assert client.numbers() == [number, number + 100]


def test_second_signal_ends_the_handover(cluster: Cluster) -> None:
    """
    A node whose sessions cannot be handed over, because the others stand still, ends a second after a second
    SIGTERM; its sessions are there when it is started again.
    """
    first, second, third = cluster.nodes
    bob = opened("bob", first)
    assert first.process is not None
    others = [node.process.process for node in (second, third) if node.process is not None]
    for other in others:
        other.send_signal(signal.SIGSTOP)
    try:
        running = first.process.process
        running.send_signal(signal.SIGTERM)
        time.sleep(1.5)
        assert running.poll() is None
        begun = time.monotonic()
        running.send_signal(signal.SIGTERM)
        running.wait(5)
        assert time.monotonic() - begun < 3
    finally:
        for other in others:
            other.send_signal(signal.SIGCONT)
    first.start()

    bob.connect(first.lines)
    assert bob.told["recovered"]


def test_rolling_restart_loses_nothing(cluster: Cluster) -> None:
    """
    Each node is stopped and started again, one after the other, while clients that come back at once send to
    each other: nothing is lost, doubled or out of order.
    """
    ann, bob = opened("ann", cluster.nodes[0]), opened("bob", cluster.nodes[1])
    stopping = threading.Event()
    sent = 0

    def live(client: ResumingClient, is_sending: bool) -> None:
        nonlocal sent
        at = 0
        while not stopping.is_set():
            if client.socket is None:
                at += 1
                with contextlib.suppress(OSError):
                    client.connect(cluster.nodes[at % 3].lines, 5.0)
            if is_sending:
                tell(client, f"{bob.runtime}/x", sent)
                sent += 1
            client.read(0.01)

    threads = [threading.Thread(target=live, args=(client, client is ann)) for client in (ann, bob)]
    for thread in threads:
        thread.start()
    for node in cluster.nodes:
        assert node.process is not None
        node.process.stop()
        node.start()
        cluster.wait_for_links()
    stopping.set()
    for thread in threads:
        thread.join()

    for client in (ann, bob):
        client.connect(cluster.nodes[0].lines)
        assert client.told["recovered"]
    bob.read_until(lambda: len(bob.got) >= sent)
    assert sent > 100
    assert bob.numbers() == list(range(sent))
