"""
Open connections, counted in all and by the host they come from, and who may still come.

There are two limits.  A connection beyond the first is told to try again
later, in its own protocol.  Sockets beyond the second, a little higher, are
closed unheard: being polite to everybody would be the attack.
"""

from typing import Any

from twisted.logger import Logger

from msgnode.config.schema import Config
from msgnode.protocol.peer_address import peer_host, peer_name

# Sockets beyond the limit that are still answered.
MARGIN, MORE = 1.1, 100

MAX_DISTRUSTED = 10  # of those that the log names

log = Logger()


class ConnectionLimits:
    """
    Limits of open connections, for the node and for each IP address.

    `refused` counts connections that were told to come later, `dropped` sockets that were closed unheard.
    """

    def __init__(self, config: Config) -> None:
        self.refused = self.dropped = 0
        self._config = config
        self._hosts: dict[str, int] = {}
        self._distrusted: set[str] = set()  # who says on whose behalf it comes, and is not believed
        self._all = 0
        self._admitted: dict[Any, str] = {}  # the hosts of connections; a proxy's header has named some

    def __len__(self) -> int:
        return self._all

    def named(self, address: Any, forwarded: str = "") -> str:
        """
        The peer at this address; a trusted proxy names it by X-Forwarded-For.

        Who is none is not believed.  The log says so once for each of a few: it may be a
        proxy that somebody forgot, behind which all the world is one client.
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
                log.warn("{host} says X-Forwarded-For, but is none of trusted_proxies", host=host)
        return peer_name(address, forwarded, trusted)

    # -- sockets -------------------------------------------------------------

    def heard(self, address: Any) -> bool:
        """
        May a socket from this address speak at all?
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
        Whom a socket from this address counts for, while it is no client's connection.
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
        Count a client's connection until it is `gone`.  False: there are too many, and it has to go.
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
