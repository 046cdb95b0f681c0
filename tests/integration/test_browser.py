"""
The protostub in a browser: pages that are runtimes, and a real node.
"""

import json
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.test_scenario import H1, H2, OBJECT, R1, R2, R3, SM, Conversation, D
from tests.integration.browser import CHROMIUM, Browser
from tests.integration.cable import Cable
from tests.integration.pages import SYSTEMJS, PageRuntime, PageServer
from tests.integration.process import NodeProcess

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or not SYSTEMJS.exists(), reason="needs chromium, and npm install in tools/stub"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.stop()


@pytest.fixture(scope="module")
def pages() -> Iterator[PageServer]:
    pages = PageServer()
    yield pages
    pages.stop()


@pytest.fixture
def node() -> Iterator[NodeProcess]:
    node = NodeProcess("--domain", D)
    yield node
    node.stop()


@pytest.fixture
def cable(node: NodeProcess) -> Iterator[Cable]:
    cable = Cable(node.ports["web"])
    yield cable
    cable.close()


class Checks:
    """
    What a Conversation expects of a test case.
    """

    def assertEqual(self, expected: Any, found: Any, where: str) -> None:
        assert expected == found, where


class PageConversation(Conversation):
    """
    The conversation of two deployed runtimes, between two pages.
    """

    registry = 200

    def __init__(self, first: PageRuntime, second: PageRuntime) -> None:
        self.test: Any = Checks()
        self.r1: Any = first
        self.r2: Any = second
        self.pair = "pages"
        self.id = 0

    def message(self, type: str, from_: str, to: str, body: Any = None) -> dict[str, Any]:
        message = super().message(type, from_, to, body)
        if body is not None:  # the stub writes its own
            body.pop("via", None)
        return message if body else {key: value for key, value in message.items() if key != "body"}

    def sends(self, sender: Any, receivers: list[Any], *fields: Any) -> int:
        id = super().sends(sender, receivers, *fields)
        if not receivers:
            # Nobody shows that the node has it, so a request behind it does.
            self.asks(sender, 200, "subscribe", f"{sender.url}/sm", SM, {"resources": [f"{sender.url}/x"]})
        return id

    def nobody(self) -> None:
        for runtime in (self.r1, self.r2):
            assert [] == runtime.pending()


class Pair:
    """
    Two pages behind one cable.
    """

    def __init__(self, browser: Browser, pages: PageServer, port: int, form: str = "default.ps.js") -> None:
        self.r1 = PageRuntime(browser, pages, port, R1, form)
        self.r2 = PageRuntime(browser, pages, port, R2, form)

    def close(self) -> None:
        self.r1.page.close()
        self.r2.page.close()


@pytest.fixture(params=["default.ps.js"])
def pair(request: pytest.FixtureRequest, browser: Browser, pages: PageServer, cable: Cable) -> Iterator[Pair]:
    pair = Pair(browser, pages, cable.port, request.param)
    yield pair
    pair.close()


def updates(first: int, last: int) -> list[dict[str, Any]]:
    """
    Numbered messages of the first page to the second.
    """
    return [
        {"id": n, "type": "update", "from": H1, "to": f"{R2}/sm", "body": {"value": n}}
        for n in range(first, last)
    ]


@pytest.mark.parametrize("pair", ["default.ps.js", "default.mjs", "catalogue"], indirect=True)
def test_two_pages_talk_as_runtimes_do_from_open(pair: Pair) -> None:
    """
    Two pages talk as runtimes do, from `open` to the deletion of an object, with each form of the stub.
    """
    talk = PageConversation(pair.r1, pair.r2)

    talk.open()
    talk.create()
    talk.invite()
    talk.observe(talk.r2, R2, H2)
    talk.update(talk.r2)
    talk.child(via=f"runtime://{D}/protostub/2")
    talk.leave()
    talk.update()
    talk.observe(talk.r2, R2, H2)
    talk.delete(talk.r2)
    talk.update(talk.r2)


