"""
What the verbs that talk to a node share: their options, the connection, and what goes wrong.
"""

import json
import os
import re
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from math import isinf
from pathlib import Path
from signal import SIG_DFL, SIGINT, signal
from typing import Any, NoReturn, TypeVar

import click
from twisted.internet.defer import CancelledError, Deferred, ensureDeferred, maybeDeferred
from twisted.internet.defer import TimeoutError as NoAnswer
from twisted.internet.task import react

from msgnode.cli import INTERRUPTED, LATE, NOT_CONNECTED, REFUSED, USAGE
from msgnode.client import CannotConnect, Client, ClientError, Closed, NoToken, Refused, TimedOut
from msgnode.client.login import Source

NOT_LET_IN = 4401  # the node's code for it
GOODBYE = 2.0  # seconds; who presses Ctrl-C does not wait
LEAVE = 0.1  # seconds of them at least for what the client says last
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
    click.option(
        "--login",
        envvar="MSGNODE_LOGIN",
        default="",
        metavar="TOKEN|@FILE|-",
        help="Who you are, where the node asks: an identity token, the file it is in (read again when it "
        "ends), or - for stdin.  Better in MSGNODE_LOGIN or a file, where nobody else sees it.",
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


class Address(click.ParamType):  # type: ignore[type-arg]
    """
    An address of the node's: a URL of any scheme.
    """

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(r"[a-z][a-z0-9+.-]*:.+", value, re.DOTALL):
            self.fail(f"expected an address such as hyperty://localhost/lamp, not {value!r}", param, ctx)
        return str(value)


ADDRESS = Address()


class Console:
    """
    The output of a verb: results to stdout, all else to stderr; colours on a terminal, unless NO_COLOR is
    set.
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
            self.line(json.dumps({"ok": False, "error": click.unstyle(text), **more}, ensure_ascii=False))
        else:
            click.echo(click.style("msgnode: ", fg="red") + text, err=True, color=self._color)
        raise SystemExit(status)


class NodeConnection:
    """
    One verb at work: its options, its console and the connected client.

    `at_interrupt` is the exit code of Ctrl-C; a verb that lasts until then sets
    it to OK once it has what it was asked for.  `goodbye` says to the node what
    there is to say before the client leaves; it has GOODBYE seconds for it.
    """

    def __init__(
        self,
        url: str,
        runtime: str,
        domain: str,
        token: str,
        login: str,
        ca: str,
        certificate: str,
        as_json: bool,
    ) -> None:
        self.url = url
        self.console = Console(as_json)
        self.reactor: Any = None
        self.client: Client
        self.goodbye: Callable[[], Any] = lambda: None
        self.at_interrupt = INTERRUPTED
        self._done = self._interrupted = False
        self._acting: Deferred[None]
        self._options = {
            "runtime": runtime,
            "domain": domain,
            "token": token,
            "identity": self._identity(login),
            "ca": ca,
            "certificate": certificate,
        }
        if token and not runtime:
            self.console.stop("--token needs --runtime: whose session it is", USAGE)

    def _identity(self, login: str) -> Source | None:
        """
        What --login means.
        """
        if login.startswith("@"):
            path = Path(login[1:])
            try:
                read_token(path)
            except NoToken as why:
                self.console.stop(f"--login: {why}", USAGE)
            return partial(read_token, path)
        if login != "-":
            return login.strip() or None
        token = sys.stdin.read().strip()
        if not token:
            self.console.stop("--login -: no token came on stdin", USAGE)
        return token

    def run(self, action: Callable[["NodeConnection"], Awaitable[None]], **options: Any) -> NoReturn:
        """
        Do it over a connection and exit; `options` are the client's.
        """

        async def main(reactor: Any) -> None:
            self.reactor = reactor
            self.client = self.make(**options)
            # Ctrl-C stops the reactor; the node should know that we are gone.
            reactor.addSystemEventTrigger("before", "shutdown", self._leave)
            self._acting = ensureDeferred(self._act(action))
            try:
                await self._acting
            except ClientError as why:
                self.fail(why)
            except (CancelledError, KeyboardInterrupt):  # the latter before the reactor looks at it
                raise SystemExit(self.at_interrupt) from None
            finally:
                self._done = True

        try:
            react(lambda reactor: ensureDeferred(main(reactor)))
        except SystemExit as ended:
            raise SystemExit(self.at_interrupt if self._interrupted else ended.code) from None
        raise AssertionError("react always exits")

    async def _act(self, action: Callable[["NodeConnection"], Awaitable[None]]) -> None:
        await self.client.connect()
        await action(self)
        await self.client.close()

    def _leave(self) -> Deferred[Any]:
        """
        The reactor stops: the verb is done, or was interrupted and is given up.
        """
        self._interrupted = not self._done
        signal(SIGINT, SIG_DFL)  # who presses Ctrl-C once more does not even wait for the goodbye
        if self._interrupted:
            self._acting.cancel()
        over = self.reactor.seconds() + GOODBYE
        said = maybeDeferred(self.goodbye).addTimeout(GOODBYE, self.reactor)
        said.addErrback(
            lambda why: self.console.note(
                "the node did not answer the goodbye" if why.check(NoAnswer) else why.getErrorMessage()
            )
        )
        return said.addCallback(lambda _: self._close(over))

    def _close(self, over: float) -> Deferred[Any]:
        """
        Leave the node, by then; one that is silent does not take the leave either.
        """
        left = self.client.close()
        left.addTimeout(max(over - self.reactor.seconds(), LEAVE), self.reactor)
        return left.addErrback(lambda why: None)

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
        if self._interrupted:  # what was under way was given up, and nobody need be told
            raise SystemExit(self.at_interrupt)
        match why:
            case Refused():
                self.console.stop(_advised(why), REFUSED, code=why.code)
            case CannotConnect():
                self.console.stop(f"cannot connect to {why}\n{self._connecting(str(why))}", NOT_CONNECTED)
            case Closed():
                self.console.stop(f"{why}\n{self._closed(why.code)}".rstrip(), REFUSED, code=why.code)
            case TimedOut():
                self.console.stop(f"{why}\n{_LATE}", LATE)
        self.console.stop(str(why), REFUSED)

    def _closed(self, code: int) -> str:
        if code == NOT_LET_IN:
            return _NOT_KNOWN if self._options["identity"] is None else _NOT_BELIEVED
        return _CLOSED.get(code, "")

    def _connecting(self, text: str) -> str:
        if "refused" in text and "4403" not in text:
            return "Is the node running?  'twistd -n msgnode' starts one; --url names another."
        if self.url.startswith(("wss:", "tls:")) and any(complaint in text for complaint in _NO_TLS):
            return "Does that port speak TLS?  If not, the URL begins with ws:// or tcp://."
        if "DNS" in text or "ookup" in text:
            return "Is the name right?"
        if "certificate" in text.lower() or "verify failed" in text:
            return "--ca names the certificates to trust."
        if "no identity token" in text:
            return "--login names it, or the file it is in."
        for code in (4403, NOT_LET_IN):
            if str(code) in text:
                return self._closed(code)
        return "Is it the URL of a node?  By default ws://HOST:9090/ws, or tcp://HOST:9091 for lines."


def read_token(path: Path) -> str:
    """
    The identity token in a file; NoToken says why there is none.
    """
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as why:
        text = why.strerror if isinstance(why, OSError) else "it is not text"
        raise NoToken(f"{path} cannot be read: {text}") from None
    if not token:
        raise NoToken(f"{path} is empty")
    return token


# What is said of a peer that answers a TLS handshake with something else, or waits for the end of a line.
_NO_TLS = (
    "wrong version number",
    "record layer failure",
    "packet length too long",
    "handshake timeout",
    "was not answered",
)
_LATE = "Is anybody bound to it?  The node does not tell; 'msgnode send' does."
_NOT_KNOWN = (
    "Either the node wants to know who you are: show an identity token with --login or MSGNODE_LOGIN.\n"
    "Or the session is another's: give its token in MSGNODE_TOKEN, or take another --runtime."
)
_NOT_BELIEVED = (
    "Either the token of --login is no good here: it has ended, or this node does not trust who gave it.\n"
    "Or the session is another user's: give its token in MSGNODE_TOKEN, or take another --runtime."
)
_CLOSED = {
    4403: "This runtimeURL cannot be opened; one looks like runtime://example.org/me.",
    4409: "Another client opened the same runtime.",
}


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
        return json.loads(given, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise click.BadParameter("is nested too deeply", param_hint="BODY") from None
    except ValueError as why:
        if given.lstrip()[:1] in ("{", "["):
            raise click.BadParameter(f"looks like JSON, but is not: {why}", param_hint="BODY") from None
        return given.rstrip("\n")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"{text} is too large a number")
    return number


def pretty(value: Any) -> str:
    """
    JSON for people.
    """
    return json.dumps(value, indent=2, ensure_ascii=False)
