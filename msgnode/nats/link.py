"""
The link of a client to its servers: one connection at a time, made again when it is lost.

It owns what outlives a connection: the ring of servers, the buffer of what is to be sent, and the pings.
"""

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall

from msgnode.nats.connection import Connection, Deliver
from msgnode.nats.dialer import Dialer, EndpointFor
from msgnode.nats.errors import BufferFull, Closed, ConnectionLost, NoServer, RequestTimeout, ServerError
from msgnode.nats.options import Listener, Options
from msgnode.nats.outgoing import Outgoing
from msgnode.nats.pings import Pings
from msgnode.nats.servers import Server, Servers
from msgnode.nats.wire import commands
from msgnode.nats.wire.commands import ServerInfo

MAX_PINGS = 1000  # that wait for their answers


class Owner(Protocol):
    """
    The owner of a link: the client.
    """

    @property
    def deliver(self) -> Deliver:
        """
        Gets each message of a connection that is up.
        """

    def restoring(self) -> bytes:
        """
        The commands that a new connection begins with.
        """


class Link:
    """
    A connection to one of the servers. `chance` gives random numbers from 0 to 1.

    `info` is the INFO of the newest connection.
    """

    def __init__(
        self,
        owner: Owner,
        servers: Servers,
        endpoint_for: EndpointFor,
        options: Options,
        listener: Listener,
        chance: Callable[[], float],
        reactor: Any,
    ) -> None:
        self.info = ServerInfo()
        self.servers = servers
        self.outgoing = Outgoing(reactor, options.max_pending_bytes, listener.full, listener.has_room)
        self.is_closed = False
        self._owner = owner
        self._options = options
        self._listener = listener
        self._chance = chance
        self._clock = reactor
        self._pings = Pings(reactor, options.ping_seconds, options.max_pings, self._send_ping, self._silent)
        self._dialer = Dialer(servers, endpoint_for, self._build, self._attempt_failed, reactor)
        self._connection: Connection | None = None  # that is up
        self._newest: Connection | None = None
        self._first: Deferred[ServerInfo] | None = None
        self._is_started = self._retries = self._is_reading_paused = False
        self._moving: IDelayedCall | None = None

    @property
    def server(self) -> Server | None:
        """
        The server of the connection that is up.
        """
        return None if self._connection is None else self._connection.server

    def start(self, retry: bool) -> Deferred[ServerInfo]:
        """
        Connect; fires when the first connection is up. Unless `retry`, it fails after one attempt at each
        server.
        """
        if self._is_started or self.is_closed:
            return fail(Closed("expected a client that was never connected: make a new one"))
        self._is_started, self._retries = True, retry
        first: Deferred[ServerInfo] = Deferred(lambda _: self._cancelled())
        self._first = first
        self._dialer.start()
        return first

    def _cancelled(self) -> None:
        self.close()

    def close(self) -> Deferred[None]:
        """
        Write what waits, as far as the transport takes it, and end the connection; fires when it is over.
        """
        self.is_closed = True
        self.outgoing.flush()
        self._release()
        self.outgoing.clear()
        first, self._first = self._first, None
        if first is not None:
            first.errback(Closed("the client was closed before it was connected"))
        if self._newest is not None:
            self._newest.close()
        return self._dialer.stop()

    def ping(self, timeout: float) -> Deferred[None]:
        """
        Send a ping; fires with the answer. ConnectionLost or RequestTimeout if there is none.
        """
        if self._connection is None:
            return fail(ConnectionLost("there is no connection"))
        if len(self._pings) >= MAX_PINGS:
            return fail(BufferFull(f"{MAX_PINGS} pings wait for their answers"))
        return self._pings.ping().addTimeout(timeout, self._clock, _too_late)

    def send_control(self, command: bytes) -> None:
        """
        Send a command that the next connection would begin with: without a connection it is dropped.
        """
        if self._connection is not None:
            self.outgoing.put_control(command)

    def pause_reading(self) -> None:
        self._is_reading_paused, self._pings.is_reading = True, False
        self._call_transport("pauseProducing")

    def resume_reading(self) -> None:
        self._is_reading_paused, self._pings.is_reading = False, True
        self._pings.was_heard = True
        self._call_transport("resumeProducing")

    def _call_transport(self, name: str) -> None:
        if self._connection is not None:
            getattr(self._connection.transport, name)()

    # -- from the dialer and its connections ---------------------------------

    def _build(self, server: Server) -> Connection:
        self._newest = Connection(self, self._owner.deliver, server, self._options, self._clock)
        return self._newest

    def established(self, connection: Connection) -> None:
        if self.is_closed:
            connection.close()
            return
        self._connection = connection
        self.info = connection.info
        self.servers.established()
        self.servers.discovered(connection.info, connection.server)
        self._pings.start()
        self.outgoing.attach(connection.transport, self._owner.restoring())
        if self._is_reading_paused:
            self.pause_reading()
        self._listener.connected(connection.info)
        first, self._first = self._first, None
        if first is not None:
            first.callback(connection.info)

    def data_came(self) -> None:
        self._pings.was_heard = True
        self.outgoing.hold()

    def data_handled(self) -> None:
        self.outgoing.flush()

    def pinged(self) -> None:
        self.outgoing.pong()

    def ponged(self) -> None:
        self._pings.pong()

    def server_failed(self, error: ServerError) -> None:
        self._listener.failed(error)

    def ended(self, connection: Connection, reason: Exception) -> None:
        self.servers.ended()
        if connection is self._connection:
            self._release()
        if connection.was_up:
            self._listener.disconnected(reason)
        else:
            self._attempt_failed(reason)

    def _release(self) -> None:
        """
        The connection carries nothing any more.
        """
        self._connection = None
        if self._moving is not None:
            self._moving.cancel()
            self._moving = None
        self.outgoing.detach()
        for answer in self._pings.stop():
            if not answer.called:
                answer.errback(ConnectionLost("the connection was lost; messages may be lost with it"))

    def _attempt_failed(self, reason: Exception) -> None:
        if self.is_closed:
            return
        self._listener.failed(reason)
        if self._first is not None and not self._retries and self.servers.failures >= len(self.servers):
            first, self._first = self._first, None
            stopped = self.close()
            stopped.addBoth(lambda _: first.errback(NoServer(reason)))

    # -- lame duck mode ------------------------------------------------------

    def info_changed(self, connection: Connection, info: ServerInfo) -> None:
        was_lame, self.info = self.info.ldm, info
        self.servers.discovered(info, connection.server)
        if info.ldm and not was_lame:
            self.servers.avoid(connection.server)
            self._listener.lame_duck(info)
            if connection is self._connection and self.servers.has_other(connection.server):
                seconds = self._chance() * self._options.lame_duck_seconds
                self._moving = self._clock.callLater(seconds, self._move, connection)

    def _move(self, connection: Connection) -> None:
        """
        Leave a server that will stop, once it has processed what was sent.
        """
        self._moving = None
        self._pings.ping().addCallbacks(lambda _: self._leave(connection), lambda _: None)

    def _leave(self, connection: Connection) -> None:
        if connection is self._connection:
            self._release()
            connection.close()

    # -- pings ---------------------------------------------------------------

    def _send_ping(self) -> None:
        self.outgoing.put_control(commands.PING)

    def _silent(self) -> None:
        if self._connection is not None:
            self._connection.fail(ConnectionLost(f"{self._connection.server} is silent"))


def _too_late(result: object, seconds: float) -> None:
    raise RequestTimeout(f"no answer to a ping within {seconds:g} s")
