"""
Facts about this node that are set when it starts: its file, its options, its listeners, its version.
"""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cryptography import x509

import twisted
from msgnode import __version__
from msgnode.config.reload import Reloading, ReloadVerdict, revision
from msgnode.config.schema import Config
from msgnode.structures.log_levels import LogLevels
from msgnode.transport.listener import Listener


class ListenerFacts(NamedTuple):
    """
    A listener: its kind, its address, and with TLS the subject and the end of its certificate.

    `not_after` is in seconds since 1970, None without TLS.
    """

    kind: str
    where: str
    tls: bool
    subject: str = ""
    not_after: float | None = None


class NodeFacts:
    """
    The facts that the service knows and the node itself does not.

    `given` has the options of the command line, by section; `wall` gives seconds since 1970.
    """

    def __init__(
        self,
        config: Config,
        config_file: str = "",
        given: Mapping[str, Any] | None = None,
        listening: Sequence[Listener] = (),
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.version = __version__
        self.python = platform.python_version()
        self.twisted = twisted.__version__
        self.config = config
        self.config_file = config_file
        self.given = given or {}
        self.listening = listening
        self.reloading: Reloading | None = None
        self.log_levels: LogLevels | None = None  # None: the log is twistd's, with every level
        self.wall = wall
        self.started = wall()
        self._loaded = self.started
        self._revision: tuple[ReloadVerdict | None, str] | None = None

    @property
    def last_reload(self) -> ReloadVerdict | None:
        return self.reloading.last if self.reloading is not None else None

    @property
    def config_loaded(self) -> float:
        """
        When the configuration in effect was read, in seconds since 1970.
        """
        last = self.last_reload
        if last is not None and last.ok:
            self._loaded = last.time
        return self._loaded

    @property
    def revision(self) -> str:
        """
        The revision of the configuration in effect; computed once for each reload.
        """
        last = self.last_reload
        if self._revision is None or self._revision[0] is not last:
            self._revision = last, revision(self.config)
        return self._revision[1]

    def listeners(self) -> list[ListenerFacts]:
        """
        The listeners with their certificates of now.
        """
        found = []
        for each in self.listening:
            certificate: x509.Certificate | None = each.tls.certificate if each.tls is not None else None
            if certificate is None:
                found.append(ListenerFacts(each.kind, each.where or each.configured_endpoint, False))
                continue
            found.append(
                ListenerFacts(
                    each.kind,
                    each.where or each.configured_endpoint,
                    True,
                    certificate.subject.rfc4514_string(),
                    certificate.not_valid_after_utc.timestamp(),
                )
            )
        return found
