"""
`msgnode admin status`, `session` and `why`: what there is to know about one thing.
"""

from collections.abc import Iterator
from typing import Any

import click

from msgnode.cli import REFUSED
from msgnode.cli.admin.times import ago, clock, left
from msgnode.cli.admin.view import Column, View, operates, plain, shows
from msgnode.cli.links.admin_client import AdminClient
from msgnode.cli.links.layout import count, duration, size
from msgnode.structures.log_limits import printable

LEVELS = {"critical": "red", "warning": "yellow"}


@click.command(short_help="Show how the node is, what is wrong first.")
@shows
def status(view: View) -> None:
    """
    Show the node on one screen: what is wrong, sessions, load, limits, listeners, back ends.

    \b
    Examples:
      msgnode admin status
      msgnode admin status --watch 2
      msgnode admin status --node all
    """
    view.show(_status, "node")


def _status(found: dict[str, Any]) -> Iterator[str]:
    head = (
        f"{found['node']} of {found['domain']}, msgnode {found['version']}, {found['data_plane']} data plane"
    )
    color = {"up": "green", "degraded": "red"}.get(found["status"], "yellow")
    word = click.style(found["status"], fg=color, bold=True)
    yield f"{word}  {printable(head)}, up {duration(found['uptime'])}"
    for each in found["troubles"]:
        yield click.style(f"  {each['level']}: {printable(each['text'])}", fg=LEVELS[each["level"]])
    sessions, totals = found["sessions"], found["totals"]
    by = ", ".join(f"{number:,} {name}" for name, number in found["connections"].items())
    yield (
        f"sessions   {sessions['attached']:,} attached ({by or 'none'}), {sessions['away']:,} away, "
        f"{found['slow']:,} slow; {found['addresses']:,} addresses"
    )
    yield (
        f"messages   {totals['in_messages']:,} in ({size(totals['in_bytes'])}), "
        f"{totals['out_messages']:,} out ({size(totals['out_bytes'])})"
    )
    yield (
        f"           {totals['refused']:,} refused, {totals['dropped']:,} dropped, "
        f"{totals['no_route']:,} without a recipient"
    )
    waiting = found["uses"]["waiting_bytes"]["used"]
    yield f"waiting    {count(found['waiting_messages'], 'message')}, {size(int(waiting))}"
    lag, disk = found["loop_lag"], f"disk {size(found['disk_free'])} free"
    worst = duration(lag["worst_1m"])
    yield f"lag        99 % below {duration(lag['p99_1m'])} in the last minute, at worst {worst}"
    yield f"memory     {size(found['rss'])}; {disk}; store {printable(found['store'])}"
    shares = {**found["uses"], "file descriptors": found["fds"]}
    used = [
        f"{name.replace('_', ' ')} {use['used'] / use['limit']:.0%} of {use['limit']:,.0f}"
        for name, use in shares.items()
        if use["limit"] and use["used"] >= 0.01 * use["limit"]
    ]
    yield f"limits     {', '.join(used) or 'less than 1 % of each is used'}"
    for each in found["listeners"]:
        ends = f", certificate ends in {left(each['cert_not_after'])}" if each["tls"] else ""
        open_ = "" if each["connections"] is None else f", {count(each['connections'], 'connection')}"
        yield f"listener   {each['kind']:7} {printable(each['where'])}{open_}{ends}"
    for each in found["back_ends"]:
        calls = ", ".join(f"{number:,} {outcome}" for outcome, number in each["by_outcome"].items())
        p99 = "" if each["p99"] is None else f", 99 % within {duration(each['p99'])}"
        head = f"back end   {printable(each['name'])}: circuit {each['state']}"
        yield f"{head}{f'; {calls}' if calls else ''}{p99}"
    reload = found["last_reload"]
    yield f"config     {printable(found['config_file']) or 'no file'}, revision {found['config_revision']}"
    if reload:
        yield f"           reloaded {ago(reload['time'])} ago: {printable(reload['text'])}"


