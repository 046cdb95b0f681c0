"""
The full screen of `msgnode admin top`.
"""

import asyncio
import json
from typing import Any

import click
import pytest

pytest.importorskip("textual", reason="the extra admin is not installed")

from textual.widgets import DataTable, Input, RichLog, Static

from msgnode.cli.admin.top_screen import Details, TopScreen, TraceView
from msgnode.cli.links.admin_client import AdminClient, AdminHTTP, Answer

EVE = "runtime://example.org/[red]eve"


def row(name: str, value: float) -> dict[str, Any]:
    rates = dict.fromkeys(("in_messages", "in_bytes", "out_messages", "out_bytes", "refused"), value)
    return {"name": name, "sessions": 1, **rates, "waiting_bytes": 7, "unacked_bytes": 0}


class OneNode(AdminHTTP):
    """
    The admin listener of a node with two sessions.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.status = 200

    def request(self, method: str, url: str, token: str, body: bytes | None = None) -> Answer:
        path = url.partition("/api/v1/")[2]
        self.asked.append((method, path))
        if body is not None:
            self.bodies.append(json.loads(body))
        if self.status != 200:
            return Answer(self.status, json.dumps({"description": "it is late", "reason": "x"}).encode())
        found: dict[str, Any] = {"done": 1}
        if path.startswith("top"):
            found = {"rows": [row(EVE, 9.0), row("runtime://example.org/ann", 3.0)]}
        elif method == "POST" and path == "traces":
            found = {"done": 1, "details": {"trace": {"id": "t1"}}}
        elif path.startswith("traces/t1/lines"):
            step = {"step": "came", "time": 1_800_000_000_000_000_000, "from": EVE, "to": "comm://x/\x1b[2Jy"}
            return Answer(200, json.dumps(step).encode() + b"\n" if path.endswith("from=0") else b"")
        elif path == "node":
            sessions = {"attached": 2, "away": 0}
            found = {"node": "n1", "status": "up", "sessions": sessions, "troubles": []}
        elif method == "GET":
            found = {"session": {"runtime": EVE, "state": "attached"}}
        return Answer(200, json.dumps(found).encode())


def screen(http: OneNode, monkeypatch: pytest.MonkeyPatch) -> TopScreen:
    monkeypatch.setenv("MSGNODE_ADMIN_TOKEN", "mna_x")
    with click.Context(click.Command("top"), obj=http):
        client = AdminClient("http://127.0.0.1:9092", None, False)
    return TopScreen(client, "in_messages", "session", 20, 60.0)


async def settled(app: TopScreen, pilot: Any) -> None:
    await pilot.pause()
    await app.workers.wait_for_complete()
    await pilot.pause()


def test_the_heaviest_are_listed_and_names_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A name in brackets is shown as it is; a filter leaves only some.
    """
    app = screen(OneNode(), monkeypatch)

    async def use() -> None:
        async with app.run_test() as pilot:
            await settled(app, pilot)
            table = app.query_one(DataTable)
            assert (2, EVE) == (table.row_count, str(table.get_row_at(0)[0]))
            assert "2 attached" in str(app.query_one("#head", Static).content)
            await pilot.press("slash", *"ann", "enter")
            await settled(app, pilot)
            assert ["runtime://example.org/ann"] == [str(table.get_row_at(0)[0])]
            assert 1 == table.row_count

    asyncio.run(use())


def test_a_session_is_shown_and_kicked_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without a reason nobody is kicked.
    """
    http = OneNode()
    app = screen(http, monkeypatch)

    async def use() -> None:
        async with app.run_test() as pilot:
            await settled(app, pilot)
            app.query_one(DataTable).focus()
            await pilot.press("k", "enter")
            await settled(app, pilot)
            assert not [path for method, path in http.asked if method == "POST"]
            await pilot.press("k", *"flood", "enter")
            await settled(app, pilot)
            assert ["sessions/runtime%3A%2F%2Fexample.org%2F%5Bred%5Deve/kick"] == [
                path for method, path in http.asked if method == "POST"
            ]
            await pilot.press("enter")
            await settled(app, pilot)
            assert isinstance(app.screen, Details)
            await pilot.press("escape")
            await pilot.pause()
            assert not app.query_one(Input).has_class("shown")

    asyncio.run(use())


def test_messages_of_a_session_are_traced_until_the_operator_goes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    By t, with a reason; the steps are shown without control characters, and the trace is deleted then.
    """
    http = OneNode()
    app = screen(http, monkeypatch)

    async def use() -> None:
        async with app.run_test() as pilot:
            await settled(app, pilot)
            app.query_one(DataTable).focus()
            await pilot.press("t", *"lost", "enter")
            await settled(app, pilot)
            assert isinstance(app.screen, TraceView)
            app.screen.read()
            await settled(app, pilot)
            app.ask()  # the table goes on behind it
            await settled(app, pilot)
            text = "".join(line.text for line in app.screen.query_one(RichLog).lines)
            assert (1, 1) == (text.count("came"), text.count(EVE)) and "\x1b" not in text
            await pilot.press("escape")
            await settled(app, pilot)
            assert not isinstance(app.screen, TraceView)

    asyncio.run(use())

    [begun, deleted] = http.bodies
    assert {"session": EVE, "seconds": 300.0, "max": 10_000, "reason": "lost"} == begun
    assert {"reason": "lost"} == deleted
    assert ("DELETE", "traces/t1") in http.asked


def test_an_error_of_the_node_is_shown_and_the_screen_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    When the node answers again, so does the table.
    """
    http = OneNode()
    http.status = 503
    app = screen(http, monkeypatch)

    async def use() -> None:
        async with app.run_test() as pilot:
            await settled(app, pilot)
            assert "it is late" in str(app.query_one("#head", Static).content)
            http.status = 200
            await pilot.press("s")
            await settled(app, pilot)
            assert 2 == app.query_one(DataTable).row_count
            assert ("GET", "top?by=in_bytes&group=session&limit=1000&over=60.0") in http.asked

    asyncio.run(use())
