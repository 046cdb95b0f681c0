"""
Two real domains, as users of `msgnode` and of the Python client see them: paths of receipts, and waiting.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from msgnode.client import AsyncClient, Delivery, Message

from .federated import PATIENCE, Domain, Domains
from .process import Lines

MSGNODE = Path(sys.executable).with_name("msgnode")
BOB = "runtime://b.example/bob"
NODES = ["mn://a.example/n1", "mn://b.example/n1"]


@pytest.fixture(scope="module")
def domains() -> Iterator[Domains]:
    found = Domains(2)
    found.chain()
    found.start()
    try:
        _until_linked(found.all[0])
        yield found
    finally:
        found.stop()


def _until_linked(domain: Domain) -> None:
    probe = Lines(domain.lines, f"runtime://{domain.name}/probe")
    deadline = time.monotonic() + PATIENCE
    request = {"id": 1, "type": "read", "from": f"runtime://{domain.name}/probe"}
    while probe.ask(request | {"to": "runtime://b.example/nobody"})["body"]["code"] != 404:
        assert time.monotonic() < deadline, "the domains were never linked"
        time.sleep(0.2)
    probe.close()


def command(domain: Domain, *words: str) -> list[str]:
    where = ("--url", f"ws://127.0.0.1:{domain.web}/ws", "--domain", domain.name)
    return [str(MSGNODE), *words, *where]


def run(domain: Domain, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(domain, *words), capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_send_across_domains_prints_the_nodes_on_the_path(domains: Domains) -> None:
    """
    `listen` at one domain prints what `send` at the other one sent; `send` prints each node and its time.
    """
    a, b = domains.all
    arguments = command(b, "listen", "--json", "--runtime", BOB, "--count", "2")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as listening:
        assert listening.stdout is not None
        me = "runtime://a.example/me"
        sent = run(a, "send", BOB, "hello", "--runtime", me)
        deadline = time.monotonic() + PATIENCE
        while sent.returncode == 1 and time.monotonic() < deadline:  # nobody listens yet
            sent = run(a, "send", BOB, "hello", "--runtime", me)
        as_json = json.loads(run(a, "send", BOB, "again", "--runtime", me, "--json").stdout)
        heard = [json.loads(line)["body"]["value"] for line in listening.stdout]

    first, path = sent.stdout.splitlines()
    assert ["hello", "again"] == heard
    assert first.endswith(f": {BOB}")
    assert path.startswith("path: a.example/n1 (")
    assert " -> b.example/n1 (" in path
    assert NODES == [hop["node"] for hop in as_json["path"]]
    assert (True, True) == (as_json["ok"], as_json["final"])


def test_send_to_an_address_that_nobody_has_prints_how_far_it_went(domains: Domains) -> None:
    """
    The text is that of the other domain, and the exit code 1.
    """
    nobody = "runtime://b.example/nobody"

    done = run(domains.all[0], "send", nobody, "hello")

    assert done.returncode == 1
    assert done.stderr.startswith(
        f"msgnode: no session is bound to this address (no-route): {nobody}\npath: a.example/n1 ("
    )


def test_request_across_domains_prints_the_answer(domains: Domains) -> None:
    """
    A Python program at one domain answers `msgnode request` at the other one.
    """
    a, b = domains.all

    async def serve() -> "subprocess.CompletedProcess[str]":
        async with AsyncClient(f"ws://127.0.0.1:{b.web}/ws", "runtime://b.example/lamp-1") as lamp:
            await lamp.subscribe("hyperty://b.example/lamp", lambda request: {"state": "on"})
            return await asyncio.to_thread(run, a, "request", "hyperty://b.example/lamp")

    done = asyncio.run(serve())

    assert {"code": 200, "state": "on"} == json.loads(done.stdout)


def test_a_message_that_waits_for_a_route_is_delivered_when_there_is_one(domains: Domains) -> None:
    """
    The other domain's node is killed: the client is told that its message waits, and later which way it went.
    """
    a, b = domains.all

    async def converse() -> tuple[list[Delivery], Delivery, str]:
        heard: list[Message] = []
        told: list[Delivery] = []
        waits = asyncio.Event()
        async with (
            AsyncClient(f"ws://127.0.0.1:{b.web}/ws", BOB, heard=heard.append) as bob,
            AsyncClient(f"ws://127.0.0.1:{a.web}/ws", "runtime://a.example/ann") as ann,
        ):
            assert (await ann.deliver(BOB, "before")).code == 200
            await bob.flushed()
            await asyncio.to_thread(b.kill)
            await asyncio.to_thread(_until_waiting, a)
            delivered = asyncio.ensure_future(
                ann.deliver(BOB, "after", timeout=2 * PATIENCE,
                            waiting=lambda receipt: (told.append(receipt), waits.set()))
            )  # fmt: skip
            await asyncio.wait_for(waits.wait(), PATIENCE)
            shown = (await asyncio.to_thread(run, a, "send", BOB, "by command", "--wait", "1")).stdout
            await asyncio.to_thread(b.start)
            return told, await delivered, shown

    [provisional], final, shown = asyncio.run(converse())

    assert (202, "waiting for a route", False) == (provisional.code, provisional.text, provisional.is_final)
    assert (200, True) == (final.code, final.is_final)
    assert NODES == [hop.node for hop in final.path]
    assert f"waiting for a route: {BOB}\n" == shown


def test_listen_goes_on_while_the_other_domain_does_not_answer(domains: Domains) -> None:
    """
    It says so, and prints what is published there once its node runs again.
    """
    a, b = domains.all
    topic = "comm://b.example/news/changes"
    b.kill()
    _until_waiting(a)
    arguments = command(a, "listen", topic, "--count", "1", "--for", str(2 * PATIENCE))
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as listening:
        assert listening.stdout is not None and listening.stderr is not None
        assert "the node goes on asking" in listening.stderr.readline()
        b.start()
        deadline = time.monotonic() + PATIENCE
        while listening.poll() is None and time.monotonic() < deadline + PATIENCE:
            run(b, "send", topic, "news", "--wait", "0.2")
        heard = listening.stdout.read()

    assert '{"value": "news"}' in heard


def _until_waiting(domain: Domain) -> None:
    """
    Wait until the node has noticed that the other one is gone.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        admin = ("--admin", f"http://127.0.0.1:{domain.admin}", "--state")
        state = str(domain.directory / domain.name / "state")
        done = subprocess.run(
            [MSGNODE, "route", "explain", "b.example", *admin, state],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode == 1:
            return
        assert time.monotonic() < deadline, done.stdout
        time.sleep(0.1)
