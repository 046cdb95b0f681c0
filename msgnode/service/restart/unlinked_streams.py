"""
Messages for other nodes in the state directory of a node that is started without links.

They are kept, so that a mistake in the configuration loses none: they go on when links are configured again.
Until then each expires at its time, and its sender is notified.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from msgnode.links.admin_states import AdminStates
from msgnode.links.exchange.envelopes import MessageIds
from msgnode.links.exchange.exchange import Exchange
from msgnode.links.operations import Check, LinkName, LinkStatus, NetworkMap, Route
from msgnode.links.operators.node_operations import NodeOperations
from msgnode.links.operators.stream_view import StreamView
from msgnode.links.overlay.network import NodeKeys
from msgnode.links.stream.node_streams import NodeStreams
from msgnode.links.stream.safety.node_keys import KeyRing, PrivateKeys
from msgnode.links.stream.storage import epochs
from msgnode.links.stream.storage.spool_store import SpoolStreamStore, bytes_of
from msgnode.links.stream.streams import Envelope, Outcome
from msgnode.links.wire.datagram import Datagram
from msgnode.node import Node
from msgnode.service.restart.stream_state import epochs_of, name_of, stored_streams, stream_limits
from msgnode.sessions.session_table import TrafficRecorder
from msgnode.storage.spool import Spool

log = Logger()


class NoNetwork:
    """
    The network of a node without links (Network).
    """

    def __init__(self, node: str) -> None:
        self.node = node

    def send(self, datagram: Datagram) -> bool:
        return False

    def keys(self, node: str) -> NodeKeys | None:
        return None

    def has_route(self, node: str) -> bool:
        return False

    def nodes_of(self, domain: str) -> Iterable[str]:
        return ()

    def knows(self, domain: str) -> bool:
        return False

    def avoid_first_hop(self, node: str) -> None:
        """
        Does nothing: there is none.
        """


class NoLinks:
    """
    The operators' view of the links and routes of a node without links.
    """

    def __init__(self, node: str) -> None:
        self._node = node

    def of(self, domain: str) -> tuple[LinkStatus, ...]:
        return ()

    def domains(self) -> Collection[str]:
        return ()

    def domains_with_traffic(self) -> Collection[str]:
        return ()

    def cost(self, domain: str) -> int | None:
        return None

    def map(self) -> NetworkMap:
        return NetworkMap(node=self._node, nodes=(), links=())

    def explain(self, address: str, without: Collection[LinkName], costs: Mapping[LinkName, int]) -> Route:
        text = "this node has no links to other domains"
        return Route(node=self._node, address=address, domain="", kind="unknown", text=text)


class UnlinkedStreams(Service):
    """
    The service that keeps messages for other nodes while there are no links. It takes part in the recovery
    and the compaction of the spool (Spooled).

    It does nothing if none wait. Else operators see them, and may drop them, as at a node with links.
    """

    def __init__(
        self, node: Node, traffic_recorder: TrafficRecorder, spool: Spool, rename: bool, reactor: Any
    ) -> None:
        self._node = node
        self._rename = rename
        self._traffic_recorder = traffic_recorder
        self._spool = spool
        self._reactor = reactor
        self._found: dict[int, Any] = {}
        self._streams: NodeStreams | None = None
        self._exchange: Exchange | None = None

    def recover(self, found: Mapping[int, Any]) -> None:
        """
        Take the records of streams that the spool has, by sid, before the start.
        """
        self._found = dict(found)
        self._node.sessions.journal.bytes_apart = bytes_of(found)

    def startService(self) -> None:
        super().startService()
        if not self._found:
            return
        node, config = self._node, self._node.config
        name = name_of(config)
        next_epoch = epochs_of(config, name, self._spool, self._rename)
        network, store = NoNetwork(name), SpoolStreamStore(node.sessions.journal)
        keys = KeyRing(PrivateKeys.generate(None), self._reactor)
        limits = stream_limits(config)
        streams = self._streams = NodeStreams(network, store, keys, self._reactor, next_epoch, limits)
        epoch = next_epoch()
        ids = MessageIds(epoch[0], epochs.start_of(epoch))
        # It is never started: only what became of messages goes through it, to their senders.
        self._exchange = Exchange(node, streams, network, ids, self._reactor, self._traffic_recorder)
        streams.start(self, stored_streams(store, self._found))
        self._found = {}
        self._let_operators_see(name, streams)
        log.warn(
            "{count} messages wait for other nodes, and no links are configured; they are kept until they "
            "expire, or until 'msgnode link forget DOMAIN'",
            count=sum(map(streams.undelivered, streams.waiting())),
        )

    def _let_operators_see(self, name: str, streams: NodeStreams) -> None:
        none: Any = NoLinks(name)
        states = AdminStates(Path(self._node.config.state))
        check = Check("outgoing", "failed", "no links are configured")
        checks: Callable[..., Deferred[Any]] = lambda domain, found: succeed([check])  # noqa: E731
        self._node.link_operations = NodeOperations(
            tuple,
            states,
            streams,
            none,
            none,
            StreamView(streams),
            checks,
            self._reactor.seconds,
            lambda: None,  # there is no link that changes with an order
        )

    def stopService(self) -> None:
        super().stopService()
        if self._streams is not None:
            self._streams.stop()

    # -- Spooled -------------------------------------------------------------------

    def rewrite(self, is_old: Callable[[int], bool]) -> Iterator[None]:
        if self._streams is not None:
            yield from self._streams.rewrite(is_old)

    def move(self) -> None:
        if self._streams is not None:
            self._streams.move()

    # -- StreamListener --------------------------------------------------------------

    def received(
        self, source: str, envelope: Envelope, payload: bytes, path: Any, done: Callable[[], None]
    ) -> None:
        """
        Leaves a message of the inbound journal there: it is delivered when there are links again.
        """

    def received_several(
        self,
        source: str,
        envelope: Envelope,
        payloads: Iterator[bytes],
        path: Any,
        keep: Callable[[], Callable[[], None]],
    ) -> None:
        """
        Does nothing: no node is heard, and those of several that are in the inbound journal are alone there.
        """

    def ended(self, destination: str, envelope: Envelope, payload: bytes, outcome: Outcome) -> None:
        assert self._exchange is not None
        self._exchange.ended(destination, envelope, payload, outcome)

    def restarted(self, source: str) -> None:
        """
        Does nothing: no node is heard.
        """
