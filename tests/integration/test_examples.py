"""
The examples of docs/examples, started as a newcomer starts them, and looked at in Chromium.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.browser import CHROMIUM, Browser, Page
from tests.integration.process import PATIENCE, NodeProcess
from tests.support.examples import blocks

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")


@contextmanager
def example(name: str) -> Iterator[Page]:
    command = [sys.executable, str(EXAMPLES / "start.py"), name, "--port", "0"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    browser = Browser()
    try:
        told = re.search(r"Open (\S+)", started.stdout.readline())
        assert told is not None
        yield browser.page(told[1])
    finally:
        browser.stop()
        started.terminate()
        started.wait(PATIENCE)
        started.stdout.close()


def test_page_of_ones_own(tmp_path: Path) -> None:
    """
    The page that docs/browser.md tells people to save shows what it says, opened from a file.
    """
    shown = next(block.text for block in blocks("docs/browser.md") if block.info == "html")
    node = NodeProcess()
    browser = Browser()
    try:
        port = f"127.0.0.1:{node.ports['web']}"
        said = "<script>const said = []; console.log = (message) => said.push(message);</script>"
        (tmp_path / "page.html").write_text(said + shown.replace("127.0.0.1:9090", port))
        page = browser.page(f"file://{tmp_path}/page.html")
        page.until("said.length === 4")

        told = page.run("said.map(({ type, body }) => [type, body.value ?? body.code])")
    finally:
        browser.stop()
        node.stop()

    statuses = [["update", value] for value in ("created", "in-progress", "live")]
    assert [*statuses, ["response", 200]] == told


def test_chat() -> None:
    """
    What one page says the other shows, and the first is told that it arrived.
    """
    with example("chat") as page:
        frame = "frames[{}].document.querySelector('{}')"
        for number in (0, 1):
            page.until(frame.format(number, ".status") + "?.textContent === 'live'")
        # A page that is live has not been told of its subscription yet.
        page.until(f"{frame.format(0, 'form')}.onsubmit && {frame.format(1, 'form')}.onsubmit && true")

        page.run(f"{frame.format(0, 'input')}.value = 'hello'; {frame.format(0, 'form')}.requestSubmit()")

        page.until(frame.format(1, "li") + "?.textContent === 'ann: hello'")
        page.until(frame.format(0, "li small") + "?.textContent === '✓'")


def test_thermometer() -> None:
    """
    The page shows what the device tells, a line for the device and a number for people.
    """
    with example("thermometer") as page:
        shown = page.until("/^[0-9.]+ °C$/.test(document.querySelector('output')?.textContent)")
        points = page.until("document.querySelector('polyline').getAttribute('points').split(' ').length > 1")

    assert shown and points
