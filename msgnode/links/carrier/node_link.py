"""
A link to a neighbour, over one connection, or for a moment over two.
"""

from typing import TYPE_CHECKING, Protocol

from msgnode.config.federation import Peer
from msgnode.links.carrier import codec
from msgnode.links.carrier.connection import LinkConnection
from msgnode.links.carrier.link import LinkListener
from msgnode.links.carrier.send_queue import SendQueue
from msgnode.links.carrier.wire import TOO_MANY
from msgnode.links.wire.entries import MAX_MESSAGE_BYTES, Data, Digest, Hello, State, Summary
from msgnode.links.wire.node_name import domain_of
from msgnode.structures.log_limits import printable

if TYPE_CHECKING:
    from msgnode.links.carrier.link import Link

MARGIN_BYTES = 16  # of a message around one entry


class LinkOwner(Protocol):
    """
    The link table, as its links see it.
    """

    listener: LinkListener

    def peer(self, domain: str) -> Peer | None: ...
    def misbehaved(self, connection: LinkConnection, cause: str, text: str) -> None: ...


class NodeLink:
    """
    A link to a neighbour; a Link. What is queued stays when another connection takes over.

    `spare` is a second connection to the same node, until it is settled which one stays.
    """

    is_steady = False

    def __init__(self, owner: LinkOwner, connection: LinkConnection, hello: Hello, max_bytes: int) -> None:
        self.node = hello.node
        self.kind = hello.kind
        self.epoch = hello.epoch
        self.features = frozenset(hello.features)
        self.contact = printable(hello.contact)
        self.domain = domain_of(hello.node)
        self.connection = connection
        self.spare: LinkConnection | None = None
        self.queue = SendQueue(max_bytes)
        self.refused = 0  # datagrams, because the link was full
        self.too_large = 0  # entries of the link state that fit in no message
        self._owner = owner
        self._tell_room = False
        self._round_trip: float | None = None
        self._max_entry = min(hello.max_bytes, MAX_MESSAGE_BYTES) - MARGIN_BYTES
        connection.queue = self.queue

    @property
    def cost(self) -> int | None:
        peer = self._owner.peer(self.domain)
        return None if peer is None else peer.cost

    @property
    def transit(self) -> bool:
        peer = self._owner.peer(self.domain)
        return peer is not None and peer.transit

    @property
    def round_trip(self) -> float | None:
        trip = self.connection.pings.round_trip
        return self._round_trip if trip is None else trip

    @property
    def is_up(self) -> bool:
        return self.connection.is_up

    def send(self, datagram: Data) -> bool:
        if not self.is_up:
            return False
        if self.queue.put(datagram.datagram.priority, codec.encode(datagram)):
            self.connection.schedule()
            return True
        self.refused += 1
        self._tell_room = True
        return False

    def send_state(self, entry: State | Digest | Summary) -> None:
        if not self.is_up:
            return
        encoded = codec.encode(entry)
        if len(encoded) > self._max_entry:
            self.too_large += 1
            self._owner.misbehaved(
                self.connection, "summary", f"an entry of {len(encoded)} bytes fits in no message to the node"
            )
        elif self.queue.first_bytes > self.queue.max_bytes:
            self.connection.close(TOO_MANY, "the node does not read", 30.0)
        else:
            self.queue.put_first(encoded)
            self.connection.schedule()

    def close(self, code: int, reason: str, retry_after: float = 0.0) -> None:
        spare, self.spare = self.spare, None
        if spare is not None:
            spare.close(code, reason, retry_after)
        self.connection.close(code, reason, retry_after)

    def use(self, connection: LinkConnection) -> None:
        """
        Send by another connection from now on.
        """
        self._round_trip = self.round_trip
        self.connection.queue = None
        self.connection = connection
        connection.queue = self.queue
        connection.schedule()

    def sent(self) -> None:
        """
        Entries have left the queue.
        """
        if self._tell_room and self.queue.bytes <= self.queue.max_bytes // 2:
            self._tell_room = False
            self._owner.listener.has_room(self)


if TYPE_CHECKING:

    def _is_link(link: NodeLink) -> "Link":
        return link
