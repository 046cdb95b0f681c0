"""
The embedded registries: both development registries within the node.

The node calls them by HTTP, like external registries; they listen on UNIX sockets
in the state directory.  Without a state directory their records are in memory only.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import UNIXServerEndpoint
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from msgnode.config.sections import RegistryOptions
from msgnode.devregistry.database import NoRoom
from msgnode.devregistry.quota import Limits
from msgnode.devregistry.service import Registries, Rules
from msgnode.node import Node
from msgnode.protocol.message import Message
from msgnode.protocol.peer_address import peer_host
from msgnode.sessions.session import Session
from msgnode.transport.endpoints import QuietServerEndpoint
from msgnode.transport.listener import remove_socket

log = Logger()

DOMAIN_SOCKET, GLOBAL_SOCKET, FILE = "registry.sock", "global-registry.sock", "registry.sqlite"
MEMORY = ":memory:"  # instead of the file, without a state directory
MAX_SOCKET_PATH_BYTES = 100  # bytes of a UNIX socket's path; the kernel takes a few more
BACKLOG = 1024
RETRY_SECONDS = 5.0  # until the next attempt, after the disk had no room for a new database


class Embedded(Registries):
    """
    The service of both registries within the node, on the UNIX sockets of `place`.
    """

    def __init__(
        self, place: "EmbeddedPaths", node: Node, reactor: Any, run: Callable[..., Deferred[Any]]
    ) -> None:
        config = node.config
        paths = [
            place.socket(name) if url == "embedded" else None
            for name, url in (
                (DOMAIN_SOCKET, config.registry.url),
                (GLOBAL_SOCKET, config.global_registry.url),
            )
        ]
        domain, graph = (
            None
            if path is None
            else QuietServerEndpoint(UNIXServerEndpoint(reactor, path, BACKLOG, 0o600, wantPID=False))
            for path in paths
        )
        rules = Rules(config.registry.sweep_seconds, limits=limits_of(config.registry), named=True)
        super().__init__(place.file, reactor, domain, graph, run, rules=rules, counts=node.registry_counts)
        self._place = place
        self._sockets = [path for path in paths if path is not None]
        self._again: IDelayedCall | None = None

    def startService(self) -> None:
        for path in self._sockets:  # the directory is locked: they are of a node that was killed
            remove_socket(path)
        try:
            super().startService()
        except NoRoom as why:
            # The node starts without it.  Until the registry starts, its requests get an error.
            log.error(
                "the embedded registry does not start: {why}; trying again in {seconds:g} s",
                why=str(why),
                seconds=RETRY_SECONDS,
            )
            self._again = self._reactor.callLater(RETRY_SECONDS, self.startService)
            return
        where = "memory" if self._place.file == MEMORY else str(self._place.file)
        log.info("registry: embedded, in {file}; for development and small domains", file=where)

    def stopService(self) -> Deferred[Any]:
        if self._again is not None and self._again.active():
            self._again.cancel()
        return super().stopService().addBoth(lambda done: self._place.clear())


def payer(node: Node, message: Message, session: Session) -> str:
    """
    Returns the owner of an entry: the verified user, else the host it came from, else "" for no owner.
    """
    if session.identity:
        return "user:" + quote(session.identity, safe=":/@")
    host = peer_host(message.origin.peer, node.config.trusted_proxies)
    return f"ip:{quote(host, safe=':/')}" if host else ""


def limits_of(options: RegistryOptions) -> Limits:
    return Limits(
        options.max_entry_bytes,
        options.max_entries_per_owner,
        options.max_bytes_per_owner,
        options.max_entries,
        options.max_bytes,
        options.retention_seconds,
    )


class EmbeddedPaths:
    """
    The directory of the embedded registries: their file and their sockets.

    Without a state directory, or if its path is too long for a UNIX socket, the
    sockets are in a private temporary directory.
    """

    def __init__(self, state: str) -> None:
        self._state = Path(state).absolute() if state != "none" else None
        self._temporary: TemporaryDirectory[str] | None = None

    @property
    def file(self) -> Path | str:
        return self._state / FILE if self._state else MEMORY

    def socket(self, name: str) -> str:
        path = str((self._state or self._made()) / name)
        return path if len(path.encode()) <= MAX_SOCKET_PATH_BYTES else str(self._made() / name)

    def clear(self) -> None:
        """
        Remove the temporary directory, if there is one.
        """
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _made(self) -> Path:
        if self._temporary is None:
            self._temporary = TemporaryDirectory(prefix="msgnode-")
        return Path(self._temporary.name)
