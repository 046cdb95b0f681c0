"""
The web resource of a registry: it converts requests to calls of `answer`, and replies to responses.
"""

import re
import sqlite3
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from msgnode.devregistry.client_cert_gate import TO_ERROR, may_pass
from msgnode.devregistry.domain_api import BROKEN, TOO_LONG, Answering, Reply
from msgnode.devregistry.fault_injection import Fault
from msgnode.devregistry.quota import Quota
from msgnode.transport.allowed_hosts import Hosts, Misdirected

log = Logger()

_REQUEST_LINE = re.compile(rb"[A-Z]+ /")
PAYER = "X-Msgnode-Payer"
MAX_PAYER = 1000  # characters of a payer's name


class RegistryResource(Resource):
    """
    A resource for one registry. `fault` is injected; only the IP address `balancer` may send requests, if it
    is given.

    With `certified`, writes need a client certificate. With a `quota`, a header names the payer of an entry.
    """

    isLeaf = True

    def __init__(
        self,
        answer: Answering,
        clock: IReactorTime,
        balancer: str = "",
        fault: Fault | None = None,
        certified: bool = False,
        quota: Quota | None = None,
    ) -> None:
        super().__init__()
        self.fault = fault
        self._answer = answer
        self._clock = clock
        self._balancer = balancer
        self._certified = certified
        self._quota = quota

    def render(self, request: Request) -> Any:
        fault = self.fault
        if fault is not None and fault.befalls():
            if fault.kind == "delay":
                late = self._clock.callLater(fault.seconds, self._finish, request)
                request.notifyFinish().addErrback(_forget, late)
                return NOT_DONE_YET
            return fault.spoil(request)
        return self._respond(request)

    def _respond(self, request: Request) -> bytes:
        if self._balancer and getattr(request.getClientAddress(), "host", "") != self._balancer:
            return send(request, Reply(401, b"Unauthorized request", "text/plain"))
        if self._certified and not may_pass(request):
            return send(request, TO_ERROR)
        assert request.content is not None
        if self._quota is not None:
            self._quota.payer = (request.getHeader(PAYER) or "")[:MAX_PAYER]
        method, uri = request.method.decode("ascii", "replace"), request.uri.decode("utf-8", "replace")
        try:
            reply = self._answer(method, uri, request.content.read())
        except sqlite3.Error as why:
            log.error("the database of the registry cannot be used: {why}", why=str(why))
            reply = BROKEN
        return send(request, reply)

    def _finish(self, request: Request) -> None:
        request.write(self._respond(request))
        request.finish()


def _forget(gone: Failure, late: IDelayedCall) -> None:
    if late.active():
        late.cancel()


def send(request: Request, reply: Reply) -> bytes:
    request.setResponseCode(reply.status)
    request.setHeader(b"Content-Type", reply.kind.encode())
    if reply.location:
        request.setHeader(b"Location", reply.location.encode())
    return reply.body


class RegistryChannel(HTTPChannel):
    """
    A connection that answers 414 to a URL that is too long.
    """

    def lineLengthExceeded(self, line: bytes) -> None:
        transport: Any = self.transport
        if _REQUEST_LINE.match(line):
            transport.write(
                b"HTTP/1.1 414 URI Too Long\r\nConnection: close\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(TOO_LONG.body), TOO_LONG.body)
            )
        transport.loseConnection()


class RegistrySite(Site):
    """
    A site without an access log.
    """

    noisy = False
    protocol: Any = RegistryChannel

    def __init__(self, resource: Resource, hosts: Hosts | None = None, reactor: Any = None) -> None:
        super().__init__(resource, reactor=reactor)
        self._hosts = hosts

    def getResourceFor(self, request: Request) -> Any:
        refusal = None if self._hosts is None else self._hosts.refusal(request)
        return super().getResourceFor(request) if refusal is None else Misdirected(refusal)

    def log(self, request: Any) -> None:
        pass
