"""
The seam between the node and the processes that run foreign protostubs.
"""

from typing import Protocol

from msgspec import Struct
from twisted.internet.defer import Deferred

# The words under which it is counted that a stub has reached a limit.
LIMITS = (
    *("memory", "hang", "cpu", "live", "rate", "incoming", "statuses", "console", "lines", "unread"),
    *("hosts", "sockets", "connections", "requests", "request-rate", "unsent", "frames", "handshake"),
)


class StubLimits(Struct, frozen=True):
    """
    Bounds of one stub's process; `live_seconds`: how long it may take until it says `live`, `hang_seconds`:
    until it answers a ping. `cpu_share` is that of one core, 0: any. Sockets and requests are those at once.
    """

    memory_bytes: int
    message_bytes: int
    output_bytes_per_second: int
    messages_per_second: int
    live_seconds: float
    hang_seconds: float = 10.0
    cpu_share: float = 0.8
    sockets: int = 8
    requests: int = 8
    connections_per_second: int = 1
    requests_per_second: int = 20
    statuses_per_second: int = 5
    log_lines_per_second: int = 5


class StubStart(Struct, frozen=True):
    """
    All that a stub's process gets; `url` is the stub's own address, `runtime_url` this node's name there.

    `hosts` are the only places that it may connect to, `host:port` each.
    """

    domain: str
    url: str
    runtime_url: str
    code: bytes
    descriptor: bytes  # JSON
    hosts: tuple[str, ...]
    limits: StubLimits


class StubEvents(Protocol):
    """
    Events that a stub's process reports to the node.
    """

    def posted(self, message: bytes) -> int:
        """
        One JSON object that the stub put on its bus: UTF-8, of at most `limits.message_bytes`. Returns as how
        many messages it counts.
        """

    def status(self, value: str, desc: str) -> None:
        """
        The stub's own status: `created`, `in-progress`, `live`, `disconnected`, `failed`.
        """

    def log(self, level: str, text: str) -> None:
        """
        A line of its console, bounded and cleaned.
        """

    def limited(self, limit: str) -> None:
        """
        It has reached one of its limits: a word of LIMITS.
        """

    def ready(self) -> None:
        """
        It takes messages again after `post` said False.
        """

    def ended(self, why: str) -> None:
        """
        The process is gone; nothing comes after this.
        """


class StubHost(Protocol):
    """
    A running stub.
    """

    def post(self, message: bytes) -> bool:
        """
        Gives a message to the listeners of the stub's bus. False: it is not taken, wait for `ready`.
        """

    def stop(self) -> Deferred[None]:
        """
        Calls `disconnect()` of the stub, then ends the process, at the latest after a deadline.
        """


class StubHosts(Protocol):
    """
    A starter of stubs.
    """

    def start(self, start: StubStart, events: StubEvents) -> StubHost: ...
