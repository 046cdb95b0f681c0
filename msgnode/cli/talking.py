"""
What the verbs that talk to a node share: their options, the connection, and what goes wrong.
"""

import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import click
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import react

from msgnode.client import CannotConnect, Client, ClientError, Closed, Refused, TimedOut

OK, REFUSED, USAGE, NOT_CONNECTED, LATE, INTERRUPTED = 0, 1, 2, 3, 4, 130
URL = "ws://127.0.0.1:9090/ws"

F = TypeVar("F", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """
    A time that a timer can be set to; click's own range lets nan pass.
    """

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = float(super().convert(value, param, ctx))
        if found != found:
            self.fail(f"{value} is no time.", param, ctx)
        return found


SECONDS = Seconds(0, 366 * 24 * 3600)

_OPTIONS = (
    click.option(
        "--url",
        envvar="MSGNODE_URL",
        default=URL,
        show_default=True,
        help="The node: ws://, wss://, tcp://, tls:// or unix://.  [env: MSGNODE_URL]",
    ),
    click.option("--runtime", default="", metavar="URL", help="Be this runtime; else the node makes one up."),
    click.option("--domain", default="", help="The node's domain, if it is not that of the runtime."),
    click.option(
        "--token",
        envvar="MSGNODE_TOKEN",
        default="",
        help="Go on with this session of the runtime.  Better in MSGNODE_TOKEN, where nobody else sees it.",
    ),
    click.option("--ca", type=click.Path(), help="Trust these certificates (PEM), not the system's."),
    click.option("--certificate", type=click.Path(), help="Show this certificate (PEM, with its key)."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
)


def talks(command: F) -> F:
    """
    Give a verb the options that say which node, and who is speaking.
    """
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class Console:
    """
    Where a verb prints: results to stdout, all else to stderr; colours on a terminal, unless NO_COLOR is set.
    """

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self._color = False if os.environ.get("NO_COLOR") else None

    def result(self, text: str, value: Any) -> None:
        """
        Print the value where JSON is wanted, else the text.
        """
        self.line(json.dumps(value, ensure_ascii=False) if self.as_json else text)

    def line(self, text: str) -> None:
        click.echo(text, color=self._color)

    def note(self, text: str) -> None:
        """
        What is not a result; nothing where JSON is wanted.
        """
        if not self.as_json:
            click.echo(click.style(text, dim=True), err=True, color=self._color)

    def stop(self, text: str, status: int, **more: Any) -> NoReturn:
        """
        Say what went wrong, and exit.
        """
        if self.as_json:
            self.line(json.dumps({"ok": False, "error": text, **more}, ensure_ascii=False))
        else:
            click.echo(click.style("msgnode: ", fg="red") + text, err=True, color=self._color)
        raise SystemExit(status)


class Talk:
    """
    One verb at work: its options, its console and the connected client.
    """

    def __init__(
        self, url: str, runtime: str, domain: str, token: str, ca: str, certificate: str, as_json: bool
    ) -> None:
        self.url = url
        self.console = Console(as_json)
        self.reactor: Any = None
        self.client: Client
        self._options = {
            "runtime": runtime,
            "domain": domain,
            "token": token,
            "ca": ca,
            "certificate": certificate,
        }
        if token and not runtime:
            self.console.stop("--token needs --runtime: whose session it is", USAGE)

    def run(
        self, action: Callable[["Talk"], Awaitable[None]], until_interrupted: bool = False, **options: Any
    ) -> NoReturn:
        """
        Do it over a connection and exit; `options` are the client's.
        """
        done = False

        async def main(reactor: Any) -> None:
            nonlocal done
            self.reactor = reactor
            self.client = self.make(**options)
            # Ctrl-C stops the reactor; the node should know that we are gone.
            reactor.addSystemEventTrigger("before", "shutdown", self.client.close)
            try:
                await self.client.connect()
                await action(self)
                await self.client.close()
            except ClientError as why:
                self.fail(why)
            finally:
                done = True

        try:
            react(lambda reactor: ensureDeferred(main(reactor)))
        except SystemExit as ended:
            interrupted = OK if until_interrupted else INTERRUPTED
            raise SystemExit(ended.code if done or ended.code else interrupted) from None
        raise AssertionError("react always exits")

    def make(self, **options: Any) -> Client:
        """
        A client that is not connected yet.
        """
        try:
            return Client(self.reactor, self.url, **{**self._options, **options})
        except ValueError as why:
            self.console.stop(str(why), USAGE)

    def fail(self, why: ClientError) -> NoReturn:
        """
        Say what happened, and what may help.
        """
        match why:
            case Refused():
                self.console.stop(_advised(why), REFUSED, code=why.code)
            case CannotConnect():
                self.console.stop(f"cannot connect to {why}\n{_connecting(str(why))}", NOT_CONNECTED)
            case Closed():
                self.console.stop(f"{why}\n{_CLOSED.get(why.code, '')}".rstrip(), REFUSED, code=why.code)
            case TimedOut():
                self.console.stop(f"{why}\n{_LATE}", LATE)
        self.console.stop(str(why), REFUSED)


_LATE = "Is anybody bound to it?  The node does not tell; 'msgnode send' does."
_CLOSED = {
    4401: "The session is another's; give its token in MSGNODE_TOKEN, or take another --runtime.",
    4403: "This runtimeURL cannot be opened; one looks like runtime://example.org/me.",
    4409: "Another client opened the same runtime.",
}


def _connecting(text: str) -> str:
    if "refused" in text:
        return "Is the node running?  'twistd -n msgnode' starts one; --url names another."
    if "DNS" in text or "ookup" in text:
        return "Is the name right?"
    if "certificate" in text.lower() or "verify failed" in text:
        return "--ca names the certificates to trust."
    if "4403" in text or "4401" in text:
        return _CLOSED[4403 if "4403" in text else 4401]
    return "Is it the URL of a node?  By default ws://HOST:9090/ws, or tcp://HOST:9091 for lines."


def _advised(why: Refused) -> str:
    if why.code == 501 and "domain://registry." in why.text:
        return "this node has no registry; its operator starts it with --registry embedded, or the URL of one"
    return str(why)


def body_of(text: str | None) -> Any:
    """
    What BODY on the command line means: JSON, else a text.
    """
    if text is None:
        return None
    given = sys.stdin.read() if text == "-" else text
    try:
        return json.loads(given)
    except ValueError as why:
        if given.lstrip()[:1] in ("{", "["):
            raise click.BadParameter(f"looks like JSON, but is not: {why}", param_hint="BODY") from None
        return given.rstrip("\n")


def pretty(value: Any) -> str:
    """
    JSON for people.
    """
    return json.dumps(value, indent=2, ensure_ascii=False)
