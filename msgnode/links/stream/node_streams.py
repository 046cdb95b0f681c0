"""
All streams of this node.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import cast

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.links.overlay.network import Network
from msgnode.links.peer_counts import PeerTable
from msgnode.links.stream.batch import Batch
from msgnode.links.stream.body import MAX_ENVELOPE_BYTES, pack, unpack
from msgnode.links.stream.common import EncryptMode, Placed, StreamLimits, StreamParts
from msgnode.links.stream.peer import Peer
from msgnode.links.stream.safety.node_keys import KeyRing
from msgnode.links.stream.sending import departures
from msgnode.links.stream.sending.entry import Done, EndedEach, Entry
from msgnode.links.stream.sending.rewriting import rewrite
from msgnode.links.stream.sending.send_queue import count_of, mark_of
from msgnode.links.stream.storage.store import StoredPeer, StreamStore
from msgnode.links.stream.streams import (
    ACKNOWLEDGED,
    SEVERAL,
    Envelope,
    IfReplaced,
    NoRoom,
    Outcome,
    StreamListener,
    part_of,
)
from msgnode.links.wire.datagram import Datagram
from msgnode.links.wire.node_name import domain_of, parse
from msgnode.links.wire.stream_header import Epoch
from msgnode.protocol.errors import Rejected
from msgnode.structures.log_limits import FailureLog

MARGIN_BYTES = 8 * 1024  # of several messages, for their envelope

log = Logger()
failures = FailureLog(log)


class NodeStreams:
    """
    All streams of this node, as Streams and as the NetworkListener.

    `next_epoch` gives epochs of this node's instance, each above the one before. `encrypt` says for a node
    whether messages to it are encrypted: never, if the message asks, or always. Nothing is received or sent
    before `start`.
    """

    def __init__(
        self,
        network: Network,
        store: StreamStore,
        own: KeyRing,
        clock: IReactorTime,
        next_epoch: Callable[[], Epoch],
        limits: StreamLimits | None = None,
        compress: bool = True,
        encrypt: Callable[[str], EncryptMode] = lambda node: "asked",
    ) -> None:
        limits = limits or StreamLimits()
        self._parts = parts = StreamParts(network, store, own, clock, limits, compress, encrypt, next_epoch)
        self._batch = batch = Batch(store, clock)
        parts.commit = batch.add
        parts.is_committing = batch.has
        self.counts = parts.counts
        # Raises Rejected if no new message for a node is accepted; the second argument: is it an answer?
        self.admit: Callable[[str, bool], None] = lambda destination, is_answer: None
        self._peers: dict[str, Peer] = {}
        self._last_index = 0
        self._running = False
        self._moved: list[tuple[Placed, int]] = []  # their places once the whole spool is rewritten

    # -- starting and stopping ------------------------------------------------------

    def start(self, listener: StreamListener, stored: Iterable[StoredPeer] = ()) -> None:
        """
        Begin, with what the store has recovered. The inbound journal is delivered first.
        """
        self._parts.listener = listener
        self._running = self._batch.running = True
        recovered = list(stored)
        for found in recovered:
            self._last_index = max(self._last_index, found.index)
            peer = self._peers[found.state.node] = self._make(found.state.node, found.index)
            peer.restore(found)
            if found.state.sending is not None and found.state.sending[0] != self._parts.instance:
                peer.forgotten()  # part of the spool is lost: what it says of numbers is not certain
        for found in recovered:
            self._peers[found.state.node].incoming.deliverer.redeliver(found.inbound, found.last_key)
        for peer in list(self._peers.values()):
            peer.outgoing.retransmission.route_changed()

    def apply(self, limits: StreamLimits, compress: bool) -> None:
        """
        Put other limits into effect. What waits beyond a lower one stays.
        """
        parts = self._parts
        parts.limits = limits
        parts.codec.message_bytes, parts.codec.compress = limits.message_bytes, compress

    def stop(self) -> None:
        self._running = False
        for peer in self._peers.values():
            peer.stop()
        self._batch.stop()

    @property
    def memory_bytes(self) -> int:
        """
        The memory of all messages that are kept here.
        """
        parts = self._parts
        return parts.memory_bytes + parts.pending_bytes + parts.budget.bytes

    @property
    def undelivered_bytes(self) -> int:
        """
        The bytes of all messages that other nodes have not acknowledged, as `spool_bytes` counts them.
        """
        return self._parts.undelivered_bytes

    @property
    def limits(self) -> StreamLimits:
        return self._parts.limits

    @property
    def peer_counts(self) -> PeerTable:
        return self._parts.peer_counts

    @property
    def peers(self) -> dict[str, Peer]:
        return self._peers

    # -- Streams ------------------------------------------------------------------------

    def send(
        self,
        destination: str,
        envelope: Envelope,
        payload: bytes,
        done: Done | None = None,
        sender: str = "",
        if_replaced: IfReplaced = "wait",
        is_answer: bool = False,
    ) -> None:
        """
        Send to a node (Streams.send).
        """
        if envelope.kind == "message":
            self.admit(destination, is_answer)
        limits = self._parts.limits
        if len(payload) > limits.message_bytes:
            raise NoRoom(f"a message has {len(payload)} bytes, a stream takes {limits.message_bytes}")
        self._send(destination, envelope, payload, done, mark_of(sender, if_replaced))

    def send_several(
        self,
        destination: str,
        envelope: Envelope,
        payloads: Sequence[bytes],
        ended: EndedEach,
        sender: str = "",
        if_replaced: IfReplaced = "wait",
    ) -> None:
        """
        Send several messages as one (Streams.send_several).
        """
        self.admit(destination, False)
        mark = mark_of(sender, if_replaced, len(payloads))
        self._send(destination, envelope, pack(payloads), ended, mark)

    def _send(
        self, destination: str, envelope: Envelope, payload: bytes, done: Done | EndedEach | None, mark: int
    ) -> None:
        if not 0 <= envelope.priority <= 9:
            raise ValueError(f"a priority is 0 to 9, not {envelope.priority}")
        parts, limits = self._parts, self._parts.limits
        peer = self._peer(destination)
        if peer is None:
            raise NoRoom(f"streams to {len(self._peers)} nodes are open, which is the limit")
        data = parts.codec.encode(envelope, payload, peer.outgoing.can_decompress, peer.outgoing.estimate)
        if len(data) > len(payload) + MAX_ENVELOPE_BYTES:
            raise NoRoom(f"an envelope has at most {MAX_ENVELOPE_BYTES} bytes")
        seconds = min(envelope.ttl_millis / 1000, limits.max_wait_seconds)
        try:
            peer.outgoing.send(envelope, data, parts.clock.seconds() + seconds, done, mark)
        except NoRoom as why:
            peer.outgoing.count_outcome(why.reason)
            raise
        if not peer.outgoing.opened:
            peer.outgoing.pump()

    def would_take(self, destination: str, sender: str, messages: int, size: int) -> bool:
        """
        Would so many messages be taken now (Streams.would_take)?
        """
        peer = self._peer(destination)
        try:
            self.admit(destination, False)
            if peer is not None:
                peer.outgoing.backlog.bounds.check(
                    size + MAX_ENVELOPE_BYTES, mark_of(sender, "wait", messages)
                )
        except Rejected:
            return False
        return peer is not None

    def begin_epoch(self, destination: str) -> None:
        peer = self._peers.get(destination)
        if peer is not None:
            peer.outgoing.begin_epoch()
            peer.outgoing.pump()

    def undelivered(self, destination: str) -> int:
        peer = self._peers.get(destination)
        return 0 if peer is None else len(peer.outgoing)

    def unacknowledged(self, destination: str) -> Callable[[], bool]:
        """
        A test whether anything that has been sent to the node until now is not acknowledged.
        """
        peer = self._peers.get(destination)
        if peer is None:
            return lambda: False
        backlog = peer.outgoing.backlog
        return partial(backlog.is_unsettled, backlog.last_key)

    def ask(self, destination: str) -> None:
        """
        Ask the node to acknowledge at once what it has.
        """
        peer = self._peers.get(destination)
        if peer is not None and peer.outgoing.opened:
            peer.outgoing.ask()

    def waiting(self) -> Iterator[str]:
        return (node for node, peer in self._peers.items() if len(peer.outgoing))

    def replace(self, destination: str, other: str, done: Callable[[], None] = lambda: None) -> None:
        """
        Replace a node by another one of its domain (Streams.replace).
        """
        peer, heir = self._peers.get(destination), self._peer(other)
        if peer is None or heir is None:
            done()
            return

        def adopted() -> None:
            heir.outgoing.pump()
            done()

        departures.replace(peer.outgoing.backlog, heir.outgoing.adopt, adopted)

    def forget(self, destination: str) -> int:
        peer = self._peers.get(destination)
        return 0 if peer is None else peer.outgoing.forget()

    # -- NetworkListener ------------------------------------------------------------------

    def received(self, datagram: Datagram) -> None:
        """
        A datagram came (NetworkListener.received).
        """
        peer = self._peers.get(datagram.source)
        if peer is None:
            peer = self._stranger(datagram.source)
            if peer is None:
                return
        if self._running:
            peer.received(datagram)

    def route_changed(self, node: str) -> None:
        peer = self._peers.get(node)
        if peer is not None and self._running:
            peer.route_changed()

    def keys_changed(self, node: str) -> None:
        peer = self._peers.get(node)
        if peer is not None and self._running:
            peer.keys_changed()

    def has_room(self) -> None:
        for peer in list(self._peers.values()):
            if len(peer.outgoing):
                peer.outgoing.unblock()

    # -- peers ----------------------------------------------------------------------------

    def _stranger(self, node: str) -> Peer | None:
        """
        A node that nothing was sent to or received from yet; None if its keys are not known.
        """
        if self._parts.network.keys(node) is None:
            self._parts.counts["stranger"] += 1
            return None
        return self._peer(node)

    def _peer(self, node: str) -> Peer | None:
        peer = self._peers.get(node)
        if peer is None:
            parse(node)
            if len(self._peers) >= self._parts.limits.peers and not self._evict():
                self._parts.counts["peers"] += 1
                return None
            self._last_index += 1
            peer = self._peers[node] = self._make(node, self._last_index)
            peer.keys.changed()
            peer.save()  # its name is on disk with the first entry
        return peer

    def _make(self, node: str, index: int) -> Peer:
        return Peer(self._parts, node, index, self._report, self._restarted)

    def _evict(self) -> bool:
        """
        Forget the idle node that was silent longest. If it comes back, it begins another epoch.
        """
        idle = [peer for peer in self._peers.values() if peer.is_idle]
        if not idle:
            return False
        oldest = min(idle, key=lambda peer: peer.heard_at)
        oldest.stop()
        self.peer_counts.of(domain_of(oldest.node)).bytes_saved += oldest.outgoing.estimate.saved
        del self._peers[oldest.node]
        self._batch.remove(oldest)
        self._parts.store.forget(oldest.index)
        return True

    def _report(
        self, node: str, entry: Entry, envelope: Envelope | None, payload: bytes, outcome: Outcome
    ) -> None:
        """
        The outcome of a message: its sender is notified, or after a restart the listener.
        """
        self._parts.counts[outcome.reason] += count_of(entry.mark)
        peer = self._peers.get(node)
        if peer is not None and outcome is not ACKNOWLEDGED:
            peer.outgoing.count_outcome(outcome.reason)
        done, entry.done = entry.done, None
        listener = self._parts.listener
        if envelope is None:
            log.error("a message to {node} ended and cannot be read: {outcome}", node=node, outcome=outcome)
            return
        try:
            if envelope.kind == SEVERAL:
                if outcome is not ACKNOWLEDGED:
                    self._report_each(node, cast(EndedEach | None, done), envelope, payload, outcome)
            elif done is not None:
                cast(Done, done)(envelope, outcome)
            elif entry.recovered and listener is not None:
                listener.ended(node, envelope, payload, outcome)
        except Exception:
            failures.note("the outcome of a message to {node} could not be handled", Failure(), node=node)

    def _report_each(
        self, node: str, ended: EndedEach | None, envelope: Envelope, payload: bytes, outcome: Outcome
    ) -> None:
        """
        The outcome of several messages that were sent as one; after a restart the listener is notified.
        """
        listener = self._parts.listener
        if ended is None and listener is not None:
            ended = partial(listener.ended, node)
        if ended is not None:
            for index, each in enumerate(unpack(payload)):
                ended(part_of(envelope, index), each, outcome)

    def _restarted(self, node: str) -> None:
        listener = self._parts.listener
        assert listener is not None, "streams receive after start"
        try:
            listener.restarted(node)
        except Exception:
            failures.note("the restart of {node} could not be handled", Failure(), node=node)

    # -- compaction of the spool ----------------------------------------------------------------

    def rewrite(self, is_old: Callable[[int], bool]) -> Iterator[None]:
        """
        Append again what is in old segments, some of it in each step (Spooled.rewrite).
        """
        self._moved = []
        for peer in list(self._peers.values()):
            peer.rewrite_state()
            backlog, store = peer.outgoing.backlog, self._parts.store
            yield from rewrite(backlog, store, peer.index, is_old, self._moved)
            yield from peer.incoming.deliverer.rewrite(is_old, self._moved)
            yield

    def move(self) -> None:
        """
        The whole spool was rewritten: the new places count (Spooled.move).
        """
        moved, self._moved = self._moved, []
        for kept, place in moved:
            if kept.place:
                kept.place = place
