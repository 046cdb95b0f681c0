"""
Links in memory between overlays: with delay, loss, doubling, reordering and room for so many datagrams.
"""

import random
from collections.abc import Callable

import msgspec

from msgnode.links.carrier.link import SERVER, LinkListener
from msgnode.links.wire.entries import Data, Digest, State, Summary
from simulating.clock import HeapClock

Entry = Data | State | Digest | Summary


class Faults(msgspec.Struct):
    """
    The chances, 0 to 1, that an entry is lost, comes twice, or comes up to a second late.
    """

    loss: float = 0.0
    doubling: float = 0.0
    reordering: float = 0.0


class End(msgspec.Struct):
    """
    One end of a wire: the node, its kind, what hears of its links, and whether it grants the other end
    transit.
    """

    node: str
    listener: LinkListener
    kind: str = SERVER
    transit: bool = True


class Wire:
    """
    A wire between two nodes: up, with a MemoryLink at each end, or down.

    `cost` is fixed; None means that the delay is measured.
    """

    def __init__(
        self,
        clock: HeapClock,
        chance: random.Random,
        one: End,
        other: End,
        delay: float = 0.005,
        cost: int | None = None,
        room: int = 1 << 30,
    ) -> None:
        self.clock = clock
        self.chance = chance
        self.ends = (one, other)
        self.delay = delay
        self.cost = cost
        self.room = room
        self.faults = Faults()
        self.links: tuple[MemoryLink, ...] = ()
        self.entries = self.datagrams = 0
        self.watch: Callable[[MemoryLink, Data], None] = _ignore

    @property
    def is_up(self) -> bool:
        return bool(self.links)

    def up(self) -> None:
        if self.links:
            return
        one, other = self.ends
        self.links = (MemoryLink(self, one, other), MemoryLink(self, other, one))
        for link in self.links:
            link.end.listener.link_up(link)

    def down(self, *silent: str) -> None:
        """
        Cut the wire. What is under way is lost. The nodes `silent` are dead and hear nothing.
        """
        links, self.links = self.links, ()
        for link in links:
            if link.end.node not in silent:
                link.end.listener.link_down(link, "cut")

    def renew(self) -> None:
        """
        New links take the place of the present ones. What is under way is lost.
        """
        self.links = ()
        self.up()

    def set_cost(self, cost: int | None, delay: float) -> None:
        self.cost, self.delay = cost, delay
        for link in self.links:
            link.end.listener.round_trip_changed(link)

    def other(self, link: "MemoryLink") -> "MemoryLink | None":
        if link not in self.links:
            return None
        return self.links[1] if link is self.links[0] else self.links[0]


def _ignore(link: "MemoryLink", datagram: Data) -> None:
    """
    No judge looks at the datagrams.
    """


class MemoryLink:
    """
    A link of `end` to the node `far`.
    """

    is_steady = False

    def __init__(self, wire: Wire, end: End, far: End) -> None:
        self.wire = wire
        self.end = end
        self.far = far
        self.closed: tuple[int, str] | None = None
        self.is_full = False
        self.under_way = 0
        self._batch: list[Entry] = []
        self._batch_at = -1.0

    @property
    def node(self) -> str:
        return self.far.node

    @property
    def kind(self) -> str:
        return self.far.kind

    @property
    def cost(self) -> int | None:
        return self.wire.cost

    @property
    def round_trip(self) -> float | None:
        return self.wire.delay * 2

    @property
    def transit(self) -> bool:
        return self.end.transit

    def send(self, datagram: Data) -> bool:
        if self.under_way >= self.wire.room:
            self.is_full = True
            return False
        self.wire.datagrams += 1
        self.wire.watch(self, datagram)
        self._carry(datagram)
        return True

    def send_state(self, entry: State | Digest | Summary) -> None:
        self.wire.entries += 1
        self._carry(entry)

    def close(self, code: int, reason: str, retry_after: float = 0.0) -> None:
        self.closed = (code, reason)
        self.wire.down()

    def _carry(self, entry: Entry) -> None:
        faults, chance, delay = self.wire.faults, self.wire.chance, self.wire.delay
        if faults.loss and chance.random() < faults.loss:
            return
        if faults.doubling and chance.random() < faults.doubling:
            self._later(delay + chance.random(), [entry])
        if faults.reordering and chance.random() < faults.reordering:
            self._later(delay + chance.random(), [entry])
            return
        now = self.wire.clock.rightNow
        if self._batch_at != now or not self._batch:
            self._batch, self._batch_at = [], now
            self._later(delay, self._batch)
        else:
            self.under_way += 1
        self._batch.append(entry)

    def _later(self, delay: float, entries: list[Entry]) -> None:
        self.under_way += 1
        self.wire.clock.callLater(delay, self._arrive, entries)

    def _arrive(self, entries: list[Entry]) -> None:
        batch, number = list(entries), len(entries)
        entries.clear()
        self.under_way -= number
        far = self.wire.other(self)
        for entry in batch:
            if far is None or self.wire.links == ():
                return
            far.end.listener.received(far, entry)
        if self.is_full and self.under_way < self.wire.room and self in self.wire.links:
            self.is_full = False
            self.end.listener.has_room(self)