def test_stub_says_where_it_is_as_the_runtime_expects(pair: Pair) -> None:
    """
    The stub says where it is, as the runtime expects it.
    """
    said = [body["value"] for body in pair.r1.page.run("statuses")]

    assert ["created", "in-progress", "live"] == said


def test_page_of_an_observer_reloads(pair: Pair) -> None:
    """
    What is published while an observer's page loads anew reaches it once and in order.
    """
    talk = PageConversation(pair.r1, pair.r2)
    talk.open()
    talk.create()
    talk.observe(talk.r2, R2, H2)
    before = updates(0, 20)
    pair.r1.send(*before)
    assert before == pair.r2.take(20)

    pair.r2.page.ask("Page.reload")
    pair.r1.send(*updates(20, 60))
    pair.r2.until_live()

    assert updates(20, 60) == pair.r2.take(40)
    talk.update(talk.r2)
    assert pair.r2.page.run("statuses.at(-1)")["resumed"]


def test_sender_reloads(pair: Pair) -> None:
    """
    What a page sent in the moment in which it was reloaded arrives, and arrives once.
    """
    pair.r1.send(*updates(0, 5))
    assert updates(0, 5) == pair.r2.take(5)

    pair.r1.page.run(f"send(...{json.dumps(updates(5, 500))}); location.reload()")
    pair.r1.until_live()

    assert updates(5, 500) == pair.r2.take(495)


def test_page_of_a_reporter_reloads(pair: Pair, browser: Browser, pages: PageServer, cable: Cable) -> None:
    """
    A reporter whose page is loaded anew, and subscribes to less, is still asked by new observers.
    """
    talk = PageConversation(pair.r1, pair.r2)
    talk.open()
    talk.create()
    talk.observe(talk.r2, R2, H2)

    pair.r1.reload()
    for resources in ([OBJECT], [f"{OBJECT}/children/"]):
        talk.asks(talk.r1, 200, "subscribe", f"{R1}/sm", SM, {"resources": resources, "source": H1})

    third: Any = PageRuntime(browser, pages, cable.port, R3)
    talk.observe(third, R3, f"hyperty://{D}/h3")
    talk.update(talk.r2, third)
    third.page.close()


def test_network_is_cut(pair: Pair, cable: Cable) -> None:
    """
    The network goes while messages are on their way and comes back: nothing is lost, doubled or out of order.
    """
    pair.r1.send(*updates(0, 1000))
    cable.cut()
    pair.r1.page.until("status() === 'disconnected'")
    pair.r1.send(*updates(1000, 2000))
    cable.join()

    assert updates(0, 2000) == pair.r2.take(2000)
    assert {0} == {body["missed"] for body in pair.r2.page.run("statuses") if body["value"] == "live"}


def test_pages_find_a_killed_node_again(browser: Browser, pages: PageServer, tmp_path: Path) -> None:
    """
    A node that is killed and started again finds the pages' messages on disk, and the pages find the node.
    """
    first = NodeProcess("--domain", D, state=str(tmp_path / "state"))
    cable = Cable(first.ports["web"])
    pair = Pair(browser, pages, cable.port)
    talk = PageConversation(pair.r1, pair.r2)
    talk.open()

    pair.r1.send(*updates(0, 500))
    first.stop(signal.SIGKILL)
    pair.r1.page.until("status() === 'disconnected'")
    pair.r1.send(*updates(500, 800))
    second = NodeProcess("--domain", D, state=str(tmp_path / "state"))
    cable.move(second.ports["web"])

    assert updates(0, 800) == pair.r2.take(800)
    assert {True} == {page.run("statuses.at(-1).resumed") for page in (pair.r1.page, pair.r2.page)}
    pair.close()
    cable.close()
    second.stop()


def test_network_hangs(pair: Pair, cable: Cable) -> None:
    """
    A network that is gone without a word is noticed, here when the browser says it is back.
    """
    cable.hang()
    pair.r1.send(*updates(0, 10))
    pair.r1.page.run("dispatchEvent(new Event('online'))")
    pair.r1.page.until("status() === 'disconnected'")
    cable.join()

    assert updates(0, 10) == pair.r2.take(10)


