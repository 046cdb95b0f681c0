"""
`tools/run` as a newcomer meets it: from nothing, with half an environment, with a port that is taken.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent.parent
PATIENCE = 300  # seconds; pip may have to fetch everything
QUIET = ["--state", "none", "--traffic", "none", "--registry", "none", "--global-registry", "none"]
ANYWHERE = ["--web", "tcp:0:interface=127.0.0.1", "--lines", "none", "--admin", "none"]


class Run:
    """
    `tools/run`, or what starts an example, at work; `said` is all it printed so far.
    """

    def __init__(self, venv: Path, *arguments: str, example: str = "", **environment: str) -> None:
        self._file = Path(tempfile.mkdtemp(prefix="msgnode-")) / "said"
        known = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        command = [TOP / "docs/examples/run", example] if example else [TOP / "tools/run", *QUIET]
        with self._file.open("w") as output:
            self.process = subprocess.Popen(
                [*command, *arguments],
                env={**known, "MSGNODE_VENV": str(venv), "MSGNODE_NATIVE": "0", **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        return self._file.read_text()

    def until(self, text: str) -> str:
        """
        Wait until it says so, or ends.
        """
        deadline = time.monotonic() + PATIENCE
        while text not in self.said and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        return self.said

    def end(self) -> int:
        """
        Ctrl-C; the exit code, 0 also where twistd says that Ctrl-C ended it.
        """
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        code = self.process.wait(PATIENCE)
        return 0 if code == -signal.SIGINT else code


@pytest.fixture(scope="module")
def venv() -> Iterator[Path]:
    """
    Half an environment, as an interrupted first run leaves it: a Python without pip.
    """
    where = Path(tempfile.mkdtemp(prefix="msgnode-")) / "venv"
    subprocess.run([shutil.which("python3") or "python3", "-m", "venv", "--without-pip", where], check=True)
    yield where
    shutil.rmtree(where.parent)


def port_of(said: str) -> int:
    found = re.search(r"pages and clients:\s+http://127.0.0.1:(\d+)/", said)
    assert found is not None, said
    return int(found[1])


def test_half_an_environment_is_mended_and_the_node_says_where_it_is(venv: Path) -> None:
    """
    The banner comes when the node listens, names its real port, and nothing is left in the checkout.
    """
    before = set(TOP.iterdir())
    run = Run(venv, *ANYWHERE)
    said = run.until("source ")
    with socket.create_connection(("127.0.0.1", port_of(said)), 10):
        pass

    assert 0 == run.end()
    assert f"source {venv}/bin/activate" in said
    assert said.index("listening on") < said.index("The node is up")
    assert set(TOP.iterdir()) - before <= {TOP / ".pytest_cache", TOP / ".hypothesis"}


def test_what_is_installed_already_needs_no_network(venv: Path) -> None:
    """
    The next start asks pip for nothing, and replaces nothing under a node that runs.
    """
    first = Run(venv, *ANYWHERE)
    first.until("source ")
    second = Run(
        venv, *ANYWHERE, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_NO_CACHE_DIR="1", PIP_RETRIES="0"
    )

    said = second.until("source ")

    assert [0, 0] == [run.end() for run in (first, second)]
    assert "The node is up" in said
    assert "Installing" not in said


def test_an_environment_that_lost_a_package_is_made_anew(venv: Path) -> None:
    """
    Although pip is there, and believes that all is installed.
    """
    (package,) = venv.glob("lib/python*/site-packages/twisted")
    shutil.rmtree(package)

    run = Run(venv, *ANYWHERE)
    said = run.until("source ")

    assert 0 == run.end()
    assert "Making a virtual environment" in said
    assert "The node is up" in said


def test_an_example_starts_in_the_same_environment(venv: Path) -> None:
    """
    Nothing is installed again, and nothing is left in the checkout.
    """
    before = set(TOP.iterdir())
    run = Run(venv, "--port", "0", example="chat", PIP_INDEX_URL="http://127.0.0.1:9/simple")

    said = run.until("Ctrl-C ends it.")

    assert 0 == run.end()
    assert said.startswith("Open http://127.0.0.1:"), said
    assert set(TOP.iterdir()) == before


def test_two_runs_at_once_do_not_collide(venv: Path) -> None:
    """
    The second waits until the first has installed, and then both are up.
    """
    runs = [Run(venv, *ANYWHERE) for _ in range(2)]

    ports = {port_of(run.until("source ")) for run in runs}

    assert [0, 0] == [run.end() for run in runs]
    assert 2 == len(ports)


def test_a_taken_port_is_told_with_what_to_do(venv: Path) -> None:
    """
    And nothing claims that the node is up.
    """
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = Run(venv, *ANYWHERE[2:], "--web", f"tcp:{port}:interface=127.0.0.1")
        said = run.until("never")

    assert 2 == run.end()
    assert (
        f"msgnode: cannot listen on tcp:{port}:interface=127.0.0.1: [Errno 98] Address already in use" in said
    )
    assert "--web, --lines and --admin choose other ports" in said
    assert "The node is up" not in said


def test_a_python_that_is_too_old_is_told_in_one_sentence(tmp_path: Path) -> None:
    """
    Before anything is made.
    """
    old = tmp_path / "python3.10"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.10.1\nexit 1\n')
    old.chmod(0o755)
    run = Run(tmp_path / "venv", PYTHON=str(old))
    said = run.until("never")

    assert 1 == run.end()
    assert f"run: msgnode needs Python 3.11 or later, and {old} is Python 3.10.1" in said
    assert not (tmp_path / "venv").exists()


def test_a_machine_without_a_network_is_told_so(tmp_path: Path) -> None:
    """
    With what to look at, and without a traceback of pip's.
    """
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_NO_CACHE_DIR": "1", "PIP_RETRIES": "0"}
    run = Run(tmp_path / "venv", **nowhere)
    said = run.until("never")

    assert 1 == run.end()
    assert "pip cannot fetch what is missing: is there a network?" in said
    assert "Traceback" not in said
