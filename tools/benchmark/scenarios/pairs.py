"""
Point to point: pairs of a sender and a receiver, each with a window of messages under way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from benchmark.load.clients import Client, connect_all
from benchmark.load.delays import Delays, InFlight
from benchmark.load.frames import MARK
from benchmark.load.record_bodies import record_message
from benchmark.report.stopwatch import drained, timed

Measure = Callable[[dict[str, Any], Callable[[], int], Delays | None], Awaitable[dict[str, Any]]]


class Pair:
    """
    A closed loop: what the receiver got, the sender sends again.

    Each message is a write of its own.  With `burst`, what one read released
    leaves in one write; the window then soon travels as a single block.
    """

    def __init__(
        self,
        sender: Client,
        receiver: Client,
        letter: bytes,
        window: int,
        burst: bool = False,
        delays: Delays | None = None,
    ) -> None:
        self.sent = 0
        self.received = 0
        self._in_flight = InFlight(delays or Delays())
        self._window = window
        self._running = True
        self._letter = letter
        self._letters = memoryview(letter * window) if burst else None
        self._write = sender.wire.write
        self._receiver = receiver
        receiver.inbox.receipt = self._receipt

    def start(self) -> None:
        self._send(self._window)

    def stop(self) -> None:
        self._running = False

    def missing(self) -> int:
        """
        Sent and not received; negative if something came twice.
        """
        return self.sent - self.received

    def _receipt(self, count: int) -> None:
        self._in_flight.arrived(count)
        self.received += count
        self._receiver.received(count)
        if self._running:
            self._send(count)

    def _send(self, count: int) -> None:
        self._in_flight.sent(count)
        self.sent += count
        if self._letters is not None and count <= self._window:
            self._write(self._letters[: count * len(self._letter)])
            return
        for _ in range(count):
            self._write(self._letter)


def address(job: dict[str, Any], index: int) -> str:
    """
    The hyperty address of this run with this number; with `object`, that of an object's changes.
    """
    if job.get("object"):
        return f"comm://localhost/objects/{job['run']}-{index}/changes"
    return f"hyperty://localhost/{job['run']}-{index}"


def _letter(job: dict[str, Any], sender: Client, number: int, own: str, to: str) -> bytes:
    if job.get("object"):
        own = own.removesuffix("/changes")
        return sender.wire.frame(
            b'{"id":%d,"type":"update","from":"%b","to":"%b","body":{"value":"%b"}}'
            % (number, own.encode(), to.encode(), b"x" * (job["size"] - len(MARK)) + MARK)
        )
    if "record" in job:
        return sender.wire.frame(record_message(number, own, to, job["record"], job["named"]))
    return sender.letter(number, own, to, job["size"], job.get("spaces", False))


async def load(job: dict[str, Any], measure: Measure = timed) -> dict[str, Any]:
    """
    Messages per second over `pairs` pairs of `window` messages of `size` bytes; `spaces`: in their JSON.

    `record`: with the body of a record, which the header names if `named`. `measure` measures meanwhile.
    """
    count = job["pairs"]
    inward = [address(job, index) for index in range(count)]
    clients = await connect_all(job, 2 * count, inward)
    receivers, senders = clients[:count], clients[count:]
    pairs, delays = [], Delays()
    for index, (sender, receiver) in enumerate(zip(senders, receivers, strict=True)):
        letter = _letter(job, sender, 100 + index, address(job, count + index), inward[index])
        pairs.append(Pair(sender, receiver, letter, job["window"], job["burst"], delays))
    for pair in pairs:
        pair.start()
    result: dict[str, Any] = await measure(job, lambda: sum(pair.received for pair in pairs), delays)
    for pair in pairs:
        pair.stop()
    result["lost"] = await drained(lambda: sum(pair.missing() for pair in pairs))
    return result | ended(clients)


def ended(clients: Sequence[Client]) -> dict[str, Any]:
    """
    Close them; what any of them heard and nobody expected is an error.
    """
    errors = [text for client in clients for text in client.inbox.complaints()]
    for client in clients:
        client.close()
    return {"errors": errors[:5]}


async def settle() -> None:
    """
    Give what was written last the time to leave.
    """
    await asyncio.sleep(0.1)
