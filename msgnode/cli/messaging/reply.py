"""
`msgnode reply`: answers requests from a shell.
"""

import os
import shutil
from collections import deque
from contextlib import suppress
from signal import SIGKILL
from typing import Any

import click
from twisted.internet.defer import Deferred, DeferredSemaphore, maybeDeferred
from twisted.internet.error import ProcessDone, ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from msgnode.cli import OK
from msgnode.cli.connection import ADDRESS, SECONDS, NodeConnection, talks
from msgnode.cli.listener import line_of
from msgnode.cli.messaging.bodies import body_in, body_of
from msgnode.cli.messaging.stdin_lines import StdinLines
from msgnode.cli.messaging.text import as_json, escaped
from msgnode.client import Message, Refused
from msgnode.client.subscriptions import PENDING

MAX_RUNNING, MAX_WAITING = 16, 1000  # commands at a time, and requests that wait for theirs
MAX_OUTPUT_BYTES = 1024 * 1024
_SETSID = shutil.which("setsid")


class Answers:
    """
    A source of answers; `answer` returns one, or a Deferred of it.
    """

    def answer(self, request: Message) -> Any:
        raise NotImplementedError


class SameAnswer(Answers):
    """
    One body for all requests.
    """

    def __init__(self, body: Any) -> None:
        self._body = body

    def answer(self, request: Message) -> Any:
        return self._body


class Echo(Answers):
    """
    The body of the request.
    """

    def answer(self, request: Message) -> Any:
        return request.fields.get("body")


class TypedAnswers(Answers):
    """
    A line of stdin for each request, in the order of the requests.
    """

    def __init__(self, talk: NodeConnection) -> None:
        self._talk = talk
        self._stdin: StdinLines | None = None
        self._waiting: deque[Deferred[Any]] = deque()

    def answer(self, request: Message) -> Any:
        if len(self._waiting) >= MAX_WAITING:
            raise Refused(503, f"{MAX_WAITING} requests wait for an answer already")
        if self._stdin is None:
            self._stdin = StdinLines(self._talk.reactor)
        answered: Deferred[Any] = Deferred()
        self._waiting.append(answered)
        if len(self._waiting) == 1:
            self._stdin.next().addCallbacks(self._typed, lambda why: self._typed(None))
        return answered

    def _typed(self, line: bytes | None) -> None:
        answered = self._waiting.popleft()
        if line is None:
            answered.errback(Refused(503, "nobody answers any more"))
        else:
            try:
                answered.callback(body_in(line.decode("utf-8", "replace")))
            except click.BadParameter as why:
                self._talk.console.note(f"the line {why.message}; type the answer again")
                self._waiting.appendleft(answered)
        if self._waiting and self._stdin is not None:
            self._stdin.next().addCallbacks(self._typed, lambda why: self._typed(None))


class CommandAnswers(Answers):
    """
    The output of a command, which gets the body on stdin and the header in its environment.
    """

    def __init__(self, talk: NodeConnection, command: str, seconds: float) -> None:
        self._talk = talk
        self._command = command
        self._seconds = seconds
        self._turns = DeferredSemaphore(MAX_RUNNING)

    def answer(self, request: Message) -> Any:
        if len(self._turns.waiting) >= MAX_WAITING:
            raise Refused(503, f"{MAX_WAITING} requests wait for the command already")
        return self._turns.run(self._run, request)

    def _run(self, request: Message) -> Deferred[Any]:
        running = _Command(as_json(request.fields.get("body")).encode())
        names = {"TYPE": request.type, "FROM": request.from_, "TO": request.to, "ID": str(request.id)}
        # A NUL cannot be in an environment.
        given = {f"MSGNODE_{name}": value.replace("\0", "\ufffd") for name, value in names.items()}
        words = ["/bin/sh", "-c", self._command]
        if _SETSID:  # a group of its own, which can be killed as one
            words = [_SETSID, *words]
        self._talk.reactor.spawnProcess(
            running,
            words[0],
            words,
            env={**os.environ, **{name: value.encode("utf-8", "replace") for name, value in given.items()}},
        )
        timer = self._talk.reactor.callLater(self._seconds, running.kill, f"took over {self._seconds:g} s")

        def ended(_: Any) -> Any:
            if timer.active():
                timer.cancel()
            return running.result()

        return running.done.addCallback(ended)


class _Command(ProcessProtocol):
    """
    A running command.
    """

    transport: Any

    def __init__(self, given: bytes) -> None:
        self.done: Deferred[None] = Deferred()
        self._given = given
        self._out, self._err = bytearray(), bytearray()
        self._killed = ""
        self._status: Any = None

    def connectionMade(self) -> None:
        self.transport.write(self._given + b"\n")
        self.transport.closeStdin()

    def outReceived(self, data: bytes) -> None:
        self._out += data
        if len(self._out) > MAX_OUTPUT_BYTES:
            self.kill(f"printed over {MAX_OUTPUT_BYTES} bytes")

    def errReceived(self, data: bytes) -> None:
        self._err += data[: MAX_OUTPUT_BYTES - len(self._err)]

    def kill(self, why: str) -> None:
        if not self._killed:
            self._killed = why
            with suppress(ProcessLookupError, PermissionError):
                if _SETSID:
                    os.killpg(self.transport.pid, SIGKILL)
            with suppress(ProcessExitedAlready):
                self.transport.signalProcess("KILL")

    def processExited(self, reason: Failure) -> None:
        if self._killed:  # something that it started may still have the pipes
            self.transport.loseConnection()

    def processEnded(self, reason: Failure) -> None:
        self._status = reason
        self.done.callback(None)

    def result(self) -> Any:
        """
        Returns the body on stdout.  Refused if the command failed.
        """
        if self._killed:
            raise Refused(504 if "took" in self._killed else 500, f"the command {self._killed}")
        if not self._status.check(ProcessDone):
            last = self._err.decode("utf-8", "replace").strip().rpartition("\n")[2]
            code = getattr(self._status.value, "exitCode", None)
            raise Refused(500, last or f"the command ended with exit code {code}")
        try:
            return body_in(self._out.decode("utf-8", "replace").rstrip("\n"))
        except click.BadParameter as why:
            raise Refused(500, f"what the command printed {why.message}") from None


