"""
The servers that a client may connect to: those of its configuration, and those that INFO names.

The order is a ring: each attempt takes the next server. After a whole round without success there is a pause,
random below a limit that doubles with each round (exponential back-off with full jitter).
"""

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote, urlsplit

from msgnode.nats.options import Options
from msgnode.nats.wire.commands import ServerInfo
from msgnode.nats.wire.credentials import Credentials, Token, UserPassword

DEFAULT_PORT = 4222
MAX_DISCOVERED = 1000  # servers that INFO may name
STEADY_SECONDS = 5.0  # that a connection must have been up to count as a success
LAME_SECONDS = 120.0  # that a server in lame duck mode is avoided; nats-server stops within two minutes
_MAX_ROUNDS = 20


@dataclass(frozen=True)
class Server:
    """
    The address of a server. `name` is the host name that its certificate must have.
    """

    host: str
    port: int
    tls: bool = False
    credentials: Credentials | None = None
    name: str = ""
    is_discovered: bool = False

    @property
    def place(self) -> tuple[str, int]:
        return self.host, self.port

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_url(url: str) -> Server:
    """
    The server of a URL such as `nats://user:password@host:4222`, `tls://token@host`, or `host:port`.
    ValueError if it is none.
    """
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if parts.scheme not in ("nats", "tls") or not host or port == 0 or parts.path not in ("", "/"):
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"  # without the password
        raise ValueError(f"expected nats://HOST:PORT or tls://HOST:PORT, found {shown}")
    credentials: Credentials | None = None
    if parts.username is not None and parts.password is not None:
        credentials = UserPassword(unquote(parts.username), unquote(parts.password))
    elif parts.username:
        credentials = Token(unquote(parts.username))
    return Server(host, port or DEFAULT_PORT, parts.scheme == "tls", credentials, host)


class Servers:
    """
    The ring of servers. `chance` gives random numbers from 0 to 1, `seconds` the time.
    """

    def __init__(
        self, urls: Sequence[str], options: Options, chance: Callable[[], float], seconds: Callable[[], float]
    ) -> None:
        if not urls:
            raise ValueError("expected the URL of at least one server")
        self._options = options
        self._chance = chance
        self._seconds = seconds
        self._ring = list({server.place: server for server in map(parse_url, urls)}.values())
        if options.shuffle:
            self._ring.sort(key=lambda server: chance())
        self._lame: dict[tuple[str, int], float] = {}  # until when
        self._up_since: float | None = None
        self.failures = 0  # attempts in a row that had no lasting success

    def __len__(self) -> int:
        return len(self._ring)

    def __iter__(self) -> Iterator[Server]:
        return iter(self._ring)

    def take(self) -> Server:
        """
        The server for the next attempt.
        """
        found = next((server for server in self._ring if not self._is_lame(server)), self._ring[0])
        self._ring.remove(found)
        self._ring.append(found)
        return found

    def established(self) -> None:
        self._up_since = self._seconds()

    def ended(self) -> None:
        """
        An attempt failed, or a connection is over.
        """
        since, self._up_since = self._up_since, None
        if since is not None and self._seconds() - since >= STEADY_SECONDS:
            self.failures = 0
        else:
            self.failures += 1

    def pause(self) -> float:
        """
        The seconds before the next attempt.
        """
        rounds, more = divmod(self.failures, len(self._ring))
        if rounds == 0 or more:
            return self._chance() * self._options.retry_jitter_seconds
        limit = self._options.first_retry_seconds * 2.0 ** min(rounds - 1, _MAX_ROUNDS)
        return self._chance() * min(limit, self._options.last_retry_seconds)

    def avoid(self, server: Server) -> None:
        """
        A server is in lame duck mode: take others for a while.
        """
        now = self._seconds()
        self._lame = {place: until for place, until in self._lame.items() if until > now}
        self._lame[server.place] = now + LAME_SECONDS

    def has_other(self, server: Server) -> bool:
        """
        Is there a server to move to?
        """
        return any(other.place != server.place and not self._is_lame(other) for other in self._ring)

    def _is_lame(self, server: Server) -> bool:
        return self._lame.get(server.place, 0.0) > self._seconds()

    def discovered(self, info: ServerInfo, current: Server) -> None:
        """
        Take over the servers of INFO: new ones at a random place of the ring; those that left it are
        forgotten.
        """
        if not info.connect_urls:
            return
        named: dict[tuple[str, int], Server] = {}
        for url in info.connect_urls[:MAX_DISCOVERED]:
            try:
                server = parse_url(url)
            except ValueError:
                continue
            named[server.place] = server
        self._ring = [
            server
            for server in self._ring
            if not server.is_discovered or server.place in named or server.place == current.place
        ]
        known = {server.place for server in self._ring}
        for place, server in named.items():
            if place not in known:
                self._add(server, current)

    def _add(self, server: Server, current: Server) -> None:
        """
        Add a server that INFO named. It has the credentials of the one that named it; its certificate may
        have that one's name.
        """
        name = current.name if _is_address(server.host) and not _is_address(current.name) else server.host
        server = replace(
            server, tls=current.tls, credentials=current.credentials, name=name, is_discovered=True
        )
        at = int(self._chance() * (len(self._ring) + 1)) if self._options.shuffle else len(self._ring)
        self._ring.insert(at, server)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
