"""
Clients of one session at several real nodes, which do not count their messages: tabs of a browser, or
pollers.
"""

import json
import signal
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .clustered import DOMAIN, MANAGER, Cluster, Member, until
from .process import Lines
from .test_cluster_relay import ANN, BOB, get, opened, relayed

TABS = 10  # messages of each tab


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster(3)
    yield found
    found.stop()


def ping(n: int, from_: str, to: str) -> dict[str, Any]:
    return {"id": n, "type": "ping", "from": from_, "to": to}


def asked(tab: Lines, n: int) -> int:
    """
    The code of a subscription that the tab asks for.
    """
    body = {"resources": [f"comm://{DOMAIN}/{n}/changes"]}
    message = {"id": n, "type": "subscribe", "from": f"{ANN}/x", "to": f"{MANAGER}/sm", "body": body}
    answer = tab.ask(message)
    assert answer["id"] == n
    code: int = answer["body"]["code"]
    return code


def test_two_tabs_at_two_nodes(cluster: Cluster) -> None:
    """
    Both tabs stay connected and are answered, what they send arrives in order, what others send goes to the
    later tab; and a third tab at the third node changes nothing about that.
    """
    n1, n2, n3 = cluster.nodes
    bob = n3.client("bob")
    tabs = [n1.client("ann"), n2.client("ann")]
    assert [asked(tab, n) for n, tab in enumerate(tabs, 10)] == [200, 200]
    tabs.append(n3.client("ann"))
    assert [asked(tab, n) for n, tab in enumerate(tabs, 20)] == [200, 200, 200]

    for n in range(TABS):
        for at, tab in enumerate(tabs):
            tab.send(ping(1000 * at + n, f"{ANN}/x", f"{BOB}/y"))
    came = [bob.receive()["id"] for _ in range(3 * TABS)]  # type: ignore[index]
    bob.send(ping(7, BOB, f"{ANN}/x"))

    for at in range(3):
        assert [n - 1000 * at for n in came if n // 1000 == at] == list(range(TABS))
    assert tabs[2].receive()["id"] == 7  # type: ignore[index]
    assert [node.live()["sessions"]["attached"] for node in cluster.nodes] == [0, 0, 2]
    assert relayed(cluster, "kept") >= 2
    for client in (*tabs, bob):
        client.close()


def test_holder_of_two_tabs_is_killed(cluster: Cluster) -> None:
    """
    The tab at another node is closed when the holder is given up, and opens the session where it is.
    """
    n1, n2, _ = cluster.nodes
    first, second = n1.client("ann"), n2.client("ann")
    assert asked(first, 10) == 200
    until(lambda: relayed(cluster, "attached") == 1)
    first.socket.settimeout(40)  # a link is given up after 16 s at most
    n2.kill()

    said = first.receive()
    again = n1.client("ann")

    assert said is not None
    assert (said["type"], said["body"]["code"]) == ("close", 1001)
    assert first.receive() is None
    assert asked(again, 14) == 200
    for client in (first, second, again):
        client.close()


def test_holder_of_two_tabs_stands_still(cluster: Cluster) -> None:
    """
    While the holder stands still for less than its links last, the other tab waits, and is answered then.
    """
    n1, n2, _ = cluster.nodes
    first, second = n1.client("ann"), n2.client("ann")
    assert n2.process is not None
    n2.process.process.send_signal(signal.SIGSTOP)
    try:
        first.send(
            {
                "id": 11,
                "type": "subscribe",
                "from": f"{ANN}/x",
                "to": f"{MANAGER}/sm",
                "body": {"resources": [f"comm://{DOMAIN}/1/changes"]},
            }
        )
        time.sleep(2)
    finally:
        n2.process.process.send_signal(signal.SIGCONT)

    answer = first.receive()
    assert answer is not None
    assert (answer["id"], answer["body"]["code"]) == (11, 200)
    first.close()
    second.close()


def test_relayed_poll_while_the_holder_stands_still(cluster: Cluster) -> None:
    """
    A poll that waits for a node which stands still is answered within the time of a poll: with the message
    that came meanwhile, when the node goes on.
    """
    n1, n2, n3 = cluster.nodes
    token, bob = opened(n1), n3.client("bob")
    assert n1.process is not None
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(get, n2.web, token, "wait=25")
        until(lambda: relayed(cluster, "served") == 1)
        n1.process.process.send_signal(signal.SIGSTOP)
        try:
            bob.send(ping(5, BOB, f"{ANN}/x"))
            time.sleep(3)
        finally:
            n1.process.process.send_signal(signal.SIGCONT)
        code, body, _ = waiting.result()

    assert (code, [message["id"] for message in json.loads(body)["messages"]]) == (200, [5])
    bob.close()


def test_holder_stops_while_a_relayed_poll_waits(cluster: Cluster) -> None:
    """
    A poll that waits at another node is answered 503 when its holder is stopped; the session goes to another
    node, and the same token polls on there with what waits.
    """
    n1, n2, n3 = cluster.nodes
    token = opened(n1)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(get, n2.web, token, "wait=25")
        until(lambda: relayed(cluster, "served") == 1)
        assert n1.process is not None
        n1.process.process.send_signal(signal.SIGTERM)
        code, _, seconds = waiting.result()
    assert code == 503
    assert seconds < 10
    n1.process.process.wait(20)
    bob = n3.client("bob")
    bob.send(ping(8, BOB, f"{ANN}/x"))

    code, body, _ = get(n2.web, token, "wait=5")

    assert (code, [message["id"] for message in json.loads(body)["messages"]]) == (200, [8])
    bob.close()


def test_two_pollers_of_one_session(cluster: Cluster) -> None:
    """
    When a second page opens the session at another node, it gets the messages, wherever it polls. The
    first page is answered 401, as within one node.
    """
    n1, n2, n3 = cluster.nodes
    first = opened(n1)
    second = opened(n2)
    bob = n3.client("bob")
    bob.send(ping(6, BOB, f"{ANN}/x"))

    answers = [get(node.web, token, "wait=2&after=0") for token in (second, first) for node in (n3, n1)]
    within_one = [status_within_one_node(n3, is_second=is_second) for is_second in (True, False)]

    assert [code for code, _, _ in answers] == [200, 200, 401, 401]
    assert within_one == [204, 401]
    assert [message["id"] for message in json.loads(answers[0][1])["messages"]][-1] == 6
    bob.close()


def status_within_one_node(node: Member, is_second: bool) -> int:
    """
    The status of a poll by the first or the second of two pages, whose session never left the node.
    """
    tokens = []
    for _ in range(2):
        body = json.dumps({"id": 1, "type": "open", "from": f"{ANN}-here", "to": "mn:/session"}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{node.web}/poll", body, 30) as answer:
            tokens.append(json.loads(answer.read())["messages"][0]["body"]["runtimeToken"])
    return get(node.web, tokens[is_second], "wait=0")[0]


def test_made_up_tokens(cluster: Cluster) -> None:
    """
    A client that makes tokens up gets 401, or 503 when it asks for very many; a poller goes on polling.
    """
    n1, n2, _ = cluster.nodes
    token = opened(n1)

    def guess(n: int) -> int:
        return get(n2.web, f"mns_{n:043d}", "wait=0")[0]

    with ThreadPoolExecutor(20) as threads:
        codes = list(threads.map(guess, range(1500)))
    code, _, _ = get(n2.web, token, "wait=0")

    assert set(codes) <= {401, 503}
    assert 401 in codes
    assert code == 204
