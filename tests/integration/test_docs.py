"""
What README.md and docs/protocol.md tell people to paste, pasted into a shell beside a real node.
"""

import ast
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.process import PATIENCE, Lines, NodeProcess
from tests.support.examples import Block, Bound, sections

README = sections("README.md")["A conversation"]
PROTOCOL = sections("docs/protocol.md")
DEVICE = next(block for block in README if block.info == "sh 2")
NC, BASH = "nc 127.0.0.1 9091", "{ exec 3<>/dev/tcp/127.0.0.1/9091; cat <&3 & cat >&3; }"


@pytest.fixture
def node(request: pytest.FixtureRequest) -> Iterator[NodeProcess]:
    process = NodeProcess("--domain", getattr(request, "param", "localhost"))
    yield process
    process.stop(signal.SIGKILL)


def on_its_ports(text: str, node: NodeProcess) -> str:
    for default, kind in (("9090", "web"), ("9091", "line"), ("9092", "admin")):
        for separator in ":/ ":
            text = text.replace(f"127.0.0.1{separator}{default}", f"127.0.0.1{separator}{node.ports[kind]}")
    return text


def values(text: str) -> list[Any]:
    """
    The JSON values in what was printed, one after another; ValueError while the last has not come whole.
    """
    found: list[Any] = []
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:]
    return found


class Terminal:
    """
    A shell to paste into.
    """

    def __init__(self) -> None:
        self.shell = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._said = ""

    def paste(self, text: str) -> None:
        assert self.shell.stdin is not None
        self.shell.stdin.write(text.encode() + b"\n")
        self.shell.stdin.flush()

    def printed(self, number: int) -> list[Any]:
        """
        The next `number` values it prints.
        """
        assert self.shell.stdout is not None
        until = time.monotonic() + PATIENCE
        while True:
            try:
                found = values(self._said)
            except ValueError:
                found = []
            if len(found) >= number:
                self._said = "".join(json.dumps(value) for value in found[number:])
                return found[:number]
            ready, _, _ = select.select([self.shell.stdout], [], [], until - time.monotonic())
            assert ready, f"{number} values were expected, but it printed {self._said!r}"
            self._said += os.read(self.shell.stdout.fileno(), 65536).decode()

    def close(self) -> None:
        os.killpg(self.shell.pid, signal.SIGKILL)
        self.shell.wait()
        assert self.shell.stdin is not None and self.shell.stdout is not None
        self.shell.stdin.close()
        self.shell.stdout.close()


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened = [Terminal(), Terminal()]
    yield opened
    for terminal in opened:
        terminal.close()


def play(blocks: list[Block], terminal: Terminal, node: NodeProcess) -> None:
    """
    Paste the shell blocks, and see that what is printed is what is shown.
    """
    bound = Bound()
    for block in blocks:
        if block.info == "sh":
            terminal.paste(on_its_ports(bound.fill(block.text), node))
        elif block.info == "output":
            expected = values(block.text)
            found = terminal.printed(len(expected))
            assert bound.matches(expected, found), f"line {block.line}: it printed {found}"


def test_conversation_of_the_readme(node, terminals):
    """
    The conversation in README.md, pasted into a terminal, prints what is shown there.
    """
    play(README, terminals[0], node)


@pytest.mark.parametrize("last", [NC, BASH], ids=["nc", "bash"])
def test_readme_device(node, terminals, last):
    """
    A device that joins by TCP as README.md shows, with nc or without, hears what ann publishes.
    """
    if last is NC and shutil.which("nc") is None:
        pytest.skip("apt-get install netcat-openbsd")
    first, second = terminals
    play(README, first, node)

    second.paste(on_its_ports(DEVICE.text.replace(NC, last), node))
    replies = second.printed(2)
    block = next(block.text for block in README if '"type":"update"' in block.text)
    published = block.partition("curl -s")[2].partition("curl -s")[0]
    first.paste(on_its_ports("curl -s" + published, node))

    assert [200, 200] == [reply["body"]["code"] for reply in replies]
    assert [{"accepted": 1}] == first.printed(1)
    assert "hello" == second.printed(1)[0]["body"]["value"]
    second.paste('{"id":4,"type":"ping","from":"runtime://localhost/lamp","to":"runtime://localhost/lamp/x"}')
    assert "ping" == second.printed(1)[0]["type"]


def test_readme_names_the_shell_way():
    """
    README.md says how a device joins where there is no nc.
    """
    from tests.support.examples import TOP

    assert BASH in (TOP / "README.md").read_text("utf-8")


@pytest.mark.parametrize("node", ["example.org"], indirect=True)
def test_long_polling(node, terminals):
    """
    Long-polling works with plain curl as docs/protocol.md shows, up to the closing.
    """
    play(PROTOCOL["Long-polling"], terminals[0], node)


@pytest.mark.parametrize("node", ["example.org"], indirect=True)
def test_rest_works_with_plain_curl_as_docs_protocol_md(node, terminals):
    """
    REST works with plain curl as docs/protocol.md shows.
    """
    play(PROTOCOL["REST"], terminals[0], node)


@pytest.mark.parametrize("node", ["example.org"], indirect=True)
def test_small_client(node, tmp_path):
    """
    The small client in docs/protocol.md needs nothing but socket and json, and answers what it is told.
    """
    code = next(block.text for block in PROTOCOL["TCP lines"] if block.info == "python")
    imported = [
        name.name for step in ast.walk(ast.parse(code)) if isinstance(step, ast.Import) for name in step.names
    ]
    (tmp_path / "lamp.py").write_text(code.replace("9091", str(node.ports["line"])))
    lamp = subprocess.Popen([sys.executable, "-u", tmp_path / "lamp.py"], stdout=subprocess.PIPE, text=True)
    assert lamp.stdout is not None
    try:
        greetings = [lamp.stdout.readline() for _ in range(2)]
        user = Lines(node.ports["line"], "runtime://example.org/user")
        order = {
            "id": 2,
            "type": "execute",
            "from": "hyperty://example.org/user",
            "to": "hyperty://example.org/lamp",
        }
        reply = user.ask({**order, "body": {"method": "on"}})
        user.close()
        ordered = lamp.stdout.readline()
    finally:
        lamp.kill()
        lamp.communicate()

    assert ["json", "socket"] == sorted(imported)
    assert all("'code': 200" in greeting for greeting in greetings)
    assert "execute {'method': 'on'}\n" == ordered
    assert {"code": 200} == reply["body"]
