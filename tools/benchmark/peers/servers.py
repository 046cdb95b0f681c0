"""
The peers as processes: started on free loopback ports in a directory of their own, stopped by their ids.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from benchmark.load.record_bodies import definitions
from benchmark.peers.install import Venvs
from benchmark.peers.processes import family

STARTING = 30.0  # seconds a server has to listen
STOPPING = 8.0  # seconds it has to end before it is killed
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
PR_SET_PDEATHSIG = 1
CONFIG = "bench.toml"  # the node's
# What stands in a scenario's configuration for what only the running server knows.
TLS, DEVICES, RECORDS = "# listen by TLS\n", "# know a device\n", "# know records\n"
DEVICE_TOKEN = "mnd_" + "a" * 43

Ports = dict[str, int]


class Server:
    """
    A running peer: its ports by wire, and the processes it consists of.
    """

    def __init__(
        self, kind: str, venvs: Venvs, config: str = "", policies: str = "", behind: int = 0
    ) -> None:
        self.kind = kind
        self.home = Path(tempfile.mkdtemp(prefix=f"bench-{kind}-"))
        self.ports: Ports = {wire: free_port() for wire in ("websocket", "line", "admin", "tls")}
        self.ports |= {"behind": behind} | dict.fromkeys(("poll", "deflate"), self.ports["websocket"])
        if TLS in config:
            config = config.replace(TLS, _tls_listener(self.home, self.ports["tls"]))
        if DEVICES in config:
            config = config.replace(DEVICES, _device(self.home))
        if RECORDS in config:
            config = config.replace(RECORDS, _records(self.home))
        if policies:
            (self.home / "policy.json").write_text(policies)
            config += f'[policy]\nsource = "{self.home}/policy.json"\n[identity]\ntrust = "claimed"\n'
        command = COMMANDS[kind](venvs, self.home, self.ports)
        if config and kind == "msgnode":
            with open(self.home / CONFIG, "a") as file:
                file.write(config)
        # The node's user data directory must not be the user's.
        environment = os.environ | {"HOME": str(self.home), "XDG_DATA_HOME": str(self.home)}
        with open(self.home / "log", "wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        try:
            self._wait_until_it_listens()
        except BaseException:
            self.stop()
            raise

    def pids(self) -> list[int]:
        return family(self._process.pid)

    def log(self) -> str:
        """
        The end of what it printed.
        """
        return (self.home / "log").read_text(errors="replace")[-2000:]

    def stop(self) -> None:
        """
        End every process of it, and remove its directory.
        """
        pids = self.pids()
        self._process.terminate()
        try:
            self._process.wait(STOPPING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pid in pids[1:]:
            _kill_if_alive(pid)
        shutil.rmtree(self.home, ignore_errors=True)

    def _wait_until_it_listens(self) -> None:
        deadline = time.monotonic() + STARTING
        wanted = [self.ports[wire] for wire in WIRES[self.kind]]
        while not all(_listens(port) for port in wanted):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.kind} did not start:\n{self.log()}")
            time.sleep(0.05)


def _msgnode(venvs: Venvs, home: Path, ports: Ports) -> list[str]:
    config = home / CONFIG
    # Allocation would reach the default within seconds.
    unlimited = ("state_bytes", "state_bytes_per_ip", "state_bytes_per_session", "sessions_per_ip")
    config.write_text(
        "[limits]\nbindings_per_session = 100000000\nnew_sessions_per_minute_per_ip = 0\n"
        + "".join(f"{key} = 0\n" for key in unlimited)
    )
    command = [str(venvs.node / "bin" / "twistd"), "-n", "--pidfile=", "msgnode", "--config", str(config)]
    for option, wire in (("--web", "websocket"), ("--lines", "line"), ("--admin", "admin")):
        command += [option, f"tcp:{ports[wire]}:interface=127.0.0.1"]
    return [*command, "--traffic", str(home / "traffic")]


def _tls_listener(home: Path, port: int) -> str:
    certificate, key = make_certificate(home)
    endpoint = f"ssl:{port}:interface=127.0.0.1:privateKey={key}:certKey={certificate}"
    return f'[[listen]]\nkind = "web"\nendpoint = "{endpoint}"\n'


def _device(home: Path) -> str:
    """
    Configuration with which DEVICE_TOKEN belongs to a device.
    """
    known = sha256(DEVICE_TOKEN.encode()).hexdigest()
    (home / "devices").write_text(f"{known}  device://localhost/bench\n")
    return f'[identity]\nauth = "required"\ndevices = "{home}/devices"\n'


def _records(home: Path) -> str:
    """
    Configuration with which the node knows the records of load/record_bodies.py.
    """
    (home / "definitions").mkdir()
    (home / "definitions" / "bench.records.json").write_text(json.dumps(definitions()))
    return f'[records]\ndir = "{home}/definitions"\n'


def make_certificate(home: Path) -> tuple[Path, Path]:
    """
    A certificate that nobody has signed, and its key.
    """
    certificate, key = home / "certificate.pem", home / "key.pem"
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        ["openssl", "req", *kind, *names, "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    return certificate, key


def _tls_proxy(venvs: Venvs, home: Path, ports: Ports) -> list[str]:
    script = Path(__file__).with_name("tls_proxy.py")
    files = [str(path) for path in make_certificate(home)]
    return [
        str(venvs.node / "bin" / "python"),
        str(script),
        str(ports["websocket"]),
        str(ports["behind"]),
        *files,
    ]


def _nats(venvs: Venvs, home: Path, ports: Ports) -> list[str]:
    config = home / "nats.conf"
    config.write_text(
        f'host: "127.0.0.1"\nport: {ports["line"]}\nping_interval: "1h"\n'
        f'websocket {{ host: "127.0.0.1", port: {ports["websocket"]}, no_tls: true }}\n'
    )
    return [str(venvs.node / "bin" / "nats-server"), "-c", str(config)]


def _crossbar(venvs: Venvs, home: Path, ports: Ports) -> list[str]:
    allowed = {"call": True, "register": True, "publish": True, "subscribe": True}
    everything = {"uri": "", "match": "prefix", "allow": allowed, "cache": True}
    realm = {"name": "realm1", "roles": [{"name": "anonymous", "permissions": [everything]}]}
    endpoint = {"type": "tcp", "interface": "127.0.0.1", "port": ports["websocket"], "backlog": 1024}
    transport = {"type": "websocket", "endpoint": endpoint, "serializers": ["json"]}
    worker = {"type": "router", "realms": [realm], "transports": [transport]}
    (home / "config.json").write_text(json.dumps({"version": 2, "controller": {}, "workers": [worker]}))
    return [str(venvs.crossbar / "bin" / "crossbar"), "start", "--cbdir", str(home), "--loglevel=warn"]


def _registry(venvs: Venvs, home: Path, ports: Ports) -> list[str]:
    where = f"tcp:{ports['line']}:interface=127.0.0.1"
    twistd = [str(venvs.node / "bin" / "twistd"), "-n", "--pidfile=", "msgregistry"]
    return [*twistd, "--domain", where, "--global", "none"]


def _hung_registry(venvs: Venvs, home: Path, ports: Ports) -> list[str]:
    return [*_registry(venvs, home, ports), "--fault", "hang"]


def _npm(venvs: Venvs, home: Path, ports: Ports) -> list[str]:
    script = Path(__file__).with_name("echo_server.js")
    return ["node", str(script), str(venvs.npm / "node_modules" / "socket.io"), str(ports["websocket"])]


COMMANDS: dict[str, Callable[[Venvs, Path, Ports], list[str]]] = {
    "msgnode": _msgnode,
    "nats": _nats,
    "crossbar": _crossbar,
    "registry": _registry,
    "hung registry": _hung_registry,
    "npm": _npm,
    "TLS proxy": _tls_proxy,
}
WIRES = {
    "msgnode": ("websocket", "line"),
    "nats": ("websocket", "line"),
    "crossbar": ("websocket",),
    "registry": ("line",),
    "hung registry": ("line",),
    "npm": ("websocket",),
    "TLS proxy": ("websocket",),
}


def _end_with_parent() -> None:
    """
    In the child: should the bench be killed, the peer is told to end.
    """
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _kill_if_alive(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
