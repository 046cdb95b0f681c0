"""
What `twistd msgregistry` starts, and its options.

EXPIRES, EXPIRES_MAX and LOAD_BALANCER_IP are read from the environment, as the
reTHINK server does.
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
from msgnode.transport.listener import with_backlog
from msgnode.transport.tls import options_for

log = Logger()


def stop(why: str) -> NoReturn:
    """
    Do not start; say why in one line.
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
        ["cert", None, "", "Certificate of the domain registry, PEM: it speaks TLS."],
        ["key", None, "", "The key of it, if that is in another file."],
        [
            "client-ca",
            None,
            "",
            "Whose certificates clients need to write there, PEM; others are sent to /error.",
        ],
        ["data", None, ":memory:", "The SQLite file, or :memory: to forget everything at the end."],
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
        A name that requests may ask for beside localhost and addresses; may be repeated.
        """
        self.hosts.append(name)

    def opt_version(self) -> None:
        """
        Print the version and leave.
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
    What the environment says; ValueError names the variable that is no number.
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
    TLS that asks for a certificate and does without; ConfigError names the file that cannot be used.
    """
    listen = Listen("web", "", options["cert"], options["key"], options["client-ca"])
    return options_for(listen, required=False)


class Started(Registries):
    """
    Says what it is for; a mistake stops the start in one line.
    """

    def startService(self) -> None:
        try:
            super().startService()
        except ConfigError as why:
            stop(str(why))
        log.info(
            "registries for development and small domains of one node, kept in {path}", path=str(self._path)
        )


def makeService(options: Options, reactor: Any = None) -> MultiService:
    """
    Both registries, ready to start.
    """
    if reactor is None:
        from twisted.internet import reactor
    endpoints = []
    for name in ("domain", "global"):
        try:
            given = options[name]
            endpoints.append(None if given == "none" else serverFromString(reactor, with_backlog(given)))
        except Exception as why:  # each kind of endpoint complains in its own way
            stop(f"{name}: expected an endpoint such as tcp:4567, found {given!r}: {why}")
    path = options["data"] if options["data"] == ":memory:" else Path(options["data"])
    run = partial(deferToThreadPool, reactor, reactor.getThreadPool())
    domain, graph = endpoints
    return Started(path, reactor, domain, graph, run, rules=options.rules)
