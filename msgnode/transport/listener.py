"""
A listening port for clients or operators, over TLS if it has a certificate.
"""

import os
import re
import socket
import stat
from contextlib import suppress
from errno import EADDRINUSE
from typing import Any

from twisted.application.internet import StreamServerEndpointService
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from msgnode.config.schema import ConfigError, Listen
from msgnode.transport.endpoints import QuietServerEndpoint
from msgnode.transport.sockets import SharedPorts, address_name, keep_alive
from msgnode.transport.tls import as_table, over_tls

log = Logger()

SYSTEMD = re.compile(r"systemd:(domain=)?(INET6?|UNIX):((index=)?\d+|name=[^:]+)")

READ_ONCE = "SIGHUP does not reload its certificate; give the chain in certKey, or a [[listen]] table"
# For a reader who starts a second node, or whose port is taken by another program.
ELSEWHERE = (
    "\nIs a node running already? --web, --lines and --admin choose other ports;"
    " tcp:0:interface=127.0.0.1 is any that is free."
)
BACKLOG = 4096  # of the accept queue; by default Linux takes no more
LOCK = ".lock"  # after the name of a UNIX socket: Twisted's lock, a symbolic link to a process id
PROBE_SECONDS = 1.0


class Listener(StreamServerEndpointService):
    """
    A listening port as a service. It logs its address. ConfigError if its endpoint is invalid or in use.
    """

    _raiseSynchronously = True

    def __init__(self, listen: Listen, factory: Any, reactor: Any) -> None:
        self.kind: str = listen.kind
        self.where = ""  # the bound address, once it listens
        self._is_held = False
        self._port: Any = None
        self._listen = listen
        try:
            table = as_table(listen)
            ports = UnixPorts(SharedPorts(reactor) if listen.reuse_port else reactor)
            endpoint: Any = serverFromString(ports, with_backlog(table.endpoint))
            self.tls = over_tls(table, factory, reactor) if table.cert else None
        except ConfigError as why:
            raise ConfigError(f"{listen.kind}: {why}") from why
        except Exception as why:  # each kind of endpoint raises errors of its own
            found = f"expected an endpoint such as tcp:9090, found {listen.endpoint!r}: {why}"
            if SYSTEMD.fullmatch(listen.endpoint):
                found = f"systemd passed no socket for {listen.endpoint!r}; start the socket unit first"
            raise ConfigError(f"{listen.kind}: {found}") from why
        if table.endpoint.startswith("ssl:"):
            log.warn("{kind}: {endpoint}: {what}", kind=listen.kind, endpoint=listen.endpoint, what=READ_ONCE)
        super().__init__(QuietServerEndpoint(endpoint), self.tls or factory)

    def hold(self) -> None:
        """
        Accept no connection until `release`: those that are made meanwhile wait in the accept queue.
        """
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        if self._port is not None and self.running:
            self._port.startReading()

    @property
    def configured_endpoint(self) -> str:
        """
        The endpoint as the configuration has it; `endpoint` is Twisted's.
        """
        return self._listen.endpoint

    @property
    def scheme(self) -> str:
        return "https" if self.tls is not None or self._listen.endpoint.startswith("ssl:") else "http"

    def privilegedStartService(self) -> None:
        try:
            super().privilegedStartService()
        except CannotListenError as why:
            # For a UNIX socket it may be a string.
            taken = ELSEWHERE if getattr(why.socketError, "errno", 0) == EADDRINUSE else ""
            raise ConfigError(f"cannot listen on {self._listen.endpoint}: {why.socketError}{taken}") from why
        assert self._waitingForPort is not None
        self._waitingForPort.addCallback(self._say_where)

    def _say_where(self, port: IListeningPort) -> IListeningPort:
        kind, endpoint = self._listen.kind, self._listen.endpoint
        self.where = _where(port)
        log.info(
            "{kind}: listening on {where}{hint}",
            kind=kind,
            where=self.where,
            hint=_hint(kind, endpoint, self.tls is not None),
        )
        if self._is_held and hasattr(port, "stopReading"):
            self._port = port
            self._port.stopReading()
        listening = getattr(port, "socket", None)
        if listening is not None:  # a port in memory has none
            keep_alive(listening)
        return port


def _where(port: IListeningPort) -> str:
    return address_name(port.getHost())


def _hint(kind: str, endpoint: str, tls: bool) -> str:
    local = ":interface=127.0.0.1"
    if local not in endpoint:
        return ""
    if kind in ("admin", "node") or tls:
        return " (this machine only)"
    option = "lines" if kind == "line" else kind
    return f" (this machine only; --{option} {endpoint.replace(local, '')} opens it to others)"


def with_backlog(endpoint: str) -> str:
    """
    The endpoint with a longer accept queue. After a restart all clients connect at once; without it, some
    would wait a second or more.
    """
    if endpoint.startswith(("tcp:", "ssl:")) and "backlog=" not in endpoint:
        return f"{endpoint}:backlog={BACKLOG}"
    return endpoint


class UnixPorts:
    """
    A reactor for endpoints whose UNIX sockets have no lock. The socket of a process that ended is replaced;
    one on which a process listens is in use.

    Twisted's lock names a process id, which another process may have after a power failure. In a container
    it is the id of the node itself, which would never start again.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def listenUNIX(
        self, address: str, factory: Factory, backlog: int = 50, mode: int = 0o666, wantPID: int = 0
    ) -> IListeningPort:
        if not is_in_use(address):
            remove_socket(address)
        port: IListeningPort = self._reactor.listenUNIX(address, factory, backlog, mode, False)
        return port

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)


def is_in_use(path: str) -> bool:
    """
    Does a process listen on the socket? If that cannot be found out, it does.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(PROBE_SECONDS)  # its accept queue may be full
        try:
            client.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def remove_socket(path: str) -> None:
    """
    Removes a socket that no process listens on, and the lock that an earlier version left with it. What is
    no socket stays.
    """
    with suppress(OSError, ValueError):  # an abstract name is in no directory
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
    with suppress(OSError, ValueError):
        if os.path.islink(path + LOCK):
            os.unlink(path + LOCK)
