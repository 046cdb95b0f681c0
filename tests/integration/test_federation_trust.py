"""
Nodes of three domains, as real processes: messages that the second passes on to the third.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import urlopen

import pytest
from soaking.load.resuming_client import ResumingClient
from soaking.load.transports import LineLink

from .federated import PATIENCE, Domains
from .process import Lines

ANN, BOB, CARL = "runtime://a.example/ann", "runtime://b.example/bob", "runtime://c.example/carl"
DESK = "runtime://b.example/desk"
ROOM = "comm://b.example/room/children/"
POLICY = {
    "id": "desk",
    "version": 1,
    "update": "2026-11-22T00:00:00",
    "priority": 0,
    "target": {},
    "obligations": {},
    "policyCombiningAlgorithm": "blockOverrides",
    "policies": [
        {
            "id": "calls",
            "priority": 0,
            "target": {},
            "obligations": {},
            "ruleCombiningAlgorithm": "firstApplicable",
            "rules": [
                {
                    "id": "desk",
                    "priority": 0,
                    "target": {},
                    "condition": {"msgTo": {"equals": DESK}},
                    "effect": "permit",
                    "obligations": {"redirect": CARL},
                }
            ],
        }
    ],
}


@pytest.fixture
def chain() -> Iterator[Domains]:
    """
    A chain of three domains, of which the middle one has a policy that redirects to the third.
    """
    found = Domains(3)
    found.chain()
    b = found.all[1]
    policy = b.directory / "policy.json"
    policy.write_text(json.dumps([POLICY]))
    file = b.directory / f"{b.name}.toml"
    file.write_text(f'{file.read_text()}\n[policy]\nsource = "{policy}"\n')
    found.start()
    yield found
    found.stop()


def until(attempt: Callable[[], Any]) -> Any:
    """
    The result of the first attempt that has one: routes and signatures take seconds after the start.
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if result := attempt():
            return result
        time.sleep(0.5)
    raise AssertionError("it took too long")


def received(client: Lines, id: int) -> dict[str, Any]:
    """
    The next message with that id. Earlier requests may be answered late.
    """
    while True:
        message = client.receive()
        assert message is not None
        if message["id"] == id:
            return message


def test_messages_pass_on_to_a_third_domain(chain: Domains) -> None:
    """
    A publication at an object of B, a request that a client of B forwards, and one that a policy of B
    redirects reach a client of C from the client of A that sent them, who gets the answers.
    """
    a, b, c = chain.all
    ann, bob, carl = Lines(a.lines, ANN), Lines(b.lines, BOB), Lines(c.lines, CARL)
    numbers = iter(range(100, 1000))

    def redirected() -> bool:
        ann.send({"id": next(numbers), "type": "read", "from": ANN, "to": DESK})
        carl.socket.settimeout(0.5)
        ann.socket.settimeout(0.5)
        for client in (carl, ann):
            try:
                found = client.receive()
            except TimeoutError:
                client._file = client.socket.makefile("rb")
                continue
            return client is carl and found is not None and (found["from"], found["to"]) == (ANN, CARL)
        return False

    until(redirected)
    for client in (ann, carl):
        client.socket.settimeout(PATIENCE)
    ann.send({"id": 1001, "type": "read", "from": ANN, "to": DESK, "body": {"n": 1}, "transaction": "t"})
    asked = received(carl, 1001)
    assert (asked["from"], asked["to"], asked["body"]["n"], asked["transaction"]) == (ANN, CARL, 1, "t")
    carl.send({"id": 1001, "type": "response", "from": CARL, "to": ANN, "body": {"code": 200}})
    answer = received(ann, 1001)
    assert (answer["from"], answer["body"]["code"]) == (CARL, 200)

    ann.send({"id": 1002, "type": "read", "from": ANN, "to": BOB, "forward": True, "body": {"n": 2}})
    got = bob.receive()
    assert got is not None
    bob.send({**got, "to": CARL})
    asked = received(carl, 1002)
    assert (asked["from"], asked["body"]["n"]) == (ANN, 2)
    carl.send({"id": 1002, "type": "response", "from": CARL, "to": ANN, "body": {"code": 200}})
    assert received(ann, 1002)["from"] == CARL

    subscribe = {"type": "subscribe", "from": CARL, "to": "domain://msg-node.c.example/sm"}

    def subscribed() -> bool:
        number = next(numbers)
        carl.send(subscribe | {"id": number, "body": {"resources": [ROOM]}})
        return bool(received(carl, number)["body"]["code"] == 200)

    until(subscribed)
    ann.send({"id": 1003, "type": "update", "from": ANN, "to": ROOM, "body": {"n": 3}})
    published = received(carl, 1003)
    assert (published["from"], published["to"], published["body"]["n"]) == (ANN, ROOM, 3)
    for client in (ann, bob, carl):
        client.close()


