"""
The service of all links of a node: its listeners for other nodes, and a dialler for each peer.
"""

import random
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from twisted.application.internet import TimerService
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory

from msgnode import __version__
from msgnode.config.federation import NODE_PORT, Peer
from msgnode.config.schema import Config, ConfigError
from msgnode.links.carrier.connection import LinkConnection
from msgnode.links.carrier.dialer import Dialer
from msgnode.links.carrier.link import SERVER, LinkListener
from msgnode.links.carrier.link_table import DialListener, LinkTable
from msgnode.links.carrier.service_records import ServiceEndpoint
from msgnode.links.carrier.websocket import ServerFactory
from msgnode.links.carrier.wire import CLOSE_SECONDS
from msgnode.links.trust.anchors import trust_anchors
from msgnode.links.trust.certificates import DomainTrust
from msgnode.links.trust.credentials import Credentials, LinkTLS
from msgnode.links.trust.file_watch import FileWatch
from msgnode.links.wire.entries import MAX_MESSAGE_BYTES, PATH, Hello
from msgnode.links.wire.node_name import NodeName, domain_of
from msgnode.transport.endpoints import QuietEndpoint
from msgnode.transport.listener import Listener

WATCH_SECONDS = 10.0  # between two looks at the files of certificates
STOPPING_RETRY_SECONDS = 5.0
MAX_OPEN_DIALS = 1000  # domains that are dialled without being configured
log = Logger()


