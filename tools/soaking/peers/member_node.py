"""
The nodes of one domain in processes that may be killed or stopped, each with proxies before it and before its
NATS, and a balancer for the clients.
"""

import asyncio
import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from soaking.load.transports import Link, any_link
from soaking.peers.nats_process import NatsPair
from soaking.peers.ports import free_port
from soaking.peers.proxy import Proxy
from soaking.peers.twistd_process import TwistdProcess

DOMAIN = "a.example"
OPTIONS = ("--config", "node.toml", "--state", "state", "--traffic", "traffic")
QUEUE_MESSAGES = 50_000


class MemberNode(TwistdProcess):
    """
    The node `name`. Its clients reach it by the proxies `web` and `lines`, and it reaches the NATS servers by
    the proxies `nats`.
    """

    def __init__(self, directory: Path, name: str, servers: Sequence[int]) -> None:
        self.name = name
        self.ports = {kind: free_port() for kind in ("web", "line", "admin")}
        self.web, self.lines = Proxy(self.ports["web"]), Proxy(self.ports["line"])
        self.nats = [Proxy(port) for port in servers]
        self.outages: list[tuple[float, float]] = []  # from when, and until when, it did not run
        self._ended = 0.0
        home = directory / name
        home.mkdir()
        super().__init__(home, OPTIONS, self.ports["admin"])

    @property
    def proxies(self) -> list[Proxy]:
        return [self.web, self.lines, *self.nats]

    def configure(self, more: str = "") -> None:
        """
        Write its file; `more` is the end of its section `cluster`.
        """
        at = {kind: f'"tcp:{port}:interface=127.0.0.1"' for kind, port in self.ports.items()}
        urls = ", ".join(f'"nats://127.0.0.1:{proxy.port}"' for proxy in self.nats)
        (self.directory / "node.toml").write_text(
            f'domain = "{DOMAIN}"\nnode = "{self.name}"\nweb = [{at["web"]}]\nlines = [{at["line"]}]\n'
            f"[admin]\nlisten = {at['admin']}\n[session]\nqueue_messages = {QUEUE_MESSAGES}\n"
            f"[storage]\nreserve_bytes = 0\n[cluster]\nurl = [{urls}]\n{more}\n"
        )

    def kill(self) -> None:
        super().kill()
        self._ended = time.time()

    def start_again(self) -> None:
        """
        Start it after a kill; until then what it holds waits.
        """
        self.start()
        self.outages.append((self._ended, time.time()))

    def restart(self) -> None:
        """
        SIGTERM, and its next start.
        """
        self.stop()
        self.start()

    def end(self) -> None:
        """
        Stop it, even if it stands still.
        """
        if self._process is not None and self._process.poll() is None:
            self.thaw()
            self.stop()

    def freeze(self) -> None:
        """
        SIGSTOP; it stands still when this returns.
        """
        self._ended = time.time()
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self.outages.append((self._ended, time.time()))

    def sessions(self) -> set[str]:
        """
        The runtimeURLs of the sessions that it holds, by its state directory.
        """
        file = (self.directory / "state" / "state.sqlite").as_uri() + "?mode=ro"
        with closing(sqlite3.connect(file, uri=True)) as database:
            return {runtime for (runtime,) in database.execute("SELECT runtime FROM session")}

    def up(self) -> int:
        """
        How many other members it has a link to.
        """
        cluster = self.live()["cluster"]
        assert isinstance(cluster, dict)
        return list(cluster["members"].values()).count("up")


class Balancer:
    """
    A stand-in for a TCP balancer: each connection goes to any node that is healthy. With `sticky` a client
    stays at one node, as with a balancer that goes by the client's address.
    """

    def __init__(self, nodes: Sequence[MemberNode], chance: random.Random, sticky: bool) -> None:
        self._nodes = nodes
        self._chance = chance
        self._sticky = sticky
        self._away: set[str] = set()

    def link(self, number: int) -> Link:
        """
        The next connection of the client of that number.
        """
        healthy = [node for node in self._nodes if node.name not in self._away]
        if self._sticky:
            node = self._nodes[number % len(self._nodes)]
        elif healthy:
            node = self._chance.choice(healthy)
        else:
            node = self._chance.choice(list(self._nodes))
        link = any_link(self._chance, node.web.port, node.lines.port)
        link.node = node.name
        return link

    def take_out(self, node: MemberNode) -> None:
        """
        The node is not healthy: its connections end, and it gets no others.
        """
        self._away.add(node.name)
        node.web.close_way()
        node.lines.close_way()

    def bring_back(self, node: MemberNode) -> None:
        self._away.discard(node.name)
        node.web.open_way()
        node.lines.open_way()


class ClusterNetwork:
    """
    Nodes `n1`, `n2` and so on of one domain, and two nats-servers, in a directory.
    """

    def __init__(self, directory: Path, count: int) -> None:
        self.directory = directory
        self.nats = NatsPair(directory)
        ports = [server.client for server in self.nats.servers]
        # Every other node prefers the second server.
        self.nodes = [
            MemberNode(directory, f"n{number}", ports if number % 2 else ports[::-1])
            for number in range(1, count + 1)
        ]
        for node in self.nodes:
            node.configure()

    async def start(self) -> None:
        await self.nats.start()
        for node in self.nodes:
            for proxy in node.proxies:
                await proxy.start()
        await asyncio.gather(*(asyncio.to_thread(node.start) for node in self.nodes))

    async def stop(self) -> None:
        for node in self.nodes:
            for proxy in node.proxies:
                proxy.open_way()
        await asyncio.gather(*(asyncio.to_thread(node.stop) for node in self.nodes))
        self.nats.stop()
        for node in self.nodes:
            for proxy in node.proxies:
                proxy.stop()

    def leave(self, keep: Path | None = None) -> None:
        """
        Stop all, and remove the files; before that, copy them to `keep`.
        """
        for node in self.nodes:
            node.end()
            if keep is not None:
                node.keep(keep)
        self.nats.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
