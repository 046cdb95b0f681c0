"""
Fan-out: one publisher, many subscribers of one address, a few publications under way.
"""

from typing import Any

from benchmark.load.clients import Client, connect_all
from benchmark.load.delays import Delays, InFlight
from benchmark.report.stopwatch import drained, timed
from benchmark.scenarios.pairs import address, ended


class Publisher:
    """
    The next publication leaves when the oldest under way has reached everybody, which is when its delay ends.
    """

    def __init__(self, publisher: Client, letter: bytes, audience: int, window: int, delays: Delays) -> None:
        self._in_flight = InFlight(delays)
        self._complete = 0
        self.received = 0
        self.published = 0
        self.running = True
        self._audience = audience
        self._window = window
        self._letter = letter
        self._write = publisher.wire.write

    def start(self) -> None:
        self._publish(self._window)

    def receipt(self, count: int) -> None:
        self.received += count
        complete = self.received // self._audience
        if complete > self._complete:
            self._in_flight.arrived(complete - self._complete)
            self._complete = complete
        if self.running:
            free = complete + self._window - self.published
            if free > 0:
                self._publish(free)

    def missing(self) -> int:
        """
        Deliveries not yet made of what was published.
        """
        return self.published * self._audience - self.received

    def _publish(self, count: int) -> None:
        self._in_flight.sent(count)
        self.published += count
        for _ in range(count):
            self._write(self._letter)


async def load(job: dict[str, Any]) -> dict[str, Any]:
    """
    Deliveries per second to `subscribers` subscribers.
    """
    audience = job["subscribers"]
    to = address(job, 0)
    clients = await connect_all(job, audience + 1, [to] * audience)
    sender = clients[audience]
    letter = sender.letter(100, address(job, audience), to, job["size"])
    delays = Delays()
    publisher = Publisher(sender, letter, audience, job["window"], delays)
    for client in clients[:audience]:
        client.inbox.receipt = publisher.receipt
    publisher.start()
    result: dict[str, Any] = await timed(job, lambda: publisher.received, delays)
    publisher.running = False
    result["lost"] = await drained(publisher.missing)
    return result | ended(clients)
