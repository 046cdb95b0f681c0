"""
The dashboard in Chromium, at a real node in trouble: each question of an operator is answered by a page.
"""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from tests.integration.browser import CHROMIUM, Browser
from tests.integration.dashboard import (
    ANN,
    AWAY,
    AXE,
    BOB,
    FLOOD,
    ROOM,
    SLOW,
    Troubles,
    Visitor,
    update,
)
from tests.integration.process import Lines

HAS_STREAM = "document.body.dataset.stream === 'open'"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
PAGES = {
    "overview": "/",
    "sessions": "/sessions",
    "session": f"/session?name={quote(AWAY, safe='')}",
    "refusals": "/refusals",
    "addresses": f"/addresses?address={quote(ROOM, safe='')}",
    "trace": "/trace",
    "nodes": "/nodes",
    "bans": "/bans",
    "top": "/top",
    "memory": "/memory",
    "config": "/config",
    "audit": "/audit",
    "policies": f"/policies?from={quote(ANN, safe='')}&to={quote(BOB, safe='')}",
    "login": "/login",
}
# The rules of WCAG 2.0 to 2.2, levels A and AA, and what axe holds to be good practice.
AXE_RUN = """
axe.run(document, {
  runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
}).then(
  (found) => found.violations.map((each) =>
    `${each.id}: ${each.help}: ${each.nodes.map((node) => node.target).join("; ")}`))
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.stop()


@pytest.fixture(scope="module")
def troubles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Troubles]:
    troubles = Troubles(tmp_path_factory.mktemp("dashboard"))
    yield troubles
    troubles.stop()


@pytest.fixture(scope="module")
def visitor(browser: Browser, troubles: Troubles) -> Visitor:
    return Visitor(browser, troubles.url, troubles.token)


def test_overview_says_first_what_is_wrong(visitor):
    """
    Is it up, who is slow, when does the certificate end?
    """
    visitor.go("/")

    visitor.until("1 client does not read")
    text = visitor.text()
    assert "the certificate of the web listener" in text
    assert "ends in 1 day" in text
    assert "data plane" in text and "Version" in text and "revision" in text


def test_sessions_say_who_is_connected_and_who_holds_memory(visitor):
    """
    Who is connected, from where? Which session holds the memory? Who is slow? Who sends most?
    """
    visitor.go("/sessions")
    text = visitor.text()
    for name in (ANN, BOB, SLOW, AWAY):
        assert name in text
    assert "line 127.0.0.1:" in text

    first = "document.querySelector('tbody a').innerText"
    visitor.go("/sessions?state=away&sort=-waiting")
    assert AWAY == visitor.page.run(first)
    visitor.go("/sessions?state=slow&sort=-waiting_bytes")
    visitor.page.until(f"{first} === {json.dumps(SLOW)}")
    visitor.go("/sessions?sort=-refused")
    assert FLOOD == visitor.page.run(first)


def test_session_page_says_who_a_client_is_and_what_waits(visitor):
    """
    One session, with its full queue and what was dropped from it.
    """
    visitor.session(AWAY)

    text = visitor.text()
    assert "away" in text
    assert "100, " in text
    assert "overflow" in text


def test_refusals_say_why_and_what_would_change_it(visitor):
    """
    Why was this message refused?
    """
    visitor.go(f"/refusals?session={quote(ANN, safe='')}")
    visitor.page.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    text = visitor.text()
    assert "not-your-address" in text
    assert "session.from_check decides what happens otherwise" in text

    visitor.go("/refusals?reason=rate&group=session")
    assert FLOOD in visitor.text()


def test_address_page_says_who_hears_it(visitor):
    """
    Who hears address X?
    """
    visitor.go(f"/addresses?address={quote(ROOM, safe='')}")

    text = visitor.text()
    assert BOB in text
    assert "subscribed" in text


def test_page_is_fresh_when_something_happens(visitor, troubles):
    """
    A session that opens is on the page within two seconds or a little more, by the event stream.
    """
    visitor.go("/sessions")
    time.sleep(1)  # the stream has opened
    late = Lines(troubles.node.ports["line"], "runtime://example.org/late")
    try:
        visitor.until("runtime://example.org/late", 4)
    finally:
        late.close()


def test_pause_stops_the_refreshing(visitor, troubles):
    """
    What moves can be stopped.
    """
    visitor.go("/sessions")
    visitor.page.run("document.getElementById('pause').click()")
    other = Lines(troubles.node.ports["line"], "runtime://example.org/unseen")
    try:
        time.sleep(6)
        assert "runtime://example.org/unseen" not in visitor.text()
        visitor.page.run("document.getElementById('pause').click()")
        visitor.until("runtime://example.org/unseen")
    finally:
        other.close()


def test_pages_of_one_browser_share_an_event_stream(browser, visitor, troubles):
    """
    Of the eight streams of the node, two pages leave seven.
    """
    visitor.page.go("about:blank")
    other = browser.page(f"{visitor.url}/sessions")
    other.until(HAS_STREAM)
    visitor.go("/")
    with ExitStack() as opened:
        assert 7 == _take_streams(visitor, troubles, opened)
    other.close()


def test_page_that_was_refused_an_event_stream_asks_again(visitor, troubles):
    """
    All streams of the node are taken when the page is opened, and become free later.
    """
    visitor.page.go("about:blank")
    with ExitStack() as opened:
        taken, deadline = 0, time.monotonic() + 10
        while (taken := taken + _take_streams(visitor, troubles, opened)) < 8:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        visitor.go("/")
        visitor.page.until("document.body.dataset.stream === 'refused'")
    visitor.page.until(HAS_STREAM, 30)


def _take_streams(visitor: Visitor, troubles: Troubles, opened: ExitStack) -> int:
    """
    Open event streams until the node refuses one. Returns how many.
    """
    url, headers = f"{visitor.url}/api/v1/events", {"Authorization": f"Bearer {troubles.token}"}
    for number in range(9):
        try:
            opened.enter_context(urlopen(Request(url, headers=headers), timeout=5))
        except HTTPError as why:
            assert 429 == why.code
            return number
    raise AssertionError("there is no limit")


def test_trace_shows_the_steps_of_a_message(visitor, troubles):
    """
    Watch one session live.
    """
    visitor.go(f"/trace?key=session&value={quote(BOB, safe='')}")
    visitor.page.run("document.querySelector('[name=reason]').value = 'it is a test'")
    visitor.page.run("document.querySelector('main form button').click()")
    visitor.page.until("document.querySelector('.result button.danger') !== null")
    visitor.page.run("document.querySelector('.result button.danger').click()")
    visitor.page.until("document.querySelector('.result a') !== null")
    troubles.ann.send(update(4711, ANN, BOB))
    visitor.go(visitor.page.run("document.querySelector('.result a').getAttribute('href')"))

    visitor.until("update 4711")


def test_kick_and_ban_from_the_page(visitor, troubles):
    """
    Kick one session, ban a name for an hour, and lift it.
    """
    victim = Lines(troubles.node.ports["line"], "runtime://example.org/victim")
    visitor.session("runtime://example.org/victim")
    visitor.act("kick")
    while (line := victim.receive()) is not None:
        assert line["type"] != "open"
    victim.close()

    visitor.act("ban", minutes="60")
    banned = Lines(troubles.node.ports["line"])
    answer = banned.ask(
        {"id": 1, "type": "open", "from": "runtime://example.org/victim", "to": "mn:/session"}
    )
    banned.close()
    assert 4410 == answer["body"]["code"]

    visitor.go("/bans")
    visitor.act("unban")
    visitor.go("/bans")
    assert "Nobody is banned" in visitor.text()


def test_ban_of_a_network_and_its_line_in_the_audit_log(visitor):
    """
    Ban a peer for an hour; what did operators do last night?
    """
    visitor.go("/bans")
    visitor.act("ban", kind="peer", value="203.0.113.0/24", minutes="60", reason="a flood at night")
    visitor.go("/bans")
    assert "203.0.113.0/24" in visitor.text()

    visitor.go("/audit")
    text = visitor.text()
    assert "peer 203.0.113.0/24" in text
    assert "a flood at night" in text and "page" in text


def test_presets_find_who_sends_most_and_who_came_back(visitor):
    """
    Who sends most? Who comes and goes?
    """
    first = "document.querySelector('tbody a').innerText"
    visitor.go("/sessions?sort=-in_messages")
    assert visitor.page.run(first) in (ANN, FLOOD)
    visitor.go("/sessions?min_reconnects=10&sort=-reconnects_1h")
    assert "No session matches" in visitor.text()


def test_load_memory_and_configuration_have_pages(visitor):
    """
    Who makes the load? Who holds the memory? Which configuration runs?
    """
    visitor.go("/top?by=waiting_bytes")
    visitor.until(SLOW)
    visitor.go("/memory")
    text = visitor.text()
    assert "Messages that wait" in text and SLOW in text and AWAY in text
    visitor.go("/config?only=changed")
    text = visitor.text()
    assert "session.from_check" in text and "refuse" in text and "drain_seconds" not in text


def test_drain_from_the_page(visitor):
    """
    Stop taking new clients, keep the old, and take new ones again.
    """
    visitor.go("/")
    visitor.act("drain", minutes="0")
    visitor.go("/")
    assert "the node takes no new clients" in visitor.text()
    visitor.act("undrain")
    visitor.go("/")
    assert "the node takes no new clients" not in visitor.text()


def test_reload_from_the_page_has_its_verdict(visitor):
    """
    Which configuration runs?
    """
    visitor.go("/")
    visitor.act("reload")

    visitor.go("/")
    assert "Last reload" in visitor.text()


def test_pages_can_be_read_without_javascript(visitor):
    """
    The figures, the lists, the filters and the login are HTML.
    """
    visitor.page.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        visitor.page.go(f"{visitor.url}/sessions?q=away")
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            tree = visitor.page.ask("DOMSnapshot.captureSnapshot", computedStyles=[])
            texts = " ".join(tree["strings"])
            if AWAY in texts and "sessions match" in texts:
                return
            time.sleep(0.05)
        raise AssertionError("the list of sessions is not there")
    finally:
        visitor.page.ask("Emulation.setScriptExecutionDisabled", value=False)


def test_keys_lead_to_pages_and_to_the_filter(visitor):
    """
    `g r` goes to the refusals, `/` to the filter; typing in a field does not.
    """
    visitor.go("/")
    visitor.press("g")
    visitor.press("r")
    visitor.page.until("location.pathname === '/refusals' && document.readyState === 'complete'")
    visitor.press("/")
    visitor.page.until("document.activeElement.id === 'search'")
    visitor.press("g")
    visitor.press("s")
    time.sleep(0.3)
    assert "/refusals" == visitor.page.run("location.pathname")


def test_tab_reaches_the_content_first(visitor):
    """
    The first stop leads past the menu.
    """
    visitor.go("/sessions")
    visitor.page.ask("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert "To the content" == visitor.page.run("document.activeElement.innerText")


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: npm install of tests/integration/package.json")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 820, 1440])
def test_axe_finds_nothing(visitor, scheme, width):
    """
    WCAG 2.2 AA on every page, at the widths of a phone, a tablet and a desk, in both colour schemes.
    """
    visitor.colours(scheme)
    visitor.wide(width)
    try:
        found = {}
        for name, path in PAGES.items():
            visitor.go(path)
            visitor.page.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
            visitor.page.run(AXE.read_text() + "; 1")
            problems = visitor.page.run(AXE_RUN)
            if problems:
                found[name] = problems
            wider = visitor.page.run("document.documentElement.scrollWidth - innerWidth")
            if wider > 0:
                found[f"{name} scrolls sideways"] = wider
        assert {} == found
    finally:
        visitor.page.ask("Emulation.clearDeviceMetricsOverride")
        visitor.colours("light")


def test_pages_keep_to_their_policy(visitor):
    """
    No inline script or style, no foreign address, no error, with charts, refreshes and a form.
    """
    for path in PAGES.values():
        visitor.go(path)
        visitor.page.run("window.dispatchEvent(new Event('resize'))")
        time.sleep(0.2)
        assert [] == visitor.wrong(), path
    visitor.go("/")
    assert visitor.page.run("document.querySelector('[data-chart] canvas') !== null")
    visitor.go("/sessions?q=away")
    visitor.act("kick-many")
    assert [] == visitor.wrong()


def test_pages_of_another_origin_can_neither_read_nor_act(browser, visitor, tmp_path):
    """
    The browser is logged in; a page of another site, and a page of another port, get nothing.
    """
    page = browser.page("about:blank")
    Path(tmp_path, "evil.html").write_text("<!DOCTYPE html><title>evil</title>")
    page.go(f"file://{tmp_path}/evil.html")
    page.until("document.title === 'evil'")
    read = page.run(
        f"fetch({json.dumps(visitor.url + '/sessions')}, {{credentials: 'include'}})"
        ".then((answer) => answer.text()).catch((error) => 'blocked')"
    )
    form = json.dumps({"action": "end", "runtime": BOB, "reason": "evil one"})
    acted = page.run(
        f"fetch({json.dumps(visitor.url)} + '/act', {{method: 'POST', credentials: 'include',"
        f"mode: 'no-cors',"
        f"body: new URLSearchParams({form})}})"
        ".then((answer) => answer.type).catch((error) => 'blocked')"
    )
    page.close()

    assert "blocked" == read
    assert acted in ("opaque", "blocked")
    visitor.session(BOB)
    assert "attached" in visitor.text()