@click.command(short_help="Show all about one session.")
@click.argument("runtime")
@click.option("--addresses", is_flag=True, help="With its addresses, at most 200.")
@shows
def session(view: View, runtime: str, addresses: bool) -> None:
    """
    Show the session RUNTIME: its client, its queue, its last refusals and events.

    \b
    Example:
      msgnode admin session runtime://example.org/ann --addresses
    """
    view.show(lambda found: _session(view, found, addresses), "sessions", runtime)


TIMES = {"since", "opened_at", "last_in", "last_out"}
ENDS = {"expires_at", "token_expires_at"}


def session_lines(row: dict[str, Any]) -> Iterator[str]:
    """
    The fields of a session that have a value, for human readers.
    """
    for key, value in row.items():
        if value in (None, "", False, []):
            continue
        if key in TIMES:
            text = f"{ago(value)} ago"
        elif key in ENDS:
            text = f"in {left(value)}"
        elif key.endswith("bytes"):
            text = size(value)
        else:
            text = plain(value)
        yield f"{key.replace('_', ' '):18} {text}"


def _session(view: View, found: dict[str, Any], with_addresses: bool) -> Iterator[str]:
    row = found["session"]
    if "node" in found:
        yield f"at {printable(found['node'])}"
    yield from session_lines(row)
    if found["tls"]:
        yield f"{'tls':18} {plain(list(found['tls'].values()))}"
    outbox = found["outbox"]
    if outbox:
        sent = f"{outbox['last']:,} sent, {outbox['acknowledged']:,} acknowledged"
        if outbox["behind"]:
            sent += f"; the client is {count(outbox['behind'], 'message')} behind"
        yield f"{'outbox':18} {outbox['state']}, {sent}"
    if with_addresses and found["addresses"]:
        columns = (
            Column("ADDRESS", "address", plain, True),
            Column("WHY", "why", plain, True),
        )
        yield from ["", *view.table(found["addresses"], columns)]
        if found["more_addresses"]:
            yield f"and {found['more_addresses']:,} more"
    for word in found["policy"]:
        text = word["effect"] + (f" by {word['rule']}" if word["rule"] else "")
        what = f"{word['type']} to {word['to']}: {text}, {'passes' if word['passes'] else 'refused'}"
        yield f"{'policy ' + word['point']:18} {printable(what)}"
    if found["refusals"]:
        yield from ["", "last refusals:"]
        for refusal in found["refusals"]:
            yield from refusal_lines(refusal)
    if found["events"]:
        yield from ["", "last events:"]
    for event in found["events"]:
        more = [event[key] for key in ("event", "connector", "peer") if event.get(key)]
        yield f"{clock(event['time'])}  {printable(' '.join([event['kind'], *more]))}"


@click.command(short_help="Show why a message was refused, or those of a session.")
@click.argument("what", metavar="MESSAGE-ID|SESSION")
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True)
@operates
def why(client: AdminClient, what: str, limit: int) -> None:
    """
    Show the last refusals of a message by its id, or of a session by its runtimeURL, with what would
    change them.

    \b
    Examples:
      msgnode admin why 4711
      msgnode admin why runtime://example.org/eve

    \b
    Exit code 0: found.  1: nothing of it was refused lately.
    """
    key = "session" if "://" in what else "id"
    found = client.get("refusals", query=[(key, what), ("limit", str(limit))])
    refusals = found["refusals"]
    if not refusals:
        text = f"nothing of {printable(what)} is among the last {found['kept']:,} refusals"
        client.console.stop(text, REFUSED)
    client.console.result("\n".join(line for each in refusals for line in refusal_lines(each)), found)


def refusal_lines(found: dict[str, Any]) -> Iterator[str]:
    """
    A refusal for human readers; events leave out fields that are empty.
    """
    times = f" ({found['count']:,} times)" if found["count"] > 1 else ""
    message = f"{found.get('type', '')} {found.get('id', '')}".strip() or "a message"
    sender = found.get("from") or found.get("session")
    head = f"{clock(found['time'])}  {found['code']} {found['reason']}{times}"
    yield printable(f"{head}  {message} -> {found.get('to', '')}{f'  from {sender}' if sender else ''}")
    rule = f"rule {found['rule']}: " if found.get("rule") else ""
    yield printable(f"          {rule}{found['text']}")
    if found.get("remedy"):
        yield click.style(f"          {found['remedy']}", dim=True)
