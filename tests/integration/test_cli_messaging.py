"""
The verbs `reply`, `rtt`, `send -l` and `listen --format` in a shell, beside a real node.
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.process import PATIENCE, NodeProcess
from tests.integration.test_cli import MSGNODE, Listening, environment, msgnode

DESK = "hyperty://localhost/desk"
NEWS = "comm://localhost/many/changes"


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProcess]:
    process = NodeProcess()
    yield process
    process.stop(signal.SIGKILL)


class Replying:
    """
    `msgnode reply DESK`, from the moment it answers.
    """

    def __init__(self, node: NodeProcess, *arguments: str, stdin: str | None = None) -> None:
        self.process = subprocess.Popen(
            [MSGNODE, "reply", DESK, *arguments],
            env=environment(node),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None and self.process.stdin is not None
        if stdin is not None:
            self.process.stdin.write(stdin)
            self.process.stdin.flush()
        self.said = self.process.stderr.readline()

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


def asked(node: NodeProcess, body: str = "") -> tuple[int, Any]:
    done = msgnode(node, "request", DESK, "--json", *([body] if body else []))
    return done.returncode, json.loads(done.stdout)


def test_body_answers_all_requests(node: NodeProcess) -> None:
    """
    `reply ADDRESS BODY` answers as many requests as --count says, prints them, and ends with 0.
    """
    replying = Replying(node, '{"light": "on"}', "--count", "2")

    answers = [asked(node, '{"n": 1}')[1]["body"], asked(node)[1]["body"]]
    code, out, err = replying.end()

    assert f"answering requests to {DESK}; press Ctrl-C to stop\n" == replying.said
    assert [{"code": 200, "light": "on"}] * 2 == answers
    assert (0, "") == (code, err)
    assert out.splitlines()[0].endswith(f'-> {DESK}  {{"n": 1}}') and 2 == len(out.splitlines())


def test_command_answers(node: NodeProcess) -> None:
    """
    A command gets the body on stdin and the header in its environment, never on its command line.
    """
    replying = Replying(node, "--command", 'printf "%s " "$MSGNODE_TYPE"; cat', "--count", "1")

    _, answer = asked(node, '{"value": "$(reboot)"}')

    assert {"code": 200, "value": 'read {"value": "$(reboot)"}'} == answer["body"]
    assert 0 == replying.end()[0]


def test_command_that_fails_refuses(node: NodeProcess) -> None:
    """
    A command that fails answers 500 with the last line of its stderr; one that takes too long 504.
    """
    replying = Replying(node, "--command", "echo first >&2; echo no paper >&2; exit 3", "--count", "1")
    code, refused = asked(node)
    ended = replying.end()

    assert (1, 500, "500 no paper") == (code, refused["code"], refused["error"])
    assert (0, "refused: 500 no paper\n") == (ended[0], ended[2])

    replying = Replying(node, "--command", "sleep 60", "--timeout", "0.2", "--count", "1")
    assert 504 == asked(node)[1]["code"]
    assert 0 == replying.end()[0]


def test_lines_of_stdin_answer_in_order(node: NodeProcess) -> None:
    """
    Without BODY each request is answered with the next line; at their end requests are refused.
    """
    replying = Replying(node, "--count", "2", stdin='first\n{"second": 2}\n')

    assert {"code": 200, "value": "first"} == asked(node)[1]["body"]
    assert {"code": 200, "second": 2} == asked(node)[1]["body"]
    assert 0 == replying.end()[0]


def test_line_each_is_sent(node: NodeProcess) -> None:
    """
    `send -l` sends a message a line, reports a line that is none, and says how many arrived.
    """
    listening = Listening(node, NEWS, "--format", "{from}|{body.value}|{body.n}", "--count", "3")

    done = msgnode(node, "send", "-l", NEWS, stdin='one\n\n{"n": 2}\n{oops\nthree')

    assert 1 == done.returncode
    assert "3 messages in " in done.stderr and "3 delivered, 1 refused" in done.stderr
    assert "1 times: line 4 looks like JSON, but is not" in done.stderr
    code, out, _ = listening.end()
    assert (0, ["|one|", "||2", "|three|"]) == (code, [line[line.index("|") :] for line in out.splitlines()])


def test_count_and_rate(node: NodeProcess) -> None:
    """
    `--count` repeats a body, `--rate` says how fast; with --json the result is one object.
    """
    listening = Listening(node, NEWS, "--format", "{body.value}", "--count", "4")

    done = msgnode(node, "send", NEWS, "again", "--count", "4", "--rate", "10", "--json")

    told = json.loads(done.stdout)
    assert (0, 4, 4, {}) == (done.returncode, told["sent"], told["delivered"], told["refused"])
    assert told["seconds"] >= 0.3
    assert ["again"] * 4 == listening.end()[1].splitlines()


def test_nobody_hears_many(node: NodeProcess) -> None:
    """
    Messages that nobody hears are counted by their reason, and the exit code is 1.
    """
    done = msgnode(node, "send", "hyperty://localhost/nobody", "x", "--count", "3")

    assert 1 == done.returncode
    assert "3 messages in " in done.stderr
    assert "3 times: no session is bound to this address (no-route)" in done.stderr


def test_round_trip(node: NodeProcess) -> None:
    """
    `rtt` measures the connection and the way to the node and back, and to an address.
    """
    told = json.loads(msgnode(node, "rtt", "--json", "--count", "3").stdout)

    assert told["ok"] and 3 == told["count"]
    assert 0 < told["min_ms"] <= told["median_ms"] <= told["max_ms"] and told["connect_ms"] > 0

    replying = Replying(node, "--echo", "--count", "2")
    done = msgnode(node, "rtt", DESK, "--count", "2")
    assert f"\n{DESK}: " in done.stdout and "2 round trips)\n" in done.stdout
    assert 0 == replying.end()[0]


def test_all_is_done_by_long_polling(node: NodeProcess) -> None:
    """
    With an http:// URL a session is polled: it answers requests, sends lines, and ends with its command.
    """
    url = f"http://127.0.0.1:{node.ports['web']}"
    replying = Replying(node, "--echo", "--count", "2", "--url", url)

    answer = msgnode(node, "request", DESK, '{"a": 1}', "--url", url)
    sent = msgnode(node, "send", DESK, "-l", "--url", f"{url}/poll", stdin="x\n" * 300)

    assert {"code": 200, "a": 1} == json.loads(answer.stdout)
    assert "300 messages in " in sent.stdout and "300 delivered" in sent.stdout
    assert 0 == msgnode(node, "request", DESK, "--url", url).returncode
    assert (0, 302) == (lambda ended: (ended[0], len(ended[1].splitlines())))(replying.end())


def test_verbose_shows_the_wire_without_tokens(node: NodeProcess) -> None:
    """
    With --verbose each message in either direction is on stderr, and no token is.
    """
    done = msgnode(node, "rtt", "--count", "1", "--verbose")

    lines = done.stderr.splitlines()
    assert "-- connected by WebSocket" == lines[0]
    assert any(line.startswith('-> {"id":1,"type":"ping"') for line in lines)
    assert any(line.startswith('<- {"id":1,"type":"response"') for line in lines)
    assert "mns_" not in done.stderr and '"runtimeToken":"*' in done.stderr


def test_quiet_says_nothing_of_success(node: NodeProcess) -> None:
    """
    With --quiet only what was asked for is printed, and errors.
    """
    replying = Replying(node, "5", "--count", "2")

    assert ("", "") == (lambda done: (done.stdout, done.stderr))(msgnode(node, "send", DESK, "x", "-q"))
    assert '{\n  "code": 200,\n  "value": 5\n}\n' == msgnode(node, "request", DESK, "-q").stdout
    assert "no session" in msgnode(node, "send", "hyperty://localhost/nobody", "x", "-q").stderr
    replying.process.send_signal(signal.SIGINT)
    replying.end()
