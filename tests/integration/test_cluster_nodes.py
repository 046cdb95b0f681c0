"""
Three real nodes of one domain on a real nats-server: what their clients see, and what they see when a node or
NATS dies.
"""

import json
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from soaking.peers.ports import free_port

from msgnode.cluster.ownership.owners import owner as owner_of
from tests.support.examples import TOP

from .clustered import DOMAIN, Cluster, Member, allocate, policies, subscribe, until
from .process import Lines, NodeProcess, fetched

ANN, BOB, CARL, DAVE = (f"runtime://{DOMAIN}/{name}" for name in ("ann", "bob", "carl", "dave"))
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
    """
    A cluster of a test of its own.
    """
    found = Cluster(2)
    yield found
    found.stop()


def received(client: Lines) -> dict[str, Any]:
    found = client.receive()
    assert found is not None
    return found


def meet(ann: Lines, bob: Lines) -> None:
    """
    The node of the one knows where the other is.
    """
    ann.send({"id": 1, "type": "ping", "from": f"{ANN}/x", "to": f"{BOB}/y", "body": {"n": -1}})
    assert -1 == received(bob)["body"]["n"]


def test_request_between_allocated_addresses(whole: Cluster) -> None:
    """
    A hyperty at one node asks one at another node, and is answered.
    """
    ann, bob = whole.nodes[0].client("ann"), whole.nodes[1].client("bob")
    a, b = allocate(ann, ANN), allocate(bob, BOB)

    for number in range(20):
        ann.send({"id": number, "type": "create", "from": a, "to": b, "body": {"n": number}})
        assert (a, number) == ((got := received(bob))["from"], got["id"])
        bob.send({"id": number, "type": "response", "from": b, "to": a, "body": {"code": 200}})
        assert (b, number) == ((got := received(ann))["from"], got["id"])
    ann.close()
    bob.close()


def test_publication_to_all_nodes(whole: Cluster) -> None:
    """
    What one client publishes is heard by subscribers at all nodes, once each and in order; the node that
    publishes sends each other one copy.
    """
    hearers = []
    for number, node in enumerate(whole.nodes):
        for name in ("x", "y"):
            hearer = node.client(f"{name}{number}")
            subscribe(hearer, f"runtime://{DOMAIN}/{name}{number}", TOPIC)
            hearers.append(hearer)
    ann = whole.nodes[0].client("ann")

    for number in range(100):
        ann.send({"id": number, "type": "update", "from": f"{ANN}/x", "to": TOPIC, "body": {"n": number}})

    for hearer in hearers:
        assert list(range(100)) == [received(hearer)["body"]["n"] for _ in range(100)]
        hearer.close()
    ann.close()


def test_subscriber_elsewhere_while_messages_are_carried(whole: Cluster) -> None:
    """
    A subscriber at another node hears what is published from then on, also where the compiled data plane
    carries it to a subscriber at the same node by itself.
    """
    topic = f"comm://{DOMAIN}/carried/changes"
    eve, here = whole.nodes[0].client("eve"), whole.nodes[0].client("here")
    subscribe(here, f"runtime://{DOMAIN}/here", topic)
    update = {"id": 1, "type": "update", "from": f"runtime://{DOMAIN}/eve/x", "to": topic}
    for number in range(50):
        eve.send({**update, "body": {"n": number}})
        assert number == received(here)["body"]["n"]

    there = whole.nodes[1].client("there")
    subscribe(there, f"runtime://{DOMAIN}/there", topic)
    for number in range(50, 60):
        eve.send({**update, "body": {"n": number}})

    for hearer in (here, there):
        assert list(range(50, 60)) == [received(hearer)["body"]["n"] for _ in range(10)]
    for client in (eve, here, there):
        client.close()


def test_receipt_and_unknown_address(whole: Cluster) -> None:
    """
    The receipt of a message to another node says that it was delivered; to an address that no session has,
    there is one that says so.
    """
    ann, carl = whole.nodes[0].client("ann"), whole.nodes[2].client("carl")

    ann.send({"id": 8, "type": "ping", "from": f"{ANN}/x", "to": f"{CARL}/y", "receipt": True})
    assert 8 == received(carl)["id"]
    receipt = received(ann)["body"]
    unknown = f"hyperty://{DOMAIN}/nobody"
    nobody = ann.ask({"id": 9, "type": "ping", "from": f"{ANN}/x", "to": unknown, "receipt": True})["body"]

    assert ((202, True), 404) == ((receipt["code"], receipt["final"]), nobody["code"])
    ann.close()
    carl.close()


