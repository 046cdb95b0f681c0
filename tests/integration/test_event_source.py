"""
The EventSource of a browser at /events, in a page of another origin.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.integration.browser import CHROMIUM, Browser, Page
from tests.integration.cable import Cable
from tests.integration.pages import PageServer
from tests.integration.process import Lines, NodeProcess

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")

LAMP, NEWS = "runtime://localhost/lamp", "comm://localhost/news/changes"
CONFIG = """
domain = "localhost"
web = ["tcp:0:interface=127.0.0.1"]
lines = ["tcp:0:interface=127.0.0.1"]
admin.listen = "tcp:0:interface=127.0.0.1"
allowed_origins = ["http://127.0.0.1:%d"]
"""


class Streaming:
    """
    A node, a device that publishes, and a page that listens behind a cable.
    """

    def __init__(self, opened: ExitStack, directory: Path) -> None:
        browser, pages = Browser(), PageServer()
        opened.callback(browser.stop)
        opened.callback(pages.stop)
        file = directory / "node.toml"
        file.write_text(CONFIG % pages.port)
        node = NodeProcess("--config", str(file))
        opened.callback(node.stop)
        self.device = Lines(node.ports["line"], LAMP)
        opened.callback(self.device.close)
        self.cable = Cable(node.ports["web"])
        opened.callback(self.cable.close)
        asked = {"node": f"http://127.0.0.1:{self.cable.port}", "resource": NEWS}
        self.page: Page = browser.page(f"http://127.0.0.1:{pages.port}/events.html?{urlencode(asked)}")

    def publish(self, *numbers: int) -> None:
        for n in numbers:
            self.device.send({"id": n, "type": "update", "from": LAMP, "to": NEWS, "body": {"value": n}})

    def heard(self, kind: str) -> list[Any]:
        found: list[Any] = self.page.run(
            f"heard.filter(each => each.type === '{kind}').map(each => each.data)"
        )
        return found


@pytest.fixture
def streaming(tmp_path: Path) -> Iterator[Streaming]:
    with ExitStack() as opened:
        yield Streaming(opened, tmp_path)


def test_event_source_comes_back(streaming: Streaming) -> None:
    """
    An EventSource whose network was cut comes back by itself to its session, and gets what it missed, once.
    """
    page = streaming.page
    page.until("heard.some(each => each.type === 'session')")
    streaming.publish(1, 2)
    page.until("heard.at(-1).data?.id === 2")

    streaming.cable.cut()
    page.until("heard.at(-1).type === 'error'")
    streaming.publish(3, 4)
    streaming.cable.join()
    page.until("heard.at(-1).data?.id === 4")
    streaming.publish(5)
    page.until("heard.at(-1).data?.id === 5")

    assert [1, 2, 3, 4, 5] == [message["id"] for message in streaming.heard("message")]
    first, second = streaming.heard("session")
    assert first == second
    assert [] == streaming.heard("gap")
