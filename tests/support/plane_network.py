"""
A node whose listeners without TLS have real sockets, which the compiled data plane reads.
"""

import socket
from itertools import count
from typing import Any

from twisted.internet import tcp
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure

from msgnode.transport.native_plane import NativePlane
from tests.support.fakes import MemoryNode
from tests.support.network import READ, Link, Network, Wire
from tests.support.plane_world import Descriptors, Local, is_readable

PLAIN = ("web", "plain", "line")  # listeners without TLS
BUFFER_BYTES = 8192  # in the kernel, each way

_numbers = count(60000)


class NodeSocket:
    """
    The node's end of a real connection.  `stalled`: the other end does not read.
    """

    def __init__(self, transport: Any) -> None:
        self.stalled = False
        self.transport = transport

    @property
    def disconnected(self) -> bool:
        return not self.transport.connected

    @property
    def size(self) -> int:
        """
        How many bytes wait in the node to be written.
        """
        return len(self.transport.dataBuffer) - self.transport.offset + self.transport._tempDataLen

    @property
    def deaf(self) -> bool:
        """
        Does the node read nothing from it now?
        """
        return self.transport.protocol.is_stopped


class ClientWire(Wire):
    """
    The client's end of a connection.
    """

    is_aborted = False

    def abortConnection(self) -> None:
        super().abortConnection()
        self.is_aborted = True


class SocketLink:
    """
    A connection between a client in memory and a real socket of the node's.
    """

    def __init__(self, client: Any, wire: ClientWire, server: NodeSocket, near: socket.socket) -> None:
        self._client = client
        self._unsent = b""
        self._near = near
        self._heard_end = False
        self.clientIO = wire
        self.serverIO = server

    @property
    def over(self) -> bool:
        return bool(self.serverIO.disconnected and self.clientIO.disconnected)

    def pump(self, advanceClock: bool = False) -> bool:
        if self.serverIO.disconnected and self.serverIO.stalled:
            self.serverIO.stalled = False  # a client that does not read hears that its connection is gone
        return any([self._send(), self._receive(), self.clientIO.read()])

    def close(self) -> None:
        self._near.close()

    def _send(self) -> bool:
        wire = self.clientIO
        if wire.disconnected:
            return False
        if wire.is_aborted:
            self._end()
            return True
        self._unsent += wire.getOutBuffer() or b""
        sent = 0
        if self._unsent:
            try:
                sent = self._near.send(self._unsent)
            except BlockingIOError:
                return False
            except OSError:
                self._unsent = b""
        self._unsent = self._unsent[sent:]
        if wire.disconnecting and not self._unsent:
            self._end()
            return True
        return sent > 0

    def _receive(self) -> bool:
        if self.serverIO.stalled or self._heard_end or self._near.fileno() < 0:
            return False
        try:
            data = self._near.recv(READ)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self.clientIO.bufferReceived(data)
        else:
            self._heard_end = True
            if not self.clientIO.unread:
                self._end()
        return True

    def _end(self) -> None:
        self._heard_end = True
        self._near.close()
        self.clientIO.disconnected = True
        self.clientIO.disconnectReason = Failure(ConnectionDone())
        self.clientIO.reportDisconnect()


class PlaneNetwork(Network):
    """
    The same listeners as those of Network, over real sockets where there is no TLS.
    """

    def __init__(self, module: Any, **sections: Any) -> None:
        from tests.support.world import World

        self.reactor = Descriptors()
        self.plane = NativePlane(module)
        self._sockets: list[SocketLink] = []
        node = MemoryNode(world=World, clock=self.reactor, data_plane=self.plane, **sections)
        super().__init__(node)

    def link(self, name: str, client: Protocol, peer: Any = None) -> Link:
        if name not in PLAIN:
            return super().link(name, client, peer)
        number = next(_numbers)
        peer = peer or IPv4Address("TCP", "192.0.2.1", number)
        server = self.listener(name).buildProtocol(peer)
        near, far = socket.socketpair()
        for end in (near, far):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            end.setblocking(False)
        transport = tcp.Server(
            Local(fileno=far.detach()), server, (peer.host, peer.port), None, number, self.reactor
        )  # type: ignore[arg-type]
        server.makeConnection(transport)
        wire = ClientWire(client, False)
        client.makeConnection(wire)
        link = SocketLink(client, wire, NodeSocket(transport), near)
        self._sockets.append(link)
        both: Any = link
        self.links.append(both)
        return both

    def pump(self) -> None:
        while True:
            super().pump()
            if not self._turn():
                return

    def _turn(self) -> bool:
        """
        Read and write what the node can; False: nothing.
        """
        due = is_readable(self.plane.poller)
        self.plane.poller.stop_clock(self.reactor.seconds())
        return any([self.plane.poller.round(), due, self.reactor.serve()])

    def end(self) -> None:
        """
        Close all connections.
        """
        for link in self._sockets:
            link.close()
        self.pump()
