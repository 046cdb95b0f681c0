"""
The command `msgnode` in a shell, beside a real node.
"""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.process import PATIENCE, Lines, NodeProcess

MSGNODE = Path(sys.executable).with_name("msgnode")
NEWS = "comm://localhost/chat/changes"
NOBODY = "hyperty://localhost/nobody"


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProcess]:
    process = NodeProcess()
    yield process
    process.stop(signal.SIGKILL)


def environment(node: NodeProcess) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "NO_COLOR")}
    return {**inherited, "MSGNODE_URL": f"ws://127.0.0.1:{node.ports['web']}/ws"}


def msgnode(node: NodeProcess, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """
    Run a verb to its end.
    """
    return subprocess.run(
        [MSGNODE, *arguments],
        env=environment(node),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def wait_for(condition: Callable[[], bool]) -> None:
    """
    Until it holds; a process of its own needs its time.
    """
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


class Listening:
    """
    `msgnode listen`, from the moment it listens.
    """

    def __init__(self, node: NodeProcess, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [MSGNODE, "listen", *arguments],
            env=environment(node),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Else the shell's child may have been told to ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        assert self.process.stderr is not None
        self.said = self.process.stderr.readline()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def stop(self) -> tuple[int, str, str]:
        """
        Ctrl-C; the exit code, and what else was printed.
        """
        self.process.send_signal(signal.SIGINT)
        return self.end()

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


def test_send_and_listen(node: NodeProcess) -> None:
    """
    What is sent appears where it is listened to, and the sender is told so.
    """
    listening = Listening(node, NEWS)

    sent = msgnode(node, "send", NEWS, "hello")
    shown = listening.line()

    assert f"listening to {NEWS}; press Ctrl-C to stop\n" == listening.said
    assert (0, f"the recipient has acknowledged the message: {NEWS}\n", "") == (
        sent.returncode,
        sent.stdout,
        sent.stderr,
    )
    assert shown.endswith(f'-> {NEWS}  {{"value": "hello"}}\n')
    assert (0, "", "") == listening.stop()


def test_listens_to_itself_and_filters(node: NodeProcess) -> None:
    """
    Without an address `listen` hears its own runtime; it shows what was asked for, and stops when it has it.
    """
    me = "runtime://localhost/me"
    listening = Listening(node, "--runtime", me, "--type", "EXECUTE", "--from", "runtime://", "--count", "1")

    msgnode(node, "send", me, "one")
    msgnode(node, "send", me, "two", "--type", "execute", "--from", "hyperty://localhost/x")
    msgnode(node, "send", f"{me}/x", '{"n": 3}', "--type", "execute", "--priority", "8")
    code, out, _ = listening.end()

    assert (0, 1) == (code, out.count("\n"))
    assert f'{me}/x  {{"n": 3}}' in out


def test_with_json_everything_on_stdout_is_json_one_value(node: NodeProcess) -> None:
    """
    With --json everything on stdout is JSON, one value a line, and nothing is on stderr.
    """
    with subprocess.Popen(
        [MSGNODE, "listen", "--json", "--count", "2", "--runtime", "runtime://localhost/j", NEWS],
        env=environment(node),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as listening:
        deliveries: list[Any] = []
        while sum(each["code"] == 200 for each in deliveries) < 2 and len(deliveries) < 50:
            sent = msgnode(node, "send", "--json", NEWS, "-", stdin='{"value": "ü"}')
            deliveries.append(json.loads(sent.stdout))
        out, err = listening.communicate(timeout=PATIENCE)

    assert ["ü", "ü"] == [json.loads(line)["body"]["value"] for line in out.splitlines()]
    assert "" == err
    assert {
        "ok": True,
        "code": 200,
        "description": "the recipient has acknowledged the message",
        "to": NEWS,
        "recipients": 1,
    } == (deliveries[-1])


def test_request_prints_the_answers_body(node: NodeProcess) -> None:
    """
    `request` prints the body of the answer.
    """
    made = msgnode(node, "request", "domain://msg-node.localhost/address-allocation", "--type", "create")

    assert 0 == made.returncode
    assert json.loads(made.stdout)["value"]["allocated"][0].startswith("hyperty://localhost/")


@pytest.mark.parametrize(
    "arguments, code, said",
    [
        (["send", NOBODY, "x"], 1, f"msgnode: no session is bound to this address (no-route): {NOBODY}\n"),
        (
            ["request", "domain://msg-node.localhost/sm", "--type", "subscribe"],
            1,
            "msgnode: 400 name the addresses in a list 'resources'\n",
        ),
        (
            ["find", "user://localhost/ann"],
            1,
            "msgnode: the registry has no entry for user://localhost/ann\n",
        ),
        (
            ["listen", "--runtime", "domain://localhost/x"],
            1,
            "msgnode: the node closed the session: 4403 refused\n",
        ),
        (["send", NOBODY, "{x"], 2, "Error: Invalid value for BODY: looks like JSON, but is not: "),
        (
            ["listen", "--url", "ftp://localhost"],
            2,
            "msgnode: expected a URL such as ws://127.0.0.1:9090/ws",
        ),
        (
            ["listen", "--token", "x"],
            2,
            "msgnode: --token also needs --runtime, the runtimeURL of the session\n",
        ),
        (["listen", "--ca", "/nowhere", "--url", "wss://localhost"], 2, "msgnode: /nowhere: cannot be read"),
        (
            ["listen", "--url", "tcp://127.0.0.1:1"],
            3,
            "msgnode: cannot connect to tcp://127.0.0.1:1: connection refused\n"
            "Is the node running?  'twistd -n msgnode' starts one; --url gives the URL of another.\n",
        ),
        (["request", NOBODY, "--timeout", "0.2"], 4, f"msgnode: no answer from {NOBODY} within 0.2 s\n"),
        (["listen", "--count", "1", "--for", "0.2"], 4, "msgnode: only 0 of 1 messages came within 0.2 s\n"),
    ],
)
def test_what_goes_wrong(node: NodeProcess, arguments: list[str], code: int, said: str) -> None:
    """
    Each failure has its exit code and says what happened, on stderr; or as JSON on stdout, if that was asked.
    """
    plain = msgnode(node, *arguments)
    in_json = msgnode(node, *arguments, "--json")

    assert (code, "") == (plain.returncode, plain.stdout)
    assert said in plain.stderr
    assert code == in_json.returncode
    if not said.startswith("Error"):
        assert json.loads(in_json.stdout)["ok"] is False


def test_colours(node: NodeProcess) -> None:
    """
    Colours are for a terminal, and not there if NO_COLOR is set.
    """
    arguments = [MSGNODE, "send", NOBODY]
    shown = []
    for more in ({}, {"NO_COLOR": "1"}):
        terminal, other = pty.openpty()
        subprocess.run(arguments, env={**environment(node), **more}, stderr=other, timeout=PATIENCE)
        os.close(other)
        shown.append(os.read(terminal, 4096))
        os.close(terminal)

    assert b"\x1b[" in shown[0]
    assert b"\x1b" not in shown[1]
    assert "\x1b" not in msgnode(node, "send", NOBODY).stderr


def test_listen_to_a_pipe_that_closes(node: NodeProcess) -> None:
    """
    `msgnode listen | head -1` ends when head has enough.
    """
    listening = Listening(node, NEWS)
    msgnode(node, "send", NEWS, "one")
    listening.line()
    assert listening.process.stdout is not None and listening.process.stderr is not None
    listening.process.stdout.close()

    msgnode(node, "send", NEWS, "two")

    assert 0 == listening.process.wait(PATIENCE)
    assert "" == listening.process.stderr.read()
    listening.process.stderr.close()


def test_bench_loses_nothing_in_any_pattern(node: NodeProcess) -> None:
    """
    `bench` loses nothing, in any pattern, and says how fast it was.
    """
    url = f"tcp://127.0.0.1:{node.ports['line']}"
    for pattern in ("publish", "request", "fanout"):
        ran = msgnode(
            node,
            *("bench", pattern, "--seconds", "0.3", "--subscribers", "5", "--json", "--url", url),
            *("--admin", f"http://127.0.0.1:{node.ports['admin']}"),
        )
        result = json.loads(ran.stdout)

        assert (0, 0) == (ran.returncode, result["lost"])
        assert result["per_second"] > 100
        assert set(result["delay_ms"]) == {"median", "p99"}
        assert result["data_plane"] in ("native", "python")  # as it is built here, or not
        assert (result["by_flow"] > 0.9) == (result["data_plane"] == "native")


def test_bench_of_a_limit(tmp_path: Path) -> None:
    """
    Requests under a limit measure the limit, also where answers are lost to it; no colours are in the JSON.
    """
    config = tmp_path / "msgnode.toml"
    config.write_text("[limits]\nip_rate_messages = 50\n")
    anywhere = "tcp:0:interface=127.0.0.1"
    node = NodeProcess(
        "--config", str(config), "--web", anywhere, "--lines", anywhere, "--admin", "none", listeners=2
    )
    try:
        ran = msgnode(node, "bench", "request", "--seconds", "3", "--json")
    finally:
        node.stop(signal.SIGKILL)

    result = json.loads(ran.stdout)
    assert (0, 0, False) == (ran.returncode, result["lost"], "\x1b" in json.dumps(result))
    assert 5 < result["per_second"] <= 50
    assert "answers, which it does not report" in result["refused"]


def test_completion(node: NodeProcess) -> None:
    """
    Shells complete verbs and options.
    """
    words = {"COMP_WORDS": "msgnode li", "COMP_CWORD": "1", "_MSGNODE_COMPLETE": "bash_complete"}
    completed = subprocess.run([MSGNODE], env={**os.environ, **words}, capture_output=True, text=True)

    assert "plain,link\nplain,listen\n" == completed.stdout
    for shell in ("bash", "zsh", "fish"):
        assert "_MSGNODE_COMPLETE" in msgnode(node, "completion", shell).stdout


def test_listens_beyond_a_kill(tmp_path: Path) -> None:
    """
    A listener says that it lost the node, connects again by itself, and misses nothing.
    """
    from tests.integration.test_client import again

    node = NodeProcess()
    listening = Listening(node, "--count", "1", NEWS)
    second = again(node, tmp_path)
    device = Lines(second.ports["line"], "runtime://localhost/device")
    device.send({"id": 1, "type": "update", "from": "x", "to": NEWS, "body": {"value": "back"}})

    code, out, err = listening.end()
    device.close()
    second.stop()

    assert (0, "lost the connection to the node; connecting again\nconnected again\n") == (code, err)
    assert '{"value": "back"}' in out


def test_what_is_registered_is_found_by_its_address(node: NodeProcess) -> None:
    """
    What is registered is found by its address and by its user, and found to be gone when that is said.
    """
    lamp, user = "hyperty://localhost/lamp", "user://localhost/ann"

    registered = msgnode(node, "register", lamp, "--user", user, "--resource", "light")
    by_address, by_user = msgnode(node, "find", lamp), msgnode(node, "find", user, "--resource", "light")
    ended = msgnode(node, "register", lamp, "--user", user, "--end")
    gone = msgnode(node, "find", lamp)

    assert (0, f"{lamp} is registered for 3600 s\n") == (registered.returncode, registered.stdout)
    assert "use --keep to stay connected" in registered.stderr
    for found in (by_address, by_user):
        assert f"{lamp}  live\n  user     {user}\n  kinds    light\n" in found.stdout
    assert (0, f"{lamp} is registered as disconnected\n") == (ended.returncode, ended.stdout)
    assert f"{lamp}  disconnected\n" in gone.stdout


def test_no_registry() -> None:
    """
    A node without a registry says so, and what can be done about it.
    """
    node = NodeProcess("--registry", "none")
    try:
        for arguments in (
            ["find", "user://localhost/ann"],
            ["register", "hyperty://localhost/lamp", "--user", "user://localhost/ann"],
        ):
            ran = msgnode(node, *arguments)
            assert (1, "") == (ran.returncode, ran.stdout)
            assert "msgnode: this node has no registry; start it with --registry" in ran.stderr
    finally:
        node.stop(signal.SIGKILL)


@pytest.fixture
def stalled() -> Iterator[tuple[NodeProcess, Lines]]:
    """
    A node, and a device that is bound to NOBODY's address and answers nothing.
    """
    node = NodeProcess()
    device = Lines(node.ports["line"], "runtime://localhost/deaf")
    device.ask(
        {
            "id": 2,
            "type": "subscribe",
            "from": "runtime://localhost/deaf/sm",
            "to": "domain://msg-node.localhost/sm",
            "body": {"resources": [NOBODY]},
        }
    )
    yield node, device
    device.close()
    node.stop(signal.SIGKILL)


@pytest.mark.parametrize(
    "arguments, code",
    [
        (["request", NOBODY, "--timeout", "60"], 130),
        (["listen", NEWS], 0),
        (["register", "hyperty://localhost/lamp", "--user", "user://localhost/ann", "--keep"], 0),
        (["bench", "--seconds", "60"], 130),
        (["listen", NEWS, "--count", "1"], 0),
    ],
)
def test_an_interrupt_ends_each_long_verb(
    stalled: tuple[NodeProcess, Lines], arguments: list[str], code: int
) -> None:
    """
    Ctrl-C ends it within seconds, with its exit code and without a traceback, and the node knows.
    """
    node, device = stalled
    running = subprocess.Popen(
        [MSGNODE, *arguments, "--runtime", "runtime://localhost/interrupted"],
        env=environment(node),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: any(line.get("session") == "runtime://localhost/interrupted" for line in node.log()))
    if arguments[0] == "request":
        assert device.receive()["to"] == NOBODY  # it is under way
    assert running.stderr is not None
    while code == 0 and "Ctrl-C" not in running.stderr.readline():
        pass  # it is not there yet
    running.send_signal(signal.SIGINT)

    _, err = running.communicate(timeout=PATIENCE)

    assert (code, False) == (running.returncode, "Traceback" in err), err
    wait_for(lambda: any(line.get("event") == "closed" for line in node.log()))


@pytest.mark.parametrize(
    "arguments",
    [["listen", NEWS], ["register", "hyperty://localhost/lamp", "--user", "user://localhost/ann", "--keep"]],
)
def test_an_interrupt_before_the_node_answers_is_told_by_the_exit_code(arguments: list[str]) -> None:
    """
    Only what listens, or is registered, ends with 0 at Ctrl-C.
    """
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        running = subprocess.Popen([MSGNODE, *arguments, "--url", url], stderr=subprocess.PIPE, text=True)
        connected, _ = silent.accept()
        connected.recv(1)
        running.send_signal(signal.SIGINT)

        _, err = running.communicate(timeout=PATIENCE)
        connected.close()

    assert (130, "") == (running.returncode, err)


def test_an_interrupt_of_the_first_moment_leaves_no_traceback() -> None:
    """
    Ctrl-C while the command is still being imported ends it with 130.
    """
    running = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "msgnode.cli", "send", NOBODY, "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert running.stderr is not None
    while "twisted.internet.defer" not in running.stderr.readline():
        pass
    running.send_signal(signal.SIGINT)

    _, err = running.communicate(timeout=PATIENCE)

    assert (130, False) == (running.returncode, "Traceback" in err), err


def test_an_interrupted_registration_is_ended_in_the_registry(node: NodeProcess) -> None:
    """
    `register --keep` says goodbye before it leaves.
    """
    lamp = "hyperty://localhost/kept"
    arguments = ["register", lamp, "--user", "user://localhost/kept", "--keep"]
    running = subprocess.Popen(
        [MSGNODE, *arguments],
        env=environment(node),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    while "Ctrl-C" not in running.stderr.readline():
        pass
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=PATIENCE)

    assert f"{lamp}  disconnected\n" in msgnode(node, "find", lamp).stdout


def test_a_second_interrupt_ends_what_waits_for_a_silent_node() -> None:
    """
    A node that has stopped takes no goodbye; Ctrl-C once more ends the command, without a traceback.
    """
    node = NodeProcess()
    try:
        running = subprocess.Popen(
            [MSGNODE, "register", "hyperty://localhost/kept", "--user", "user://localhost/kept", "--keep"],
            env=environment(node),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert running.stderr is not None
        while "Ctrl-C" not in running.stderr.readline():
            pass
        node.process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + PATIENCE
        while running.poll() is None and time.monotonic() < deadline:
            running.send_signal(signal.SIGINT)
            time.sleep(0.2)
        _, err = running.communicate(timeout=PATIENCE)
    finally:
        node.stop(signal.SIGKILL)

    assert (-signal.SIGINT, "") == (running.returncode, err)


@pytest.mark.parametrize(
    "arguments, code", [(["bench", "--seconds", "3"], 130), (["request", NOBODY], 130), (["listen", NEWS], 0)]
)
def test_an_interrupt_does_not_wait_for_a_node_that_hangs(
    stalled: tuple[NodeProcess, Lines], arguments: list[str], code: int
) -> None:
    """
    The goodbye takes two seconds and no more, and what was not finished prints no result.
    """
    node, _ = stalled
    me = "runtime://localhost/waiting"
    running = subprocess.Popen(
        [MSGNODE, *arguments, "--runtime", me],
        env=environment(node),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: any(line.get("session") == me for line in node.log()))
    time.sleep(1)  # until it is at work
    node.process.send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    running.send_signal(signal.SIGINT)

    out, err = running.communicate(timeout=PATIENCE)

    assert (code, "", False) == (running.returncode, out, "Traceback" in err), err
    assert time.monotonic() - begun < 10


def test_tls_to_a_plain_port_is_told_so(node: NodeProcess) -> None:
    """
    Who writes wss:// for ws:// learns what is wrong.
    """
    for url in (f"wss://127.0.0.1:{node.ports['web']}/ws", f"tls://127.0.0.1:{node.ports['line']}"):
        ran = msgnode(node, "send", NEWS, "x", "--url", url)

        assert (3, True) == (
            ran.returncode,
            "Does this port use TLS?  If not, the URL must begin with ws://" in ran.stderr,
        ), ran.stderr


@pytest.mark.parametrize("verb", ["send", "request", "listen"])
@pytest.mark.parametrize("address", ["", "lamp", "//localhost/lamp", "://x", "Hyperty ://x"])
def test_what_is_no_address_is_refused_by_the_command(node: NodeProcess, verb: str, address: str) -> None:
    """
    Before a node is asked, with an example of what is wanted.
    """
    ran = msgnode(node, verb, address)

    assert (2, "") == (ran.returncode, ran.stdout)
    assert f"expected an address such as hyperty://localhost/lamp, not {address!r}" in ran.stderr


def test_link_and_route_speak_to_the_admin_listener_of_a_real_node(node: NodeProcess) -> None:
    """
    A node without federation says what to configure; one that is not there, or another listener, is told.
    """
    at = ("--admin", f"http://127.0.0.1:{node.ports['admin']}", "--state", str(node.state))
    plain = [msgnode(node, *verb, *at) for verb in (("link", "ls"), ("route", "explain", "b.example"))]
    told = msgnode(node, "link", "ban", "b.example", "--reason", "it is a test", *at, "--json")
    web = msgnode(node, "link", "ls", *at[2:], "--admin", f"http://127.0.0.1:{node.ports['web']}")
    away = msgnode(node, "link", "ls", *at[2:], "--admin", "http://127.0.0.1:1")

    for each in plain:
        assert (1, "") == (each.returncode, each.stdout)
        assert each.stderr.startswith("msgnode: this node has no links to other domains; to configure them")
    assert (1, 404) == (told.returncode, json.loads(told.stdout)["code"])
    assert (1, True) == (web.returncode, "is not the admin listener of a node" in web.stderr)
    assert (3, True) == (
        away.returncode,
        "cannot connect to http://127.0.0.1:1: Connection refused" in away.stderr,
    )
