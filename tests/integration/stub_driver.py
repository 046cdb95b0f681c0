"""
A process with real stub processes, driven by lines of JSON on stdin; its events are lines on stdout.
"""

import json
import sys
from typing import Any

from twisted.internet import reactor as global_reactor
from twisted.internet.stdio import StandardIO
from twisted.protocols.basic import LineOnlyReceiver

from msgnode.foreign.lifecycle.stub_host import StubHost, StubLimits, StubStart
from msgnode.foreign.proxy.guard import AddressGuard, leads_here
from msgnode.foreign.sandbox.hosts import DenoHosts

reactor: Any = global_reactor
OWN = "runtime://a.example/protostub"


class Events:
    """
    What one stub tells, written down.
    """

    def __init__(self, driver: "Driver", name: str) -> None:
        self._driver = driver
        self._name = name

    def _tell(self, *event: Any) -> None:
        self._driver.tell(self._name, *event)

    def posted(self, message: bytes) -> int:
        self._driver.sendLine(b'["%b", "posted", %b]' % (self._name.encode(), message))
        return 1

    def status(self, value: str, desc: str) -> None:
        self._tell("status", value, desc)

    def log(self, level: str, text: str) -> None:
        self._tell("log", level, text)

    def limited(self, limit: str) -> None:
        pass

    def ready(self) -> None:
        self._tell("ready")

    def ended(self, why: str) -> None:
        self._tell("ended", why)


class Driver(LineOnlyReceiver):
    """
    The commands of a test.
    """

    delimiter = b"\n"
    MAX_LENGTH = 1 << 26
    events = Events

    def __init__(self, ca: str = "") -> None:
        guard = AddressGuard(reactor.nameResolver, reactor, ("127.0.0.1", "::1"), leads_here)
        self._hosts = DenoHosts(reactor, guard, ca=ca)
        self._stubs: dict[str, StubHost] = {}

    def tell(self, *event: Any) -> None:
        self.sendLine(json.dumps(event).encode())

    def lineReceived(self, line: bytes) -> None:
        command, name, *rest = json.loads(line)
        getattr(self, f"do_{command}")(name, *rest)

    def do_start(
        self, name: str, code: str, configuration: dict[str, Any], hosts: list[str], limits: dict[str, Any]
    ) -> None:
        start = StubStart(
            domain="b.example",
            url=f"{OWN}/{name}",
            runtime_url=f"runtime://a.example/{name}",
            code=code.encode(),
            descriptor=json.dumps({"configuration": configuration}).encode(),
            hosts=tuple(hosts),
            limits=StubLimits(**limits),
        )
        self._stubs[name] = self._hosts.start(start, self.events(self, name))
        self.tell(name, "pid", self._stubs[name].transport.pid)  # type: ignore[attr-defined]

    def do_post(self, name: str, message: dict[str, Any], times: int) -> None:
        data = json.dumps(message).encode()
        self.tell(name, "taken", [self._stubs[name].post(data) for _ in range(times)].count(True))

    def do_stop(self, name: str) -> None:
        self._stubs[name].stop().addCallback(lambda _: self.tell(name, "stopped"))

    def connectionLost(self, reason: Any = None) -> None:
        reactor.stop()


if __name__ == "__main__":
    StandardIO(Driver(*sys.argv[1:]), reactor=reactor)
    reactor.run()
