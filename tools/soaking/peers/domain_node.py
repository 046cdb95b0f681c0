"""
Nodes of several domains, each with an authority of its own, in processes that may be killed, and a proxy on
each link.
"""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from node_pki.authority import DirectoryAuthority

from soaking.peers.ports import free_port
from soaking.peers.proxy import Proxy
from soaking.peers.twistd_process import TwistdProcess

OPTIONS = ("--config", "node.toml", "--state", "state", "--traffic", "traffic")
DAYS = 7  # of the certificates
COMMON = """
[session]
queue_messages = 50000
[storage]
reserve_bytes = 0
"""


class LinkPlan(NamedTuple):
    """
    A link between two domains by their letters: the first dials. Without a cost it is measured.
    """

    one: str
    other: str
    cost: int | None = None


class DomainNode(TwistdProcess):
    """
    The node of the domain `<letter>.example`, or of another one.
    """

    def __init__(self, directory: Path, letter: str, domain: str = "") -> None:
        self.letter = letter
        self.domain = domain or f"{letter}.example"
        self.node = f"mn://{self.domain}/n1"
        self.ports = {kind: free_port() for kind in ("web", "line", "admin", "link")}
        home = directory / letter
        home.mkdir()
        self.authority = DirectoryAuthority(home / "pki")
        self.cert, self.key = self.authority.issue(self.domain, days=DAYS)
        super().__init__(home, OPTIONS, self.ports["admin"])

    @property
    def web_port(self) -> int:
        return self.ports["web"]

    @property
    def line_port(self) -> int:
        return self.ports["line"]

    def configure(self, peers: Mapping["DomainNode", Sequence[str]], top: str, federation: str) -> None:
        """
        Write the file: `peers` has the lines of each peer's table but its `domain` and `ca`.
        """
        at = {kind: f'"tcp:{port}:interface=127.0.0.1"' for kind, port in self.ports.items()}
        text = [
            f'domain = "{self.domain}"\nnode = "n1"\nweb = [{at["web"]}]\nlines = [{at["line"]}]',
            top,
            f"[admin]\nlisten = {at['admin']}",
            COMMON,
            f'[federation]\nlisten = {at["link"]}\ncert = "{self.cert}"\nkey = "{self.key}"',
            federation,
        ]
        for peer, keys in peers.items():
            text += [f'[[peer]]\ndomain = "{peer.domain}"\nca = "{peer.authority.path}"', *keys]
        (self.directory / "node.toml").write_text("\n".join(text) + "\n")


class Network:
    """
    Domains with links between them, in a directory. All of them know each other and let datagrams through.

    `proxies` has the proxy of each link by the two letters, the dialling one first. `top` and `federation`
    are more lines of the files, by letter; those of `""` are for all. `domains` has the names of domains that
    are not `<letter>.example`.
    """

    def __init__(
        self,
        directory: Path,
        links: Sequence[LinkPlan],
        top: Mapping[str, str] | None = None,
        federation: Mapping[str, str] | None = None,
        domains: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.links = links
        letters = sorted({letter for link in links for letter in link[:2]})
        names = domains or {}
        self.nodes = {letter: DomainNode(directory, letter, names.get(letter, "")) for letter in letters}
        self.proxies = {link.one + link.other: Proxy(self.nodes[link.other].ports["link"]) for link in links}
        self._top, self._federation = top or {}, federation or {}
        for letter in letters:
            self.configure(letter)

    def configure(self, letter: str) -> None:
        """
        Write the file of a node.
        """
        node = self.nodes[letter]
        peers = {other: ['link = "none"'] for other in self.nodes.values() if other is not node}
        for link in self.links:
            if letter in link[:2]:
                other = self.nodes[link.other if letter == link.one else link.one]
                peers[other] = ["transit = true"]
                if link.cost is not None:
                    peers[other].append(f"cost = {link.cost}")
                if letter == link.one:
                    port = self.proxies[link.one + link.other].port
                    peers[other].append(f'url = "wss://127.0.0.1:{port}/link"')
                else:
                    peers[other].append('link = "listen"')
        tops, federations = ((of.get("", ""), of.get(letter, "")) for of in (self._top, self._federation))
        node.configure(peers, "\n".join(tops), "\n".join(federations))

    async def start(self) -> None:
        for proxy in self.proxies.values():
            await proxy.start()
        await asyncio.gather(*(asyncio.to_thread(node.start) for node in self.nodes.values()))

    async def stop(self) -> None:
        for proxy in self.proxies.values():
            proxy.stop()
        await asyncio.gather(*(asyncio.to_thread(node.stop) for node in self.nodes.values()))

    def leave(self, keep: Path | None = None) -> None:
        """
        Stop all nodes, and remove their files; before that, copy them to `keep`.
        """
        for node in self.nodes.values():
            node.stop()
            if keep is not None:
                node.keep(keep)
        shutil.rmtree(self.directory, ignore_errors=True)


def chain(letters: str, cost: int | None = None) -> list[LinkPlan]:
    """
    Links from each domain to the next.
    """
    return [LinkPlan(one, other, cost) for one, other in pairwise(letters)]
