"""
A process of `twistd msgnode` that may be killed and started again on the same ports.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

from soaking.progress import STALLED, Stall

# In which a node that starts gets a second of the processor, also beside a hundred other processes.
START_SECONDS = 300.0


class TwistdProcess:
    """
    A process of `twistd msgnode` in a directory, whose admin listener is on the port `admin`.

    `kills` are the times at which it was killed, `hung` counts how often it did not stop by SIGTERM.
    """

    def __init__(
        self,
        directory: Path,
        options: Sequence[str],
        admin: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.kills: list[float] = []
        self.hung = 0
        self._options = options
        self._admin = admin
        self._environment = environment or os.environ | {"PYTHONUNBUFFERED": "1"}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """
        Start it, and wait until it listens.
        """
        twistd = Path(sys.executable).with_name("twistd")
        with open(self.directory / "node.log", "ab") as log:
            self._process = subprocess.Popen(
                [twistd, "-n", "--pidfile=", "msgnode", *self._options],
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        stall = Stall(self._work_done, START_SECONDS)
        while not stall.over():
            if self._process.poll() is not None:
                raise RuntimeError(f"the node ended: {self.log()}")
            with suppress(OSError, HTTPException):
                self.live()
                return
            time.sleep(0.05)
        raise RuntimeError(f"the node does not listen: {self.log()}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _work_done(self) -> int:
        """
        Whole seconds of processor time, of which an idle node takes next to none.
        """
        with suppress(OSError):
            return int(self.cpu_seconds())
        return 0

    def cpu_seconds(self) -> float:
        """
        Processor time of this life of the process.
        """
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def live(self) -> dict[str, object]:
        """
        The answer of `/live`. OSError or HTTPException if there is none.
        """
        url = f"http://127.0.0.1:{self._admin}/live"
        with urllib.request.urlopen(url, timeout=STALLED) as answer:
            found: dict[str, object] = json.load(answer)
            return found

    def kill(self) -> None:
        """
        kill -9.
        """
        assert self._process is not None
        self.kills.append(time.time())
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """
        SIGTERM, and wait; the exit code.
        """
        assert self._process is not None
        if self._process.poll() is None:
            self._process.terminate()
            stall = Stall(self._work_done)
            while self._process.poll() is None and not stall.over():
                time.sleep(0.05)
            if self._process.poll() is None:
                self.hung += 1
                self._process.kill()
                self._process.wait()
        return self._process.returncode

    def keep(self, where: Path) -> None:
        """
        Copy its files.
        """
        not_files = shutil.ignore_patterns("*.sock", "*.sock.lock", "ballast")
        shutil.copytree(self.directory, where / self.directory.name, ignore=not_files)

    def log(self) -> str:
        return (self.directory / "node.log").read_text(errors="replace")[-3000:]

    def errors(self) -> list[str]:
        """
        The lines of its log about its own failures: those of level critical, and tracebacks.
        """
        lines = (self.directory / "node.log").read_text(errors="replace").splitlines()
        return [line for line in lines if "#critical]" in line or line.startswith("Traceback")]

    def memory(self) -> int:
        """
        Resident bytes.
        """
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
        return int(line.split()[1]) * 1024

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))
