"""
The node that is attacked, in a process of its own that may have only so much memory.
"""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

STARTING, STOPPING = 30.0, 15.0  # seconds it has to listen, and to stop
_LISTENING = re.compile(r"(web|line|admin): listening on \S+:(\d+)")
_COMPLAINT = re.compile(r"Traceback|Unhandled|MemoryError|CRITICAL")
# A device that is known: with `auth = "optional"` the node then looks at identities.
_DEVICES = f"{'0' * 64}  user://localhost/device\n"
_RULE = {"id": "blocked", "target": {}, "condition": {}, "effect": "deny"}
_POLICY = {
    "id": "no-partner",
    "target": {"dstDomain": {"equals": "partner.example"}},
    "ruleCombiningAlgorithm": "blockOverrides",
    "rules": [_RULE],
}
_POLICIES = [
    {"id": "partners", "target": {}, "policyCombiningAlgorithm": "blockOverrides", "policies": [_POLICY]}
]


class Unfit(Exception):
    """
    The node does not start.
    """


class Node:
    """
    `twistd msgnode` of that interpreter's environment, on free ports of 127.0.0.1.

    `space` bounds its address space, in bytes, so that an attack that succeeds
    takes the node and not the machine.
    """

    def __init__(self, python: str, config: str, space: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="attack-"))
        self.ports: dict[str, int] = {}
        (self.directory / "devices").write_text(_DEVICES)
        (self.directory / "policies.json").write_text(json.dumps(_POLICIES))
        (self.directory / "node.toml").write_text(f'node = "attacked"\n{config}')
        self._read = 0
        anywhere = "tcp:0:interface=127.0.0.1"
        twistd = Path(python).with_name("twistd")
        with self._said().open("wb") as said:
            self._process = subprocess.Popen(
                [
                    *(str(twistd), "-n", "--pidfile=", "msgnode", "--config", "node.toml"),
                    *("--state", "state", "--traffic", "traffic"),
                    *("--web", anywhere, "--lines", anywhere, "--admin", anywhere),
                ],
                cwd=self.directory,
                env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (space, space)),
            )
        self._wait_until_it_listens()
        self.forget_peak()

    def _wait_until_it_listens(self) -> None:
        deadline = time.monotonic() + STARTING
        while time.monotonic() < deadline:
            text = self._said().read_text(errors="replace")
            self.ports = {kind: int(port) for kind, port in _LISTENING.findall(text)}
            if len(self.ports) == 3:
                return
            if not self.alive():
                break
            time.sleep(0.02)
        text = self._said().read_text(errors="replace")[-1500:]
        self.leave()
        raise Unfit(text)

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def complaint(self) -> str:
        """
        What the node's own log says since the last call that it should not; "" if it is content.
        """
        text = self._said().read_bytes()
        new, self._read = text[self._read :].decode(errors="replace"), len(text)
        found = _COMPLAINT.search(new)
        return "" if found is None else new[found.start() :].strip()

    def log(self) -> str:
        return self._said().read_text(errors="replace")

    def memory(self) -> int:
        """
        Resident bytes.
        """
        return self._status("VmRSS")

    def peak(self) -> int:
        """
        The most of them since `forget_peak`.
        """
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        with suppress(OSError):  # then it is the most since its start
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def disk(self) -> int:
        """
        Bytes of its state and its traffic log.
        """
        return sum(_size(path) for path in self.directory.rglob("*") if path.is_file())

    def traffic(self) -> bytes:
        """
        The traffic log.
        """
        return b"".join(path.read_bytes() for path in sorted((self.directory / "traffic").glob("*.jsonl")))

    def kept(self) -> int:
        """
        Bytes of the messages that it keeps on disk.
        """
        return sum(_size(path) for path in (self.directory / "state").rglob("*.spool"))

    def leave(self) -> None:
        """
        End it, and remove what it wrote.
        """
        if self.alive():
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(STOPPING)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _said(self) -> Path:
        return self.directory / "said"

    def _status(self, name: str) -> int:
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return 0
        (line,) = [line for line in status.splitlines() if line.startswith(name + ":")] or ["x: 0 kB"]
        return int(line.split()[1]) * 1024


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # it has just gone
