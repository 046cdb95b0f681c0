"""
`msgnode send`, `request` and `listen`: messages from a shell.
"""

from typing import Any

import click

from msgnode.cli import REFUSED
from msgnode.cli.connection import ADDRESS, SECONDS, NodeConnection, body_of, pretty, talks
from msgnode.cli.listener import Listening
from msgnode.client import TimedOut

_from = click.option("--from", "from_", default="", metavar="ADDRESS", help="Send as this address.")


@click.command(short_help="Send a message; say what became of it.")
@click.argument("to", type=ADDRESS)
@click.argument("body", required=False)
@click.option("--type", "type_", default="update", show_default=True, metavar="TYPE", help="Its type.")
@_from
@click.option("--priority", type=click.IntRange(0, 9), help="How early it leaves where it must wait.")
@click.option("--ttl", type=SECONDS, help="How long it is worth waiting for.")
@click.option("--wait", type=SECONDS, default=2.0, show_default=True, help="For the receipt.")
@talks
def send(
    to: str,
    body: str | None,
    type_: str,
    from_: str,
    priority: int | None,
    ttl: float | None,
    wait: float,
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

    \b
    Exit code 0: it was delivered, or waits for a recipient that is away.
    1: nobody is bound to the address, or it was refused; the word in brackets
    is the reason, of which docs/protocol.md has a list.  3: cannot connect.
    """
    header = {name: value for name, value in (("priority", priority), ("ttl", ttl)) if value is not None}
    content = body_of(body)

    async def action(talk: NodeConnection) -> None:
        receipt = talk.client.deliver(to, content, type=type_, from_=from_, timeout=wait, **header)
        try:
            told = (await receipt).body
        except TimedOut:
            told = {
                "code": 202,
                "description": "the node has it; it waits, or was for the node itself",
                "to": to,
            }
        text = f"{told['description']}: {told['to']}"
        if told["code"] >= 300:
            why = {name: told[name] for name in ("code", "reason") if name in told}
            word = f" ({why['reason']})" if "reason" in why else ""
            talk.console.stop(f"{told['description']}{word}: {told['to']}", REFUSED, **why)
        talk.console.result(click.style(text, fg="green"), {"ok": True, **told})

    NodeConnection(**options).run(action)


@click.command(short_help="Ask an address; print the answer.")
@click.argument("to", type=ADDRESS)
@click.argument("body", required=False)
@click.option("--type", "type_", default="read", show_default=True, metavar="TYPE", help="Its type.")
@_from
@click.option("--timeout", type=SECONDS, default=10.0, show_default=True, help="For the answer.")
@talks
def request(to: str, body: str | None, type_: str, from_: str, timeout: float, **options: Any) -> None:
    """
    Ask an address, and print the body of the answer.

    BODY is JSON, or a text, which becomes {"value": text}; - reads it from stdin.

    \b
    Examples:
      msgnode request hyperty://localhost/lamp
      msgnode request hyperty://localhost/lamp '{"method": "on"}' --type execute
      msgnode request --json domain://msg-node.localhost/address-allocation --type create

    \b
    Exit code 0: it was answered.  1: refused, with the code and the words of
    whoever did.  3: cannot connect.  4: no answer in time.
    """
    content = body_of(body)

    async def action(talk: NodeConnection) -> None:
        reply = await talk.client.request(to, content, type=type_, from_=from_, timeout=timeout)
        talk.console.result(pretty(reply.body), reply.fields)

    NodeConnection(**options).run(action)


@click.command(short_help="Print what is sent to addresses.")
@click.argument("addresses", nargs=-1, type=ADDRESS)
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only these types; may be repeated.")
@click.option("--from", "from_", default="", metavar="START", help="Only from addresses that begin so.")
@click.option("--count", type=click.IntRange(1), help="Stop after so many messages.")
@click.option("--for", "seconds", type=SECONDS, help="Stop after so long.")
@talks
def listen(
    addresses: tuple[str, ...],
    types: tuple[str, ...],
    from_: str,
    count: int | None,
    seconds: float | None,
    **options: Any,
) -> None:
    """
    Print what is sent to ADDRESSES, until Ctrl-C; with --json a message a line.

    Nothing is answered.  Without ADDRESSES: what is sent to this runtime, at or
    below --runtime.

    \b
    Examples:
      msgnode listen comm://localhost/chat/changes
      msgnode listen --json --type update comm://localhost/chat/changes | jq .body.value
      msgnode listen --runtime runtime://localhost/me --count 1

    \b
    Exit code 0: interrupted while it listened, or --count was reached.
    3: cannot connect.  4: --for was over before --count.
    """
    talk = NodeConnection(**options)
    listening = Listening(talk, addresses, types, from_, count, seconds)
    talk.run(listening.begin, heard=listening.heard, changed=listening.changed)
