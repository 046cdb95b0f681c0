"""
A network of links in memory, on a clock: with delay, loss, doubling, disorder, cuts, and links that are full.

It is for tests and simulations of what lies above the carrier. Entries are encoded and decoded, as on a real
link, so that two nodes never share an object. One seed gives one run.
"""

import random
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush

import msgspec
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.links.carrier import codec
from msgnode.links.carrier.link import SERVER, LinkListener
from msgnode.links.carrier.send_queue import SendQueue
from msgnode.links.wire.entries import Data, Digest, State, Summary

SILENCE_SECONDS = 30.0  # until the end of a link that is stalled, as three missed pings end a real one
MAX_BYTES = 1024 * 1024


class Faults(msgspec.Struct):
    """
    The faults of a cable: `loss`, `doubling` and `disorder` are chances of an entry, 0 to 1.

    An entry that is disordered takes up to `disorder_seconds` longer than others.
    """

    loss: float = 0.0
    doubling: float = 0.0
    disorder: float = 0.0
    disorder_seconds: float = 0.05


class MemoryNetwork:
    """
    A network of nodes in memory, and the cables between them.
    """

    def __init__(self, clock: IReactorTime, chance: random.Random) -> None:
        self.clock = clock
        self.chance = chance
        self.cables: dict[frozenset[str], Cable] = {}
        self._nodes: dict[str, tuple[LinkListener, str]] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._timer: IDelayedCall | None = None

    def add(self, node: str, listener: LinkListener, kind: str = SERVER) -> None:
        self._nodes[node] = (listener, kind)

    def remove(self, node: str) -> None:
        """
        The node is gone, as after kill -9: its neighbours lose their links; its own listener hears nothing.
        """
        del self._nodes[node]
        for ends in [ends for ends in self.cables if node in ends]:
            self.cables.pop(ends).cut(f"{node} is gone")

    def join(
        self,
        one: str,
        other: str,
        *,
        delay: float = 0.001,
        cost: int | None = None,
        transit: bool = True,
        faults: Faults | None = None,
        bytes_per_second: float | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> "Cable":
        """
        Connect two nodes. `delay` is in seconds for one way, and half of the round trip.

        With `bytes_per_second` entries wait in a queue by priority before they leave.
        """
        cable = Cable(self, (one, other), delay, faults or Faults())
        cable.cost, cable.transit = cost, transit
        cable.bytes_per_second, cable.max_bytes = bytes_per_second, max_bytes
        self.cables[frozenset((one, other))] = cable
        cable.restore()
        return cable

    def cable(self, one: str, other: str) -> "Cable":
        return self.cables[frozenset((one, other))]

    def listener(self, node: str) -> LinkListener | None:
        found = self._nodes.get(node)
        return None if found is None else found[0]

    def kind(self, node: str) -> str:
        return self._nodes[node][1]

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """
        Do this later. All of the network shares one timer, for thousands would make a Clock slow.
        """
        self._number += 1
        heappush(self._events, (self.clock.seconds() + seconds, self._number, act))
        self._set_timer()

    def _set_timer(self) -> None:
        if not self._events:
            return
        wait = max(0.0, self._events[0][0] - self.clock.seconds())
        if self._timer is None:
            self._timer = self.clock.callLater(wait, self._run)
        elif self._timer.getTime() > self._events[0][0]:
            self._timer.reset(wait)

    def _run(self) -> None:
        self._timer = None
        now = self.clock.seconds()
        try:
            while self._events and self._events[0][0] <= now:
                heappop(self._events)[2]()
        finally:
            self._set_timer()


class Cable:
    """
    A cable between two nodes. Its attributes may change while it is in use.
    """

    cost: int | None = None
    transit = True
    bytes_per_second: float | None = None
    max_bytes = MAX_BYTES

    def __init__(self, network: MemoryNetwork, ends: tuple[str, str], delay: float, faults: Faults) -> None:
        self.network = network
        self.ends = ends
        self.delay = delay
        self.faults = faults
        self.stalled = False
        self.links: dict[str, MemoryLink] = {}  # by the node that uses it; empty while the cable is cut

    @property
    def is_up(self) -> bool:
        return bool(self.links)

    def restore(self) -> None:
        """
        Both nodes get a new link. What was under way when the cable was cut is lost.
        """
        if self.links or any(self.network.listener(end) is None for end in self.ends):
            return
        self.stalled = False
        one, other = self.ends
        self.links = {one: MemoryLink(self, one, other), other: MemoryLink(self, other, one)}
        for end, link in list(self.links.items()):
            listener = self.network.listener(end)
            if listener is not None and link.is_up:
                listener.link_up(link)

    def cut(self, reason: str = "connection lost") -> None:
        """
        Both nodes lose the link.
        """
        links, self.links = self.links, {}
        for end, link in links.items():
            link.is_up = False
            listener = self.network.listener(end)
            if listener is not None:
                listener.link_down(link, reason)

    def stall(self) -> None:
        """
        Nothing passes any more, and neither node notices until SILENCE_SECONDS later.
        """
        self.stalled = True
        links = self.links
        self.network.after(SILENCE_SECONDS, lambda: self._end_stall(links))

    def _end_stall(self, links: dict[str, "MemoryLink"]) -> None:
        if self.stalled and self.links is links:
            self.cut("no answer to pings")

    def set_delay(self, seconds: float) -> None:
        """
        Change the delay of one way, and tell both nodes the new round trip.
        """
        self.delay = seconds
        for end, link in list(self.links.items()):
            listener = self.network.listener(end)
            if listener is not None:
                listener.round_trip_changed(link)


class MemoryLink:
    """
    A link to a neighbour in memory; a Link.
    """

    is_steady = False

    def __init__(self, cable: Cable, here: str, node: str) -> None:
        self.node = node
        self.kind = cable.network.kind(node)
        self.is_up = True
        self.lost = 0  # entries that the cable lost
        self._cable = cable
        self._network = cable.network
        self._here = here
        self._queue = SendQueue(cable.max_bytes)
        self._bytes = 0  # sent, and not arrived yet
        self._sending = False
        self._refused = False

    @property
    def cost(self) -> int | None:
        return self._cable.cost

    @property
    def transit(self) -> bool:
        return self._cable.transit

    @property
    def round_trip(self) -> float | None:
        return 2 * self._cable.delay

    def send(self, datagram: Data) -> bool:
        if not self.is_up:
            return False
        entry = codec.encode(datagram)
        cable = self._cable
        if cable.bytes_per_second is not None:
            fits = self._queue.put(datagram.datagram.priority, entry)
            self._pump()
        else:
            fits = self._bytes + len(entry) <= cable.max_bytes
            if fits:
                self._bytes += len(entry)
                self._leave(entry, len(entry))
        self._refused = self._refused or not fits
        return fits

    def send_state(self, entry: State | Digest | Summary) -> None:
        if not self.is_up:
            return
        encoded = codec.encode(entry)
        if self._cable.bytes_per_second is not None:
            self._queue.put_first(encoded)
            self._pump()
        else:
            self._leave(encoded, 0)

    def close(self, code: int, reason: str, retry_after: float = 0.0) -> None:
        if self.is_up:
            self._cable.cut(f"{code} {reason}")

    def _pump(self) -> None:
        """
        Let the next entry leave, if the cable is free.
        """
        rate = self._cable.bytes_per_second
        if self._sending or not self.is_up or rate is None:
            return
        entry = self._queue.pop()
        if entry is not None:
            self._sending = True
            self._network.after(len(entry) / rate, partial(self._left, entry))

    def _left(self, entry: bytes) -> None:
        self._sending = False
        self._leave(entry, 0)
        self._pump()
        if self._queue.bytes <= self._cable.max_bytes // 2:
            self._tell_room()

    def _leave(self, entry: bytes, counted: int) -> None:
        """
        Put an entry on the cable; `counted` of its bytes are free again when it arrives.
        """
        cable, chance, faults = self._cable, self._network.chance, self._cable.faults
        copies = 2 if faults.doubling and chance.random() < faults.doubling else 1
        for copy in range(copies):
            delay = cable.delay
            if faults.disorder and chance.random() < faults.disorder:
                delay += chance.random() * faults.disorder_seconds
            lost = cable.stalled or (faults.loss > 0 and chance.random() < faults.loss)
            self._network.after(delay, partial(self._arrive, entry, 0 if copy else counted, lost))

    def _arrive(self, entry: bytes, counted: int, lost: bool) -> None:
        self._bytes -= counted
        if not self.is_up:
            return
        other = self._cable.links[self.node]
        if lost or self._cable.stalled:
            self.lost += 1
        else:
            listener = self._network.listener(self.node)
            assert listener is not None  # else the cable would be cut
            for found in codec.decode(codec.message([entry])):
                assert isinstance(found, Data | State | Digest | Summary)
                listener.received(other, found)
        if self._cable.bytes_per_second is None and self._bytes <= self._cable.max_bytes // 2:
            self._tell_room()

    def _tell_room(self) -> None:
        if self._refused and self.is_up:
            self._refused = False
            listener = self._network.listener(self._here)
            if listener is not None:
                listener.has_room(self)