def test_second_node_of_a_name_does_not_run(whole: Cluster) -> None:
    """
    A process that is started with the name of a running node stops with one sentence, and that node goes on.
    """
    (whole.directory / "second").mkdir()
    second = Member(whole.directory / "second", "n1", whole.nats.url).start()

    assert 2 == second.wait()
    expected = (
        f"the node stops: another process is mn://{DOMAIN}/n1 in this cluster already; give each node a name "
        "of its own (key 'node'), or stop that one"
    )
    assert 1 == second.said.count(expected)
    assert {"up"} == set(whole.nodes[1].members().values())


def test_node_that_joins_later(whole: Cluster) -> None:
    """
    A node that is started later knows what the others hold, and a node that stops is gone at once.
    """
    ann = whole.nodes[0].client("ann")
    a = allocate(ann, ANN)
    late = Member(whole.directory, "n9", whole.nats.url)
    late.start()
    until(lambda: list(late.members().values()).count("up") == 3)

    dave = late.client("dave")
    dave.send({"id": 5, "type": "create", "from": f"{DAVE}/x", "to": a, "body": {}})
    assert f"{DAVE}/x" == received(ann)["from"]
    dave.close()
    assert late.process is not None
    late.process.stop()

    until(lambda: whole.nodes[0].members()[late.name] != "up")
    ann.close()


def test_killed_node_comes_back(cluster: Cluster) -> None:
    """
    After kill -9 of a node, what was sent to a session there waits, and is delivered once and in order when
    the node is back and the client has re-opened its session.
    """
    n1, n2 = cluster.nodes
    ann, bob = n1.client("ann"), n2.client("bob")
    meet(ann, bob)

    n2.kill()
    bob.close()
    for number in range(50):
        ann.send({"id": number, "type": "ping", "from": f"{ANN}/x", "to": f"{BOB}/y", "body": {"n": number}})
    n2.start()
    again = Lines(n2.lines)
    answer = again.ask({"id": 2, "type": "re-open", "from": f"{BOB}/{bob.token}", "to": "mn:/session"})

    assert {"code": 200} == answer["body"]
    assert list(range(50)) == [received(again)["body"]["n"] for _ in range(50)]
    again.close()
    ann.close()


def test_nats_is_killed_and_comes_back(cluster: Cluster) -> None:
    """
    Without NATS a node is degraded and local traffic goes on; what is for another node waits, and arrives
    once and in order when NATS is back.
    """
    n1, n2 = cluster.nodes
    ann, al, bob = n1.client("ann"), n1.client("al"), n2.client("bob")
    meet(ann, bob)

    cluster.nats.kill()
    until(lambda: n1.live()["status"] == "degraded")
    assert n1.live()["cluster"]["nats"].startswith("no connection to NATS: ")
    for number in range(50):
        ann.send({"id": number, "type": "ping", "from": f"{ANN}/x", "to": f"{BOB}/y", "body": {"n": number}})
    ann.send({"id": 1, "type": "ping", "from": f"{ANN}/x", "to": f"runtime://{DOMAIN}/al/y"})
    assert 1 == received(al)["id"]
    cluster.nats.start()

    assert list(range(50)) == [received(bob)["body"]["n"] for _ in range(50)]
    until(lambda: n1.live()["status"] == "up")
    for client in (ann, al, bob):
        client.close()


