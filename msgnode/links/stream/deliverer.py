"""
Delivery of what a stream brings to the listener, and the inbound journal of what the listener is not done
with.

A message that the listener is done with at once is on disk by the listener's own records. Any other one
goes to the inbound journal, and is delivered again after a restart.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.links.stream.body import Malformed, unpack
from msgnode.links.stream.common import Placed, StreamParts
from msgnode.links.stream.safety.encryption import NotReadable
from msgnode.links.stream.storage.store import StoredEntry
from msgnode.links.stream.streams import SEVERAL, Envelope, part_of
from msgnode.links.wire.node_name import domain_of
from msgnode.links.wire.stream_header import WRAPPED
from msgnode.structures.log_limits import FailureLog

log = Logger()
failures = FailureLog(log)

TURN_MESSAGES = 256  # rewritten in one turn of the event loop

Path = tuple[tuple[str, int], ...]


class Delivery:
    """
    One message that the listener has. The listener calls it when this node need not remember it any more.
    """

    __slots__ = ("_finish", "count", "data", "done", "key", "lane", "place", "size", "stored", "until")

    def __init__(self, finish: Callable[["Delivery"], None], lane: int, size: int, until: float) -> None:
        self._finish = finish
        self.lane = lane
        self.size = size
        self.until = until
        self.key = 0  # in the inbound journal; 0: it is not there
        self.place = self.stored = 0  # there, and how many bytes
        self.data: bytes | None = None  # until they are on disk
        self.count: Callable[[], None] | None = None  # takes it into the stream's count, once
        self.done = False

    def __call__(self) -> None:
        if not self.done:
            self.done = True
            self._finish(self)


class Several:
    """
    Several messages that came as one, while the listener has them. They are counted as one.

    If the batch is written before the listener is done with all of them, the others go to the inbound journal
    in that batch, and with them the count: after a kill only they come again.
    """

    def __init__(
        self,
        envelope: Envelope,
        payloads: Sequence[bytes],
        keep: Callable[[Envelope, bytes], Delivery],
        count: Callable[[], None],
    ) -> None:
        self._envelope = envelope
        self._payloads = payloads
        self._keep = keep
        self._count: Callable[[], None] | None = count
        self._at = -1  # the message that the listener has
        self._kept: dict[int, Delivery] = {}  # those in the inbound journal

    def __iter__(self) -> Iterator[bytes]:
        for at, payload in enumerate(self._payloads):
            self._at = at
            yield payload
            if self._kept and (before := self._kept.pop(at, None)) is not None:
                before()
        self._at = len(self._payloads)  # the listener is done with the last one, too

    def keep(self) -> Callable[[], None]:
        """
        The `done` of the message that the listener has, which it is not done with in this turn.
        """
        return self._kept.pop(self._at, None) or self._keep_one(self._at)

    def _keep_one(self, index: int) -> Delivery:
        return self._keep(part_of(self._envelope, index), self._payloads[index])

    def write_state(self) -> None:
        """
        The batch is written now.
        """
        count, self._count = self._count, None
        if count is not None:
            for index in range(max(0, self._at), len(self._payloads)):
                self._kept[index] = self._keep_one(index)
            count()

    def end(self) -> None:
        """
        The listener has returned.
        """
        count, self._count = self._count, None
        if count is not None:
            count()
        kept, self._kept = self._kept, {}
        for delivery in kept.values():
            delivery()


class Deliverer:
    """
    The deliverer of the messages of one source.

    `pending` are those that the listener is not done with; `has_room` while there may be more of them.
    """

    def __init__(self, parts: StreamParts, source: str, index: int, on_done: Callable[[], None]) -> None:
        self.pending: dict[Delivery, None] = {}
        self.commit: Callable[[], None] = lambda: None
        self._parts = parts
        self._source = source
        self._domain = domain_of(source)  # each domain has message ids of its own
        self._index = index
        self._on_done = on_done
        self._last_key = 0
        self._fresh: list[Delivery] = []  # whose bytes are in memory

    @property
    def has_room(self) -> bool:
        parts = self._parts
        return len(self.pending) < parts.limits.pending and parts.pending_bytes < parts.limits.pending_bytes

    @property
    def room(self) -> int:
        """
        The number of messages that there is room for.
        """
        return self._parts.limits.pending - len(self.pending) if self.has_room else 0

    def deliver(
        self,
        lane: int,
        data: bytes,
        flags: int,
        ttl: float,
        path: Path,
        count: Callable[[], None],
        refuse: Callable[[], None],
    ) -> None:
        """
        Deliver a message, unless it was known. One that cannot be read is dropped; `refuse` lets its source
        know.

        `count` takes it into the stream's count: as soon as the listener is done with it, so that a batch
        that the listener then writes has both; else when it is in the inbound journal.
        """
        parts = self._parts
        try:
            if flags & WRAPPED:
                data = parts.encryption.unwrap(self._source, data)
            envelope, payload = parts.codec.decode(data)
        except Malformed:
            parts.drop(self._source, "malformed")
            refuse()
            return
        except NotReadable as why:
            parts.drop(self._source, why.cause)
            refuse()
            return
        if not parts.recent.add((self._domain, envelope.kind, *envelope.id)):
            parts.counts["known-id"] += 1
            count()
            return
        if envelope.kind == SEVERAL:
            self._deliver_several(lane, envelope, payload, ttl, path, count, refuse)
            return
        delivery = Delivery(self._finished, lane, len(payload), parts.clock.seconds() + ttl)
        delivery.count = count
        self._hand_over(envelope, payload, ttl, path, delivery)
        delivery.count = None
        if not delivery.done:
            self._keep(delivery, data)
            count()

    def _keep(self, delivery: Delivery, data: bytes) -> None:
        """
        Put a message into the inbound journal.
        """
        self._last_key += 1
        delivery.key, delivery.stored, delivery.data = self._last_key, len(data), data
        self._fresh.append(delivery)
        store = self._parts.store
        delivery.place = store.keep_inbound(self._index, delivery.lane, delivery.key, data, delivery.until)

    def _deliver_several(
        self,
        lane: int,
        envelope: Envelope,
        payload: bytes,
        ttl: float,
        path: Path,
        count: Callable[[], None],
        refuse: Callable[[], None],
    ) -> None:
        """
        Deliver several messages that came as one.
        """
        parts, most = self._parts, self._parts.limits.message_bytes
        try:
            payloads = unpack(payload)
        except Malformed:
            parts.drop(self._source, "malformed")
            refuse()
            return
        if len(payload) > most and any([len(each) > most for each in payloads]):
            payloads = [each for each in payloads if len(each) <= most]
            parts.drop(self._source, "malformed")
        envelope.ttl_millis = max(0, int(ttl * 1000))
        parts.counts["delivered"] += len(payloads)
        until = parts.clock.seconds() + ttl
        several = Several(envelope, payloads, partial(self._keep_part, lane, until), count)
        parts.store.before_write(several.write_state)
        try:
            assert parts.listener is not None, "streams receive after start"
            parts.listener.received_several(self._source, envelope, iter(several), path, several.keep)
        except Exception:
            failures.note("a message from {node} could not be handled", Failure(), node=self._source)
        several.end()

    def _keep_part(self, lane: int, until: float, envelope: Envelope, payload: bytes) -> Delivery:
        """
        One of several messages is in the inbound journal, as if it had come alone.
        """
        delivery = Delivery(self._finished, lane, len(payload), until)
        self.pending[delivery] = None
        self._parts.pending_bytes += delivery.size
        self._keep(delivery, self._parts.codec.encode_plain(envelope, payload))
        return delivery

    def _hand_over(
        self, envelope: Envelope, payload: bytes, ttl: float, path: Path, delivery: Delivery
    ) -> None:
        parts = self._parts
        self.pending[delivery] = None
        parts.pending_bytes += delivery.size
        envelope.ttl_millis = max(0, int(ttl * 1000))
        parts.counts["delivered"] += 1
        try:
            assert parts.listener is not None, "streams receive after start"
            parts.listener.received(self._source, envelope, payload, path, delivery)
        except Exception:
            failures.note("a message from {node} could not be handled", Failure(), node=self._source)
            delivery()

    def _finished(self, delivery: Delivery) -> None:
        parts = self._parts
        del self.pending[delivery]
        parts.pending_bytes -= delivery.size
        if delivery.count is not None:
            delivery.count()
        if delivery.key:
            parts.store.remove_inbound(self._index, delivery.lane, delivery.key)
            if delivery.place:
                parts.store.release(delivery.stored)
            self.commit()
        self._on_done()

    def written(self) -> None:
        """
        The inbound journal is on disk.
        """
        fresh, self._fresh = self._fresh, []
        for delivery in fresh:
            if not delivery.done and not self._parts.store.holds(delivery.place, delivery.stored):
                self._fresh.append(delivery)  # it was dropped with the buffer of a failing disk
            else:
                delivery.data = None

    # -- restarts and compaction ------------------------------------------------------

    def redeliver(self, inbound: list[StoredEntry], last_key: int) -> None:
        """
        Deliver what was in the inbound journal at the last stop.
        """
        parts = self._parts
        self._last_key = max(self._last_key, last_key)
        for entry in inbound:
            try:
                envelope, payload = parts.codec.decode(parts.store.read(entry.place, entry.size))
            except (OSError, Malformed) as why:
                log.error("a message from {node} cannot be read back: {why}", node=self._source, why=why)
                parts.store.remove_inbound(self._index, entry.lane, entry.key)
                parts.store.release(entry.size)
                continue
            parts.recent.add((self._domain, envelope.kind, *envelope.id))
            parts.counts["redelivered"] += 1
            delivery = Delivery(self._finished, entry.lane, len(payload), entry.until)
            delivery.key, delivery.place, delivery.stored = entry.key, entry.place, entry.size
            self._hand_over(envelope, payload, entry.until - parts.clock.seconds(), (), delivery)

    def rewrite(self, is_old: Callable[[int], bool], moved: list[tuple[Placed, int]]) -> Iterator[None]:
        """
        Append again what is in old segments. While the whole spool is rewritten, the places before stay
        valid, and the new ones are added to `moved`.
        """
        store = self._parts.store
        for count, delivery in enumerate(list(self.pending)):
            if count % TURN_MESSAGES == TURN_MESSAGES - 1:
                yield
            if delivery.done or not delivery.key or not is_old(delivery.place):
                continue
            was_on_disk, data = delivery.data is None, delivery.data
            if data is None:
                try:
                    data = store.read(delivery.place, delivery.stored)
                except OSError:
                    continue  # the listener has it; it does not come again after a restart
            if delivery.place:
                store.release(delivery.stored)
            place = store.keep_inbound(self._index, delivery.lane, delivery.key, data, delivery.until)
            if was_on_disk and store.rewriting:
                moved.append((delivery, place))
            else:
                delivery.place, delivery.data = place, data
                self._fresh.append(delivery)
        self.commit()
