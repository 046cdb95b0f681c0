"""
Faults of one real node of a domain: a full disk, a clock that is wrong, another release, one that is slow.
"""

import glob
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from soaking.peers.ports import free_port

from tests.support.nats_server import NatsServer

from .background_clients import BackgroundClients
from .clustered import DOMAIN, Member, allocate, live_of_all, until
from .process import Lines, fetched

FAKETIME = next(iter(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")), None)
COUNT = 100
LINK_SECONDS = 40.0
SKEW = Path(__file__).with_name("skew")
ANN, BOB = f"runtime://{DOMAIN}/ann", f"runtime://{DOMAIN}/bob"
MEBI = 1024 * 1024
MAX_PAYLOAD = 64 * 1024  # of NATS, the least that nodes accept
ALLOCATIONS, EACH = 4, 1000
SENT, QUEUE = 4000, 400


@contextmanager
def members(
    environment: dict[str, str] | None = None, state: Path | None = None, more: str = ""
) -> Iterator[list[Member]]:
    """
    Two linked nodes with `more` configuration; environment and state directory are those of the second.
    """
    directory = Path(tempfile.mkdtemp(prefix="faults-"))
    nats = NatsServer(client=free_port())
    nodes = [Member(directory, name, nats.url, more) for name in ("n1", "n2")]
    if state is not None:
        (nodes[1].directory / "state").symlink_to(state)
    try:
        nodes[0].start()
        nodes[1].start(environment=environment)
        until(lambda: all(list(node.members().values()) == ["up"] for node in nodes), LINK_SECONDS)
        yield nodes
    finally:
        for node in nodes:
            if node.process is not None:
                node.process.stop()
        nats.stop()
        shutil.rmtree(directory, ignore_errors=True)


def converse(nodes: list[Member]) -> None:
    """
    Clients at both nodes allocate, ask each other and are answered.
    """
    ann, bob = nodes[0].client("ann"), nodes[1].client("bob")
    a, b = allocate(ann, f"runtime://{DOMAIN}/ann"), allocate(bob, f"runtime://{DOMAIN}/bob")
    for asker, one, answerer, other in ((ann, a, bob, b), (bob, b, ann, a)):
        for number in range(10):
            asker.send({"id": number, "type": "read", "from": one, "to": other, "body": {"n": number}})
            got = answerer.receive()
            assert got is not None and (one, number) == (got["from"], got["id"])
            answer = {"id": number, "type": "response", "from": other, "to": one, "body": {"code": 200}}
            answerer.send(answer)
            got = asker.receive()
            assert got is not None and (other, 200) == (got["from"], got["body"]["code"])
    nobody = f"hyperty://{DOMAIN}/nobody"
    unknown = ann.ask({"id": 99, "type": "ping", "from": a, "to": nobody, "receipt": True, "body": {}})
    assert 404 == unknown["body"]["code"]
    ann.close()
    bob.close()


def exchange(nodes: list[Member]) -> None:
    """
    What clients that acknowledge send each other arrives once and in order.
    """
    with BackgroundClients(carl=nodes[0], dave=nodes[1]) as clients:
        for name, to in (("carl", "dave"), ("dave", "carl")):
            clients.send(name, to, range(COUNT))
        until(lambda: all(len(clients.got(name)) >= COUNT for name in ("carl", "dave")), LINK_SECONDS)
        assert [list(range(COUNT))] * 2 == [clients.got(name) for name in ("carl", "dave")]
        assert {0} == {clients.missed(name) for name in ("carl", "dave")}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """
    A directory on a disk of its own, of 100 MiB.
    """
    mount = ["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(tmp_path)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("only root may mount a disk")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=False)


def test_full_disk_of_one_node(small: Path) -> None:
    """
    While the disk of one node is full the other node goes on. Of the messages to a session of the full node
    those that it could not queue, while its client was away, are reported to the client as missed, as on a
    single node; all others arrive once and in order, also from its client.
    """
    with members(state=small) as nodes:
        full = nodes[1]
        with BackgroundClients(carl=nodes[0], carol=nodes[0], dave=full) as clients:
            clients.send("carl", "dave", range(COUNT // 4))
            until(lambda: len(clients.got("dave")) == COUNT // 4)
            ballast = small / "ballast"
            with ballast.open("ab", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(b"\0" * MEBI)
            with ballast.open("ab", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(b"\0" * 512)
            until(lambda: full.live()["status"] == "degraded")
            clients.send("carl", "dave", range(COUNT // 4, COUNT // 2))
            clients.send("carol", "carl", range(COUNT // 4))
            until(lambda: len(clients.got("carl")) == COUNT // 4)
            assert "up" == nodes[0].live()["status"]
            time.sleep(3.0)
            clients.send("dave", "carol", range(COUNT // 4))

            ballast.unlink()

            until(lambda: full.live()["status"] == "up")
            clients.send("carl", "dave", range(COUNT // 2, COUNT))
            until(lambda: len(clients.got("dave")) + clients.missed("dave") >= COUNT, LINK_SECONDS)
            until(lambda: len(clients.got("carol")) >= COUNT // 4, LINK_SECONDS)
            time.sleep(1.0)  # for what would be doubled
            got = clients.got("dave")
            assert COUNT == len(got) + clients.missed("dave")
            assert sorted(set(got)) == got and got[-COUNT // 2 :] == list(range(COUNT // 2, COUNT))
            assert list(range(COUNT // 4)) == clients.got("carol") == clients.got("carl")
            assert {0} == {clients.missed(name) for name in ("carl", "carol")}


@pytest.mark.skipif(FAKETIME is None, reason="apt-get install libfaketime")
@pytest.mark.parametrize("offset", ["+1h", "-1h"])
def test_clocks_apart(offset: str) -> None:
    """
    Nodes whose clocks are an hour apart are members of one cluster, and nothing between them goes stale
    early, is refused, lost or doubled.
    """
    assert FAKETIME is not None
    environment = {"LD_PRELOAD": FAKETIME, "FAKETIME": offset, "DONT_FAKE_MONOTONIC": "1"}
    with members(environment) as nodes:
        converse(nodes)
        exchange(nodes)
        ann = nodes[0].client("ann")
        bob = nodes[1].client("bob")
        ann.send({"id": 1, "type": "ping", "from": f"{ANN}/x", "to": f"{BOB}/y", "body": {"n": 0}})
        assert bob.receive() is not None
        token = bob.token
        bob.close()
        time.sleep(1.0)
        ann.send({"id": 2, "type": "ping", "from": f"{ANN}/x", "to": f"{BOB}/y", "body": {"n": 1}})
        time.sleep(1.0)
        again = Lines(nodes[1].lines)
        again.socket.settimeout(20)
        again.ask({"id": 2, "type": "re-open", "from": f"{BOB}/{token}", "to": "mn:/session"})
        waited = again.receive()
        assert waited is not None and 1 == waited["body"]["n"]
        ann.close()
        again.close()


@pytest.mark.parametrize("release", ["newer", "older"])
def test_nodes_of_two_releases(release: str) -> None:
    """
    A node of a later release, which sends kinds and fields that this one does not know, and one of an earlier
    release, which does not know those of this one, are members of one cluster with it.
    """
    with members({"PYTHONPATH": str(SKEW), "MSGNODE_SKEW": release}) as nodes:
        converse(nodes)
        exchange(nodes)
        skewed, answers = nodes[1], live_of_all(nodes[0])

        expected = {"newer": "up", "older": None}[release]
        assert ["up", expected] == [answers[node.name].get("status") for node in nodes]
        assert {"newer": None, "older": 501}[release] == answers[skewed.name].get("code")
        for node in nodes:
            metrics = fetched(node.process, "admin", "/metrics") if node.process is not None else ""
            assert "msgnode_cluster_refused_total{" not in metrics


def test_directory_larger_than_a_nats_message(tmp_path: Path) -> None:
    """
    A node that joins gets addresses of several times the size of a NATS message, and messages for the last of
    them reach their session.
    """
    nats = NatsServer(f"max_payload: {MAX_PAYLOAD}", free_port())
    nodes = [Member(tmp_path, name, nats.url) for name in ("n1", "n2")]
    try:
        nodes[0].start()
        ann, found = nodes[0].client("ann"), []
        for number in range(ALLOCATIONS):
            asked = {
                "id": number,
                "type": "create",
                "from": f"{ANN}/x",
                "to": f"domain://msg-node.{DOMAIN}/hyperty-address-allocation",
                "body": {"value": {"number": EACH}},
            }
            found += ann.ask(asked)["body"]["value"]["allocated"]
        assert sum(map(len, found)) > 2 * MAX_PAYLOAD

        nodes[1].start()

        until(lambda: nodes[1].live()["cluster"]["addresses_elsewhere"] >= len(found))
        bob = nodes[1].client("bob")
        bob.send({"id": 7, "type": "ping", "from": f"{BOB}/x", "to": found[-1], "body": {}})
        got = ann.receive()
        assert got is not None and (7, found[-1]) == (got["id"], got["to"])
        ann.close()
        bob.close()
    finally:
        for node in nodes:
            if node.process is not None:
                node.process.stop()
        nats.stop()


def resident_bytes(process_id: int) -> int:
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_node_that_takes_nothing(tmp_path: Path) -> None:
    """
    What one client sends to a node that stands still fills a quarter of its queue; the rest is refused with
    507, and the memory of the sender's node is bounded. What was accepted arrives once and in order.
    """
    with members(more=f"[federation]\nqueue_messages = {QUEUE}\n") as nodes:
        ann, bob = nodes[0].client("ann"), nodes[1].client("bob")
        assert nodes[0].process is not None and nodes[1].process is not None
        sender, slow = nodes[0].process.process.pid, nodes[1].process.process.pid
        ann.send({"id": 0, "type": "ping", "from": f"{ANN}/x", "to": f"{BOB}/y", "body": {}})
        assert bob.receive() is not None
        before = resident_bytes(sender)
        os.kill(slow, signal.SIGSTOP)
        try:
            for number in range(SENT):
                text = {"n": number, "text": "x" * 10_000}
                ann.send({"id": number, "type": "ping", "from": f"{ANN}/x", "to": f"{BOB}/y", "body": text})
            refused = set()
            for number in (SENT, SENT + 1):
                asked = {"id": number, "type": "ping", "from": f"{ANN}/x", "to": f"{BOB}/y", "receipt": True}
                refused.add(ann.ask({**asked, "body": {}})["body"]["code"])
            grown = resident_bytes(sender) - before
        finally:
            os.kill(slow, signal.SIGCONT)

        got = []
        while len(got) < QUEUE // 4 - 1:  # the answer to the first message may be read later
            message = bob.receive()
            assert message is not None
            got.append(message["body"]["n"])
        assert {507} == refused
        assert list(range(len(got))) == got
        assert grown < 20 * MEBI
        ann.close()
        bob.close()
