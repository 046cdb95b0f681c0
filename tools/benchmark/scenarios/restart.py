"""
A start with much on disk: how long until the node listens.
"""

import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmark.peers.servers import free_port

MOST = 120.0  # seconds


async def restart(job: dict[str, Any]) -> dict[str, Any]:
    """
    Seconds from the start of the process until it answers, with so many sessions and bindings on disk.
    """
    with tempfile.TemporaryDirectory(prefix="bench-restart-") as where:
        home = Path(where)
        _fill(home / "state", job["sessions"], job["bindings"])
        ports = {kind: free_port() for kind in ("web", "line", "admin")}
        options = {"web": "--web", "line": "--lines", "admin": "--admin"}
        listen = [
            part
            for kind, port in ports.items()
            for part in (options[kind], f"tcp:{port}:interface=127.0.0.1")
        ]
        twistd = str(Path(sys.executable).with_name("twistd"))
        command = [twistd, "-n", "--pidfile=", "msgnode", "--state", "state", "--traffic", "none", *listen]
        begin = time.perf_counter()
        with open(home / "log", "wb") as log:
            node = subprocess.Popen(command, cwd=home, stdout=log, stderr=log)
        try:
            while time.perf_counter() < begin + MOST:
                with (
                    suppress(OSError),
                    urllib.request.urlopen(f"http://127.0.0.1:{ports['admin']}/metrics") as answer,
                ):
                    seconds = time.perf_counter() - begin
                    bound = float(answer.read().decode().partition("\nmsgnode_addresses ")[2].split()[0])
                    return {"figure": seconds, "lost": job["bindings"] - int(bound), "errors": []}
                time.sleep(0.05)
            return {"figure": None, "errors": [(home / "log").read_text()[-500:]]}
        finally:
            node.kill()
            node.wait()


def _fill(state: Path, sessions: int, bindings: int) -> None:
    """
    What a node has on disk that served so many.
    """
    from twisted.internet.task import Clock

    from msgnode.sessions.session import Session
    from msgnode.storage.session_store import Store

    clock = Clock()
    store = Store(state, clock)
    store.open()
    each = bindings // sessions
    for sid in range(1, sessions + 1):
        session = Session(f"runtime://localhost/{sid}", None, sid)  # type: ignore[arg-type]
        session.issue_token()
        store.opened(session)
        for number in range(each):
            store.bound(sid, f"hyperty://localhost/{sid}-{number}", 1)
        if sid % 1000 == 0:
            clock.advance(0)
    clock.advance(0)
    store.shut()
