"""
Clients that poll, behind a balancer that sends each of their connections to another node of the domain.
"""

import asyncio
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from soaking.load.resuming_client import ResumingClient
from soaking.load.transports import Http, LineLink, PollLink

from .balancer import Balancer
from .clustered import DOMAIN, Cluster, Member, until
from .process import fetched
from .test_socketio import MODULES, Client

ANN, BOB = f"runtime://{DOMAIN}/ann", f"runtime://{DOMAIN}/bob"
COUNT = 200
PATIENCE = 60.0  # seconds

needs_npm = pytest.mark.skipif(
    shutil.which("node") is None or not (MODULES / "socket.io-client-1").exists(),
    reason="tools/test installs the clients, with Debian's nodejs and npm",
)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster(3)
    yield found
    found.stop()


@pytest.fixture
def balancer(cluster: Cluster) -> Iterator[Balancer]:
    found = Balancer(*(node.web for node in cluster.nodes))
    yield found
    found.close()


def relayed(cluster: Cluster, event: str = "answered") -> int:
    """
    The relayed requests of all nodes that run.
    """
    name = f'msgnode_cluster_relayed_total{{event="{event}"}} '
    pages = [fetched(node.process, "admin", "/metrics") for node in cluster.nodes if is_running(node)]
    return sum(
        int(float(line.rpartition(" ")[2])) for page in pages for line in page.splitlines() if name in line
    )


def is_running(node: Member) -> bool:
    return node.process is not None and node.process.process.poll() is None