def test_nothing_is_lost_while_nats_restarts_under_load(cluster: Cluster) -> None:
    """
    While one client sends and NATS is killed twice, another client gets every message once and in order.
    """
    n1, n2 = cluster.nodes
    ann, bob = n1.client("ann"), n2.client("bob")
    count = 20_000

    def send() -> None:
        for number in range(count):
            ann.send(
                {"id": number, "type": "ping", "from": f"{ANN}/x", "to": f"{BOB}/y", "body": {"n": number}}
            )

    sending = threading.Thread(target=send)
    sending.start()
    got = []
    for number in range(count):
        if number in (count // 4, count // 2):
            cluster.nats.kill()
            cluster.nats.start()
        got.append(received(bob)["body"]["n"])
    sending.join()

    assert list(range(count)) == got
    ann.close()
    bob.close()


def test_stopped_node_comes_back(cluster: Cluster) -> None:
    """
    A node that stands still for longer than its link lasts gets what was sent to it when it goes on.
    """
    n1, n2 = cluster.nodes
    ann, bob = n1.client("ann"), n2.client("bob")
    assert n2.process is not None
    meet(ann, bob)

    n2.process.process.send_signal(signal.SIGSTOP)
    until(lambda: n1.members()[n2.name] != "up")
    for number in range(20):
        ann.send({"id": number, "type": "ping", "from": f"{ANN}/x", "to": f"{BOB}/y", "body": {"n": number}})
    n2.process.process.send_signal(signal.SIGCONT)

    assert list(range(20)) == [received(bob)["body"]["n"] for _ in range(20)]
    ann.close()
    bob.close()


def test_node_starts_without_nats() -> None:
    """
    A node that finds no NATS server serves its clients, and joins when there is one.
    """
    whole = Cluster(1)
    try:
        node = whole.nodes[0]
        node.kill()
        whole.nats.kill()
        node.start()
        assert "degraded" == node.live()["status"]
        ann, bob = node.client("ann"), node.client("bob")
        ann.send({"id": 1, "type": "ping", "from": f"{ANN}/x", "to": f"{BOB}/y"})
        assert 1 == received(bob)["id"]

        whole.nats.start()

        until(lambda: node.live()["status"] == "up")
        ann.close()
        bob.close()
    finally:
        whole.stop()


def test_alone_without_the_option() -> None:
    """
    A node without --cluster says nothing of one.
    """
    node = NodeProcess()
    try:
        assert "cluster" not in json.loads(fetched(node, "admin", "/live"))
    finally:
        node.stop()


def test_tool_starts_a_cluster() -> None:
    """
    tools/cluster starts nats-server and nodes that have joined, and says what to try.
    """
    command = [sys.executable, str(TOP / "tools/cluster"), "2", "--once", "--port", str(free_port())]

    done = subprocess.run(command, capture_output=True, text=True, timeout=90)

    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("2 nodes of the domain localhost:\n  n1  ws://127.0.0.1:")


def test_pool_is_leased_once_in_the_domain() -> None:
    """
    Clients at both nodes get different addresses of the pool; when none is left it is 503, and what one
    returns the other gets. While the node that leases them is away, it is 503 and said which.
    """
    more = 'members = ["n1", "n2"]\n[pools.phones]\nscheme = "sip"\npattern = "sip:guest{1..4}@a.example"\n'
    cluster = Cluster(2, more)
    try:
        _lease_and_return(cluster)
    finally:
        cluster.stop()


def _lease_and_return(cluster: Cluster) -> None:
    ann, bob = cluster.nodes[0].client("ann"), cluster.nodes[1].client("bob")

    def ask(client: Lines, name: str, type: str, body: dict[str, Any]) -> dict[str, Any]:
        to = f"domain://msg-node.{DOMAIN}/address-allocation"
        found: dict[str, Any] = client.ask(
            {"id": 5, "type": type, "from": f"{name}/x", "to": to, "body": body}
        )
        return found["body"]

    def lease(client: Lines, name: str, number: int) -> Any:
        body = ask(client, name, "create", {"scheme": "sip", "value": {"number": number}})
        return body["value"]["allocated"] if body["code"] == 200 else (body["code"], body["desc"])

    got = [*lease(ann, ANN, 2), *lease(bob, BOB, 2)]
    assert sorted(got) == [f"sip:guest{number}@a.example" for number in (1, 2, 3, 4)]
    assert lease(ann, ANN, 1)[0] == lease(bob, BOB, 1)[0] == 503

    assert ask(ann, ANN, "delete", {"resource": [got[0]]}) == {"code": 200}
    until(lambda: lease(bob, BOB, 1) == [got[0]])

    owner = owner_of("sip", tuple(node.name for node in cluster.nodes))
    gone = next(node for node in cluster.nodes if node.name == owner)
    gone.kill()
    client, name = (bob, BOB) if gone is cluster.nodes[0] else (ann, ANN)
    until(lambda: f"{owner} is away" in lease(client, name, 1)[1])
    ann.close()
    bob.close()


def test_policies_pushed_to_one_node_are_live_at_the_other() -> None:
    """
    A push is answered when both have it, and each node refuses what the policies refuse; a node that was away
    has them when it is back.
    """
    cluster = Cluster(2, 'members = ["n1", "n2"]\n[policy]\nsource = "push"\n')
    try:
        _push_and_follow(cluster)
    finally:
        cluster.stop()


def _push_and_follow(cluster: Cluster) -> None:
    first, second = cluster.nodes
    one, two = (
        (TOP / f"etc/policies/{name}.json").read_bytes() for name in ("block-partner", "office-hours")
    )
    revision = policies(first, one)
    assert revision == policies(first) == policies(second)
    shown = [node.live()["cluster"]["policy_revision"] for node in (first, second)]
    assert [revision.strip('"')] * 2 == shown

    away, pushes = (
        (first, second) if owner_of("policy", (first.name, second.name)) == second.name else (second, first)
    )
    away.kill()
    revision = policies(pushes, two)
    away.start()

    until(lambda: policies(away) == revision)
    away.kill()
    pushes.kill()
    away.start()
    with pytest.raises(urllib.error.HTTPError) as refused:
        policies(away, one)
    assert refused.value.code == 503
    assert policies(away) == revision
