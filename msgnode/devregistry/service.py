"""
Both registries as services: records, sweep, and HTTP.
"""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from twisted.application.internet import StreamServerEndpointService
from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IStreamServerEndpoint
from twisted.internet.ssl import CertificateOptions
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from msgnode.devregistry.client_cert_gate import TLSEndpoint
from msgnode.devregistry.database import Checkpointer, connect
from msgnode.devregistry.domain_api import DomainApi
from msgnode.devregistry.fault_injection import Fault
from msgnode.devregistry.global_api import GlobalApi
from msgnode.devregistry.quota import Limits, Quota
from msgnode.devregistry.records import Records
from msgnode.devregistry.resource import RegistryResource, RegistrySite
from msgnode.sessions.counters import RegistryCounts
from msgnode.transport.allowed_hosts import Hosts

log = Logger()

MORE_SECONDS = 0.1  # seconds until the next step, if there is more to do


class Rules(NamedTuple):
    """
    The settings of the registries: seconds between sweeps, longest life of a record, and so on.

    `balancer` is the only IP address that may send requests. `hosts` are the allowed host names, None: any.
    With `tls`, the domain registry requires client certificates for writes. `named`: the client is the node,
    which names payers.
    """

    sweep: float = 20.0
    longest: int = 3600
    balancer: str = ""
    fault: Fault | None = None
    tls: CertificateOptions | None = None
    hosts: Hosts | None = None
    limits: Limits = Limits()
    named: bool = False


class Registries(MultiService):
    """
    The two registries on one file or `:memory:`, which is opened when the service starts.

    `domain` and `graph` are their endpoints, or None.
    """

    def __init__(
        self,
        path: Path | str,
        reactor: Any,
        domain: IStreamServerEndpoint | None = None,
        graph: IStreamServerEndpoint | None = None,
        run: Callable[..., Deferred[None]] = maybeDeferred,
        wall: Callable[[], float] = time.time,
        rules: Rules | None = None,
        counts: RegistryCounts | None = None,
    ) -> None:
        super().__init__()
        self._counts = counts
        self._path = path
        self._reactor = reactor
        self._endpoints = (domain, graph)
        self._run = run
        self._wall = wall
        self._rules = rules or Rules()
        self._database: sqlite3.Connection | None = None

    def startService(self) -> None:
        database, rules = connect(self._path), self._rules
        self._database = database
        quota = Quota(database, rules.limits, self._counts)
        records = Records(database, self._wall, rules.longest, quota)
        graph = GlobalApi(database, quota, self._wall)
        for endpoint, answer in zip(self._endpoints, (DomainApi(records).answer, graph.answer), strict=True):
            if endpoint is not None:
                tls = rules.tls if endpoint is self._endpoints[0] else None
                resource = RegistryResource(
                    answer,
                    self._reactor,
                    rules.balancer,
                    rules.fault,
                    tls is not None,
                    quota if rules.named else None,
                )
                if tls is not None:
                    endpoint = TLSEndpoint(endpoint, tls, self._reactor)
                listening = StreamServerEndpointService(
                    endpoint, RegistrySite(resource, rules.hosts, self._reactor)
                )
                listening._raiseSynchronously = True  # type: ignore[assignment]
                listening.setServiceParent(self)
        PeriodicService(rules.sweep, records.sweep, self._reactor).setServiceParent(self)
        if isinstance(self._path, Path):
            tidy = Checkpointer(self._path, self._run, self._reactor)
            tidy.setServiceParent(self)
            quota.full = tidy.move
        super().startService()

    def stopService(self) -> Deferred[Any]:
        stopped: Deferred[Any] = maybeDeferred(super().stopService)
        return stopped.addBoth(lambda done: None if self._database is None else self._database.close())


class PeriodicService(Service):
    """
    A periodic service. If `do` returns true, there is more to do, and it runs again soon.
    """

    def __init__(self, seconds: float, do: Callable[[], bool], clock: Any) -> None:
        self._seconds = seconds
        self._do = do
        self._clock = clock
        self._more: IDelayedCall | None = None
        self._beat = LoopingCall(self._once)
        self._beat.clock = clock

    def startService(self) -> None:
        super().startService()
        self._beat.start(self._seconds, now=False)

    def _once(self) -> None:
        try:
            if self._do() and (self._more is None or not self._more.active()):
                self._more = self._clock.callLater(MORE_SECONDS, self._once)
        except sqlite3.Error as why:  # the disk may be full only for a time
            log.error("the database of the registry cannot be used: {why}", why=str(why))

    def stopService(self) -> None:
        super().stopService()
        if self._beat.running:
            self._beat.stop()
        if self._more is not None and self._more.active():
            self._more.cancel()
