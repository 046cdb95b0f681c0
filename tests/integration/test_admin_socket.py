"""
`msgnode admin` over a UNIX socket, and over TLS with a certificate of one's own.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.integration.process import PATIENCE, Lines, NodeProcess
from tests.support.authority import Authority


def admin(node: NodeProcess, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    until = time.monotonic() + PATIENCE
    while not (node.state / "admin-token").exists() and time.monotonic() < until:
        time.sleep(0.05)
    return subprocess.run(
        [Path(sys.executable).with_name("msgnode"), "admin", *words, "--state", node.state],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_admin_listener_may_be_a_unix_socket() -> None:
    """
    There the token of the machine is valid, and a kick is one of the command line.
    """
    node = NodeProcess("--admin", "unix:admin.sock")
    try:
        where = f"unix:{node.directory}/admin.sock"
        done = admin(node, "status", "--admin", where)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("up  ")
        assert admin(node, "undrain", "--reason", "a test", "--admin", where).returncode == 0
        assert "cli     undrain" in admin(node, "audit", "--admin", where).stdout
        missing = admin(node, "status", "--admin", f"{where}x")
        assert (missing.returncode, "No such file" in missing.stderr) == (3, True)
    finally:
        node.process.send_signal(signal.SIGTERM)
        node.process.wait(30)


def test_over_tls_a_context_names_the_certificate(tmp_path: Path) -> None:
    """
    Another certificate is not trusted.
    """
    authority = Authority(tmp_path)
    own = authority.issue("localhost")
    file = tmp_path / "node.toml"
    file.write_text(
        'web = []\nlines = []\n[admin]\nlisten = "none"\n'
        f'[[listen]]\nkind = "admin"\nendpoint = "tcp:0:interface=127.0.0.1"\ncert = "{own}"\n'
    )
    node = NodeProcess("--config", str(file), listeners=1)
    try:
        url = f"https://localhost:{node.ports['admin']}"
        contexts = tmp_path / "msgnode"
        contexts.mkdir()
        (contexts / "contexts.toml").write_text(f'[context.lab]\nadmin = "{url}"\nca = "{authority.path}"\n')
        environment = {"XDG_CONFIG_HOME": str(tmp_path)}
        refused = admin(node, "status", "--admin", url)
        assert (refused.returncode, "certificate" in refused.stderr.lower()) == (3, True), refused.stderr
        done = admin(node, "status", "--context", "lab", **environment)
        assert (done.returncode, done.stderr) == (0, "")
        assert "certificate ends in 24 h" in done.stdout
    finally:
        node.process.send_signal(signal.SIGTERM)
        node.process.wait(30)


def test_each_listener_counts_its_connections() -> None:
    """
    Clients on a line are counted at the listener for lines, and at no other.
    """
    node = NodeProcess()
    clients = [Lines(node.ports["line"], f"runtime://localhost/{number}") for number in range(2)]
    try:
        done = admin(node, "status", "--json", "--admin", f"http://127.0.0.1:{node.ports['admin']}")
        listeners = {each["kind"]: each for each in json.loads(done.stdout)["listeners"]}
        assert {"line": 2, "web": 0, "admin": None} == {
            kind: each["connections"] for kind, each in listeners.items()
        }
        assert str(node.ports["line"]) in listeners["line"]["where"]
    finally:
        for client in clients:
            client.close()
        node.process.send_signal(signal.SIGTERM)
        node.process.wait(30)