def test_publications_pass_on_while_nodes_are_killed(chain: Domains) -> None:
    """
    The home domain and the observer's are killed while a client of A publishes; the observer in C gets all
    publications, once and in order.
    """
    a, _, c = chain.all
    ann, carl = Lines(a.lines, ANN), Lines(c.lines, CARL)
    numbers = iter(range(100, 1000))

    def answered() -> bool:
        request = {"id": next(numbers), "type": "read", "from": ANN, "to": "runtime://c.example/nobody"}
        return bool(ann.ask(request)["body"]["code"] == 404)

    until(answered)
    for client in (ann, carl):
        client.close()

    sent, published = asyncio.run(_publish_under_kills(chain))

    assert published == list(range(1, sent + 1))


async def _publish_under_kills(chain: Domains) -> tuple[int, list[int]]:
    published: list[int] = []
    codes: list[int] = []

    def heard(message: dict[str, Any]) -> None:
        if message["to"] == ROOM:
            published.append(message["body"]["n"])
        elif message["type"] == "response":
            codes.append(message["body"]["code"])

    a, b, c = chain.all
    ann = ResumingClient("runtime://a.example/al", lambda: LineLink(a.lines), lambda message: None)
    carl = ResumingClient("runtime://c.example/cid", lambda: LineLink(c.lines), heard)
    tasks = [asyncio.create_task(client.run()) for client in (ann, carl)]
    asked = sent = 0
    deadline = time.monotonic() + PATIENCE
    while 200 not in codes:  # then the subscription is at the home domain
        assert time.monotonic() < deadline, codes
        if len(codes) == asked:
            asked += 1
            carl.send({"id": asked, "type": "subscribe", "from": carl.runtime,
                       "to": "domain://msg-node.c.example/sm", "body": {"resources": [ROOM]}})  # fmt: skip
        await asyncio.sleep(0.05)

    async def publish(seconds: float) -> None:
        nonlocal sent
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sent += 1
            ann.send({"id": sent, "type": "update", "from": ann.runtime, "to": ROOM, "body": {"n": sent}})
            await asyncio.sleep(0.02)

    await publish(1)
    for domain in (c, b):
        domain.kill()
        await asyncio.gather(publish(3), asyncio.to_thread(domain.start))
        await _all_came(published, sent)
    for client in (ann, carl):
        client.stop()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return sent, published


async def _all_came(published: list[int], sent: int) -> None:
    deadline = time.monotonic() + 2 * PATIENCE
    while len(published) < sent and time.monotonic() < deadline:
        await asyncio.sleep(0.05)


def test_a_revoked_certificate_ends_links_and_streams() -> None:
    """
    When the list on disk has the certificate of a peer, senders of what waits for it are answered, and it
    gets no link any more.
    """
    found = Domains(2)
    a, b = found.all
    crl = a.authority.revoke([], days=1)
    a.configure({b: []})
    b.configure({a: [f'crl = "{crl}"']})
    found.start()
    try:
        ann, bob = Lines(a.lines, ANN), Lines(b.lines, BOB)
        numbers = iter(range(100, 1000))

        def answered() -> bool:
            request = {"id": next(numbers), "type": "read", "from": BOB, "to": "runtime://a.example/nobody"}
            return bool(bob.ask(request)["body"]["code"] == 404)

        until(answered)
        with urlopen(f"http://127.0.0.1:{b.admin}/metrics") as page:
            metrics = page.read().decode()
        for name in ("node_certificate_days 6.9", "revocation_list_days 0.9"):
            assert f"\nmsgnode_{name}" in metrics
        ann.close()
        a.kill()
        bob.send({"id": 1, "type": "update", "from": BOB, "to": ANN, "receipt": True})

        a.authority.revoke(["a.example"], days=1)
        bob.socket.settimeout(PATIENCE)
        receipts = []
        while not receipts or not receipts[-1].get("final"):
            receipt = bob.receive()
            assert receipt is not None
            receipts.append(receipt["body"])
        assert (receipts[-1]["code"], receipts[-1]["reason"]) == (502, "no-path")
        a.start()
        assert b.process is not None
        b.process.read_until("link with 127.0.0.1: the certificate of CN=msg-node.a.example was revoked")
        bob.close()
    finally:
        found.stop()
