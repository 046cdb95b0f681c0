"""
The record of one stub in the registry of stubs and connectors: its state and its figures.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from msgnode.foreign.fetch.stub_code import StubCode
from msgnode.structures.log_limits import printable

ABSENT, DOWNLOADING, VERIFIED = "absent", "downloading", "verified"
CREATED, IN_PROGRESS, LIVE, DISCONNECTED = "created", "in-progress", "live", "disconnected"
STOPPED, FAILED = "stopped", "failed"
STATES = (ABSENT, DOWNLOADING, VERIFIED, CREATED, IN_PROGRESS, LIVE, DISCONNECTED, STOPPED, FAILED)

MAX_TEXT_CHARS = 500
# The words under which a stub's events are counted, in addition to the reasons of refusals.
EVENTS = (
    *("start", "failure", "fetch-failed", "version-replaced", "version-rejected", "sent", "received", "echo"),
    "repeated",
    *("old-answer", "peer", "malformed", "stale", "overflow", "no-path"),
)

log = Logger()


class StubRecord:
    """
    A stub in the registry: its state, since when, its version, where its code came from, and its figures.

    `connectors` are the addresses for which it takes the place of a connector.
    """

    def __init__(self, domain: str, wall: Callable[[], float]) -> None:
        self.domain = domain
        self.state = ABSENT
        self.since = wall()
        self.last_error = ""
        self.version = self.digest = self.source = ""  # of the code
        self.hosts: tuple[str, ...] = ()
        self.connectors: list[str] = []
        self.counts: Counter[str] = Counter()
        self.limits: Counter[str] = Counter()  # how often it has reached each
        self.waiting = self.addresses = 0
        self._wall = wall

    def change(self, state: str, why: str = "") -> None:
        """
        Notes another state.
        """
        why = printable(" ".join(why.split()))[:MAX_TEXT_CHARS]
        if why:
            self.last_error = why
        if state == self.state:
            return
        log.info(
            "the stub of {domain}: {before} -> {state}{why}",
            domain=self.domain,
            before=self.state,
            state=state,
            why=f": {why}" if why else "",
        )
        self.state, self.since = state, self._wall()

    def use(self, code: StubCode, hosts: tuple[str, ...]) -> None:
        """
        Notes the version that runs.
        """
        self.version, self.digest, self.source, self.hosts = code.version, code.digest, code.source, hosts

    def to_builtins(self) -> dict[str, Any]:
        return {
            "name": self.domain,
            "kind": "connector stub" if self.connectors else "foreign stub",
            "state": self.state,
            "since": self.since,
            "addresses": [*self.connectors],
            "version": self.version,
            "digest": self.digest,
            "source": self.source,
            "hosts": list(self.hosts),
            "waiting": self.waiting,
            "subscribed": self.addresses,
            "failures": self.counts["failure"],
            "last_error": self.last_error,
            "figures": dict(self.counts),
            "limits": dict(self.limits),
        }
