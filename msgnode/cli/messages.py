"""
`msgnode send`, `request` and `listen`: send and print messages from a shell.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from msgnode.cli import REFUSED
from msgnode.cli.connection import ADDRESS, SECONDS, NodeConnection, talks
from msgnode.cli.links.layout import duration, short
from msgnode.cli.listener import Listening, Selection
from msgnode.cli.messaging.bodies import body_of
from msgnode.cli.messaging.send_many import Sending, SendMany, lines, repeated
from msgnode.cli.messaging.text import Template, as_json
from msgnode.client import Delivery, Hop, TimedOut
from msgnode.structures.log_limits import printable

_from = click.option("--from", "from_", default="", metavar="ADDRESS", help="Send as this address.")


def _type(default: str) -> Callable[[Any], Any]:
    return click.option(
        "--type", "type_", default=default, show_default=True, metavar="TYPE", help="The type of the message."
    )


@click.command(short_help="Send a message, and report whether it was delivered.")
@click.argument("to", type=ADDRESS)
@click.argument("body", required=False)
@_type("update")
@_from
@click.option(
    "--priority", type=click.IntRange(0, 9), help="Its priority while it is queued; higher goes first."
)
@click.option("--ttl", type=SECONDS, help="Time to live while it is queued.")
@click.option("--wait", type=SECONDS, default=2.0, show_default=True, help="Time to wait for the receipt.")
@click.option("-l", "--lines", "by_line", is_flag=True, help="Send each line of stdin as a message.")
@click.option(
    "--count", type=click.IntRange(1), help="Send BODY so many times; with -l, so many lines at most."
)
@click.option(
    "--rate",
    type=click.FloatRange(0.001, 1e6),
    help="Messages a second; as fast as the node takes them otherwise.",
)
@talks
def send(
    to: str,
    body: str | None,
    type_: str,
    from_: str,
    priority: int | None,
    ttl: float | None,
    wait: float,
    by_line: bool,
    count: int | None,
    rate: float | None,
    **options: Any,
) -> None:
    """
    Publish a message and report whether it was delivered.  To wait for a reply, use `request`.

    BODY is JSON, or a text, which becomes {"value": text}; - reads it from stdin.

    \b
    Examples:
      msgnode send comm://localhost/chat/changes '{"value": "hello"}'
      msgnode send runtime://localhost/lamp on --type execute
      date | msgnode send comm://localhost/clock/changes -
      tail -F app.log | msgnode send -l comm://localhost/log/lines --rate 100

    With -l blank lines are left out, and a line that looks like JSON but is not
    is reported and not sent.  With -l or --count the result is a summary.

    For an address of another domain, the nodes that it passed are printed,
    each with the time that it stayed there.

    \b
    Exit code 0: it was delivered, is queued for a recipient that is away, or
    waits for a route to its domain.  1: no client is bound to the address, or
    it was refused; the word in brackets is the reason, which docs/protocol.md
    explains.  3: cannot connect.
    """
    header = {name: value for name, value in (("priority", priority), ("ttl", ttl)) if value is not None}
    if by_line and body not in (None, "-"):
        raise click.UsageError("-l reads the bodies from stdin; give no BODY")
    if rate is not None and not by_line and count is None:
        raise click.UsageError("--rate needs -l or --count")
    content = None if by_line else body_of(body)

    async def many(talk: NodeConnection) -> None:
        bodies = lines(talk, count) if by_line else repeated(content, count or 1)
        await SendMany(talk, Sending(to, type_, from_, rate, wait, header)).run(bodies)

    async def action(talk: NodeConnection) -> None:
        def waiting(receipt: Delivery) -> None:
            talk.console.note("no route leads there now; the node keeps the message until there is one")

        sent = talk.client.deliver(
            to, content, type=type_, from_=from_, timeout=wait, waiting=waiting, **header
        )
        try:
            receipt = await sent
        except TimedOut:
            text = "accepted by the node, which has sent no receipt yet"
            talk.console.report(
                _good(f"{text}: {to}"), {"ok": True, "code": 202, "description": text, "to": to}
            )
            return
        _report(talk, receipt)

    NodeConnection(**options).run(many if by_line or count is not None else action)


def _report(talk: NodeConnection, receipt: Delivery) -> None:
    """
    Print a receipt, and exit if it is one of a failure.
    """
    address, is_good = str(receipt.body.get("to", "")), receipt.code < 300
    word = f" ({receipt.reason})" if receipt.reason and not is_good else ""
    where = "" if address in receipt.text else f": {address}"
    text = printable(f"{receipt.text}{word}{where}")
    passed = f"\npath: {_path(receipt.path)}" if receipt.path else ""
    if is_good:
        talk.console.report(_good(text) + passed, {"ok": True, **receipt.body})
        return
    why = {name: receipt.body[name] for name in ("code", "reason", "path") if name in receipt.body}
    talk.console.stop(text + passed, REFUSED, **why)


def _good(text: str) -> str:
    return click.style(text, fg="green")


def _path(path: tuple[Hop, ...]) -> str:
    """
    Returns `a.example/n1 (40 µs) -> b.example/n1 (1.2 ms)`.
    """
    return " -> ".join(f"{printable(short(hop.node))} ({_stay(hop.micros)})" for hop in path)


def _stay(micros: int) -> str:
    return f"{micros} µs" if micros < 1000 else duration(micros / 1e6)


@click.command(short_help="Send a request, and print the answer.")
@click.argument("to", type=ADDRESS)
@click.argument("body", required=False)
@_type("read")
@_from
@click.option("--timeout", type=SECONDS, default=10.0, show_default=True, help="Time to wait for the answer.")
@talks
def request(to: str, body: str | None, type_: str, from_: str, timeout: float, **options: Any) -> None:
    """
    Send a request to an address, and print the body of the answer.

    BODY is JSON, or a text, which becomes {"value": text}; - reads it from stdin.

    \b
    Examples:
      msgnode request hyperty://localhost/lamp
      msgnode request hyperty://localhost/lamp '{"method": "on"}' --type execute
      msgnode request --json domain://msg-node.localhost/address-allocation --type create

    \b
    Exit code 0: it was answered.  1: refused, with the code and the text of
    the refusal.  3: cannot connect.  4: no answer in time.
    """
    content = body_of(body)

    async def action(talk: NodeConnection) -> None:
        reply = await talk.client.request(to, content, type=type_, from_=from_, timeout=timeout)
        talk.console.result(as_json(reply.body, indent=2), reply.fields)

    NodeConnection(**options).run(action)


@click.command(short_help="Print the messages to addresses.")
@click.argument("addresses", nargs=-1, type=ADDRESS)
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Print only this type; may be repeated.")
@click.option(
    "--from",
    "from_",
    default="",
    metavar="START",
    help="Print only messages from addresses that begin with START.",
)
@click.option("--count", type=click.IntRange(1), help="Stop after this many messages.")
@click.option("--for", "seconds", type=SECONDS, help="Stop after this time.")
@click.option(
    "--format",
    metavar="TEXT",
    help="Print each message as this text, with {time}, {from}, {to}, {type}, {id}, {body} and {body.KEY} "
    "filled in.",
)
@talks
def listen(format: str | None, **options: Any) -> None:
    """
    Print the messages to ADDRESSES, until Ctrl-C; with --json one message per line.

    No message is answered.  Without ADDRESSES, print those to --runtime and the
    addresses below it.

    \b
    Examples:
      msgnode listen comm://localhost/chat/changes
      msgnode listen --json --type update comm://localhost/chat/changes | jq .body.value
      msgnode listen --runtime runtime://localhost/me --count 1
      msgnode listen --format '{time}\\t{body.value}' comm://localhost/chat/changes

    \b
    Exit code 0: interrupted while it listened, or --count was reached.
    3: cannot connect.  4: --for was over before --count.
    """
    if format is not None and options["as_json"]:
        raise click.UsageError("give --format or --json, not both")
    names = [field.name for field in fields(Selection) if field.name != "format"]
    template = None if format is None else Template(format)
    selection = Selection(**{name: options.pop(name) for name in names}, format=template)
    talk = NodeConnection(**options)
    listening = Listening(talk, selection)
    talk.run(listening.begin, heard=listening.heard, changed=listening.changed)
