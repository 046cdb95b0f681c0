"""
The cork: what goes out while one read is worked through goes out together.

A read may hold hundreds of messages, and a message may go to a thousand
connections.  Each connection's share is collected in its Outlet and sent once,
when the read is done, straight to the socket if it can be: an epoll
registration and a second pass through the reactor cost more than the message.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from twisted.internet import tcp, unix
from twisted.logger import Logger

log = Logger()

# By class, not by what a transport can do: a TLS transport passes
# writeSomeData on to the raw socket, and the bytes would leave as plaintext.
STRAIGHT = (tcp.Server, unix.Server)


class Holder(Protocol):
    """
    Whatever holds something back: an Outlet, or a poll that waits.
    """

    def flush(self) -> None: ...


class Cork:
    """
    Holds back what goes out while one read is worked through.

    `settle` is called before anything leaves, and at the end of each read: the
    node writes down what it owes.
    """

    __slots__ = ("_depth", "_outlets", "held", "settle")

    def __init__(self, settle: Callable[[], None] = lambda: None) -> None:
        self.settle = settle
        self.held = False
        self._depth = 0
        self._outlets: list[Holder] = []

    def __enter__(self) -> None:
        self._depth += 1
        self.held = True

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._release()

    def add(self, outlet: Holder) -> None:
        """
        An outlet has begun to hold something.
        """
        self._outlets.append(outlet)

    def _release(self) -> None:
        try:
            self.settle()
        except Exception:
            log.failure("writing down what is owed")
        # Still held meanwhile, and the list may grow: a flush can pause a
        # producer, which may write, and that must not overtake what is held.
        for outlet in self._outlets:
            try:
                outlet.flush()
            except Exception:
                log.failure("sending what was held")
        self._outlets.clear()
        self.held = False


class Outlet:
    """
    The way out of one transport.

    There is one for each connection, most of them idle: nothing is allocated
    before something is held.
    """

    __slots__ = ("_cork", "_held", "_straight", "_transport")

    def __init__(self, transport: Any, cork: Cork) -> None:
        self._transport = transport
        self._cork = cork
        self._straight = type(transport) in STRAIGHT
        self._held: list[bytes] | None = None

    def write(self, data: bytes) -> None:
        """
        Send data when the cork comes out; now, if it is not in.
        """
        if not self._cork.held:
            self._send(data)
        elif self._held is None:
            self._held = [data]
            self._cork.add(self)
        else:
            self._held.append(data)

    def flush(self) -> None:
        """
        Send what is held, now.
        """
        if self._held is not None:
            held, self._held = self._held, None
            self._send(held[0] if len(held) == 1 else b"".join(held))

    def forget(self) -> None:
        """
        What is held will not be sent.
        """
        self._held = None

    def drop(self) -> None:
        """
        The connection is gone.  What was not sent is let go now, not when Python next looks for cycles.
        """
        transport, self._held = self._transport, None
        if self._straight:
            transport.dataBuffer = b""
            transport._tempDataBuffer = []
            transport._tempDataLen = 0

    def _send(self, data: bytes) -> None:
        self._cork.settle()
        transport = self._transport
        if (
            self._straight
            and transport.connected
            and not transport.disconnecting
            and not transport.dataBuffer
            and not transport._tempDataBuffer
            and not transport.TLS  # startTLS leaves the class as it was
        ):
            sent = transport.writeSomeData(data)
            if sent == len(data):
                return
            if isinstance(sent, int):
                data = data[sent:]
        # The transport's own way pauses a producer when much is left over,
        # and lets the reactor find out that a socket is dead.
        transport.write(data)
