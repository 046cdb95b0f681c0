"""
Transmission of entries: encryption, pieces, datagrams with several messages.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgnode.links.stream import pieces
from msgnode.links.stream.body import JOIN_BYTES, join
from msgnode.links.stream.common import StreamParts
from msgnode.links.stream.safety.encryption import Way, way
from msgnode.links.stream.safety.node_keys import PeerKeys
from msgnode.links.stream.sending.backlog import Backlog
from msgnode.links.stream.sending.entry import Entry
from msgnode.links.stream.streams import NO_KEY, STALE, UNREADABLE
from msgnode.links.wire.stream_header import (
    ENCRYPTED,
    MAX_MESSAGES,
    MESSAGE,
    PROBE,
    TOMBSTONE,
    WRAPPED,
)


class Emitter(Protocol):
    """
    A maker of datagrams to one node.
    """

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
    ) -> bool:
        """
        Send a datagram. False: there is no key, no route, or no room.
        """


class Transmitter:
    """
    A transmitter of entries to one node; `transit` is how many seconds they are under way, about.
    """

    def __init__(
        self,
        parts: StreamParts,
        node: str,
        keys: PeerKeys,
        backlog: Backlog,
        emitter: Emitter,
        transit: Callable[[], float],
    ) -> None:
        self._transit = transit
        self._parts = parts
        self._node = node
        self._keys = keys
        self._backlog = backlog
        self._emit = emitter.emit

    @property
    def can_decompress(self) -> bool:
        return self._keys.public is not None and "zstd" in self._keys.public.features

    def way(self, entry: Entry) -> Way:
        """
        How the entry is sent: in clear, encrypted, or not at all.
        """
        envelope = entry.envelope or self._backlog.envelope(entry)
        asked = envelope is not None and envelope.encrypt
        mode = self._parts.encrypt_mode(self._node)
        must = mode == "always" or bool(asked)
        if not must:
            return "clear"
        if mode == "never" or self._keys.public is None:
            return "impossible"
        return way(self._keys.public, must)

    def transmit(self, lane: int, floor: int, entries: Sequence[Entry], is_last: bool) -> int:
        """
        Send entries of a lane, several in one datagram if they fit. Returns how many of them, from the first
        on, the network has taken. `is_last`: others wait for an acknowledgement, so that one is asked for.
        """
        sent = 0
        before = self._parts.clock.seconds() + self._transit()
        while sent < len(entries):
            run, ttls = self._next_run(entries, sent, before)
            asks = PROBE if is_last and sent + len(run) == len(entries) else 0
            if not self._send(lane, floor, run, ttls, asks):
                break
            sent += len(run)
        return sent

    def _next_run(
        self, entries: Sequence[Entry], first: int, before: float
    ) -> tuple[Sequence[Entry], list[int]]:
        """
        The entries that travel in the next datagram, with the milliseconds that each is valid when it comes;
        or one alone: a tombstone, or a message that is in pieces or wrapped. What ends `before` is stale.
        """
        room, flags, following = self._parts.limits.piece_bytes - JOIN_BYTES, 0, 0
        ttls: list[int] = []
        last = min(len(entries), first + MAX_MESSAGES)
        for index in range(first, last):
            entry = entries[index]
            left = entry.until - before
            self._make_ready(entry, left)
            wire = entry.wire
            is_single = entry.ended is not None or wire is None or entry.flags & WRAPPED or len(wire) > room
            if ttls and (is_single or entry.flags != flags or entry.number != following):
                break
            ttls.append(max(1, int(left * 1000)))
            if is_single or wire is None:
                break
            room -= len(wire)
            flags, following = entry.flags, entry.number + 1
        return entries[first : first + len(ttls)], ttls

    def _make_ready(self, entry: Entry, left: float) -> None:
        if entry.ended is None and left <= 0:
            self._end(entry, stale=True)
        if entry.ended is None and entry.wire is None:
            self._prepare(entry)

    def _send(self, lane: int, floor: int, run: Sequence[Entry], ttls: Sequence[int], asks: int) -> bool:
        """
        Send what one datagram holds, or all pieces of an entry. False if the network did not take it all.
        """
        first, size = run[0], self._parts.limits.piece_bytes
        if first.ended is not None:
            return self._emit(TOMBSTONE, lane, first.number, floor, flags=asks)
        assert first.wire is not None
        ttl, flags = ttls[0], first.flags | asks
        if len(run) > 1:
            payload = join([entry.wire for entry in run if entry.wire is not None])
            return self._emit(MESSAGE, lane, first.number, floor, 0, 1, ttl, flags, payload, ttls[1:])
        if len(first.wire) <= size:
            return self._emit(MESSAGE, lane, first.number, floor, 0, 1, ttl, flags, first.wire)
        many = pieces.count(len(first.wire), size)
        return all(
            self._emit(MESSAGE, lane, first.number, floor, piece, many, ttl, flags, data)
            for piece, data in pieces.cut(first.wire, size)
        )

    def _prepare(self, entry: Entry) -> None:
        """
        Make what is cut into pieces, once in a process: pieces of an earlier time fit to it.
        """
        chosen = self.way(entry)
        try:
            data = self._backlog.bounds.page_in(entry)
        except OSError:
            entry.ended = UNREADABLE
            return
        if chosen == "impossible":
            entry.ended = NO_KEY
        elif chosen == "wrapped":
            assert self._keys.public is not None
            entry.wire, entry.flags = self._parts.encryption.wrap(self._keys.public.rsa, data), WRAPPED
        else:
            entry.wire, entry.flags = data, ENCRYPTED if chosen == "stream" else 0

    def _end(self, entry: Entry, stale: bool) -> None:
        """
        Only a tombstone is sent from now on; the destination says whether it has the message.
        """
        self._backlog.envelope(entry)  # its outcome is reported with it
        entry.ended = STALE
        entry.wire = None
