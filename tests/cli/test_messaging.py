"""
Messages on a terminal: what peers write controls nothing, formats are filled in, the wire has no tokens.
"""

import json
import os
from typing import Any

import click
import pytest
from click.testing import CliRunner
from twisted.internet.task import Clock

from msgnode.cli.main import main
from msgnode.cli.messaging.stdin_lines import LineTooLong, StdinLines
from msgnode.cli.messaging.text import Template, as_json, escaped
from msgnode.cli.messaging.wire import observed, shown
from msgnode.client.endpoint import Endpoint
from msgnode.client.transports import Link, Owner
from msgnode.protocol.close_codes import Closing


@pytest.mark.parametrize(
    "text, safe",
    [
        ("plain ü 漢字 👩‍💻", "plain ü 漢字 👩‍💻"),
        ("\x1b[2J\x07", "\\u001b[2J\\u0007"),
        ("\x9b31m", "\\u009b31m"),
        ("a\u202eb\u2066", "a\\u202eb\\u2066"),
        ("\u2028\n", "\\u2028\\u000a"),
        ("\U000e0041", "\\udb40\\udc41"),
    ],
)
def test_control_characters_of_peers_are_escaped(text: str, safe: str) -> None:
    """
    Control characters, and those that reorder text, are printed as escapes; all other text stays.
    """
    assert safe == escaped(text)
    assert {"a": text} == json.loads(as_json({"a": text}, indent=2))
    assert "\x1b" not in as_json(text) and "\u202e" not in as_json({text: 1})


def test_format_of_messages() -> None:
    """
    A format has places for the header and for values of the body; what is missing is empty.
    """
    message = {"from": "a:b\x1b", "to": "c:d", "body": {"value": {"x": 1}, "text": "hi"}, "id": 7}

    filled = Template("{time}\\t{from}>{to} {{{id}}} {body.text} {body.value} {body.value.x} {body.none.y}|")

    assert 'T\ta:b\\u001b>c:d {7} hi {"x": 1} 1 |' == filled.fill(message, "T")
    for wrong in ("{", "{}", "a}", "{a b}"):
        with pytest.raises(click.BadParameter):
            Template(wrong)


def test_wire_shows_no_tokens() -> None:
    """
    A message on the wire is one line, at most so long, without session tokens and identity tokens.
    """
    secret = "A" * 43
    data = json.dumps(
        {
            "from": f"runtime://x/y/mns_{secret}",
            "to": "mn:/session",
            "body": {"token": 'ey"J.\\x.y', "a": "\x1b"},
        }
    ).encode()

    line = shown(data)

    assert secret not in line and "J." not in line and '"token": "***"' in line
    assert line.isprintable()
    assert shown(b"x" * 5000).endswith("... (5,000 bytes)")
    assert "\ufffd" in shown(b"\xff")


class OneLink:
    speaks, pings, silent = "lines", False, False

    def __init__(self) -> None:
        self.did: list[Any] = []

    def send(self, data: bytes) -> None:
        self.did.append(data)

    def leave(self) -> None:
        self.did.append("leave")

    def abort(self) -> None:
        self.did.append("abort")


class OneOwner:
    def __init__(self) -> None:
        self.links: list[Link] = []
        self.did: list[Any] = []

    def arrived(self, link: Link) -> None:
        self.links.append(link)

    def heard(self, data: bytes) -> None:
        self.did.append(data)

    def lost(self, link: Link, why: Closing | None, text: str) -> None:
        self.links.append(link)
        self.did.append((why, text))


def test_observed_link_passes_everything_on() -> None:
    """
    With --verbose the client and the node exchange what they would without it, by one link.
    """
    seen: list[str] = []
    owner, link, given = OneOwner(), OneLink(), []
    endpoint: Any = Endpoint("tcp://x", None, given.append)

    observed(endpoint, seen.append).factory(owner)
    wire: Owner = given[0]
    wire.arrived(link)
    owner.links[0].send(b"{}")
    owner.links[0].silent = True
    wire.heard(b"[]")
    owner.links[0].leave()
    owner.links[0].abort()
    wire.lost(link, Closing(4409, "gone", None), "text")

    assert [b"{}", "leave", "abort"] == link.did and link.silent
    assert [b"[]", (Closing(4409, "gone", None), "text")] == owner.did
    assert owner.links[0] is owner.links[1]
    assert ["-- connected by lines", "-> {}", "<- []", "-- disconnected: 4409 gone"] == seen


class Threads(Clock):
    """
    A clock whose calls from threads happen at once.
    """

    def callFromThread(self, function: Any, *arguments: Any) -> None:
        self.callLater(0, function, *arguments)


def test_lines_of_stdin() -> None:
    """
    Lines come without their ends, the last one without a newline, too; then there are no more.
    """
    reader, writer = os.pipe()
    os.write(writer, "eins\r\nzwei\n\nübrig".encode())
    os.close(writer)
    clock = Threads()
    stdin = StdinLines(clock, reader)

    found = []
    for _ in range(6):
        line = stdin.next()
        while not line.called:
            clock.advance(0)
        found.append(line.result)

    os.close(reader)
    assert [b"eins", b"zwei", b"", "übrig".encode(), None, None] == found


def test_endless_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A line that is longer than any message fails; it does not fill the memory.
    """
    monkeypatch.setattr("msgnode.cli.messaging.stdin_lines.MAX_LINE_BYTES", 10)
    reader, writer = os.pipe()
    os.write(writer, b"x" * 11)
    clock = Threads()

    line = StdinLines(clock, reader).next()
    while not line.called:
        clock.advance(0)

    os.close(writer)
    failures: list[Any] = []
    line.addErrback(failures.append)
    assert failures[0].check(LineTooLong)


@pytest.mark.parametrize(
    "words, part",
    [
        ("send comm://x -l hello", "give no BODY"),
        ("send comm://x hello --rate 3", "--rate needs -l or --count"),
        ("listen --format {x} --json", "give --format or --json"),
        ("listen --format {", "expected places such as {from}"),
        ("reply hyperty://x 1 --echo", "give one of BODY, --command and --echo"),
    ],
)
def test_options_that_exclude_each_other(words: str, part: str) -> None:
    """
    Options that contradict each other are refused before a connection is made.
    """
    done = CliRunner().invoke(main, [*words.split(), "--url", "tcp://127.0.0.1:1"])

    assert 2 == done.exit_code
    assert part in done.output
