"""
Limits of open connections, for the whole node and for each IP address.

There are two limits. A connection beyond the first is refused in its own protocol, with a time to retry.
Sockets beyond the second, slightly higher limit are closed at once: under attack, an answer to each of them
would cost too much.
"""

from typing import Any

from twisted.logger import Logger

from msgnode.config.schema import Config
from msgnode.protocol.peer_address import peer_host, peer_name

# Sockets beyond the limit that still get an answer: a factor and a number.
MARGIN, MORE = 1.1, 100

MAX_DISTRUSTED = 10  # proxies that the log names

log = Logger()


class ConnectionLimits:
    """
    Limits of open connections, for the node and for each IP address.

    `refused` counts connections that were refused with an answer, `dropped` sockets that were closed without
    one.
    """

    def __init__(self, config: Config) -> None:
        self.refused = self.dropped = 0
        self._config = config
        self._hosts: dict[str, int] = {}
        self._distrusted: set[str] = set()  # proxies that are not trusted, as the log has said
        self._all = 0
        self._admitted: dict[Any, str] = {}  # the hosts of connections, some by a proxy's header

    def __len__(self) -> int:
        return self._all

    def named(self, address: Any, forwarded: str = "") -> str:
        """
        The name of the peer at this address, which a trusted proxy gives in X-Forwarded-For.

        The header of any other host is ignored. The log names a few such hosts once: one may be a proxy that
        is missing in `trusted_proxies`, so that all clients behind it count as one.
        """
        trusted = self._config.trusted_proxies
        if forwarded:
            host = getattr(address, "host", None) or "unix"
            if (
                host not in trusted
                and host not in self._distrusted
                and len(self._distrusted) < MAX_DISTRUSTED
            ):
                self._distrusted.add(host)
                log.warn("{host} sends X-Forwarded-For, but is not one of trusted_proxies", host=host)
        return peer_name(address, forwarded, trusted)

    # -- sockets -------------------------------------------------------------

    def may_accept(self, address: Any) -> bool:
        """
        May a socket from this address be accepted at all?
        """
        limits = self._config.limits
        if self._all < limits.connections * MARGIN + MORE:
            host = self.host(address)
            if not host or self._hosts.get(host, 0) < limits.connections_per_ip * MARGIN + MORE:
                return True
        self.dropped += 1
        return False

    def host(self, address: Any) -> str:
        """
        The host that a socket counts for, before it is a client's connection.
        """
        return peer_host(peer_name(address), self._config.trusted_proxies)

    def enter(self, host: str) -> None:
        self._all += 1
        if host:
            self._hosts[host] = self._hosts.get(host, 0) + 1

    def leave(self, host: str) -> None:
        self._all -= 1
        if host:
            left = self._hosts[host] - 1
            if left:
                self._hosts[host] = left
            else:
                del self._hosts[host]

    # -- clients' connections ------------------------------------------------

    def admit(self, connection: Any) -> bool:
        """
        Count a client's connection until it is `gone`. False if there are too many, and it must be closed.
        """
        if connection in self._admitted:
            return True
        host = peer_host(connection.peer, self._config.trusted_proxies)
        self._admitted[connection] = host
        self.enter(host)
        limits = self._config.limits
        if self._all <= limits.connections and (not host or self._hosts[host] <= limits.connections_per_ip):
            return True
        self.refused += 1
        return False

    def gone(self, connection: Any) -> None:
        host = self._admitted.pop(connection, None)
        if host is not None:
            self.leave(host)
