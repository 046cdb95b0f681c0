"""
The node under test, in a process of its own that may be killed.
"""

import os
import random
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

from soaking.peers.ports import free_port
from soaking.peers.twistd_process import TwistdProcess
from soaking.progress import Stall

LISTENERS = {"web": "--web", "line": "--lines", "admin": "--admin"}  # and the options that say where
FAKETIME = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
)

OPTIONS = ("--config", "node.toml", "--state", "state", "--traffic", "traffic")

CONFIG = """
node = "soak"
[session]
queue_messages = {queue}
takeover = "open"
[limits]
message_bytes = 1000000
recipients_at_once = {at_once}
[storage]
reserve_bytes = 0  # the disk is to be filled to its last byte
"""


class Node(TwistdProcess):
    """
    A process of `twistd msgnode`, with its state on a small disk where one can be mounted.
    """

    def __init__(self, directory: Path, queue: int, at_once: int) -> None:
        self.ports = {kind: free_port() for kind in LISTENERS}
        self.state = directory / "state"
        self.state.mkdir()
        self.small = _mount(self.state)
        self.clock = directory / "clock"
        self.clock.write_text("+0\n")
        library = next((path for path in FAKETIME if Path(path).exists()), None)
        self.can_change_clock = library is not None
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        if library is not None:
            environment |= {
                "LD_PRELOAD": library,
                "FAKETIME_TIMESTAMP_FILE": str(self.clock),
                "DONT_FAKE_MONOTONIC": "1",
                "FAKETIME_NO_CACHE": "1",
                # Otherwise a thread that waits for Python's lock with a timeout spins, and takes a core.
                "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            }
        (directory / "node.toml").write_text(CONFIG.format(queue=queue, at_once=at_once))
        listen = [
            part
            for kind, option in LISTENERS.items()
            for part in (option, f"tcp:{self.ports[kind]}:interface=127.0.0.1")
        ]
        super().__init__(directory, [*OPTIONS, *listen], self.ports["admin"], environment)

    def is_degraded(self) -> bool:
        """
        Does /live of the admin listener say that the disk takes nothing?
        """
        stall = Stall(self._work_done)
        while True:
            try:
                return self.live()["status"] == "degraded"
            except (OSError, HTTPException):
                if stall.over():
                    raise RuntimeError(f"the node does not answer: {self.log()}") from None
                time.sleep(0.05)

    def leave(self, keep: Path | None = None) -> None:
        """
        Stop, and remove all files; before that, copy them to `keep`.
        """
        self.stop()
        if keep is not None:
            self.keep(keep)
        if self.small:
            subprocess.run(["umount", str(self.state)], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)

    def set_clock(self, offset: str) -> None:
        """
        `+2d`, `-1d`, `+0`: the wall clock in the node's process.
        """
        self.clock.write_text(f"{offset}\n")

    def fill(self) -> None:
        """
        Leave no room on the small disk.
        """
        with suppress(OSError), open(self.state / "ballast", "ab", buffering=0) as ballast:
            while True:
                ballast.write(b"\0" * 65536)

    def make_room(self) -> None:
        (self.state / "ballast").unlink(missing_ok=True)

    def damage(self, chance: random.Random) -> str:
        """
        Spoil a file of the spool of the node that is stopped; what was done.
        """
        files = sorted((self.state / "spool").glob("*.seg"))
        how = chance.choice(("changed", "cut off", "removed"))
        path = chance.choice(files) if how != "cut off" else files[-1]
        data = bytearray(path.read_bytes())
        if how == "removed":
            path.unlink()
        elif how == "cut off":
            os.truncate(path, chance.randrange(len(data)))
        else:
            data[chance.randrange(len(data))] ^= chance.randint(1, 255)
            path.write_bytes(data)
        return how

    def repair(self) -> bool:
        """
        `msgnode state repair`; was the damage found out before?
        """
        command = [str(Path(sys.executable).with_name("msgnode")), "state"]
        found = subprocess.run([*command, "check", str(self.state)], capture_output=True, check=False)
        subprocess.run([*command, "repair", str(self.state)], capture_output=True, check=True)
        return found.returncode == 1

    def traffic(self) -> list[Path]:
        return sorted((self.directory / "traffic").glob("*.jsonl"))


def _mount(where: Path, megabytes: int = 400) -> bool:
    """
    A small disk at that directory; False if this user may not.
    """
    how = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(where)]
    try:
        return subprocess.run(how, capture_output=True, check=False).returncode == 0
    except OSError:
        return False
