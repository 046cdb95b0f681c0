"""
The examples of docs/examples, started as a newcomer starts them, and looked at in Chromium.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.integration.browser import CHROMIUM, Browser, Page
from tests.integration.process import PATIENCE, NodeProcess
from tests.support.examples import blocks

LINK_SECONDS = 60  # for a link to be used, at the start and after it was cut
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


def test_chat_pages_show_each_others_messages() -> None:
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


def test_board_as_it_was() -> None:
    """
    The slider shows the board as it was; a page that was away gets what it missed, and goes on.
    """
    with example("history") as page:
        page.ask(
            "Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=True
        )
        page.until(
            "document.querySelector('input').max > 3 && document.querySelectorAll('svg g').length === 4"
        )
        page.run("document.querySelector('input').value = 1; document.querySelector('input').oninput()")
        page.until("/^1 of /.test(document.querySelector('output').textContent)")
        before = page.run("document.querySelector('svg').innerHTML")
        page.run("document.querySelector('#away').click()")
        page.until("document.querySelector('#away').textContent === 'Come back'")
        assert page.run("document.querySelector('svg').innerHTML") == before
        page.until("new Promise((resolve) => setTimeout(resolve, 1500, true))")

        page.run("document.querySelector('#away').click()")
        told = page.until("/^Back: (\\d+)/.exec(document.querySelector('#told').textContent)?.[1]")
        versions = page.run("[...document.querySelectorAll('li')].map((line) => parseInt(line.textContent))")

        assert int(told) >= 2
        assert versions == list(range(versions[0], 0, -1))
        assert page.run("document.documentElement.scrollWidth") <= 360


def test_a_request_that_does_not_fit_its_record_is_refused_on_the_page_with_the_slot() -> None:
    """
    The thermometer answers a request that fits; the page marks the slot of one that does not, and says why.
    """
    with example("records") as page:
        page.ask(
            "Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=True
        )
        page.until("document.querySelector('.status').textContent === 'live'")
        first = "document.querySelector('.log li')"

        def press(name: str) -> str:
            buttons = "[...document.querySelectorAll('.presets button')]"
            page.run(f"{buttons}.find(({{ textContent }}) => textContent === {json.dumps(name)}).click()")
            shown: str = page.until(f"{first}.className && {first}.textContent")
            return shown

        assert re.match(r"2\d\.\d °C", press("The hall"))
        assert re.match(r"29\d\.\d K", press("The attic, in kelvin"))
        assert "ROOM: expected STRING, found 5" in press("A number as room")
        assert page.run("document.querySelector('tr.wrong th').firstChild.textContent") == "ROOM"
        assert "expected one of CELSIUS, KELVIN" in press("Another unit")
        assert page.run("document.documentElement.scrollWidth") <= 360


def test_the_record_of_the_example_is_the_one_of_the_documents() -> None:
    """
    docs/records.md shows the definition that the example uses.
    """
    shown, *_ = [block.text for block in blocks("docs/records.md") if block.info == "json"]
    [file] = (EXAMPLES / "records" / "definitions").iterdir()

    assert json.loads(file.read_text()) == json.loads(shown)


class FederationPage:
    """
    The page of the three domains, as a person works with it.
    """

    def __init__(self, page: Page) -> None:
        self.page = page

    def click(self, name: str) -> None:
        """
        Click the button of this name, once it is there and may be clicked.
        """
        button = f"""document.querySelector('[aria-label="{name}"]')"""
        self.page.until(f"{button}?.disabled === false && ({button}.click(), true)")

    def until_newest(self, path: str) -> None:
        """
        Wait until the newest message with a receipt has taken this path.
        """
        self.page.until(f"document.querySelector('.log li.good')?.dataset.path === '{path}'", LINK_SECONDS)

    def until_note(self, note: str) -> None:
        """
        Wait until the newest message says this.
        """
        self.page.until(f"document.querySelector('.log li small')?.textContent === '{note}'")


def test_a_message_goes_round_a_link_that_is_cut_on_the_page_of_three_domains() -> None:
    """
    It takes the cheapest path; the other one while a link of that is cut; it waits while there is none, and
    arrives when a link is given back.
    """
    with example("federation") as page:
        person = FederationPage(page)
        page.until("document.querySelectorAll('.state.up').length === 3", LINK_SECONDS)
        person.until_newest("a.example b.example c.example")

        person.click("Cut a.example – b.example")
        person.until_newest("a.example c.example")
        person.click("Cut a.example – c.example")
        person.until_note("waiting for a route")
        waiting = page.run("document.querySelector('.log li').textContent.split(':')[0]")
        person.click("Give back a.example – b.example")
        person.until_newest("a.example b.example c.example")

        good = "[...document.querySelectorAll('.log li.good')]"
        page.until(f"{good}.some((line) => line.textContent.startsWith('{waiting}:'))")
        assert page.run("document.querySelectorAll('.log li.bad').length") == 0


def test_the_page_of_three_domains_shows_what_is_sent_as_text_and_fits_a_phone() -> None:
    """
    Markup in a message is text, and nothing is wider than the page.
    """
    with example("federation") as page:
        markup = "<img src=x onerror=alert(1)>"
        page.ask(
            "Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=True
        )
        page.until("document.querySelector('.log li.good') !== null", LINK_SECONDS)
        page.run(f"document.querySelector('form > input').value = {json.dumps(markup)}")
        page.run("document.querySelector('form').requestSubmit()")

        page.until(f"document.querySelector('.log li')?.textContent.includes({json.dumps(markup)})")
        assert page.run("document.querySelectorAll('img').length") == 0
        assert page.run("document.documentElement.scrollWidth") <= 360


def test_other_sites_cannot_cut_links_of_the_three_domains() -> None:
    """
    The page's program answers its own page only, and never with the token of an operator.
    """
    with example("federation") as page:
        where = page.until("location.href.startsWith('http') && location.href")
        ends = json.dumps({"ends": ["a.example", "b.example"]})

        def ask(path: str, data: str | None, **headers: str) -> tuple[int, Any]:
            request = Request(f"{where}{path}", data=None if data is None else data.encode(), headers=headers)
            try:
                with urlopen(request, timeout=PATIENCE) as answer:
                    return answer.status, json.load(answer)
            except HTTPError as why:
                return why.code, json.load(why)

        as_json = {"Content-Type": "application/json"}
        assert ask("cut", ends, **{"Content-Type": "text/plain"})[0] == 415
        assert ask("cut", ends, **as_json, Host="evil.example")[0] == 421
        assert ask("map", None, Host="evil.example")[0] == 421
        assert ask("burn", ends, **as_json)[0] == 400
        assert ask("cut", "[" * 1001, **as_json)[0] == 400
        assert ask("cut", '{"ends": ["a.example", "x.example"]}', **as_json)[0] == 400
        code, found = ask("map", None)
        assert code == 200
        assert "mna_" not in json.dumps(found)
        assert "cut" not in {link["state"] for link in found["links"]}