class FreshHttp(Http):
    """
    A client that makes a connection for each request, so that each may reach another node.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._current: Http | None = None

    async def ask(self, *request: Any) -> tuple[int, bytes]:
        self.abort()
        self._current = await Http.to(self._port)
        return await self._current.ask(*request)

    def abort(self) -> None:
        if self._current is not None:
            self._current.abort()


class FreshPollLink(PollLink):
    """
    A client that polls with a new connection for each request.
    """

    async def open(self, request: bytes) -> bytes:
        self._get, self._post = FreshHttp(self._port), FreshHttp(self._port)
        _, body = await self._post.ask("POST", "/poll", "", request)
        return json.dumps(json.loads(body)["messages"][0]).encode()


async def talk(port: int, lines: int) -> tuple[list[int], list[int], ResumingClient]:
    """
    Ann, who polls at `port`, and bob at `lines` send COUNT messages to each other; the numbers that bob got,
    and ann, and ann herself.
    """
    to_ann: list[int] = []
    to_bob: list[int] = []
    ann = ResumingClient(
        ANN, lambda: FreshPollLink(port), lambda message: to_ann.append(message["body"]["n"])
    )
    bob = ResumingClient(BOB, lambda: LineLink(lines), lambda message: to_bob.append(message["body"]["n"]))
    running = [asyncio.ensure_future(client.run()) for client in (ann, bob)]
    while not (ann.link and bob.link):
        await asyncio.sleep(0.05)
    for n in range(COUNT):
        ann.send({"id": n, "type": "ping", "from": f"{ANN}/x", "to": f"{BOB}/y", "body": {"n": n}})
        bob.send({"id": n, "type": "ping", "from": f"{BOB}/y", "to": f"{ANN}/x", "body": {"n": n}})
        await asyncio.sleep(0.01)
    end = time.monotonic() + PATIENCE
    while (len(to_ann) < COUNT or len(to_bob) < COUNT) and time.monotonic() < end:
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)  # for what would be doubled
    for client in (ann, bob):
        client.stop()
    await asyncio.gather(*running)
    return to_bob, to_ann, ann


def test_poller_behind_a_balancer(cluster: Cluster, balancer: Balancer) -> None:
    """
    A poller whose requests reach three nodes in turn sends and gets each message once and in order, and its
    session stays where it was opened.
    """
    to_bob, to_ann, ann = asyncio.run(talk(balancer.port, cluster.nodes[0].lines))

    assert (list(range(COUNT)), list(range(COUNT))) == (to_bob, to_ann)
    assert (1, 0) == (ann.connected, ann.missed), ann.history
    assert relayed(cluster) > 20


def test_curl_behind_a_balancer(cluster: Cluster, balancer: Balancer) -> None:
    """
    A shell with curl polls, posts and asks by /message, at whichever node each request arrives.
    """

    def curl(path: str, token: str = "", body: Any = None) -> tuple[int, Any]:
        how = ["-H", f"Authorization: Bearer {token}"] if token else []
        how += ["--data-binary", json.dumps(body)] if body is not None else []
        url = f"http://127.0.0.1:{balancer.port}{path}"
        made = subprocess.run(
            ["curl", "-s", "-m", "20", "-w", "\n%{http_code}", *how, url], capture_output=True, check=True
        )
        answer, _, code = made.stdout.decode().rpartition("\n")
        return int(code), json.loads(answer) if answer.strip() else None

    _, opened = curl("/poll", body={"id": 1, "type": "open", "from": ANN, "to": "mn:/session"})
    token, cursor = opened["messages"][0]["body"]["runtimeToken"], opened["cursor"]
    sm = f"domain://msg-node.{DOMAIN}/sm"
    subscribe = {
        "id": 2,
        "type": "subscribe",
        "from": f"{ANN}/x",
        "to": sm,
        "body": {"resources": [f"comm://{DOMAIN}/1/changes"]},
    }
    codes = [curl("/message", token, subscribe)[1]["body"]["code"] for _ in range(6)]
    posted = []
    for n in range(12):
        message = {"id": n, "type": "ping", "from": f"{ANN}/y", "to": f"{ANN}/z", "body": {"n": n}}
        posted.append(curl(f"/poll?seq={n + 1}", token, message)[0])
    got: list[int] = []
    while len(got) < 12:
        code, answer = curl(f"/poll?wait=5&after={cursor}", token)
        assert code == 200
        got += [message["body"]["n"] for message in answer["messages"]]
        cursor = answer["cursor"]

    assert [200] * 6 == codes
    assert [202] * 12 == posted
    assert list(range(12)) == got
    assert relayed(cluster) > 6
    code, answer = curl("/poll?wait=0", "mns_nobody")
    assert (401, "no session has this token; open one") == (code, answer["desc"])


@needs_npm
@pytest.mark.parametrize("transport", ["polling", ""])
@pytest.mark.parametrize("version", ["1", "4"])
def test_socket_io_behind_a_balancer(cluster, balancer, version, transport):
    """
    npm's client, by polling only or with its attempt to change to WebSocket, sends and gets each message once
    and in order, on one connection of Engine.IO.
    """
    client, bob = Client(version, balancer.port, transport), cluster.nodes[0].client("bob")
    try:
        client.next("connect")
        opened = client.ask(**{"id": 1, "type": "open", "to": "mn:/session", "from": ANN})
        message = {"type": "ping", "from": BOB, "to": f"{ANN}/x"}
        for n in range(COUNT):
            bob.send({"id": n, **message})
            client.send(**{"id": n, "type": "ping", "from": f"{ANN}/x", "to": f"{BOB}/y"})
        came = [client.next("message", "disconnect") for _ in range(COUNT)]
        arrived = [bob.receive()["id"] for _ in range(COUNT)]
    finally:
        client.end()
        bob.close()

    assert 200 == opened["body"]["code"]
    assert list(range(COUNT)) == [each["id"] if isinstance(each, dict) else each for each in came]
    assert list(range(COUNT)) == arrived
    assert relayed(cluster) > 0


@needs_npm
@pytest.mark.parametrize("version", ["1", "4"])
def test_websocket_that_reaches_another_node(cluster, version):
    """
    A client whose attempt to change to WebSocket reaches another node goes on by polling, without a message
    lost and without a second connection.
    """
    n1, n2, n3 = cluster.nodes
    balancer = Balancer(n1.web, n3.web, websockets=n2.web)
    # Begins at n1, or at n3; n2 never has it.
    client, bob = Client(version, balancer.port), n1.client("bob")
    try:
        client.next("connect")
        client.ask(**{"id": 1, "type": "open", "to": "mn:/session", "from": ANN})
        for n in range(20):
            bob.send({"id": n, "type": "ping", "from": BOB, "to": f"{ANN}/x"})
            time.sleep(0.02)
        came = [client.next("message", "disconnect") for _ in range(20)]
    finally:
        client.end()
        bob.close()
        balancer.close()

    assert list(range(20)) == [each["id"] if isinstance(each, dict) else each for each in came]
    assert [] == client.ways
    assert balancer.websockets > 0


@needs_npm
def test_holder_of_a_socket_io_client_is_killed(cluster: Cluster, balancer: Balancer) -> None:
    """
    A client whose node is killed connects again through the balancer, opens its session at another node, and
    gets what is sent from then on.
    """
    client = Client("4", balancer.port, "polling")
    try:
        client.next("connect")
        client.ask(**{"id": 1, "type": "open", "to": "mn:/session", "from": ANN})
        holder = next(node for node in cluster.nodes if node.live()["sessions"]["attached"] == 1)
        holder.kill()
        client.next("disconnect")
        client.next("connect")
        again = client.ask(**{"id": 2, "type": "open", "to": "mn:/session", "from": ANN})
        other = next(node for node in cluster.nodes if node is not holder)
        bob = other.client("bob")
        until(lambda: heard(client, bob))
        bob.close()
    finally:
        client.end()

    assert 200 == again["body"]["code"]


def heard(client: Client, bob: Any) -> bool:
    """
    Does a message of bob arrive?
    """
    bob.send({"id": 5, "type": "ping", "from": BOB, "to": f"{ANN}/x"})
    return bool(client.next("message")["id"] == 5)


def get(port: int, token: str, query: str) -> tuple[int, Any, float]:
    """
    The status, the body and the seconds of a poll.
    """
    started = time.monotonic()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/poll?{query}", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read(), time.monotonic() - started
    except urllib.error.HTTPError as why:
        retry = why.headers.get("Retry-After")
        return why.code, (json.loads(why.read())["desc"], retry), time.monotonic() - started


def opened(node: Member) -> str:
    """
    The token of ann's new session at that node, which polls.
    """
    body = json.dumps({"id": 1, "type": "open", "from": ANN, "to": "mn:/session"}).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{node.web}/poll", body, PATIENCE) as answer:
        token: str = json.loads(answer.read())["messages"][0]["body"]["runtimeToken"]
        return token


def test_holder_is_killed_while_a_relayed_poll_waits(cluster: Cluster) -> None:
    """
    The poll is answered 503 with the name of the node that went away, and when to come again; when the node
    is back with its state, the same token polls on, and nothing is lost.
    """
    n1, n2, _ = cluster.nodes
    token = opened(n1)
    bob = n2.client("bob")

    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(get, n2.web, token, "wait=25")
        until(lambda: relayed(cluster, "served") == 1)
        n1.kill()
        code, (text, retry), seconds = waiting.result()
    assert (503, "1") == (code, retry), text
    assert f"mn://{DOMAIN}/n1, which holds this session" in text
    assert seconds < 20
    assert get(n2.web, token, "wait=1")[0] == 503

    bob.send({"id": 7, "type": "ping", "from": BOB, "to": f"{ANN}/x"})
    n1.start()
    cluster.wait_for_links()
    answers = []

    def has_come() -> bool:
        with suppress(OSError):
            answers.append(get(n2.web, token, "wait=1"))
        return bool(answers) and answers[-1][0] == 200

    until(has_come)
    assert [7] == [message["id"] for message in json.loads(answers[-1][1])["messages"]]
    bob.close()
