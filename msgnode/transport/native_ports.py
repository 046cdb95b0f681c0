"""
Ports of the compiled data plane: it reads the socket of a connection, and writes what it carries there.

With TLS, Twisted reads the socket and writes to it; the port gets what was decrypted, and what the plane
carries there leaves by the TLS transport.

Everything else stays as it is: the connection gets the messages and the bytes that the plane does not carry,
and what Python sends leaves by the same outlet, in order.
"""

from collections.abc import Callable
from typing import Any, Literal, Protocol

from twisted.protocols.policies import ProtocolWrapper
from twisted.protocols.tls import BufferingTLSTransport

from msgnode.transport.cork import CHUNK_BYTES, DIRECT_TRANSPORTS, Cork, Outlet

Framing = Literal["websocket", "lines"]


class PortConnection(Protocol):
    """
    A connection that a port reads, and its session, whose mailbox counts messages of clients that
    acknowledge.
    """

    session: Any
    transport: Any

    @property
    def at_border(self) -> bool:
        """
        Does its input stand where a message begins, so that the port may read on?
        """

    @property
    def is_stopped(self) -> bool:
        """
        Is nothing to be read from it now?
        """

    def carry_message(self, data: bytes) -> object:
        """
        Take one whole message.
        """

    def leave_port(self) -> bytes:
        """
        Read by yourself from now on; what the port had read and not carried.
        """

    def take_data(self, data: bytes) -> None:
        """
        Handle bytes that are not the port's.
        """

    def abort(self) -> None: ...

    def heard(self) -> object:
        """
        The client has sent data, after Port.watch.
        """


def may_have_port(transport: Any) -> bool:
    """
    Is it a transport whose socket carries the bytes as they are, or one with TLS?
    """
    return (type(transport) in DIRECT_TRANSPORTS and not transport.TLS) or is_decrypting(transport)


def is_decrypting(transport: Any) -> bool:
    """
    Is it a TLS transport?  Not behind the PROXY protocol, where a client is named only by what it sends.
    """
    return type(transport) is BufferingTLSTransport and not isinstance(transport.transport, ProtocolWrapper)


class Port:
    """
    The port of one connection; its owner, as the compiled module calls it.
    """

    __slots__ = (
        "_connection",
        "_forget",
        "_is_stopped",
        "_left",
        "_outlet",
        "_plane",
        "number",
    )

    def __init__(
        self,
        plane: Any,
        connection: PortConnection,
        outlet: "PortOutlet",
        framing: Framing,
        longest: int,
        host: str,
        forget: Callable[[PortConnection, int], object],
    ) -> None:
        self._plane = plane
        self._connection = connection
        self._forget = forget
        self._outlet = outlet
        self._is_stopped = True  # as every port begins
        self._left = b""
        self.number: int = plane.add(self.descriptor(), self, framing, longest, host)
        plane.set_border(self.number, False)  # Python may have the beginning of a message

    def descriptor(self) -> int:
        """
        The socket that the plane reads and writes.
        """
        number: int = self._connection.transport.fileno()
        return number

    # -- reading: what the connection asks for -----------------------------------------

    def start(self, is_stopped: bool) -> None:
        """
        Read in the place of the transport; nothing yet if the connection `is_stopped`.
        """
        self._connection.transport.pauseProducing()
        if not is_stopped:
            self.go_on()

    def feed(self, data: bytes) -> None:
        """
        Handle what the transport has read, which reads nothing while the port does.
        """
        self._connection.take_data(data)

    def stop(self) -> None:
        """
        Read nothing more for now.
        """
        if not self._is_stopped and self.number:
            self._is_stopped = True
            self._plane.pause(self.number)

    def close(self) -> None:
        """
        Read nothing more: the connection closes.
        """
        self.stop()

    def go_on(self) -> None:
        """
        Read on.
        """
        if self._is_stopped and self.number and self._is_open:
            self._is_stopped = False
            self._plane.resume(self.number)

    @property
    def _is_open(self) -> bool:
        transport = self._connection.transport
        return bool(transport.connected and not transport.disconnecting)

    def look(self) -> None:
        """
        Look again whether the input stands at the border of a message.
        """
        if self.number:
            self._plane.set_border(self.number, self._connection.at_border)

    def watch(self) -> None:
        """
        Tell the connection when something comes.
        """
        if self.number:
            self._plane.watch(self.number)

    def discard(self) -> None:
        """
        Throw away what has come of an unfinished message.
        """
        if self.number:
            self._plane.take_pending(self.number)
            self._plane.set_border(self.number, False)

    def leave(self) -> None:
        """
        The port ends; what it has to send is the outlet's, and what it has read is kept for `take_left`.
        """
        if self.number:
            self._outlet.take_carried()
            self._left = self._plane.take_pending(self.number)
            self._forget(self._connection, self.number)  # which takes its counts
            number, self.number = self.number, 0
            self._plane.remove(number)

    def take_left(self) -> bytes:
        left, self._left = self._left, b""
        return left

    # -- what the compiled module calls ----------------------------------------------------

    def punted(self, data: bytes) -> None:
        self._connection.carry_message(data)

    def foreign(self, data: bytes) -> bool:
        connection = self._connection
        connection.take_data(data)
        return connection.at_border

    def ended(self) -> None:
        connection = self._connection
        left = connection.leave_port()
        if left:
            connection.take_data(left)
        if not connection.is_stopped:
            connection.transport.resumeProducing()  # and Twisted finds the end

    def rest(self, data: bytes) -> bool:
        return self._outlet.write_rest(data)

    def traffic(self) -> None:
        self._connection.heard()

    def heard(self, count: int) -> None:
        self._connection.session.mailbox.inbox.count_carried(count)

    def numbers(self, count: int) -> tuple[int, int, int]:
        numbers: tuple[int, int, int] = self._connection.session.mailbox.outbox.take_numbers(count)
        return numbers

    def kept(self, key: int, messages: list[bytes], offsets: list[int]) -> tuple[int, int]:
        room: tuple[int, int] = self._connection.session.mailbox.outbox.keep_carried(key, messages, offsets)
        return room

    def cut_off(self, is_lost: bool) -> None:
        connection = self._connection
        try:
            if is_lost and connection.session is not None:
                connection.session.mailbox.lose_carried()
        finally:
            connection.abort()

    # -- output --------------------------------------------------------------------------

    @property
    def has_unsent(self) -> bool:
        """
        Has it something to send?
        """
        return bool(self.number and self._plane.held(self.number))

    def take_outgoing(self) -> bytes:
        outgoing: bytes = self._plane.take_outgoing(self.number)
        return outgoing

    def set_direct(self, is_direct: bool) -> None:
        if self.number:
            self._plane.set_direct(self.number, is_direct)