class LinkService(MultiService, DialListener):
    """
    The links of this node. ConfigError if a file or a listener of the configuration is unusable.

    `epoch` is the node's start counter. `trust_changed` is called after each reload, for those who remember
    what `anchors` said. `credentials` gives those of this node, if the configuration does not. A reload
    follows SIGHUP, after `config` has changed, and the renewal of a file of certificates; a ConfigError
    leaves all as it was.
    """

    def __init__(
        self,
        config: Config,
        listener: LinkListener,
        epoch: int,
        reactor: Any,
        chance: random.Random | None = None,
        wall: Callable[[], float] = time.time,
        credentials: Callable[[], Credentials] | None = None,
    ) -> None:
        super().__init__()
        self._read_credentials = credentials or (lambda: Credentials(config, wall))
        self._config = config
        self._reactor = reactor
        self._chance = chance or random.Random()
        self._wall = wall
        self.credentials, self.anchors = self._read()  # the anchors are for advertisements, too
        self.trust_changed: Callable[[], None] = lambda: None
        self._watch = FileWatch()
        self._watch.has_changed(self._files())
        self._lists_end = self.anchors.lists_end
        own = Hello(
            str(NodeName(config.domain, config.node)),
            SERVER,
            __version__,
            epoch,
            [],
            config.federation.contact,
            MAX_MESSAGE_BYTES,
        )
        self.table = LinkTable(config, own, self.anchors, listener, reactor, self._chance, wall)
        self.table.dials = self
        self._tls = LinkTLS(lambda: self.credentials)
        looking = TimerService(WATCH_SECONDS, self.look_at_files)
        looking.clock = reactor
        looking.setServiceParent(self)
        self.listeners = [self._listening(listen) for listen in config.node_listeners()]
        self.dialers: dict[str, Dialer] = {}

    def startService(self) -> None:
        for mistake in self.credentials.mistakes():
            log.warn("peers will refuse this node's certificate: {why}", why=mistake)
        super().startService()
        self._dial_peers()

    def stopService(self) -> Deferred[Any]:
        """
        Refuse and end all links, and wait until the connections are closed.
        """
        self.table.close_all("the node is stopping", STOPPING_RETRY_SECONDS)
        stopped: Deferred[Any] = super().stopService()
        return DeferredList([stopped, self._closed()])

    def _closed(self) -> Deferred[None]:
        closed: Deferred[None] = Deferred()
        end = self._reactor.seconds() + CLOSE_SECONDS + 1.0

        def look() -> None:
            if not self.table.connections or self._reactor.seconds() >= end:
                closed.callback(None)
            else:
                self._reactor.callLater(0.05, look)

        look()
        return closed

    # -- reload --------------------------------------------------------------------

    def read(self) -> tuple[Credentials, DomainTrust]:
        """
        Load the files of the configuration again; with `use`, a Renewable. ConfigError if one is unusable.
        """
        return self._read()

    def use(self, read: tuple[Credentials, DomainTrust]) -> tuple[Credentials, DomainTrust]:
        before = (self.credentials, self.anchors.copy())
        self.credentials = read[0]
        self.anchors.use(read[1])
        return before

    def apply(self) -> None:
        """
        Put the changed configuration into effect: certificates, trust, and peers added and removed.
        """
        self.use(self._read())
        self._watch.follow(self._files())
        self._lists_end = self.anchors.lists_end
        self.table.review()
        self.trust_changed()
        if self.running:
            self._dial_peers()

    def look_at_files(self) -> None:
        """
        Take renewed certificates, keys, authorities and revocation lists into use.
        """
        if self._watch.has_changed(self._files()):
            try:
                self.apply()
            except ConfigError as why:
                log.error("the renewed certificates are not used: {why}", why=str(why))
            else:
                log.info("the certificates, or revocation lists, of links were renewed and are in use")
        elif self._lists_end <= self._wall():
            self._lists_end = float("inf")
            log.error(
                "a revocation list has ended: certificates of its authority are refused until it is renewed"
            )
            self.anchors.forget()
            self.table.review()
            self.trust_changed()

    def _files(self) -> tuple[str, ...]:
        return *self.credentials.files, *self.anchors.files

    def orders_changed(self) -> None:
        """
        Put the orders of operators into effect: links and diallers end, or begin again.
        """
        self.table.review()
        if self.running:
            self._dial_peers()

    def _read(self) -> tuple[Credentials, DomainTrust]:
        return self._read_credentials(), trust_anchors(self._config, self._wall)

    # -- dialling ------------------------------------------------------------------

    def dial(self, domain: str) -> None:
        """
        Dial a domain that is not configured, with `accept = "open"`.
        """
        is_open = self._config.federation.accept == "open" and self.table.peer(domain) is None
        if is_open and domain != self._config.domain and len(self.dialers) < MAX_OPEN_DIALS:
            self._dial(Peer(domain=domain))

    def _dial_peers(self) -> None:
        peers = {peer.domain: peer for peer in self._config.peer if peer.is_dialled}
        accept = self._config.federation.accept
        for domain, dialer in list(self.dialers.items()):
            configured = self.table.peer(domain)
            stays = accept == "open" if configured is None else configured.is_dialled and accept != "none"
            stays = stays and not self.table.admission.order(domain)
            if not stays or dialer.url != link_url(configured or Peer(domain=domain)):
                del self.dialers[domain]
                dialer.disownServiceParent()
            else:
                dialer.go_on()
        for peer in peers.values() if accept != "none" else ():
            self._dial(peer)

    def _dial(self, peer: Peer) -> None:
        if peer.domain in self.dialers or self.table.admission.order(peer.domain):
            return
        url = link_url(peer)
        endpoint = QuietEndpoint(
            self._endpoint(peer, url),
            LinkTLS(lambda: self.credentials, f"msg-node.{peer.domain}"),
            self._reactor,
        )
        dialer = Dialer(peer.domain, url, self.table, endpoint, self._reactor, self._chance)
        self.dialers[peer.domain] = dialer
        dialer.setServiceParent(self)

    def _endpoint(self, peer: Peer, url: str) -> IStreamClientEndpoint:
        parts = urlsplit(url)
        assert parts.hostname is not None
        port = parts.port or (NODE_PORT if not peer.url else 443)
        if peer.url:
            return HostnameEndpoint(self._reactor, parts.hostname, port)
        return ServiceEndpoint(
            f"_msgnode._tcp.{peer.domain}", (parts.hostname, port), self._reactor, self._chance
        )

    def _listening(self, listen: Any) -> Listener:
        tls = TLSMemoryBIOFactory(self._tls, False, ServerFactory(self.table, self._reactor), self._reactor)
        tls.noisy = False
        made = Listener(listen, tls, self._reactor)
        made.setServiceParent(self)
        return made

    # -- DialListener ----------------------------------------------------------------

    def up(self, connection: LinkConnection) -> None:
        dialer = self.dialers.get(domain_of(connection.node))
        if dialer is None:
            return
        if connection.dialled:
            dialer.up(connection)
        elif dialer.node == connection.node:
            if dialer.is_waiting:
                dialer.rest()
        else:
            dialer.wake()

    def ended(self, connection: LinkConnection, is_linked: bool) -> None:
        dialer = self.dialers.get(connection.dialled)
        if dialer is not None:
            dialer.ended(connection, is_linked)

    def down(self, node: str) -> None:
        dialer = self.dialers.get(domain_of(node))
        if dialer is not None and dialer.node == node:
            dialer.go_on()


def link_url(peer: Peer) -> str:
    """
    The URL to dial; its path is /link if there is none.
    """
    url = peer.url or f"wss://msg-node.{peer.domain}:{NODE_PORT}"
    return url if urlsplit(url).path not in ("", "/") else url.rstrip("/") + PATH


def make_link_service(config: Config, listener: LinkListener, epoch: int, reactor: Any) -> LinkService | None:
    """
    The links of the configuration; None if it has no listener for nodes and no peers. ConfigError if a file
    or a listener is unusable.
    """
    if not config.node_listeners() and not config.peer:
        return None
    return LinkService(config, listener, epoch, reactor)
