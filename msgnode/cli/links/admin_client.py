"""
Requests to the admin listener of a node, with the token of an operator.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from ssl import create_default_context
from typing import Any, NamedTuple, NoReturn, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

import click

from msgnode.cli import LATE, NOT_CONNECTED, REFUSED, USAGE
from msgnode.cli.connection import Console
from msgnode.cli.contexts import current_context, takes_context
from msgnode.config.schema import Config

ADMIN = "http://127.0.0.1:9092"
TOKEN_FILE = "admin-token"
AGENT = "msgnode-cli"
UNIX = "unix:"
TIMEOUT_SECONDS = 30.0  # a check of a link takes up to 20 s
UNAUTHORISED, NOT_FOUND = 401, 404
_WHERE = "--admin gives the URL of its admin listener."

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--admin",
        envvar="MSGNODE_ADMIN",
        default=ADMIN,
        show_default=True,
        metavar="URL",
        help="The admin listener of the node, or unix:PATH.  [env: MSGNODE_ADMIN]",
    ),
    click.option(
        "--state",
        type=click.Path(path_type=Path),
        help="The node's state directory, whose file admin-token has the token; the default is that of a "
        "node of this user.  MSGNODE_ADMIN_TOKEN may have the token instead.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print results and errors as JSON."),
)


def asks_admin(command: F) -> F:
    """
    Give a verb the options that name the admin listener and its token.
    """
    for option in reversed(_OPTIONS):
        command = option(command)
    return takes_context(command)


class Answer(NamedTuple):
    """
    An HTTP answer: its status, and its body.
    """

    status: int
    body: bytes


class AdminHTTP:
    """
    HTTP without proxies and redirects, either of which would get the token.
    """

    ca: str | None = None  # trusts the certificates in this file only
    socket: str | None = None  # the path of a UNIX socket, in the place of the host in each URL

    def pause(self, seconds: float) -> None:
        """
        Wait between two requests.
        """
        time.sleep(seconds)

    def _opener(self) -> OpenerDirector:
        if self.socket is not None:
            return build_opener(ProxyHandler({}), _NoRedirect, _SocketHandler(self.socket))
        context = create_default_context(cafile=self.ca)
        return build_opener(ProxyHandler({}), _NoRedirect, HTTPSHandler(context=context))

    def request(self, method: str, url: str, token: str, body: bytes | None = None) -> Answer:
        """
        Send a request, and wait for the answer. Raises OSError.
        """
        opener = self._opener()
        request = Request(url, body, {"Authorization": f"Bearer {token}", "User-Agent": AGENT}, method=method)
        try:
            with opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                return Answer(answer.status, answer.read())
        except HTTPError as why:
            return Answer(why.code, why.read())

    def lines(self, url: str, token: str) -> Answer | Iterator[bytes]:
        """
        The lines of an answer that does not end, or the answer if it is an error. Raises OSError.
        """
        opener = self._opener()
        request = Request(url, headers={"Authorization": f"Bearer {token}", "User-Agent": AGENT})
        try:
            found: Iterator[bytes] = iter(opener.open(request, timeout=TIMEOUT_SECONDS))
            return found
        except HTTPError as why:
            return Answer(why.code, why.read())


class _NoRedirect(HTTPRedirectHandler):
    """
    A handler that follows no redirect.
    """

    def redirect_request(self, *request: Any) -> None:
        return None


class _SocketConnection(HTTPConnection):
    """
    HTTP over the UNIX socket with this path.
    """

    def __init__(self, path: str, host: str, **given: Any) -> None:
        super().__init__(host, **given)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_SECONDS)
        self.sock.connect(self._path)


class _SocketHandler(HTTPHandler):
    """
    A handler that connects to a UNIX socket.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def http_open(self, request: Request) -> Any:
        return self.do_open(partial(_SocketConnection, self._path), request)  # type: ignore[arg-type]


