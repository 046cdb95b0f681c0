"""
The full screen of `msgnode admin top`, by Textual.
"""

from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, RichLog, Static

from msgnode.cli.admin.check import Failed, RaisingConsole
from msgnode.cli.admin.lists import TOP
from msgnode.cli.admin.live import event_line, trace_steps
from msgnode.cli.admin.reports import session_lines
from msgnode.cli.links.admin_client import AdminClient
from msgnode.structures.log_limits import printable

SECONDS = 1.0
TRACE_SECONDS, TRACE_LINES = 300.0, 10_000
KEYS = [column.key for column in TOP if column.key not in ("name", "sessions")]


class Details(ModalScreen[None]):
    """
    All about a session.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "app.pop_screen", "back")]

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(Text.from_ansi("\n".join(self._lines)), id="details")


class TraceView(ModalScreen[None]):
    """
    The steps of a trace as they come. The trace ends, and is deleted from the node, when the operator goes
    back.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "app.pop_screen", "back")]

    def __init__(self, client: AdminClient, id: str, reason: str) -> None:
        super().__init__()
        self._client = client
        self._id = id
        self._reason = reason
        self._at = 0
        self._is_reading = False

    def compose(self) -> ComposeResult:
        text = f"trace {self._id}, for {TRACE_SECONDS / 60:.0f} minutes at most; Escape ends it"
        yield Static(text, id="traced")
        yield RichLog(max_lines=TRACE_LINES, wrap=True)

    def on_mount(self) -> None:
        self.set_interval(SECONDS, self.read)

    def on_unmount(self) -> None:
        self.app.run_worker(self._delete, thread=True, group="trace")

    def read(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self.run_worker(self._read, thread=True, group="read")

    def _read(self) -> None:
        try:
            data = self._client.raw("traces", self._id, "lines", query=[("from", str(self._at))])
        except Failed as why:
            self.app.call_from_thread(self._write, [], str(why))
            return
        self._at += len(data)
        lines = [Text(event_line(step, fields)) for step, fields in trace_steps(data)]
        self.app.call_from_thread(self._write, lines)

    def _write(self, lines: list[Text], error: str = "") -> None:
        self._is_reading = False
        if not self.is_attached:
            return
        if error:
            self.query_one("#traced", Static).update(Text(printable(error)))
        for line in lines:
            self.query_one(RichLog).write(line)

    def _delete(self) -> None:
        with suppress(Failed):  # it ends by itself, and is deleted after a day
            self._client.order("DELETE", "traces", self._id, body={"reason": self._reason})


class TopScreen(App[None]):
    """
    A table of the heaviest that is asked for each second, in a thread.
    """

    CSS = "#head { height: 1; } Input { display: none; dock: bottom; } Input.shown { display: block; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "sort"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("k", "kick", "kick"),
        Binding("t", "trace", "trace"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, client: AdminClient, by: str, group: str, limit: int, over: float) -> None:
        super().__init__()
        self._client = client
        client.console = RaisingConsole(False)
        self._by, self._group, self._limit, self._over = by, group, limit, over
        self._filter = ""
        self._rows: list[dict[str, Any]] = []
        self._asks_for = ""  # what the input line is for: a filter, or the reason of an action

    def compose(self) -> ComposeResult:
        yield Static("", id="head")
        table: DataTable[Text] = DataTable(cursor_type="row", zebra_stripes=True)
        yield table
        yield Input()
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(DataTable).add_columns(*(column.head for column in TOP))
        self.ask()
        self.set_interval(SECONDS, self.ask)

    def ask(self) -> None:
        self.run_worker(self._ask, thread=True, exclusive=False, group="ask")

    def _ask(self) -> None:
        if len([worker for worker in self.workers if worker.group == "ask" and worker.is_running]) > 1:
            return
        query = [("by", self._by), ("group", self._group), ("limit", "1000"), ("over", str(self._over))]
        try:
            found = self._client.get("top", query=query)
            status = self._client.get("node")
        except Failed as why:
            self.call_from_thread(self.say, str(why))
            return
        self.call_from_thread(self.draw, found, status)

    def say(self, text: str) -> None:
        self.query_one("#head", Static).update(Text(printable(text)))

    def draw(self, found: dict[str, Any], node: dict[str, Any]) -> None:
        sessions = node["sessions"]
        troubles = "; ".join(each["text"] for each in node["troubles"])
        head = (
            f"{node['node']} {node['status']}  {sessions['attached']:,} attached, {sessions['away']:,} away"
        )
        self.say(f"{head}  by {self._by}  {troubles}")
        rows = [row for row in found["rows"] if self._filter in row["name"].lower()]
        self._rows = rows[: self._limit]
        table = self.query_one(DataTable)
        cursor = table.cursor_row
        table.clear()
        for row in self._rows:
            cells = [Text(column.text(row[column.key])) for column in TOP]  # names are peers': no markup
            table.add_row(*cells)
        table.move_cursor(row=min(cursor, len(self._rows) - 1))

    def chosen(self) -> str:
        """
        The name in the row of the cursor; "" if there is none.
        """
        number = self.query_one(DataTable).cursor_row
        return str(self._rows[number]["name"]) if 0 <= number < len(self._rows) else ""

    # -- keys -----------------------------------------------------------------------------

    def action_sort(self) -> None:
        self._by = KEYS[(KEYS.index(self._by) + 1) % len(KEYS)]
        self.ask()

    def action_filter(self) -> None:
        self._ask_for("filter", "show only names with this in them", self._filter)

    def action_kick(self) -> None:
        if self._group == "session" and self.chosen():
            self._ask_for(f"kick {self.chosen()}", "the reason, which goes into the audit log", "")

    def action_trace(self) -> None:
        if self.chosen():
            self._ask_for(f"trace {self.chosen()}", "the reason, which goes into the audit log", "")

    def _ask_for(self, what: str, hint: str, value: str) -> None:
        self._asks_for = what
        line = self.query_one(Input)
        line.placeholder, line.value = hint, value
        line.add_class("shown")
        line.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        line = self.query_one(Input)
        line.remove_class("shown")
        self.query_one(DataTable).focus()
        if self._asks_for == "filter":
            self._filter = event.value.lower()
            self.ask()
        elif event.value:
            act, _, name = self._asks_for.partition(" ")
            do = self._kick if act == "kick" else self._trace
            self.run_worker(partial(do, name, event.value), thread=True, group=act)

    def _kick(self, runtime: str, reason: str) -> None:
        try:
            self._client.order("POST", "sessions", runtime, "kick", body={"reason": reason})
        except Failed as why:
            self.call_from_thread(self.notify, printable(str(why)), severity="error", markup=False)
            return
        self.call_from_thread(self.notify, f"kicked {printable(runtime)}", markup=False)

    def _trace(self, name: str, reason: str) -> None:
        body = {self._group: name, "seconds": TRACE_SECONDS, "max": TRACE_LINES, "reason": reason}
        try:
            begun = self._client.order("POST", "traces", body=body)
        except Failed as why:
            self.call_from_thread(self.notify, printable(str(why)), severity="error", markup=False)
            return
        id = begun["details"]["trace"]["id"]
        self.call_from_thread(self.push_screen, TraceView(self._client, id, reason))

    def on_data_table_row_selected(self) -> None:
        if self._group == "session" and self.chosen():
            runtime = self.chosen()
            self.run_worker(lambda: self._details(runtime), thread=True, group="details")

    def _details(self, runtime: str) -> None:
        try:
            found = self._client.get("sessions", runtime)
        except Failed as why:
            self.call_from_thread(self.notify, printable(str(why)), severity="error", markup=False)
            return
        self.call_from_thread(self.push_screen, Details(list(session_lines(found["session"]))))
