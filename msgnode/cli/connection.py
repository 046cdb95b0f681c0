"""
The common part of the verbs that connect to a node: options, connection and error messages.
"""

import os
import re
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from math import isnan, nan
from pathlib import Path
from signal import SIG_DFL, SIGINT, signal
from typing import Any, NoReturn, TypeVar

import click
from twisted.internet.defer import CancelledError, Deferred, ensureDeferred, maybeDeferred
from twisted.internet.defer import TimeoutError as NoAnswer
from twisted.internet.task import react

from msgnode.cli import INTERRUPTED, LATE, NOT_CONNECTED, REFUSED, USAGE
from msgnode.cli.contexts import takes_context
from msgnode.cli.messaging.text import as_json, escaped
from msgnode.cli.messaging.wire import observed
from msgnode.client import CannotConnect, Client, ClientError, Closed, NoToken, Refused, TimedOut
from msgnode.client.endpoint import Endpoint, make_endpoint
from msgnode.client.login import Source

NOT_LET_IN = 4401  # the node's close code
GOODBYE_SECONDS = 2.0  # for the goodbye and the close; the longest wait after Ctrl-C
CLOSE_SECONDS = 0.1  # the least of these seconds that is left for the close
URL = "ws://127.0.0.1:9090/ws"
# A runtimeURL with a domain, which is that of the node's services, and a path.
_RUNTIME = re.compile(r"[^:/]+://[^/]+/.*[^/].*", re.DOTALL)

