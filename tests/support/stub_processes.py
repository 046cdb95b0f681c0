"""
A stub's process in memory: what Twisted's process transport does, and what the node is told.
"""

from collections import Counter
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.interfaces import IHostnameResolver
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure
from zope.interface import implementer

from msgnode.config.sections import BackEndOptions
from msgnode.foreign.lifecycle.stub_host import StubLimits, StubStart
from msgnode.foreign.proxy.guard import AddressGuard
from msgnode.foreign.proxy.http import StubRequests
from msgnode.foreign.sandbox.hosts import first_line
from msgnode.foreign.sandbox.network import Egress, StubNetwork
from msgnode.foreign.sandbox.process import StubProcess
from msgnode.transport.endpoints import TLSTrust

URL = "runtime://a.example/protostub/1"
LIMITS = StubLimits(
    memory_bytes=1 << 27,
    message_bytes=10_000,
    output_bytes_per_second=100_000,
    messages_per_second=100,
    live_seconds=30.0,
)


def a_start(code: bytes = b"", hosts: tuple[str, ...] = (), limits: StubLimits = LIMITS) -> StubStart:
    return StubStart(
        domain="b.example",
        url=URL,
        runtime_url="runtime://a.example/n1",
        code=code,
        descriptor=b"{}",
        hosts=hosts,
        limits=limits,
    )


class ProcessTransport:
    """
    The process as Twisted gives it to its protocol. `exit` is what the process does.
    """

    pid = 0  # there is no such file below /proc with its figures

    def __init__(self, protocol: StubProcess) -> None:
        self.protocol = protocol
        self.written: list[bytes] = []
        self.signals: list[str] = []
        self.paused = self.gone = False
        self.producer: Any = None
        protocol.makeConnection(self)  # type: ignore[arg-type]

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self.producer = producer

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False

    def signalProcess(self, name: str) -> None:
        if self.gone:
            raise ProcessExitedAlready
        self.signals.append(name)

    def exit(self, code: int = 0, signal: int | None = None) -> None:
        self.gone = True
        reason = ProcessTerminated(code, signal) if code or signal else ProcessDone(0)
        self.protocol.processEnded(Failure(reason))


class Told:
    """
    The StubEvents of a test: all of them, in order.
    """

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.limits: Counter[str] = Counter()
        self.counts_as = 1

    def posted(self, message: bytes) -> int:
        self.events.append(("posted", message))
        return self.counts_as

    def status(self, value: str, desc: str) -> None:
        self.events.append(("status", value, desc))

    def log(self, level: str, text: str) -> None:
        self.events.append(("log", level, text))

    def limited(self, limit: str) -> None:
        self.limits[limit] += 1

    def ready(self) -> None:
        self.events.append(("ready",))

    def ended(self, why: str) -> None:
        self.events.append(("ended", why))

    def of(self, kind: str) -> list[Any]:
        return [event[1:] for event in self.events if event[0] == kind]


@implementer(IHostnameResolver)
class Names:
    """
    A resolver with the answers that it is given, each used once; without any, an address resolves to itself.
    """

    def __init__(self, *answers: list[str] | None) -> None:
        self.answers = list(answers)

    def resolveHostName(
        self, receiver: Any, hostName: str, portNumber: int = 0, *rest: Any, **more: Any
    ) -> Any:
        answer = self.answers.pop(0) if self.answers else [hostName]
        if answer is None:
            return receiver  # it never answers
        receiver.resolutionBegan(None)
        for text in answer:
            kind = IPv6Address if ":" in text else IPv4Address
            receiver.addressResolved(kind("TCP", text, portNumber))
        receiver.resolutionComplete()
        return receiver


class World:
    """
    A stub's process between a reactor in memory and the events that it tells.
    """

    def __init__(self, start: StubStart | None = None, listed: tuple[str, ...] = ()) -> None:
        self.reactor = MemoryReactorClock()
        self.told = Told()
        guard = AddressGuard(Names(), self.reactor, listed)
        trust = TLSTrust(BackEndOptions())
        egress = Egress(self.reactor, guard, trust, StubRequests(self.reactor, guard, trust))
        start = start or a_start()
        self.process = StubProcess(
            self.reactor,
            start,
            first_line(start),
            self.told,
            lambda write: StubNetwork(egress, start.hosts, start.limits, write, self.told.limited),
        )
        self.transport = ProcessTransport(self.process)

    def say(self, *lines: str) -> None:
        """
        The process writes lines.
        """
        self.process.outReceived("".join(f"{line}\n" for line in lines).encode())

    def heard(self) -> list[bytes]:
        """
        What was written to the process since the last time.
        """
        written = b"".join(self.transport.written).splitlines()
        self.transport.written.clear()
        return written