def test_websocket_is_blocked(browser: Browser, pages: PageServer, cable: Cable) -> None:
    """
    Where no WebSocket gets through the pages poll; once it does, they go over to it, and nothing is lost.
    """
    cable.refuses = b"Upgrade: websocket"
    pair = Pair(browser, pages, cable.port)

    pair.r1.send(*updates(0, 300))
    assert updates(0, 300) == pair.r2.take(300)
    assert not pair.r1.page.run("sockets.open")
    cable.refuses = b""
    for n in range(300, 600, 10):
        pair.r1.send(*updates(n, n + 10))
    for runtime in (pair.r1, pair.r2):
        runtime.page.until("sockets.open")

    assert updates(300, 600) == pair.r2.take(300)
    pair.close()


def test_token_stays(pair: Pair, node: NodeProcess) -> None:
    """
    What another page is given has no token in it, in `via` or elsewhere.
    """
    pair.r1.send(*updates(0, 1))
    pair.r2.take()

    (message,) = pair.r2.page.run("heard")

    assert "mns_" not in json.dumps(message)
    assert f"runtime://localhost/protostub/{R2.rpartition('/')[2]}" == message["body"]["via"]


STRICT = """
domain = "example.org"
web = ["tcp:0:interface=127.0.0.1"]
lines = ["tcp:0:interface=127.0.0.1"]
admin.listen = "tcp:0:interface=127.0.0.1"
[session]
message_token = "require"
takeover = "token"
from_check = "refuse"
"""


def test_strict_node(browser: Browser, pages: PageServer, tmp_path: Path) -> None:
    """
    Where the token protects sessions and senders the stub has it, after a reload too, and shows it to nobody.
    """
    file = tmp_path / "node.toml"
    file.write_text(STRICT)
    node = NodeProcess("--config", str(file))
    pair = Pair(browser, pages, node.ports["web"])

    for n in (1, 2):
        message = {"id": n, "type": "update", "from": f"{R1}/x", "to": f"{R2}/sm", "body": {"value": n}}
        pair.r1.send({**message, "receipt": True})
        (receipt,) = pair.r1.take()
        assert (n, 200) == (receipt["id"], receipt["body"]["code"])
        for runtime in (pair.r1, pair.r2):
            runtime.reload()

    heard = pair.r2.page.run("heard")
    assert [1, 2] == [message["body"]["value"] for message in heard]
    assert "mns_" not in json.dumps(heard)
    pair.close()
    node.stop()


def test_hard_days(pair: Pair, cable: Cable) -> None:
    """
    The network is cut, hangs and lets no WebSocket through, and pages are reloaded at any moment while both
    talk: everything arrives, once and in order.
    """
    chance = random.Random(7)
    sent = {R1: 0, R2: 0}

    def block() -> None:
        cable.refuses = b"Upgrade: websocket"
        cable.join()

    def reload() -> None:
        page = chance.choice((pair.r1, pair.r2)).page
        page.ask("Page.reload")
        page.until("started()")

    happens = [cable.cut, cable.hang, block, reload, lambda: None, lambda: None]
    for _ in range(40):
        for runtime, other in ((pair.r1, R2), (pair.r2, R1)):
            more = range(sent[other], sent[other] + chance.randint(1, 20))
            runtime.send(
                *({"id": n, "type": "update", "from": runtime.url, "to": f"{other}/sm"} for n in more)
            )
            sent[other] = more.stop
        chance.choice(happens)()
        time.sleep(chance.uniform(0, 0.2))
        if chance.random() < 0.5:
            cable.refuses = b""
            cable.join()
    cable.refuses = b""
    cable.join()

    for runtime in (pair.r1, pair.r2):
        runtime.page.until(f"heard.length >= {sent[runtime.url]}")
        heard = runtime.page.run("heard.map(({ id }) => id)")
        assert list(range(sent[runtime.url])) == heard