F = TypeVar("F", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """
    A number of seconds that a timer can be set to; click's own range lets nan pass.
    """

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = nan
        if isnan(number):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return float(super().convert(number, param, ctx))


SECONDS = Seconds(0, 366 * 24 * 3600)

_OPTIONS = (
    click.option(
        "--url",
        envvar="MSGNODE_URL",
        default=URL,
        show_default=True,
        help="The URL of the node: ws://, wss://, tcp://, tls://, unix://, http:// or https:// for "
        "long-polling.  [env: MSGNODE_URL]",
    ),
    click.option(
        "--runtime",
        default="",
        metavar="URL",
        help="The runtimeURL of the session.  The node makes one up if it is left out.",
    ),
    click.option("--domain", default="", help="The domain of the node, if it is not that of the runtimeURL."),
    click.option(
        "--token",
        envvar="MSGNODE_TOKEN",
        default="",
        help="The session token, to continue a session.  In MSGNODE_TOKEN other users cannot see it.",
    ),
    click.option(
        "--login",
        envvar="MSGNODE_LOGIN",
        default="",
        metavar="TOKEN|@FILE|-",
        help="An identity token, for a node that authenticates clients: the token, @ and the file that has "
        "it (read again when the token expires), or - for stdin.  In MSGNODE_LOGIN or a file other users "
        "cannot see it.",
    ),
    click.option(
        "--ca", type=click.Path(), help="Trust the certificates in this PEM file instead of the system's."
    ),
    click.option(
        "--certificate",
        type=click.Path(),
        help="Present the client certificate in this PEM file, which has its key, too.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print results and errors as JSON."),
    click.option(
        "-v", "--verbose", is_flag=True, help="Show each message on the wire, on stderr; tokens are left out."
    ),
    click.option("-q", "--quiet", is_flag=True, help="Print only what was asked for, and errors."),
)


def talks(command: F) -> F:
    """
    Give a verb the options that name the node and the client.
    """
    for option in reversed(_OPTIONS):
        command = option(command)
    return takes_context(command)


class Address(click.ParamType):  # type: ignore[type-arg]
    """
    A click type for an address: a URL of any scheme.
    """

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(r"[a-z][a-z0-9+.-]*:.+", value, re.DOTALL):
            self.fail(f"expected an address such as hyperty://localhost/lamp, not {value!r}", param, ctx)
        return str(value)


ADDRESS = Address()


class Console:
    """
    The output of a verb: results to stdout, everything else to stderr; colours on a terminal, unless NO_COLOR
    is set.
    """

    def __init__(self, as_json: bool, quiet: bool = False) -> None:
        self.as_json = as_json
        self._quiet = quiet
        self._color = False if os.environ.get("NO_COLOR") else None

    def result(self, text: str, value: Any) -> None:
        """
        Print the value with --json, else the text.
        """
        self.line(as_json(value) if self.as_json else text)

    def report(self, text: str, value: Any) -> None:
        """
        Print a result that only says that all went well; with --quiet print nothing.
        """
        if not self._quiet:
            self.result(text, value)

    def line(self, text: str) -> None:
        click.echo(text, color=self._color)

    def note(self, text: str) -> None:
        """
        Print a note to stderr; with --json or --quiet print nothing.
        """
        if not self.as_json and not self._quiet:
            click.echo(click.style(text, dim=True), err=True, color=self._color)

    def wire(self, text: str) -> None:
        """
        Print a line of --verbose to stderr.
        """
        click.echo(click.style(text, dim=True), err=True, color=self._color)

    def stop(self, text: str, status: int, **more: Any) -> NoReturn:
        """
        Print an error, and exit.
        """
        if self.as_json:
            self.line(as_json({"ok": False, "error": click.unstyle(text), **more}))
        else:
            click.echo(click.style("msgnode: ", fg="red") + text, err=True, color=self._color)
        raise SystemExit(status)


class NodeConnection:
    """
    A running verb: its options, its console and the connected client.

    `at_interrupt` is the exit code of Ctrl-C; a verb that lasts until then sets
    it to OK once it has done its work.  `goodbye` is called before the
    client closes, and may send something to the node; it has GOODBYE_SECONDS.
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
        verbose: bool,
        quiet: bool,
    ) -> None:
        self.url = url
        self.console = Console(as_json, quiet)
        self.begun = 0.0  # when it began to connect, in seconds of the reactor
        self._verbose = verbose
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
            self.console.stop("--token also needs --runtime, the runtimeURL of the session", USAGE)
        if runtime and not domain and not _RUNTIME.fullmatch(runtime):
            wanted = "expected a runtimeURL such as runtime://localhost/me"
            self.console.stop(f"--runtime: {wanted}, not {runtime!r}", USAGE)

    def _identity(self, login: str) -> Source | None:
        """
        Returns the identity token that --login names, or the function that reads it.
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
            self.console.stop("--login -: stdin is empty; expected a token", USAGE)
        return token

    def run(self, action: Callable[["NodeConnection"], Awaitable[None]], **options: Any) -> NoReturn:
        """
        Run the action with a connected client, and exit; `options` are the client's.
        """

        async def main(reactor: Any) -> None:
            self.reactor, self.begun = reactor, reactor.seconds()
            self.client = self.make(**options)
            # Ctrl-C stops the reactor; the session at the node is closed before.
            reactor.addSystemEventTrigger("before", "shutdown", self._leave)
            self._acting = ensureDeferred(self._act(action))
            try:
                await self._acting
            except ClientError as why:
                self.fail(why)
            except (
                CancelledError,
                KeyboardInterrupt,
            ):  # KeyboardInterrupt comes before the reactor handles signals
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
        Close the session when the reactor stops: the verb is done, or was interrupted and is cancelled.
        """
        self._interrupted = not self._done
        signal(SIGINT, SIG_DFL)  # a second Ctrl-C does not wait for the goodbye
        if self._interrupted:
            self._acting.cancel()
        over = self.reactor.seconds() + GOODBYE_SECONDS
        said = maybeDeferred(self.goodbye).addTimeout(GOODBYE_SECONDS, self.reactor)
        said.addErrback(
            lambda why: self.console.note(
                "the node did not answer the goodbye" if why.check(NoAnswer) else why.getErrorMessage()
            )
        )
        return said.addCallback(lambda _: self._close(over))

    def _close(self, over: float) -> Deferred[Any]:
        """
        Close the session before the time `over`, even if the node does not answer.
        """
        closed = self.client.close()
        closed.addTimeout(max(over - self.reactor.seconds(), CLOSE_SECONDS), self.reactor)
        return closed.addErrback(lambda why: None)

    def make(self, **options: Any) -> Client:
        """
        Returns a client that is not connected yet.
        """
        options = {**self._options, **options}
        try:
            where: str | Endpoint = self.url
            if self._verbose:
                ca, certificate = options.pop("ca"), options.pop("certificate")
                where = observed(make_endpoint(self.url, self.reactor, ca, certificate), self.console.wire)
            return Client(self.reactor, where, **options)
        except ValueError as why:
            self.console.stop(str(why), USAGE)

    def fail(self, why: ClientError) -> NoReturn:
        """
        Print the error with advice, and exit.
        """
        if self._interrupted:  # it was cancelled, which is no error
            raise SystemExit(self.at_interrupt)
        match why:
            case Refused():
                self.console.stop(escaped(_advised(why)), REFUSED, code=why.code)
            case CannotConnect():
                self.console.stop(
                    f"cannot connect to {escaped(str(why))}\n{self._connecting(str(why))}", NOT_CONNECTED
                )
            case Closed():
                self.console.stop(
                    f"{escaped(str(why))}\n{self._closed(why.code)}".rstrip(), REFUSED, code=why.code
                )
            case TimedOut():
                self.console.stop(f"{why}\n{_LATE}", LATE)
        self.console.stop(str(why), REFUSED)

    def _closed(self, code: int) -> str:
        if code == NOT_LET_IN:
            return _NOT_KNOWN if self._options["identity"] is None else _NOT_BELIEVED
        return _CLOSED.get(code, "")

    def _connecting(self, text: str) -> str:
        if "refused" in text and "4403" not in text:
            return "Is the node running?  'twistd -n msgnode' starts one; --url gives the URL of another."
        if self.url.startswith(("wss:", "tls:")) and any(complaint in text for complaint in _NO_TLS):
            return "Does this port use TLS?  If not, the URL must begin with ws:// or tcp://."
        if "DNS" in text or "ookup" in text:
            return "Check the host name in the URL."
        if "certificate" in text.lower() or "verify failed" in text:
            return "Name the certificates to trust with --ca."
        if "no identity token" in text:
            return "Give an identity token, or the file that has it, with --login."
        for code in (4403, NOT_LET_IN):
            if str(code) in text:
                return self._closed(code)
        return (
            "Is this the URL of a node?  The default is ws://HOST:9090/ws, or tcp://HOST:9091 for TCP lines."
        )


def read_token(path: Path) -> str:
    """
    Returns the identity token in a file; NoToken says why there is none.
    """
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as why:
        text = why.strerror if isinstance(why, OSError) else "it is not text"
        raise NoToken(f"{path} cannot be read: {text}") from None
    if not token:
        raise NoToken(f"{path} is empty")
    return token


# Errors of a TLS handshake with a peer that speaks another protocol, or waits for the end of a line.
_NO_TLS = (
    "wrong version number",
    "record layer failure",
    "packet length too long",
    "handshake timeout",
    "was not answered",
)
_LATE = "Perhaps no client is bound to this address; 'msgnode send' reports whether one is."
_NOT_KNOWN = (
    "Either this node requires an identity token: pass one with --login or MSGNODE_LOGIN.\n"
    "Or another client has this session: set MSGNODE_TOKEN to its session token, or choose another --runtime."
)
_NOT_BELIEVED = (
    "Either the token of --login is not valid here: it has expired, or this node does not trust its issuer.\n"
    "Or another user has this session: set MSGNODE_TOKEN to its session token, or choose another --runtime."
)
_CLOSED = {
    4403: "This runtimeURL cannot be opened; expected one such as runtime://example.org/me.",
    4409: "Another client opened the same runtime.",
}


def _advised(why: Refused) -> str:
    if why.code == 501 and "domain://registry." in why.text:
        return "this node has no registry; start it with --registry embedded, or with the URL of a registry"
    return str(why)
