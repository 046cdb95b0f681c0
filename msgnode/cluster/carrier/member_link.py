"""
A link to a member: what waits for it, and what it has sent.
"""

import random
from collections import deque
from typing import TYPE_CHECKING, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.cluster.carrier import packets
from msgnode.cluster.carrier.packets import MAX_ENTRIES, Greeting, Head
from msgnode.cluster.carrier.told_order import ToldSender
from msgnode.links.carrier.link import SERVER
from msgnode.links.carrier.pings import Pings
from msgnode.links.carrier.send_queue import SendQueue
from msgnode.links.wire.entries import Data, Digest, Ping, State, Summary

if TYPE_CHECKING:
    from msgnode.links.carrier.link import Link

COST = 1  # of a link within the cluster
PING_SECONDS = 4.0  # a member is silent after three
HEAD_BYTES = 1024  # of a packet, around its entries


class LinkOwner(Protocol):
    """
    The table of members, as their links see it. `max_packet` is the longest packet that can be published.
    """

    max_packet: int

    def publish(self, link: "MemberLink", data: bytes) -> bool:
        """
        Publish a packet for the member; False if there is no room now: the link keeps it.
        """

    def left(self, link: "MemberLink") -> None:
        """
        Entries have left the queue of the link.
        """

    def refuse(self, node: str, reason: str, text: str) -> None: ...

    def end_link(self, link: "MemberLink", reason: str) -> None: ...

    def silent(self, link: "MemberLink") -> None: ...

    def measured(self, link: "MemberLink") -> None: ...


class MemberLink:
    """
    A link that is up (Link). What one turn of the event loop makes for the member leaves in one publication.

    `tokens` are this end's and the other's.
    """

    kind = SERVER
    cost: int | None = COST
    transit = True
    is_steady = True  # it is up only when both ends have answered each other

    def __init__(
        self,
        owner: LinkOwner,
        node: str,
        own: str,
        tokens: tuple[bytes, bytes],
        greeting: Greeting,
        max_bytes: int,
        clock: IReactorTime,
        chance: random.Random,
    ) -> None:
        self.node = node
        self.epoch = greeting.epoch
        self.queue = SendQueue(max_bytes)
        self.told = ToldSender()
        self.told_bytes = 0
        self.wants_room = self.wants_told_room = False
        self.is_up = True
        self.refused = 0  # datagrams, because the link was full
        self.pings = Pings(clock, chance, self._ping, self._silent, self._measured, PING_SECONDS)
        self._owner = owner
        self._head = packets.encode(Head(own, *tokens))
        self._max_packet = greeting.max_bytes
        self._told: deque[bytes] = deque()
        self._unsent = b""  # a packet that the client had no room for
        self._clock = clock
        self._leaving: IDelayedCall | None = None

    @property
    def round_trip(self) -> float | None:
        return self.pings.round_trip

    # -- Link ------------------------------------------------------------------------

    def send(self, datagram: Data) -> bool:
        if self.is_up and self.queue.put(datagram.datagram.priority, packets.encode(datagram)):
            self._schedule()
            return True
        self.refused += 1
        self.wants_room = True
        return False

    def send_state(self, entry: State | Digest | Summary) -> None:
        self.send_first(packets.encode(entry))

    def close(self, code: int, reason: str, retry_after: float = 0.0) -> None:
        self._owner.end_link(self, reason)

    # -- entries of the carrier -----------------------------------------------------

    def send_first(self, entry: bytes) -> None:
        """
        Send an entry of the link itself, or of the link state, before all datagrams.
        """
        if not self.is_up:
            return
        if len(entry) > packets.MIN_PACKET_BYTES - HEAD_BYTES:
            self._owner.refuse(self.node, "too-big", f"an entry of {len(entry)} bytes fits in no packet")
        elif self.queue.first_bytes > self.queue.max_bytes:
            self._owner.end_link(self, "the member does not read")
        else:
            self.queue.put_first(entry)
            self._schedule()

    def tell(self, payload: bytes) -> bool:
        """
        Send what has to come in order; False if there is no room.
        """
        if not self.is_up or self.told_bytes + len(payload) > self.queue.max_bytes:
            self.wants_told_room = self.is_up
            return False
        entry = packets.encode(self.told.next(payload))
        self.told_bytes += len(entry)
        self._told.append(entry)
        self._schedule()
        return True

    def begin_run(self) -> None:
        """
        Drop the entries of the old run that wait.
        """
        self._told.clear()
        self.told_bytes = 0

    def stop(self) -> None:
        self.is_up = False
        self.pings.stop()
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    # -- sending ---------------------------------------------------------------------

    def _schedule(self) -> None:
        if self._leaving is None:
            self._leaving = self._clock.callLater(0, self._leave)

    def _leave(self) -> None:
        self._leaving = None
        self.go_on()

    def go_on(self) -> None:
        """
        Send what waits, as far as there is room.
        """
        while self.is_up:
            data = self._unsent or self._next()
            if not data:
                break
            self._unsent = b""
            if not self._owner.publish(self, data):
                self._unsent = data
                break
        if self.is_up:
            self._owner.left(self)

    def _next(self) -> bytes:
        room = min(self._max_packet, self._owner.max_packet) - HEAD_BYTES
        entries: list[bytes] = []
        while self._told and len(entries) < MAX_ENTRIES and len(self._told[0]) <= room:
            entry = self._told.popleft()
            self.told_bytes -= len(entry)
            room -= len(entry)
            entries.append(entry)
        # `take` gives at least one, which fits in a packet of its own.
        if not entries or room >= packets.MIN_PACKET_BYTES:
            entries += self.queue.take(room, MAX_ENTRIES - len(entries))
        return packets.packet(self._head, entries) if entries else b""

    # -- pings -----------------------------------------------------------------------

    def _ping(self, number: int) -> None:
        self.send_first(packets.encode(self.told.position))
        self.send_first(packets.encode(Ping(number)))

    def _silent(self) -> None:
        self._owner.silent(self)

    def _measured(self) -> None:
        self._owner.measured(self)


if TYPE_CHECKING:

    def _is_link(link: MemberLink) -> "Link":
        return link