class AdminClient:
    """
    A client of the admin listener at the URL `admin`, or at a UNIX socket `unix:PATH`; each error ends the
    command.
    """

    def __init__(self, admin: str, state: Path | None, as_json: bool, console: Console | None = None) -> None:
        self.console = console or Console(as_json)
        self.state = state or Path(Config().state)
        self._admin = admin.rstrip("/")
        self._http = click.get_current_context().find_object(AdminHTTP) or AdminHTTP()
        if self._admin.startswith(UNIX):
            self._http.socket = self._admin.removeprefix(UNIX)
            self._admin = "http://localhost"
        parts = urlsplit(self._admin)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            self.console.stop(f"--admin: expected a URL such as {ADMIN}, not {admin!r}", USAGE)
        self._http.ca = current_context().ca and os.path.expanduser(current_context().ca or "")

    @cached_property
    def _token(self) -> str:
        found = (
            os.environ.get("MSGNODE_ADMIN_TOKEN", "").strip()
            or current_context().admin_token()
            or self._read(self.state / TOKEN_FILE)
        )
        if not (found.isascii() and found.isprintable() and " " not in found):  # http.client would show it
            self.console.stop("the admin token has a space, a line end or a letter that no token has", USAGE)
        return found

    def get(self, *path: str, query: Iterable[tuple[str, str]] = ()) -> Any:
        return self._ask("GET", path, query)

    def post(self, *path: str) -> Any:
        return self._ask("POST", path, ())

    def order(self, method: str, *path: str, body: Any = None, query: Iterable[tuple[str, str]] = ()) -> Any:
        return self._ask(method, path, query, None if body is None else json.dumps(body).encode())

    def pause(self, seconds: float) -> None:
        self._http.pause(seconds)

    def raw(self, *path: str, query: Iterable[tuple[str, str]] = ()) -> bytes:
        """
        The bytes of an answer that is not JSON as a whole.
        """
        with self._errors():
            answer = self._http.request("GET", self._url(path, query), self._token)
        if answer.status >= 300:
            self._understood(answer)
        return answer.body

    def lines(self, *path: str, query: Iterable[tuple[str, str]] = ()) -> Iterator[bytes]:
        """
        The lines of an answer that does not end. If it does, so does the command.
        """
        with self._errors():
            found = self._http.lines(self._url(path, query), self._token)
            if isinstance(found, Answer):
                self._understood(found)
                return
            with suppress(HTTPException):  # it was cut off
                yield from found
        self.console.stop(
            f"{self._admin} ended the stream: the node stopped, or the token is not valid any more",
            NOT_CONNECTED,
        )

    def _read(self, path: Path) -> str:
        try:
            lines = path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as why:
            text = why.strerror if isinstance(why, OSError) else "it is not text"
            self.console.stop(
                f"the admin token in {path} cannot be read: {text}\n"
                "A node writes it when it starts.  "
                "Name the node's state directory with --state, or set MSGNODE_ADMIN_TOKEN to the token.",
                USAGE,
            )
        tokens = [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
        if not tokens:
            self.console.stop(f"{path} has no token", USAGE)
        return tokens[0]

    def _url(self, path: Iterable[str], query: Iterable[tuple[str, str]]) -> str:
        parts = list(path)
        if not all(parts):
            of_links = parts[0] == "links"
            text = "expected a domain such as b.example, found ''" if of_links else "an argument is empty"
            self.console.stop(text, USAGE)
        url = "/".join([f"{self._admin}/api/v1", *(quote(part, safe="") for part in parts)])
        parameters = urlencode(list(query))
        return f"{url}?{parameters}" if parameters else url

    def _ask(
        self,
        method: str,
        path: Iterable[str],
        query: Iterable[tuple[str, str]],
        body: bytes | None = None,
    ) -> Any:
        url = self._url(path, query)
        with self._errors():
            answer = self._http.request(method, url, self._token, body)
        return self._understood(answer)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """
        Ends the command if the node is not reached.
        """
        try:
            yield
        except TimeoutError:
            self._late()
        except URLError as why:
            if isinstance(why.reason, TimeoutError):
                self._late()
            self._unreached(getattr(why.reason, "strerror", None) or str(why.reason))
        except HTTPException:
            self._stranger("does not speak HTTP")
        except (OSError, ValueError) as why:
            self._unreached(getattr(why, "strerror", None) or str(why))

    def _understood(self, answer: Answer) -> Any:
        try:
            value = json.loads(answer.body)
        except (ValueError, RecursionError):
            value = None
        if answer.status < 300 and value is not None:
            return value
        if not isinstance(value, dict) or not isinstance(value.get("description"), str):
            self._stranger(f"answers {answer.status}", answer.status)
        if answer.status == NOT_FOUND and "reason" not in value:  # the web listener, for clients
            self._stranger("does not know this request", NOT_FOUND)
        text = value["description"]
        if answer.status == UNAUTHORISED:
            text = (
                f"{self._admin} does not accept the token\n"
                "Is it the token of another node?  --state names the directory of this one."
            )
        self.console.stop(text, REFUSED, code=answer.status)

    def _stranger(self, what: str, code: int | None = None) -> NoReturn:
        more = {} if code is None else {"code": code}
        text = f"{self._admin} {what}, and is not the admin listener of a node\n{_WHERE}"
        self.console.stop(text, REFUSED, **more)

    def _late(self) -> NoReturn:
        self.console.stop(f"{self._admin} does not answer", LATE)

    def _unreached(self, why: str) -> NoReturn:
        self.console.stop(
            f"cannot connect to {self._admin}: {why}\nIs the node running?  {_WHERE}",
            NOT_CONNECTED,
        )
