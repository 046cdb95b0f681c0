"""
The parts that all streams of a node share: its limits, its clock, its storage, and the seams on both sides.
"""

from collections import Counter
from collections.abc import Callable
from typing import Literal, Protocol

from msgspec import Struct
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from msgnode.links.overlay.network import Network
from msgnode.links.peer_counts import PeerTable
from msgnode.links.stream.body import BodyCodec
from msgnode.links.stream.pieces import ReceiveBudget
from msgnode.links.stream.safety.encryption import Encryption
from msgnode.links.stream.safety.node_keys import KeyRing
from msgnode.links.stream.storage.store import StreamStore
from msgnode.links.stream.streams import StreamListener
from msgnode.links.wire.datagram import MAX_DATAGRAM_BYTES
from msgnode.links.wire.stream_header import Epoch
from msgnode.structures.recent_keys import RecentKeys

log = Logger()

REMEMBER_SECONDS = 3600.0  # message identifiers
MAX_REMEMBERED = 200_000
ENTRY_BYTES = 1024  # of memory and records that a message takes in addition to its own, about
EncryptMode = Literal["never", "asked", "always"]


class StreamLimits(Struct, frozen=True):
    """
    The limits of the streams of a node.

    `queue_messages` and `queue_bytes` are per destination, `spool_bytes` is for all of them together, with
    ENTRY_BYTES for each message. `memory_bytes` is for all that waits to be sent (above it, what is on disk
    leaves memory), `receive_bytes` for all that is received and cannot be delivered yet. `pending` is how
    many messages of one source may be with the listener.
    """

    queue_messages: int = 100_000
    queue_bytes: int = 256 * 1024 * 1024
    spool_bytes: int = 1024 * 1024 * 1024
    message_bytes: int = 8 * 1024 * 1024
    memory_bytes: int = 64 * 1024 * 1024
    receive_bytes: int = 64 * 1024 * 1024
    pending: int = 1024
    pending_bytes: int = 64 * 1024 * 1024
    peers: int = 4096
    max_wait_seconds: float = 86_400.0
    piece_bytes: int = MAX_DATAGRAM_BYTES


class Committed(Protocol):
    """
    A part that waits for its records to be on disk.
    """

    def written(self) -> None:
        """
        All records up to now are on disk.
        """


class Placed(Protocol):
    """
    An object that has a place in the spool, 0 if it has none.
    """

    place: int


class StreamParts:
    """
    The shared parts. `counts` has how often each thing happened, by a stable word.
    """

    def __init__(
        self,
        network: Network,
        store: StreamStore,
        own: KeyRing,
        clock: IReactorTime,
        limits: StreamLimits,
        compress: bool,
        encrypt: Callable[[str], EncryptMode],
        next_epoch: Callable[[], Epoch],
    ) -> None:
        self.network = network
        self.store = store
        self.own = own
        self.clock = clock
        self.limits = limits
        self.encrypt_mode = encrypt
        self.next_epoch = next_epoch
        self.instance = next_epoch()[0]
        self.counts: Counter[str] = Counter()
        self.peer_counts = PeerTable(())
        self.codec = BodyCodec(limits.message_bytes, compress)
        self.encryption = Encryption(own, clock)
        self.budget = ReceiveBudget(limits.receive_bytes)
        self.recent: RecentKeys[tuple[str, str, bytes, int]] = RecentKeys(
            REMEMBER_SECONDS, MAX_REMEMBERED, clock.seconds
        )
        self.listener: StreamListener | None = None
        self.undelivered_bytes = 0  # of all that waits to be sent, as spool_bytes counts them
        self.memory_bytes = 0  # of what of it is in memory
        self.pending_bytes = 0  # of what is with the listener
        self.commit: Callable[[Committed], None] = lambda part: None
        self.is_committing: Callable[[Committed], bool] = lambda part: False
        self._logged: set[tuple[str, str]] = set()

    def drop(self, peer: str, cause: str) -> None:
        """
        Count something bad that a peer sent, and log it the first time.
        """
        self.counts[cause] += 1
        self.peer_counts.fault(peer, "stream", cause)
        if (peer, cause) not in self._logged and len(self._logged) < self.limits.peers:
            self._logged.add((peer, cause))
            log.warn("{peer} sent a datagram that is dropped: {cause}", peer=peer, cause=cause)
