"""
The streams to and from one node: their keys, their datagrams, and what each says about the other.
"""

from collections.abc import Callable, Sequence

from msgnode.links.stream.acknowledging import Acknowledging
from msgnode.links.stream.common import StreamParts
from msgnode.links.stream.receiver import IncomingStream
from msgnode.links.stream.safety.node_keys import PeerKeys
from msgnode.links.stream.sending.entry import Entry
from msgnode.links.stream.sending.sender import OutgoingStream
from msgnode.links.stream.storage.store import PeerState, StoredPeer
from msgnode.links.stream.streams import Envelope, Outcome
from msgnode.links.wire.datagram import HOP_LIMIT, Datagram
from msgnode.links.wire.stream_header import (
    ACKNOWLEDGEMENT,
    ENCRYPTED,
    OPEN,
    OPENED,
    PROBE,
    TOMBSTONE,
    UNKNOWN,
    Acknowledgement,
    Epoch,
    StreamHeader,
    decode,
    encode,
)

CONTROL_PRIORITY = 8


class Peer:
    """
    The streams to and from one node.

    `instance` is the peer's memory as last seen, empty before: another one means that it has forgotten all.
    """

    def __init__(
        self,
        parts: StreamParts,
        node: str,
        index: int,
        report: Callable[[str, Entry, Envelope | None, bytes, Outcome], None],
        restarted: Callable[[str], None],
    ) -> None:
        self.node = node
        self.index = index
        self.heard_at = parts.clock.seconds()
        self.instance = b""
        self.keys = PeerKeys(parts.own, parts.network, node, parts.clock)
        self.outgoing = OutgoingStream(
            parts,
            node,
            index,
            self.keys,
            self,
            lambda *ended: report(node, *ended),
            self.save,
        )
        self.incoming = IncomingStream(parts, node, index)
        self._acknowledging = Acknowledging(parts.clock, self.incoming, lambda: self.emit(ACKNOWLEDGEMENT))
        self.incoming.on_news = self._acknowledging.schedule
        self._parts = parts
        self._restarted = restarted
        self._start = b""  # of the peer, as its keys have it
        self._agreeing: list[Epoch] = []  # OPENED is sent for it once it is on disk
        self._unsaid: tuple[int, Epoch] | None = None  # an answer that the network did not take

    @property
    def is_idle(self) -> bool:
        return not len(self.outgoing) and self.incoming.is_idle

    def stop(self) -> None:
        self.outgoing.stop()
        self.incoming.stop()
        self._acknowledging.stop()

    # -- storage ------------------------------------------------------------------

    @property
    def state(self) -> PeerState:
        out = self.outgoing
        numbers = out.backlog.numbers
        return PeerState(self.node, out.epoch, out.memory, self.incoming.epoch, numbers, self.instance)

    def save(self) -> None:
        """
        The epochs are on disk before anything is sent by them.
        """
        self._parts.store.state(self.index, self.state)
        self._parts.commit(self)

    def rewrite_state(self) -> None:
        """
        Write again the epochs and the counts, whose records may be in a segment that is removed.
        """
        self.save()
        self.incoming.write_counts()

    def restore(self, stored: StoredPeer) -> None:
        self.instance = stored.state.instance
        self.incoming.restore(stored)
        self.outgoing.restore(stored)

    def forgotten(self) -> None:
        """
        This node has another instance than its streams: they begin again.
        """
        self.incoming.epoch = None
        self.outgoing.begin_epoch()

    def written(self) -> None:
        """
        All that was written for this node is on disk.
        """
        agreeing, self._agreeing = self._agreeing, []
        for epoch in agreeing:
            if epoch == self.incoming.epoch:
                self._answer(OPENED, epoch)
        self.incoming.written()
        self.outgoing.written()

    # -- sending --------------------------------------------------------------------

    def keys_changed(self) -> None:
        """
        The advertisement has other keys. Those of another start: the peer may have lost its memory.
        """
        before = self._start
        self.keys.changed()
        if self.keys.public is not None:
            self._start = self.keys.public.start
        self.outgoing.unblock()
        if self._start != before:
            self.outgoing.confirm()

    def emit(
        self,
        kind: int,
        lane: int = 0,
        number: int = 0,
        floor: int = 0,
        piece: int = 0,
        pieces: int = 1,
        ttl_millis: int = 0,
        flags: int = 0,
        payload: bytes = b"",
        following: Sequence[int] = (),
        acknowledgement: Acknowledgement | None = None,
    ) -> bool:
        """
        Send a datagram, with an acknowledgement of what came. False: no key, no route, or no room.
        """
        key, parts, out = self.keys.sending(), self._parts, self.outgoing
        if key is None:
            parts.counts["no-key-yet"] += 1
            return False
        incoming = self.incoming
        carried = incoming.news
        if acknowledgement is None and (carried or kind >= OPENED):
            acknowledgement = incoming.acknowledgement()
        epoch = out.epoch or (parts.instance, 0)
        header = encode(
            StreamHeader(
                kind,
                flags,
                epoch,
                out.memory,
                lane,
                number,
                floor,
                piece,
                pieces,
                ttl_millis,
                acknowledgement,
                list(following),
            )
        )
        priority = lane if kind <= TOMBSTONE else CONTROL_PRIORITY
        nonce = parts.own.next_nonce()
        tag, sealed = key.seal(nonce, priority, header, payload, bool(flags & ENCRYPTED))
        me = parts.network.node
        sent = parts.network.send(
            Datagram(me, self.node, HOP_LIMIT, [], priority, key.id, nonce, tag, header, sealed)
        )
        if sent and carried:
            incoming.news, incoming.urgent = 0, False
        return sent

    # -- receiving --------------------------------------------------------------------

    def received(self, datagram: Datagram) -> None:
        """
        A datagram from this node came, or one that pretends so.
        """
        parts = self._parts
        key = self.keys.receiving(datagram.key)
        if key is None:
            parts.drop(self.node, "key")
            return
        try:
            header = decode(datagram.header)
        except (ValueError, RecursionError):
            parts.drop(self.node, "malformed")
            return
        encrypted = bool(header.flags & ENCRYPTED)
        payload = key.open(
            datagram.nonce, datagram.priority, datagram.header, datagram.payload, datagram.tag, encrypted
        )
        if payload is None:
            parts.drop(self.node, "tag")
            return
        self.heard_at = parts.clock.seconds()
        self._authentic(header, payload, datagram)

    def _authentic(self, header: StreamHeader, payload: bytes, datagram: Datagram) -> None:
        kind = header.kind
        if kind in (OPEN, OPENED, UNKNOWN) and not self.keys.is_current(datagram.key):
            self._parts.counts["old-key"] += 1  # an earlier start of the peer, or a key that was replaced
            return
        if kind == OPEN:
            self._open(header.epoch)
        elif kind == OPENED:
            self._opened(header)
        elif kind == UNKNOWN:
            self._unknown(header)
        elif kind <= TOMBSTONE:
            self._message(header, payload, datagram)
        elif header.flags & PROBE:
            if header.epoch == self.incoming.epoch:
                self.incoming.wanted_now()
            else:
                self._do_not_know(header.epoch)
        if header.acknowledgement is not None and kind not in (OPENED, UNKNOWN):
            self._acknowledged(header.acknowledgement)

    def _acknowledged(self, acknowledgement: Acknowledgement) -> None:
        try:
            self.outgoing.acknowledged(acknowledgement)
        except ValueError:
            self._parts.drop(self.node, "acknowledgement")

    def _message(self, header: StreamHeader, payload: bytes, datagram: Datagram) -> None:
        if header.epoch == self.incoming.epoch and header.memory == self._parts.instance:
            if header.lane == datagram.priority:
                self.incoming.received(header, payload, datagram.key, tuple(datagram.path))
                if header.flags & PROBE:
                    self.incoming.wanted_now()
            else:
                self._parts.drop(self.node, "malformed")
        else:
            self._do_not_know(header.epoch)

    def _do_not_know(self, epoch: Epoch) -> None:
        """
        This node has no memory of that epoch. A peer that has begun another one since ignores this.
        """
        self._parts.counts["unknown-epoch"] += 1
        self._answer(UNKNOWN, epoch)

    def _answer(self, kind: int, epoch: Epoch) -> None:
        """
        Answer about an epoch of the peer, now or when there is a route to it: after a start one of two nodes
        has a route before the other.
        """
        about = Acknowledgement(epoch, 0, 0, []) if kind == UNKNOWN else None
        self._unsaid = None if self.emit(kind, acknowledgement=about) else (kind, epoch)

    def route_changed(self) -> None:
        unsaid, self._unsaid = self._unsaid, None
        if unsaid is not None:
            kind, epoch = unsaid
            if (kind == OPENED) == (epoch == self.incoming.epoch):  # else it has changed since
                self._answer(kind, epoch)
        self.outgoing.retransmission.route_changed()

    def _is_earlier(self, epoch: Epoch) -> bool:
        """
        Is it an epoch before the current one of the same instance?
        """
        current = self.incoming.epoch
        return current is not None and current[0] == epoch[0] and epoch[1] < current[1]

    # -- epochs -----------------------------------------------------------------------

    def _open(self, epoch: Epoch) -> None:
        before = self.incoming.epoch
        if self._is_earlier(epoch):
            self._do_not_know(epoch)
            return
        if epoch != before:
            self.incoming.begin(epoch)
            same_instance = before is not None and before[0] == epoch[0]
            self._seen(epoch[0], again=same_instance)
            self.save()
        elif not self._parts.is_committing(self):
            self._answer(OPENED, epoch)
            return
        self._agreeing = [epoch]

    def _opened(self, header: StreamHeader) -> None:
        about, out = header.acknowledgement, self.outgoing
        if about is None or about.epoch != out.epoch or out.opened:
            return
        self._seen(header.epoch[0])
        out.agreed(header.epoch[0])
        self._acknowledged(about)
        out.pump()

    def _unknown(self, header: StreamHeader) -> None:
        about, out = header.acknowledgement, self.outgoing
        if about is None or about.epoch != out.epoch:
            return
        self._seen(header.epoch[0])
        out.begin_epoch()
        out.pump()

    def _seen(self, instance: bytes, again: bool = False) -> None:
        """
        The peer has that instance now. `again`: it began another epoch, with the same one.
        """
        before, self.instance = self.instance, instance
        if (before and before != instance) or again:
            self._restarted(self.node)
