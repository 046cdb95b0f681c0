"""
The twistd plugin `twistd msgregistry`: its options, and its service.

Like the reTHINK server, it reads EXPIRES, EXPIRES_MAX and LOAD_BALANCER_IP from the environment.
"""

import os
import socket
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from twisted.application.service import MultiService
from twisted.internet.endpoints import serverFromString
from twisted.internet.ssl import CertificateOptions
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.usage import Options as BaseOptions

from msgnode import __version__
from msgnode.config.schema import ConfigError, Listen
from msgnode.devregistry.fault_injection import Fault
from msgnode.devregistry.service import Registries, Rules
from msgnode.transport.allowed_hosts import Hosts
from msgnode.transport.listener import UnixPorts, with_backlog
from msgnode.transport.tls import options_for

log = Logger()


def stop(why: str) -> NoReturn:
    """
    Exit with an error in one line.
    """
    print(f"msgregistry: {why}", file=sys.stderr)
    sys.exit(2)


class Options(BaseOptions):
    """
    The options of `twistd msgregistry`.
    """

    optParameters = [
        ["domain", None, "tcp:4567:interface=127.0.0.1", "Endpoint of the domain registry, or none."],
        ["global", None, "tcp:5002:interface=127.0.0.1", "Endpoint of the global registry, or none."],
        ["cert", None, "", "Certificate of the domain registry, PEM: enables TLS."],
        ["key", None, "", "Private key of the certificate, if it is in another file."],
        [
            "client-ca",
            None,
            "",
            "CA whose client certificates are needed for writes, PEM; others are redirected to /error.",
        ],
        ["data", None, ":memory:", "The SQLite file, or :memory: to store nothing on disk."],
        [
            "fault",
            None,
            None,
            "Fail on purpose: delay=S, drop, empty, hang, html or redirect; @SHARE of requests.",
        ],
    ]

    def __init__(self) -> None:
        super().__init__()
        self.hosts = [socket.gethostname()]

    def opt_host(self, name: str) -> None:
        """
        A host name that requests may use, in addition to localhost and IP addresses; may be repeated.
        """
        self.hosts.append(name)

    def opt_version(self) -> None:
        """
        Print the version and exit.
        """
        print(f"msgnode {__version__}")
        sys.exit(0)

    def postOptions(self) -> None:
        try:
            self.rules = rules(os.environ)._replace(hosts=Hosts(self.hosts, "--host"))
            if self["fault"] is not None:
                self.rules = self.rules._replace(fault=Fault.parse(self["fault"]))
            if self["cert"]:
                self.rules = self.rules._replace(tls=certificates(self))
            elif self["key"] or self["client-ca"]:
                raise ValueError("--key and --client-ca need --cert")
        except (ValueError, ConfigError) as why:
            stop(str(why))


def rules(environment: Mapping[str, str]) -> Rules:
    """
    The settings in the environment. ValueError names a variable that is not a number.
    """
    numbers = {}
    for variable, name in (("EXPIRES", "sweep"), ("EXPIRES_MAX", "longest")):
        given = environment.get(variable)
        if given:
            if not given.isdecimal() or not int(given):
                raise ValueError(f"{variable}: expected seconds, found {given!r}")
            numbers[name] = int(given)
    return Rules(balancer=environment.get("LOAD_BALANCER_IP", ""), **numbers)  # type: ignore[arg-type]


def certificates(options: Mapping[str, str]) -> CertificateOptions:
    """
    TLS options that request a client certificate without requiring it. ConfigError names an unusable file.
    """
    listen = Listen("web", "", options["cert"], options["key"], options["client-ca"])
    return options_for(listen, required=False)


class Started(Registries):
    """
    The registries with a line in the log at the start. An error stops the start with one line.
    """

    def startService(self) -> None:
        try:
            super().startService()
        except ConfigError as why:
            stop(str(why))
        log.info(
            "the registries for development and small domains use the database {path}", path=str(self._path)
        )


def makeService(options: Options, reactor: Any = None) -> MultiService:
    """
    Both registries as a service.
    """
    if reactor is None:
        from twisted.internet import reactor
    endpoints, ports = [], UnixPorts(reactor)
    for name in ("domain", "global"):
        try:
            given = options[name]
            endpoints.append(None if given == "none" else serverFromString(ports, with_backlog(given)))
        except Exception as why:  # each kind of endpoint raises errors of its own
            stop(f"{name}: expected an endpoint such as tcp:4567, found {given!r}: {why}")
    path = options["data"] if options["data"] == ":memory:" else Path(options["data"])
    run = partial(deferToThreadPool, reactor, reactor.getThreadPool())
    domain, graph = endpoints
    return Started(path, reactor, domain, graph, run, rules=options.rules)
