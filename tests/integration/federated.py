"""
Real nodes of several domains, each with a certificate authority of its own, linked over loopback.
"""

import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from node_pki.authority import DirectoryAuthority
from soaking.peers.ports import free_port

from .process import NodeProcess

# Seconds. A node waits for up to 60 before it dials again, and before a link that was lost often counts.
PATIENCE = 120


class Domain:
    """
    A domain with one node, whose process may be killed and started again on the same ports.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.directory = directory
        self.port = free_port()  # of links
        self.lines, self.web, self.admin = free_port(), free_port(), free_port()
        self.authority = DirectoryAuthority(directory / name)
        self.cert, self.key = self.authority.issue(name, days=7)
        self.process: NodeProcess | None = None

    def configure(self, peers: Mapping["Domain", Sequence[str]], more: str = "") -> None:
        """
        Write the file. `peers` has the keys of each peer's table: `link = "none"` is reached through others.
        """
        text = [
            f'domain = "{self.name}"',
            'node = "n1"',
            *(
                f'{kind} = ["tcp:{port}:interface=127.0.0.1"]'
                for kind, port in (("web", self.web), ("lines", self.lines))
            ),
            more,
            f'[admin]\nlisten = "tcp:{self.admin}:interface=127.0.0.1"',
            f'[federation]\nlisten = "tcp:{self.port}:interface=127.0.0.1"',
            f'cert = "{self.cert}"\nkey = "{self.key}"',
        ]
        for peer, keys in peers.items():
            text += [f'[[peer]]\ndomain = "{peer.name}"\nca = "{peer.authority.path}"', *keys]
            if 'link = "none"' not in keys:
                text.append(f'url = "wss://127.0.0.1:{peer.port}/link"')
        (self.directory / f"{self.name}.toml").write_text("\n".join(text) + "\n")

    def start(self) -> None:
        base = self.directory / self.name
        self.process = NodeProcess(
            "--config",
            str(self.directory / f"{self.name}.toml"),
            traffic=str(base / "traffic"),
            state=str(base / "state"),
        )
        assert self.process.process.poll() is None, self.process.said

    def kill(self) -> None:
        assert self.process is not None
        self.process.stop(signal.SIGKILL)

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()

    def log(self) -> list[dict[str, Any]]:
        assert self.process is not None
        return self.process.log()


class Domains:
    """
    Domains `a.example`, `b.example` and so on, in a directory that is removed at the end.
    """

    def __init__(self, count: int) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="federation-")
        names = [f"{chr(ord('a') + number)}.example" for number in range(count)]
        self.all = [Domain(Path(self._directory.name), name) for name in names]

    def chain(self) -> None:
        """
        Link each domain with the next; those between let datagrams through, and each end knows the other.
        """
        for at, domain in enumerate(self.all):
            peers: dict[Domain, list[str]] = {}
            for other_at, other in enumerate(self.all):
                if other is not domain:
                    peers[other] = ["transit = true"] if abs(at - other_at) == 1 else ['link = "none"']
            domain.configure(peers)

    def start(self) -> None:
        for domain in self.all:
            domain.start()

    def stop(self) -> None:
        for domain in self.all:
            domain.stop()
        self._directory.cleanup()