class Replying:
    """
    A program that answers requests until enough are answered.
    """

    def __init__(self, talk: NodeConnection, answers: Answers, types: tuple[str, ...], code: int) -> None:
        self._talk = talk
        self._answers = answers
        self._types = {name.lower() for name in types}
        self._code = code
        self._left: int | None = None
        self._enough: Deferred[None] = Deferred()

    async def begin(self, address: str, count: int | None) -> None:
        """
        Answer at the address; ends when `count` requests are answered.
        """
        talk, self._left = self._talk, count
        client = talk.client
        if address == client.runtime or address.startswith(f"{client.runtime}/"):
            client.handle(address, self._handle)
        else:
            try:
                await client.subscribe(address, self._handle)
            except Refused as why:
                if why.code != PENDING:
                    raise
                talk.console.note(why.text)
        talk.at_interrupt = OK
        talk.console.note(f"answering requests to {address}; press Ctrl-C to stop")
        await self._enough
        await client.flushed()

    def _handle(self, request: Message) -> Any:
        if self._enough.called:
            raise Refused(503, "this program stops")
        self._talk.console.report(line_of(request), request.fields)
        if not request.wants_answer:
            return None
        if self._types and request.type.lower() not in self._types:
            raise Refused(501, f"{request.type} is not answered here")
        request.hold()
        found = self._found(request)
        found.addCallbacks(
            lambda body: request.answer(body, self._code), lambda why: self._refuse(request, why)
        )
        return None

    def _found(self, request: Message) -> Deferred[Any]:
        return maybeDeferred(self._answers.answer, request).addBoth(self._count)

    def _refuse(self, request: Message, why: Failure) -> None:
        error = why.value
        code, text = (error.code, error.text) if isinstance(error, Refused) else (500, why.getErrorMessage())
        self._talk.console.note(f"refused: {code} {escaped(text)}")
        request.refuse(code, text)

    def _count(self, result: Any) -> Any:
        if self._left is not None and not self._enough.called:
            self._left -= 1
            if self._left == 0:
                self._talk.reactor.callLater(0, self._enough.callback, None)  # after the answer is sent
        return result


@click.command(short_help="Answer the requests to an address.")
@click.argument("address", type=ADDRESS)
@click.argument("body", required=False)
@click.option("--command", metavar="COMMAND", help="Answer with what this shell command prints.")
@click.option("--echo", is_flag=True, help="Answer with the body of the request.")
@click.option(
    "--type", "types", multiple=True, metavar="TYPE", help="Answer only this type; may be repeated."
)
@click.option(
    "--code", type=click.IntRange(200, 599), default=200, show_default=True, help="The code of answers."
)
@click.option("--count", type=click.IntRange(1), help="Stop after this many requests.")
@click.option(
    "--timeout", type=SECONDS, default=30.0, show_default=True, help="Time that the command may take."
)
@talks
def reply(
    address: str,
    body: str | None,
    command: str | None,
    echo: bool,
    types: tuple[str, ...],
    code: int,
    count: int | None,
    timeout: float,
    **options: Any,
) -> None:
    """
    Print the requests to ADDRESS and answer them, until Ctrl-C.

    BODY, which is JSON or a text, answers all of them.  Without BODY, or if it is -, the next line of stdin
    answers the oldest request.  A command gets the body of the request as JSON on stdin, and MSGNODE_TYPE,
    MSGNODE_FROM, MSGNODE_TO and MSGNODE_ID in its environment; if it fails, the answer is 500 with the last
    line of its stderr.

    \b
    Examples:
      msgnode reply hyperty://localhost/lamp '{"value": "on"}'
      msgnode reply hyperty://localhost/clock --command date
      msgnode reply hyperty://localhost/upper --command "jq '{value: .value | ascii_upcase}'"
      msgnode reply hyperty://localhost/desk

    \b
    Exit code 0: interrupted while it answered, or --count was reached.
    1: refused.  3: cannot connect.
    """
    if (body is not None) + bool(command) + echo > 1:
        raise click.UsageError("give one of BODY, --command and --echo")
    talk = NodeConnection(**options)
    answers: Answers
    if command:
        answers = CommandAnswers(talk, command, timeout)
    elif echo:
        answers = Echo()
    elif body in (None, "-"):
        answers = TypedAnswers(talk)
    else:
        answers = SameAnswer(body_of(body))
    replying = Replying(talk, answers, types, code)

    async def action(talk: NodeConnection) -> None:
        await replying.begin(address, count)

    talk.run(action)
