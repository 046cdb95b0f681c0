"""
A node as systemd starts it: with its sockets, its notifications, and its log as JSON.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.process import PATIENCE, Lines


def listening() -> socket.socket:
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    made.listen(10)
    return made


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux")
def test_node_takes_the_sockets_of_systemd(tmp_path: Path) -> None:
    """
    The node listens on the sockets that it is passed, says READY, RELOADING and STOPPING, and logs JSON.

    A client that connected before the node started is served: connections wait in the kernel meanwhile.
    """
    lines, admin = listening(), listening()
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(tmp_path / "notify"))
    notify.settimeout(PATIENCE)
    (tmp_path / "node.toml").write_text(
        f"""
        web = []
        lines = ["systemd:INET:name=lines"]
        state = "{tmp_path}/state"
        traffic = "none"
        [admin]
        listen = "systemd:INET:index=1"
        """
    )
    early = Lines(lines.getsockname()[1])
    early.send({"id": 1, "type": "open", "from": "runtime://localhost/early", "to": "mn:/session"})
    twistd = Path(sys.executable).with_name("twistd")
    # The shell moves the sockets to where systemd puts them, and LISTEN_PID is the pid that it has.
    script = (
        f"exec 3<&{lines.fileno()} 4<&{admin.fileno()}; "
        "LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=lines:admin exec "
        f"{twistd} -n --pidfile= msgnode --config node.toml --log-format json"
    )
    node = subprocess.Popen(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
        pass_fds=[lines.fileno(), admin.fileno()],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert notify.recv(1000).startswith(b"READY=1\nSTATUS=")
        answer = early.receive()
        assert answer is not None and 200 == answer["body"]["code"]
        node.send_signal(signal.SIGHUP)
        assert notify.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        assert notify.recv(1000) == b"READY=1\nSTATUS=1 sessions of localhost"
        (tmp_path / "node.toml").write_text("nonsense = 1")
        node.send_signal(signal.SIGHUP)
        assert notify.recv(1000).startswith(b"RELOADING=1")
        assert b"STATUS=the last reload failed: node.toml: nonsense: unknown key" in notify.recv(1000)
        node.send_signal(signal.SIGTERM)
        assert b"STOPPING=1" in notify.recv(1000)
        out, _ = node.communicate(timeout=PATIENCE)
    finally:
        node.kill()
    events = [json.loads(line) for line in out.splitlines()]
    texts = [event["text"] for event in events]
    assert f"line: listening on 127.0.0.1:{lines.getsockname()[1]} (this machine only)" in " ".join(
        texts
    ) or any(text.startswith(f"line: listening on 127.0.0.1:{lines.getsockname()[1]}") for text in texts)
    assert any(text.startswith("the reload failed, nothing has changed") for text in texts)
