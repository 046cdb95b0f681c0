"""
Two real nodes with a link, seen and controlled by `msgnode link` and `msgnode route`.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from soaking.peers.ports import free_port

from tests.integration.federated import PATIENCE
from tests.integration.process import NodeProcess
from tests.support.authority import DAY, Authority

MSGNODE = Path(sys.executable).with_name("msgnode")
PORTS = {"a": free_port(), "b": free_port()}
REASON = ("--reason", "it is a test")


class LinkedNode(NodeProcess):
    """
    A node of `<letter>.example` that dials the other one.
    """

    def __init__(self, letter: str, other: str, authority: Authority, directory: Path) -> None:
        cert = authority.issue(f"msg-node.{letter}.example", until=DAY)
        written = directory / f"{letter}.toml"
        written.write_text(
            f'domain = "{letter}.example"\nnode = "n1"\n'
            'web = ["tcp:0:interface=127.0.0.1"]\nlines = ["tcp:0:interface=127.0.0.1"]\n'
            'admin.listen = "tcp:0:interface=127.0.0.1"\n'
            f'[federation]\nlisten = "tcp:{PORTS[letter]}:interface=127.0.0.1"\ncert = "{cert}"\n'
            f'[[peer]]\ndomain = "{other}.example"\nca = "{authority.path}"\n'
            f'url = "wss://127.0.0.1:{PORTS[other]}/link"\n'
        )
        super().__init__("--config", str(written))

    def run(self, *words: str) -> tuple[int, Any]:
        """
        The exit code of a verb, and its answer in JSON.
        """
        at = ("--admin", f"http://127.0.0.1:{self.ports['admin']}", "--state", str(self.state), "--json")
        done = subprocess.run([MSGNODE, *words, *at], capture_output=True, text=True, timeout=PATIENCE)
        return done.returncode, json.loads(done.stdout)

    def link(self) -> Any:
        """
        The link to the other node as the admin API has it; the links start last, after the admin listener.
        """
        token = (self.state / "admin-token").read_text().strip()
        url = f"http://127.0.0.1:{self.ports['admin']}/api/v1/links/b.example"
        try:
            with urlopen(Request(url, headers={"Authorization": f"Bearer {token}"})) as answer:
                return json.loads(answer.read())["links"][0]
        except HTTPError as error:
            return {"state": "", "error": error.read()}


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[LinkedNode]]:
    directory = Path(tempfile.mkdtemp(prefix="msgnode-links-"))
    authority = Authority(directory)
    running = [LinkedNode(one, other, authority, directory) for one, other in ("ab", "ba")]
    yield running
    for process in running:
        process.stop(signal.SIGKILL)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def test_operators_see_and_control_a_link_between_two_nodes(nodes: list[LinkedNode]) -> None:
    """
    The link comes up, is explained and checked; it ends by a pause and a ban, and comes again by `resume`.
    """
    a, b = nodes
    wait_for(lambda: a.link()["state"] == "up")
    wait_for(lambda: a.run("route", "explain", "hyperty://b.example/1")[0] == 0)

    link = a.run("link", "ls", "b.example")[1]["links"][0]
    assert ("mn://b.example/n1", True) == (link["node"], link["dialled_by"] in ("us", "them"))
    assert link["bytes_in"] > 0 and 0.5 < link["certificate_days"] < 1.1
    assert a.run("link", "check", "b.example")[0] == 0
    assert [node["node"] for node in a.run("route", "show")[1]["nodes"]] == [
        "mn://a.example/n1",
        "mn://b.example/n1",
    ]

    for order, state in (("pause", "paused"), ("ban", "banned")):
        assert a.run("link", order, "b.example", *REASON)[1]["admin_state"] == state
        wait_for(lambda: not a.link()["dialled_by"])
        wait_for(lambda: a.run("route", "explain", "b.example")[0] == 1)
        assert a.run("link", "resume", "b.example", *REASON)[0] == 0
        wait_for(lambda: a.link()["state"] == "up")

    with urlopen(f"http://127.0.0.1:{a.ports['admin']}/metrics", timeout=PATIENCE) as answer:
        metrics = answer.read().decode()
    assert 'msgnode_links{peer="b.example",state="up"} 1.0' in metrics
    assert 'msgnode_link_failures_total{peer="b.example"}' in metrics
    assert a.run("link", "forget", "--yes", "b.example", *REASON)[1] == {"domain": "b.example", "dropped": 0}
    assert a.run("link", "pause", "x.example", *REASON)[1]["code"] == 404
    assert b.run("link", "ls")[1]["node"] == "mn://b.example/n1"
