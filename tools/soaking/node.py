"""
The node under test, in a process of its own that may be killed; and the proxy before it.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

STARTING = 30.0  # seconds it has to listen
PATIENCE = 30.0  # and to answer, on a machine with other work
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


class Node:
    """
    `twistd msgnode` with its state on a small disk where one can be mounted.

    `kills` are the times it was killed at; `environment` holds what libfaketime needs.
    """

    def __init__(self, directory: Path, queue: int, at_once: int) -> None:
        self.directory = directory
        self.ports = {kind: free_port() for kind in LISTENERS}
        self.kills: list[float] = []
        self.state = directory / "state"
        self.state.mkdir()
        self.small = _mount(self.state)
        self.clock = directory / "clock"
        self.clock.write_text("+0\n")
        library = next((path for path in FAKETIME if Path(path).exists()), None)
        self.can_change_clock = library is not None
        self._environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        if library is not None:
            self._environment |= {
                "LD_PRELOAD": library,
                "FAKETIME_TIMESTAMP_FILE": str(self.clock),
                "DONT_FAKE_MONOTONIC": "1",
                "FAKETIME_NO_CACHE": "1",
            }
        (directory / "node.toml").write_text(CONFIG.format(queue=queue, at_once=at_once))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        listen = [
            part
            for kind, option in LISTENERS.items()
            for part in (option, f"tcp:{self.ports[kind]}:interface=127.0.0.1")
        ]
        twistd = Path(sys.executable).with_name("twistd")
        with open(self.directory / "node.log", "ab") as log:
            self._process = subprocess.Popen(
                [twistd, "-n", "--pidfile=", "msgnode", *OPTIONS, *listen],
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + STARTING
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"the node ended: {self.log()}")
            with suppress(OSError):
                self.live()
                return
            time.sleep(0.05)
        raise RuntimeError(f"the node does not listen: {self.log()}")

    def live(self) -> dict[str, object]:
        """
        What /live of the admin listener says.
        """
        url = f"http://127.0.0.1:{self.ports['admin']}/live"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
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
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        return self._process.returncode

    def leave(self) -> None:
        self.stop()
        if self.small:
            subprocess.run(["umount", str(self.state)], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)

    def log(self) -> str:
        return (self.directory / "node.log").read_text(errors="replace")[-3000:]

    def memory(self) -> int:
        """
        Resident bytes.
        """
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
        return int(line.split()[1]) * 1024

    def descriptors(self) -> int:
        assert self._process is not None
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

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
        command = [Path(sys.executable).with_name("msgnode"), "state"]
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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Proxy:
    """
    Passes connections on to the node, and can let one go dead: open, and nothing passes any more.
    """

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._pipes: list[Pipe] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    def pipes(self) -> "list[Pipe]":
        self._pipes = [pipe for pipe in self._pipes if not pipe.over]
        return self._pipes

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._pipes.append(Pipe((reader, writer), there))


class Pipe:
    """
    One connection through the proxy.
    """

    def __init__(
        self,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.over = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers = near[1], far[1]
        self._tasks = [
            asyncio.create_task(self._pump(near[0], far[1])),
            asyncio.create_task(self._pump(far[0], near[1])),
        ]

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
            await self._flowing.wait()
        except OSError:
            await self._flowing.wait()
        finally:
            self.cut()

    def freeze(self) -> None:
        """
        Neither side hears of the other any more, and neither is told.
        """
        self._flowing.clear()

    def leave_node(self) -> None:
        """
        The client is told that the connection is gone, the node is not.
        """
        self._writers[0].transport.abort()

    def cut(self) -> None:
        if not self.over:
            self.over = True
            self._flowing.set()
            for writer in self._writers:
                writer.transport.abort()
