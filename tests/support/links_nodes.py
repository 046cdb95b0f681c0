"""
Nodes that have links and nothing else: a LinkService with a listener that records, and an authority.
"""

from pathlib import Path
from typing import Any

from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from msgnode.config.loader import check
from msgnode.config.reload import apply_changes
from msgnode.config.schema import Config
from msgnode.links.carrier.service import LinkService
from tests.support.authority import DAY, Authority
from tests.support.links_carrier import RecordingListener

PATIENCE_SECONDS = 60.0  # a node waits as long before it dials again


class LinkNode:
    """
    A node of `domain`, which listens on a port that is free. `authority` signs its certificate.
    """

    def __init__(self, directory: Path, domain: str, name: str = "n1", epoch: int = 1) -> None:
        self.domain = domain
        self.name = f"mn://{domain}/{name}"
        self.directory = directory / f"{domain}-{name}"
        self.directory.mkdir()
        self.authority = Authority(self.directory)
        self.cert = self.authority.issue(f"msg-node.{domain}", until=DAY / 2)
        self.epoch = epoch
        self.peers: list[dict[str, Any]] = []
        self.own: dict[str, Any] = {}
        self.heard = RecordingListener()
        self.listen = "tcp:0:interface=127.0.0.1"
        self._node = name

    def config(self) -> Config:
        own = {"listen": self.listen, "cert": self.cert, **self.own}
        table = {"domain": self.domain, "node": self._node, "federation": own, "peer": self.peers}
        return check(table, "test")

    def trust(self, other: "LinkNode", dial: bool = False, **more: Any) -> None:
        """
        The other is a peer, by its authority.
        """
        peer: dict[str, Any] = {"domain": other.domain, "ca": other.authority.path, **more}
        if dial:
            peer["url"] = other.url
        self.peers = [each for each in self.peers if each["domain"] != other.domain] + [peer]

    def start(self, reactor: Any = global_reactor, **more: Any) -> None:
        self.settings = self.config()
        self.service = LinkService(self.settings, self.heard, self.epoch, reactor, **more)
        self.service.privilegedStartService()
        self.service.startService()
        if self.listen != "":
            self.listen = f"tcp:{self.port}:interface=127.0.0.1"

    @property
    def port(self) -> int:
        return int(self.service.listeners[0].where.rpartition(":")[2])

    @property
    def url(self) -> str:
        return f"wss://127.0.0.1:{self.port}/link"

    @property
    def table(self) -> Any:
        return self.service.table

    def reload(self) -> None:
        """
        As SIGHUP does.
        """
        apply_changes(self.settings, self.config())
        self.service.apply()

    async def stop(self) -> None:
        await self.service.stopService()


async def until(true: Any, reactor: Any = global_reactor) -> None:
    """
    Wait until a condition holds; AssertionError if it does not in time.
    """
    end = reactor.seconds() + PATIENCE_SECONDS
    while not true():
        assert reactor.seconds() < end, "it took too long"
        await turns(0.01)


def turns(seconds: float) -> Deferred[None]:
    return deferLater(global_reactor, seconds, lambda: None)
