"""
The lines of JSON between the node and the host script: their types, and how a stream is cut into them.

Nothing in a line of the process is believed before it is checked: a stub may have broken out of its host.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

MAX_LOG_CHARACTERS = 4000
MAX_URL_CHARACTERS = 8192
MAX_SUB_PROTOCOLS = 16


class BadLine(Exception):
    """
    A line that is not one of the host script's. `limit` is the limit that it is beyond, if it is only that.
    """

    def __init__(self, text: str, limit: str = "lines") -> None:
        super().__init__(text)
        self.limit = limit


class FromHost(Struct, tag_field="k", frozen=True):
    """
    A line of the process, by `k`.
    """


class Jail(FromHost, tag="jail", frozen=True):
    """
    The first line: the protections that the system does not offer.
    """

    missing: list[str]


class Started(FromHost, tag="started", frozen=True):
    """
    The stub's code ran.
    """


class Failed(FromHost, tag="failed", frozen=True):
    """
    The stub's code cannot run.
    """

    text: str


class Posted(FromHost, tag="posted", frozen=True):
    """
    A message on the stub's bus.
    """

    m: Raw


class Status(FromHost, tag="status", frozen=True):
    """
    The stub's own status.
    """

    value: str
    desc: str


class Log(FromHost, tag="log", frozen=True):
    """
    A line of the stub's console, or an exception of its code.
    """

    level: str
    text: str


class Pong(FromHost, tag="pong", frozen=True):
    """
    The answer to a ping.
    """

    n: int


class Stopped(FromHost, tag="stopped", frozen=True):
    """
    The stub disconnected; the process exits.
    """


class Open(FromHost, tag="open", frozen=True):
    """
    A WebSocket that the stub opens; `s` is its number.
    """

    s: int
    url: str
    protocols: list[str]


class Send(FromHost, tag="send", frozen=True):
    """
    A message on a WebSocket of the stub's: a text, or bytes.
    """

    s: int
    text: str | None = None
    base64: bytes | None = None


class Close(FromHost, tag="close", frozen=True):
    """
    The stub closes a WebSocket.
    """

    s: int
    code: int
    reason: str


class Fetch(FromHost, tag="fetch", frozen=True):
    """
    A request of HTTP.
    """

    s: int
    method: str
    url: str
    headers: list[tuple[str, str]]
    body: bytes


class Abort(FromHost, tag="abort", frozen=True):
    """
    A request of HTTP is not wanted any more.
    """

    s: int


Line = (
    Jail | Started | Failed | Posted | Status | Log | Pong | Stopped | Open | Send | Close | Fetch | Abort
)  # fmt: skip
_decoder = msgspec.json.Decoder(Line)
_encoder = msgspec.json.Encoder()


def decoded(line: bytes) -> Line:
    """
    BadLine if it is none of the host script's.
    """
    try:
        return _decoder.decode(line)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as why:
        raise BadLine(f"{why} in {line[:80]!r}") from None


def encoded(kind: str, **fields: Any) -> bytes:
    return _encoder.encode({"k": kind, **fields}) + b"\n"


def post_line(message: bytes) -> bytes:
    """
    The line with a message of the node's. A line feed in JSON is white space, since strings cannot have one.
    """
    return b'{"k":"post","m":%b}\n' % message.replace(b"\n", b" ")


class LineBuffer:
    """
    A stream cut into lines of at most `most` bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._data = bytearray()
        self._start = self._searched = 0

    def add(self, data: bytes) -> None:
        self._data += data

    def next(self) -> bytes | None:
        """
        The next whole line, without its line feed. BadLine if it is too long.
        """
        end = self._data.find(b"\n", self._searched)
        length = (len(self._data) if end < 0 else end) - self._start
        if length > self._most:
            raise BadLine(f"a line of {length} bytes or more; the limit is {self._most}")
        if end < 0:
            self._shorten()
            return None
        with memoryview(self._data) as view:
            line = bytes(view[self._start : end])
        self._start = self._searched = end + 1
        return line

    def _shorten(self) -> None:
        del self._data[: self._start]
        self._start = 0
        self._searched = len(self._data)

    def __len__(self) -> int:
        return len(self._data) - self._start


def cleaned(text: str, most: int = MAX_LOG_CHARACTERS) -> str:
    """
    A text of a stub's, bounded, without control characters but for line feeds.
    """
    short = text[:most]
    if short.isprintable():
        return short
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in short)
