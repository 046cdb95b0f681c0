"""
The Python client at a real node: killed under it, and by asyncio.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from msgnode.client import AsyncClient, CannotConnect, Message, Refused, TimedOut
from msgnode.records.generate import python
from msgnode.records.reader import read_texts
from tests.integration.process import PATIENCE, NodeProcess
from tests.support.authority import Authority
from tests.support.examples import blocks
from tests.support.records_case import written

LAMP = "hyperty://localhost/lamp"


@pytest.fixture
def node() -> Iterator[NodeProcess]:
    process = NodeProcess()
    yield process
    process.stop(signal.SIGKILL)


def by_lines(node: NodeProcess) -> str:
    return f"tcp://127.0.0.1:{node.ports['line']}"


def by_websocket(node: NodeProcess) -> str:
    return f"ws://127.0.0.1:{node.ports['web']}/ws"


def again(node: NodeProcess, directory: Path) -> NodeProcess:
    """
    The same node, killed and started anew on its ports and its state.
    """
    node.stop(signal.SIGKILL)
    where = {kind: f"tcp:{port}:interface=127.0.0.1" for kind, port in node.ports.items()}
    config = directory / "msgnode.toml"
    config.write_text(
        f'web = ["{where["web"]}"]\nlines = ["{where["line"]}"]\nadmin.listen = "{where["admin"]}"\n'
    )
    return NodeProcess("--config", str(config), state=str(node.state), traffic=str(node.traffic))


def test_killed_node_loses_and_doubles_no_message(node: NodeProcess, tmp_path: Path) -> None:
    """
    Three times the node is killed under a sender and a receiver that go on: each of the sender's messages
    arrives once, in order.
    """
    got: list[int] = []
    number = 900  # fewer than may wait for one that is away

    async def talk() -> NodeProcess:
        running = node
        sender = AsyncClient(by_lines(node), "runtime://localhost/sender")
        receiver = AsyncClient(by_websocket(node), "runtime://localhost/receiver")
        await sender.connect()
        await receiver.connect()
        await receiver.subscribe("comm://localhost/o/changes", lambda news: got.append(news.body["value"]))
        for each in range(number):
            sender.publish("comm://localhost/o/changes", each)
            if each % 30 == 0:
                await asyncio.sleep(0.02)
            if each % 300 == 150:
                running = await asyncio.to_thread(again, running, tmp_path)
        await asyncio.wait_for(sender.flushed(), PATIENCE)
        for _ in range(PATIENCE * 20):
            if len(got) >= number:
                break
            await asyncio.sleep(0.05)
        await sender.close()
        await receiver.close()
        return running

    running = asyncio.run(talk())
    running.stop()

    assert list(range(number)) == got


@pytest.mark.parametrize("where", [by_lines, by_websocket])
def test_asyncio(node: NodeProcess, where: object) -> None:
    """
    In asyncio requests are awaited, handlers may be coroutine functions, and a refusal is raised.
    """

    async def slowly(request: Message) -> int:
        await asyncio.sleep(0.01)
        return request.body["n"] + 1

    async def talk() -> tuple[int, int]:
        async with AsyncClient(where(node)) as lamp, AsyncClient(where(node)) as user:  # type: ignore[operator]
            await lamp.subscribe(LAMP, slowly)
            reply = await user.request(LAMP, {"n": 1})
            with pytest.raises(Refused) as refused:
                await user.find("user://localhost/ann")
            return reply.body["value"], refused.value.code

    assert (2, 404) == asyncio.run(talk())


@pytest.mark.parametrize("kind, url", [("line", "tls://localhost:{}"), ("web", "wss://localhost:{}/ws")])
def test_client_trusts_and_shows_certificates(tmp_path: Path, kind: str, url: str) -> None:
    """
    Over TLS the client trusts whom it is told to, and shows its certificate; it does not speak to a node that
    it does not trust.
    """
    authority = Authority(tmp_path)
    server, own = authority.issue("localhost"), authority.issue("device.example.org")
    config = tmp_path / "msgnode.toml"
    config.write_text(
        f'web = []\nlines = []\nadmin.listen = "none"\n[[listen]]\nkind = "{kind}"\n'
        f'endpoint = "tcp:0:interface=127.0.0.1"\ncert = "{server}"\nclient_ca = "{authority.path}"\n'
    )
    node = NodeProcess("--config", str(config), listeners=1)
    where = url.format(node.ports[kind])

    async def talk() -> str:
        async with AsyncClient(where, ca=authority.path, certificate=own) as client:
            reply = await client.request(
                "domain://msg-node.localhost/sm", {"resources": [LAMP]}, type="subscribe"
            )
        with pytest.raises(CannotConnect, match="certificate"):
            await AsyncClient(where).connect()
        return str(reply.body["code"])

    try:
        assert "200" == asyncio.run(talk())
    finally:
        node.stop()


def test_asyncio_by_name_and_refused() -> None:
    """
    A name is looked up by the loop; where nobody listens, connecting fails.
    """

    async def talk() -> None:
        await AsyncClient("tcp://localhost:1").connect()

    with pytest.raises(CannotConnect, match="tcp://localhost:1: "):
        asyncio.run(talk())


def test_the_thermometer_of_the_documents_answers(node: NodeProcess, tmp_path: Path) -> None:
    """
    The definition and the device of docs/records.md, and the program of docs/client.md, run as shown.
    """
    [definition, *_] = [block.text for block in blocks("docs/records.md") if block.info == "json"]
    found = read_texts([("thermometer.records.json", definition.encode())])
    written(tmp_path / "thermometer", python.generate(found))
    for path in ("docs/records.md", "docs/client.md"):
        texts = [block.text for block in blocks(path)]
        [shown] = [text for text in texts if "AsyncClient" in text and "GetTemperatureAnswer" in text]
        (tmp_path / f"{Path(path).stem}_shown.py").write_text(shown.replace("9091", str(node.ports["line"])))
    command = [sys.executable, tmp_path / "client_shown.py"]
    device = subprocess.Popen([sys.executable, tmp_path / "records_shown.py"])

    async def ask() -> Message:
        async with AsyncClient(by_lines(node)) as user:
            while True:  # until the device has subscribed
                with suppress(TimedOut):
                    asked = {"record": found.records[0].id, "timeout": 1}
                    return await user.request("hyperty://localhost/thermometer", {"ROOM": "attic"}, **asked)

    try:
        reply = asyncio.run(asyncio.wait_for(ask(), PATIENCE))
        printed = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE).stdout
    finally:
        device.kill()
        device.wait(PATIENCE)

    assert ({"code": 200, "TEMPERATURE": 18.0}, "21.5\n") == (reply.body, printed)
