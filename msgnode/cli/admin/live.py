"""
`msgnode admin events` and `trace`: what happens now, line by line.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

import click

from msgnode.cli import INTERRUPTED, REFUSED
from msgnode.cli.admin.actions.orders import do, tell
from msgnode.cli.admin.times import Duration
from msgnode.cli.links.admin_client import AdminClient, asks_admin
from msgnode.structures.log_limits import printable

POLL_SECONDS = 0.5
KINDS = ("session", "refusal", "slow", "shed", "backend", "config", "policy", "audit", "traffic")
# The fields of each kind of event that a line shows, in this order; others follow.
_FIRST = ("event", "code", "reason", "type", "session", "from", "to", "text")
_LEFT_OUT = {"time", "kind", "step", "came"}


@click.command(short_help="Show events as they happen.")
@click.option("--kinds", default="", metavar="A,B", help=f"Only these: {', '.join(KINDS)}.")
@click.option("--session", default="", help="Only events of this session.")
@asks_admin
def events(kinds: str, session: str, admin: str, state: Path | None, as_json: bool) -> None:
    """
    Show the events of a node as they happen, until Ctrl-C.

    \b
    Examples:
      msgnode admin events
      msgnode admin events --kinds slow,shed,backend
      msgnode admin events --kinds traffic --json | jq .to
    """
    query = [(key, value) for key, value in (("kinds", kinds), ("session", session)) if value]
    client = AdminClient(admin, state, as_json)
    follow(client, query, partial(_show, client))


def follow(
    client: AdminClient, query: list[tuple[str, str]], show: Callable[[str, dict[str, Any]], object]
) -> None:
    """
    Calls `show` with the kind and the fields of each event, until Ctrl-C.
    """
    for kind, event in parse_events(client.lines("events", query=query)):
        if kind == "gap":
            client.console.note("some events were missed")
        else:
            show(kind, event)


def parse_events(lines: Iterable[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """
    The events of an event stream: their kind, and their fields.
    """
    kind = data = ""
    for line in lines:
        name, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            data = value
        elif not name and data:
            yield kind, json.loads(data)
            kind = data = ""


@click.command(short_help="Show what becomes of some messages, step by step.")
@click.option("--session", default="", help="Messages from and to this session.")
@click.option("--user", default="", help="Messages from and to sessions of this user.")
@click.option("--peer", default="", help="Messages from and to this IP address or network.")
@click.option("--address", default="", help="Messages from and to this address, and those below it.")
@click.option("--id", "message_id", default="", help="Messages with this id.")
@click.option(
    "--for", "seconds", type=Duration(), default="5m", show_default=True, help="End after this time."
)
@click.option("--max", "most", type=int, default=10_000, show_default=True, help="End after so many lines.")
@click.option("--bodies", is_flag=True, help="With bodies; needs the role admin and admin.trace_bodies.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; it goes into the audit log.")
@click.option("--dry-run", is_flag=True, help="Only say what it would show.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the lines as JSON to this file instead.")
@asks_admin
def trace(
    session: str,
    user: str,
    peer: str,
    address: str,
    message_id: str,
    seconds: float,
    most: int,
    bodies: bool,
    reason: str,
    dry_run: bool,
    out: Path | None,
    admin: str,
    state: Path | None,
    as_json: bool,
) -> None:
    """
    Show each step of some messages: decisions of the policies, who got them, what waits, why they failed.

    The trace ends after its time or its lines, or with Ctrl-C, and is deleted from the node then.

    \b
    Examples:
      msgnode admin trace --session runtime://example.org/ann --for 1m --reason "asked by ann"
      msgnode admin trace --address comm://example.org/chat --reason test --out chat.jsonl
    """
    client = AdminClient(admin, state, as_json)
    order: dict[str, Any] = {"seconds": seconds, "max": most, "bodies": bodies, "reason": reason}
    order |= {"session": session, "user": user, "peer": peer, "address": address, "id": message_id}
    file = None if out is None or dry_run else _opened(out)
    begun = do(client, "traces", dry_run=dry_run, **order)
    if dry_run:
        tell(client, "show messages of", begun, "filter")
        return
    id = begun["details"]["trace"]["id"]
    client.console.note(f"trace {id} runs for {seconds:g} s; Ctrl-C ends it")
    if file is None:
        _read_trace(client, id, reason, lambda data: _print(client, data))
        return
    file.truncate(0)
    try:
        _read_trace(client, id, reason, file.write)
    except OSError as why:
        client.console.stop(f"{out}: {why.strerror}; the trace has ended", REFUSED)


def _opened(path: Path) -> FileIO:
    """
    The file, with what is in it: only a trace that runs overwrites it.
    """
    try:
        return path.open("ab", buffering=0)
    except OSError as why:
        raise click.BadParameter(f"{path}: {why.strerror}", param_hint="--out") from None


def _read_trace(client: AdminClient, id: str, reason: str, use: Callable[[bytes], object]) -> None:
    interrupted = False
    try:
        at, is_over = 0, False
        while not is_over:
            try:
                is_over = client.get("traces", id)["state"] != "running"
                client.pause(POLL_SECONDS)
            except KeyboardInterrupt:
                interrupted = True
                do(client, "traces", id, "stop", reason=reason)
                client.pause(2 * POLL_SECONDS)  # until the last lines are in the file
                is_over = True
            while data := client.raw("traces", id, "lines", query=[("from", str(at))]):
                use(data)
                at += len(data)
    finally:
        do(client, "traces", id, method="DELETE", reason=reason)
    if interrupted:
        raise SystemExit(INTERRUPTED)


def _print(client: AdminClient, data: bytes) -> None:
    for step, fields in trace_steps(data):
        _show(client, step, fields)


def trace_steps(data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """
    The steps in lines of a trace: what happened, and its fields.
    """
    for line in data.splitlines():
        found = json.loads(line)
        yield found["step"], {**found, "time": found["time"] / 1e9}


def _show(client: AdminClient, kind: str, fields: dict[str, Any]) -> None:
    client.console.result(event_line(kind, fields), fields)


def event_line(kind: str, fields: dict[str, Any]) -> str:
    """
    An event, or a step of a trace, as one line without control characters.
    """
    shown = [*(key for key in _FIRST if key in fields), *(k for k in fields if k not in _FIRST)]
    text = "  ".join(
        f"{key}={printable(_plain(fields[key]))}"
        for key in shown
        if key not in _LEFT_OUT and fields[key] not in ("", None)
    )
    clock = time.strftime("%H:%M:%S", time.localtime(fields["time"])) if "time" in fields else "        "
    return f"{clock}  {printable(kind):16}  {text}"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
