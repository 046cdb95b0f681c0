"""
Registries in processes of their own, and within the node.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.integration.process import PATIENCE, Lines, NodeProcess
from tests.support.authority import Authority

RUNTIME = "runtime://localhost/device"
HYPERTY = "hyperty://localhost/1"
REGISTRY = "domain://registry.localhost"


class RegistryProcess:
    """
    `twistd -n msgregistry` with only a domain registry, on `port` or one that is free.
    """

    def __init__(self, *options, endpoint="tcp:{port}:interface=127.0.0.1", port=0):
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", port))
            self.port = free.getsockname()[1]
        twistd = Path(sys.executable).with_name("twistd")
        where = ["--domain", endpoint.format(port=self.port), "--global", "none"]
        self.process = subprocess.Popen(
            [twistd, "-n", "--pidfile=", "msgregistry", *where, *options],
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), PATIENCE).close()
                return
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def stop(self):
        self.process.kill()
        self.process.wait(PATIENCE)


@pytest.fixture
def started():
    """
    Processes that are ended after the test.
    """
    processes = []
    yield processes.append
    for process in processes:
        process.stop()


def ask(device, type, **body):
    return device.ask(
        {"id": "r", "type": type, "from": f"{RUNTIME}/registry/", "to": REGISTRY, "body": body}
    )["body"]


def register(device, url=HYPERTY):
    return ask(device, "create", value={"url": url, "user": "ann@example.org", "descriptor": "d"})


def test_newcomer(started):
    """
    A node without options has a registry, and what is registered there survives kill -9.
    """
    node = NodeProcess()
    device = Lines(node.ports["line"], RUNTIME)
    assert register(device) == {"code": 200}
    node.stop(signal.SIGKILL)

    again = NodeProcess(state=str(node.state))
    started(again)
    device = Lines(again.ports["line"], RUNTIME)

    assert ask(device, "read", resource="ann@example.org")["value"].keys() == {HYPERTY}
    sockets = [again.state / name for name in ("registry.sock", "global-registry.sock")]
    assert [path.stat().st_mode & 0o777 for path in sockets] == [0o600, 0o600]
    device.close()
    again.stop()
    assert "for development and small domains" in again.said


def test_locks_that_name_other_processes(started, tmp_path):
    """
    A node starts after kill -9 also if the process ids in locks that an earlier version left belong to other
    processes now: one of its user, and the first process, which in a container is the node itself.
    """
    listen = ("--web", f"unix:{tmp_path}/web.sock", "--registry", "embedded")
    node = NodeProcess(*listen, listeners=4)
    node.read_until("registry: embedded")
    node.stop(signal.SIGKILL)
    left = [node.state / "registry.sock", node.state / "global-registry.sock", tmp_path / "web.sock"]
    assert [True, True, True] == [path.is_socket() for path in left]
    assert [] == [*node.state.glob("*.lock"), *tmp_path.glob("*.lock")]
    for path, pid in zip(left, (os.getpid(), 1, os.getpid()), strict=True):
        path.with_name(f"{path.name}.lock").symlink_to(str(pid))

    again = NodeProcess(*listen, state=str(node.state), listeners=4)
    started(again)
    device = Lines(again.ports["line"], RUNTIME)

    assert register(device) == {"code": 200}
    device.close()


def test_session_ends_after_a_restart(started, tmp_path):
    """
    What a session had registered is disconnected when it ends, also if the node was killed in between.
    """
    config = tmp_path / "msgnode.toml"
    anywhere = "tcp:0:interface=127.0.0.1"
    config.write_text(
        f'web = []\nlines = ["{anywhere}"]\nadmin.listen = "none"\n'
        "[session]\nexpiry_seconds = 1\nunused_expiry_seconds = 1\n"
        "[registry]\ndisconnect_after_seconds = 0\n"
    )
    node = NodeProcess("--config", str(config), listeners=1)
    device = Lines(node.ports["line"], RUNTIME)
    assert register(device) == {"code": 200}
    time.sleep(0.2)  # noted in the background
    node.stop(signal.SIGKILL)

    again = NodeProcess("--config", str(config), state=str(node.state), listeners=1)
    started(again)
    other = Lines(again.ports["line"], "runtime://localhost/other")

    deadline = time.monotonic() + PATIENCE
    while ask(other, "read", resource=HYPERTY)["code"] != 408:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    other.close()


def test_without_state(started, tmp_path):
    """
    A node that keeps nothing has a registry too, in memory, and leaves no file behind.
    """
    node = NodeProcess(state="none", environment={"TMPDIR": str(tmp_path)})
    started(node)
    device = Lines(node.ports["line"], RUNTIME)

    assert register(device) == {"code": 200}
    device.close()
    node.stop()
    assert "registry: embedded, in memory" in node.said
    assert [] == list(tmp_path.iterdir())


def test_long_state_directory(started, tmp_path):
    """
    Nor is the name of the state directory too long for it.
    """
    node = NodeProcess(state=str(tmp_path / ("x" * 100) / "state"))
    started(node)
    device = Lines(node.ports["line"], RUNTIME)

    assert register(device) == {"code": 200}
    device.close()


def test_own_process(started):
    """
    A registry in a process of its own, by its URL; none at all, by its name.
    """
    registry = RegistryProcess()
    started(registry)
    node = NodeProcess("--registry", f"http://127.0.0.1:{registry.port}", "--global-registry", "none")
    started(node)
    device = Lines(node.ports["line"], RUNTIME)

    assert register(device) == {"code": 200}
    with urllib.request.urlopen(f"http://127.0.0.1:{registry.port}/live", timeout=PATIENCE) as page:
        assert b'"Hyperties_stored":"1"' in page.read()
    reply = device.ask(
        {"id": 1, "type": "read", "from": RUNTIME, "to": "global://registry", "body": {"guid": "x"}}
    )
    assert reply["body"]["code"] == 501
    assert not (node.state / "registry.sqlite").exists()
    device.close()


def test_hanging_registry(started):
    """
    A registry that hangs is 504 in the end, and later at once; meanwhile the node carries messages.
    """
    registry = RegistryProcess("--fault", "hang")
    started(registry)
    node = NodeProcess("--registry", f"http://127.0.0.1:{registry.port}")
    started(node)
    device = Lines(node.ports["line"], RUNTIME)
    for number in range(5):
        body = {"resource": HYPERTY}
        device.send({"id": number, "type": "read", "from": f"{RUNTIME}/x", "to": REGISTRY, "body": body})

    device.send({"id": "ping", "type": "ping", "from": RUNTIME, "to": f"{RUNTIME}/x"})
    assert device.receive()["id"] == "ping"
    assert {device.receive()["body"]["code"] for _ in range(5)} == {504}
    before = time.monotonic()
    assert [ask(device, "read", resource=HYPERTY)["code"] for _ in range(10)] == [504] * 10
    assert time.monotonic() - before < 10, "a call that waits for its own time takes seconds"
    device.close()
    node.stop()
    assert "Traceback" not in node.said and "Unhandled" not in node.said


def test_registry_behind_tls_is_believed_by_its_certificate(started, tmp_path):
    """
    A registry behind TLS is believed when our authority signed its certificate for its name.
    """
    authority = Authority(tmp_path)
    own = authority.issue("localhost")
    other = authority.issue("elsewhere.example.org")
    for cert, code in ((own, 200), (other, 504)):
        registry = RegistryProcess(
            endpoint=f"ssl:{{port}}:privateKey={cert}:certKey={cert}:interface=127.0.0.1"
        )
        started(registry)
        config = tmp_path / "msgnode.toml"
        anywhere = "tcp:0:interface=127.0.0.1"
        config.write_text(
            f'web = []\nlines = ["{anywhere}"]\nadmin.listen = "none"\n'
            f'[registry]\nurl = "https://localhost:{registry.port}"\nca = "{authority.path}"\n'
        )
        node = NodeProcess("--config", str(config), listeners=1)
        started(node)
        device = Lines(node.ports["line"], RUNTIME)

        assert register(device)["code"] == code
        device.close()


def test_registry_behind_a_balancer_needs_a_certificate_to_write(started, tmp_path):
    """
    Behind what asks for certificates a node reads without one, and writes with one; else it is told 401.
    """
    authority = Authority(tmp_path)
    own, client = authority.issue("localhost"), authority.issue("node")
    registry = RegistryProcess("--cert", own, "--client-ca", authority.path)
    started(registry)
    answers = []
    for cert in (f'cert = "{client}"\n', ""):
        config = tmp_path / "msgnode.toml"
        config.write_text(
            'web = []\nlines = ["tcp:0:interface=127.0.0.1"]\nadmin.listen = "none"\n'
            f'[registry]\nurl = "https://localhost:{registry.port}"\nca = "{authority.path}"\n{cert}'
        )
        node = NodeProcess("--config", str(config), listeners=1)
        started(node)
        device = Lines(node.ports["line"], RUNTIME)
        found = [register(device)["code"], ask(device, "read", resource=HYPERTY)["code"]]
        answers.append(found)
        device.close()

    assert [[200, 200], [401, 200]] == answers
