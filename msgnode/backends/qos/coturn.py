"""
coturn, as the embedded QoS broker uses it: time-limited credentials for its clients, and its command line,
which lists and cancels relayed sessions.
"""

import hmac
import re
from base64 import b64encode
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple, cast

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.endpoints import clientFromString
from twisted.internet.interfaces import ITCPTransport
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.protocol.errors import Rejected

log = Logger()

DEADLINE_SECONDS = 5.0
MAX_OUTPUT_BYTES = 4 * 1024 * 1024
_SESSION = re.compile(rb"id=(\d+), user <([^>]*)>")
_AGE = re.compile(rb"started (\d+) secs ago")
_USAGE = re.compile(rb"usage: rp=\d+, rb=(\d+), sp=\d+, sb=(\d+)")
_TOTAL = re.compile(rb"Total sessions: (\d+)")
_PASSWORD, _PROMPT = b"Enter password:", b"> "


class RelaySession(NamedTuple):
    """
    An allocation at coturn, and the user name with which it was made; its age in seconds, and the bytes that
    it has relayed, as of its last update.
    """

    id: str
    user: str
    age: int = 0
    up: int = 0
    down: int = 0

    @property
    def reservation(self) -> str:
        return self.user.rpartition(":")[2]


def _session_of(part: bytes) -> RelaySession:
    """
    The session that this part of a listing is about.
    """
    found, age, usage = _SESSION.search(part), _AGE.search(part), _USAGE.search(part)
    assert found is not None
    up, down = (int(usage[1]), int(usage[2])) if usage is not None else (0, 0)
    user = found[2].decode("utf-8", "replace")
    return RelaySession(found[1].decode(), user, int(age[1]) if age is not None else 0, up, down)


def credentials(secret: str, id: str, until: int) -> tuple[str, str]:
    """
    User name and password of coturn's REST mechanism (`use-auth-secret`), valid until then.
    """
    user = f"{until}:{id}"
    return user, b64encode(hmac.digest(secret.encode(), user.encode(), "sha1")).decode()


class CommandLine(Protocol):
    """
    A connection to coturn's command line that runs some commands and ends. `over` fires with their output.
    """

    def __init__(self, password: str, commands: list[str]) -> None:
        self.over: Deferred[bytes] = Deferred(self._cancelled)
        self._waiting = [(_PASSWORD, password)] + [(_PROMPT, command) for command in [*commands, "quit"]]
        self._output = bytearray()
        self._seen = 0
        self._is_over = False

    def dataReceived(self, data: bytes) -> None:
        self._output += data
        if len(self._output) > MAX_OUTPUT_BYTES:
            self._abort()
            return
        while self._waiting:
            awaited, answer = self._waiting[0]
            found = self._output.find(awaited, self._seen)
            if found < 0:
                if self._output.find(_PASSWORD, self._seen) >= 0:
                    self._fail("the TURN server refuses the password of its command line")
                    self._abort()
                return
            self._seen = found + len(awaited)
            del self._waiting[0]
            assert self.transport is not None
            self.transport.write(answer.encode() + b"\n")

    def connectionLost(self, reason: Failure | None = None) -> None:
        if self._waiting:
            self._fail("the TURN server does not answer properly")
        else:
            self._end(bytes(self._output))

    def _fail(self, text: str) -> None:
        self._end(Failure(Rejected(text, 502, "back-end")))

    def _end(self, result: bytes | Failure) -> None:
        if not self._is_over:
            self._is_over = True
            self.over.callback(result)

    def _cancelled(self, over: Deferred[bytes]) -> None:
        self._is_over = True
        self._abort()

    def _abort(self) -> None:
        cast(ITCPTransport, self.transport).abortConnection()


class _QuietFactory(Factory):
    """
    A factory that does not log each connection.
    """

    noisy = False


class Coturn:
    """
    The command line of coturn at an endpoint such as `127.0.0.1:5766`. `password` is read for each call.
    """

    def __init__(self, where: str, password: Callable[[], str], reactor: Any) -> None:
        host, _, port = where.rpartition(":")
        self._endpoint = clientFromString(reactor, f"tcp:{host}:{port}:timeout={DEADLINE_SECONDS:.0f}")
        self._password = password
        self._reactor = reactor
        self._is_cut = False

    async def sessions(self, *texts: str) -> list[RelaySession]:
        """
        The sessions whose user name contains one of the texts.
        """
        output = await self._run([f"psp {text}" for text in texts])
        starts = [match.start() for match in _SESSION.finditer(output)]
        parts = [output[start:end] for start, end in pairwise([*starts, len(output)])]
        total = sum(int(found[1]) for found in _TOTAL.finditer(output))
        if total > len(parts) and not self._is_cut:
            self._is_cut = True
            log.error(
                "coturn lists {some} of {all} sessions: raise its cli-max-output-sessions",
                some=len(parts),
                all=total,
            )
        return [_session_of(part) for part in parts]

    async def cancel(self, sessions: list[RelaySession]) -> None:
        """
        Ends these sessions: coturn relays nothing more for them.
        """
        if sessions:
            await self._run([f"cs {session.id}" for session in sessions])

    async def _run(self, commands: list[str]) -> bytes:
        factory = _QuietFactory.forProtocol(
            lambda: CommandLine(self._password(), commands)  # type: ignore[arg-type]
        )
        try:
            connection = await self._endpoint.connect(factory)
            connection.over.addTimeout(DEADLINE_SECONDS, self._reactor)
            output: bytes = await connection.over
        except Rejected:
            raise
        except TimeoutError:
            raise Rejected("the TURN server does not answer", 504, "back-end") from None
        except Exception as why:
            raise Rejected(f"Error contacting the TURN server: {why}"[:200], 504, "back-end") from None
        return output
