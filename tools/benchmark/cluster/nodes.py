"""
Three nodes of one domain on one nats-server, and a node alone: what is measured, and beside what.
"""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

from soaking.peers.nats_process import NatsProcess
from soaking.peers.ports import free_port
from soaking.peers.twistd_process import TwistdProcess
from soaking.progress import Stall, wait_until

DOMAIN = "a.example"
PATIENCE_SECONDS = 90.0
# So many sessions of one address would reach the defaults.
LIMITS = (
    "connections = 40000\nconnections_per_ip = 40000\nsessions_per_ip = 0\n"
    "new_sessions_per_minute_per_ip = 0\nstate_bytes = 0\nstate_bytes_per_ip = 0\n"
)


class BenchNode(TwistdProcess):
    """
    A node of the domain; alone, if `url` is empty.
    """

    def __init__(self, directory: Path, name: str, url: str = "", native: bool = False) -> None:
        self.name = name
        self.domain = DOMAIN
        self.ports = {kind: free_port() for kind in ("web", "line", "admin")}
        home = directory / name
        home.mkdir()
        at = {kind: f'"tcp:{port}:interface=127.0.0.1"' for kind, port in self.ports.items()}
        (home / "node.toml").write_text(
            f'domain = "{DOMAIN}"\nnode = "{name}"\nweb = [{at["web"]}]\nlines = [{at["line"]}]\n'
            f"[admin]\nlisten = {at['admin']}\n[storage]\nreserve_bytes = 0\n[limits]\n{LIMITS}"
            + (f'[cluster]\nurl = ["{url}"]\n' if url else "")
        )
        environment = os.environ | {"PYTHONUNBUFFERED": "1", "MSGNODE_NATIVE": "1" if native else "0"}
        options = ("--config", "node.toml", "--state", "state", "--traffic", "traffic")
        super().__init__(home, options, self.ports["admin"], environment)

    @property
    def line_port(self) -> int:
        return self.ports["line"]

    def up(self) -> int:
        cluster = self.live()["cluster"]
        assert isinstance(cluster, dict)
        return list(cluster["members"].values()).count("up")


class BenchCluster:
    """
    The nodes `n1`, `n2`, `n3` of a domain, and `alone`, which is of none. With `native` the compiled data
    plane carries what it can.
    """

    def __init__(self, native: bool = False) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="bench-cluster-"))
        self.nats = NatsProcess(self._directory, "nats")
        names = ("n1", "n2", "n3")
        self.nodes = [BenchNode(self._directory, name, self.nats.url, native) for name in names]
        self.alone = BenchNode(self._directory, "alone", native=native)

    async def start(self) -> None:
        self.nats.start()
        await asyncio.gather(*(asyncio.to_thread(node.start) for node in (*self.nodes, self.alone)))
        if not await wait_until(self.is_whole, Stall(lambda: None, PATIENCE_SECONDS)):
            raise RuntimeError("the nodes have not found each other")

    def is_whole(self) -> bool:
        """
        Has each node a link to each other one?
        """
        return all(node.up() == len(self.nodes) - 1 for node in self.nodes)

    def stop(self) -> None:
        for node in (*self.nodes, self.alone):
            node.stop()
        self.nats.kill()
        shutil.rmtree(self._directory, ignore_errors=True)