class DecryptedPort(Port):
    """
    The port of a connection with TLS: the transport reads, and hands over what it has decrypted.

    The transport is paused while the connection wants nothing, and while the plane has messages left over.
    """

    __slots__ = ("_has_left_over",)

    _has_left_over: bool

    def descriptor(self) -> int:
        self._has_left_over = False
        return -1

    def start(self, is_stopped: bool) -> None:
        if not is_stopped:
            self.go_on()

    def feed(self, data: bytes) -> None:
        if not self.number:
            self._left += data  # TLS finds the rest when the socket is closed
        elif self._plane.feed(self.number, data):
            self._has_left_over = True
            self._connection.transport.pauseProducing()

    def read_on(self) -> None:
        """
        The plane has nothing left over.
        """
        if self._has_left_over:
            self._has_left_over = False
            self._resume_transport()

    def stop(self) -> None:
        super().stop()
        self._connection.transport.pauseProducing()

    def close(self) -> None:
        # The transport reads on, for the end of TLS; the connection ignores what else comes.
        self.look()
        self.read_on()
        super().stop()

    def go_on(self) -> None:
        super().go_on()
        if not self._has_left_over:
            self._resume_transport()

    def discard(self) -> None:
        super().discard()
        self.read_on()

    def _resume_transport(self) -> None:
        if not self._is_stopped and self._is_open:
            self._connection.transport.resumeProducing()


class PortOutlet(Outlet):
    """
    An outlet whose connection may have a port: what the port carried before leaves before.
    """

    __slots__ = ("port",)

    def __init__(self, transport: Any, cork: Cork) -> None:
        super().__init__(transport, cork)
        self.port: Port | None = None

    def write(self, data: bytes) -> None:
        if self.port is not None and self.port.has_unsent:
            self.take_carried()
        super().write(data)

    def take_carried(self) -> None:
        """
        Put what the port has to send behind what is here.
        """
        if self.port is not None and self.port.has_unsent:
            super().write(self.port.take_outgoing())

    def write_rest(self, data: bytes) -> bool:
        """
        Send what the socket did not take from the port; has everything left, so that it may be asked again?
        """
        if self._straight or len(data) <= CHUNK_BYTES:
            super().write(data)
        else:
            with self._cork:  # a chunk at a time, as TLS encrypts all that it gets
                super().write(data)
        return self._is_empty()

    def flush(self) -> None:
        super().flush()
        if self._buffered is not None and self.port is not None:
            self.port.set_direct(False)

    def push(self) -> None:
        self.take_carried()
        super().push()

    def forget(self) -> None:
        if self.port is not None and self.port.has_unsent:
            self.port.take_outgoing()
        super().forget()

    def drop(self) -> None:
        super().drop()
        self.port = None

    def stopProducing(self) -> None:
        # The transport is about to close its socket.
        if self.port is not None:
            self.port.leave()

    def _is_empty(self) -> bool:
        transport = self._transport
        return bool(
            self._straight
            and self._buffered is None
            and not self._stalled
            and transport.connected
            and not transport.disconnecting
            and not transport.dataBuffer
            and not transport._tempDataBuffer
        )

    def _put(self, data: bytes) -> None:
        super()._put(data)
        if self._straight and self.port is not None and not self._is_empty():
            self.port.set_direct(False)
