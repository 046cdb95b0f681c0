"""
What stands in front of a domain registry in production: TLS, and whoever shows no certificate may only read.

A write without one is answered by a redirection to `/error`, as HAProxy does
in the set-up that the reTHINK server documents; `/error` says 401.
"""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocolFactory, IReactorTime, IStreamServerEndpoint
from twisted.internet.ssl import CertificateOptions
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.web.server import Request
from zope.interface import implementer

from msgnode.devregistry.domain_api import Reply

TO_ERROR = Reply(302, b"", location="/error")


@implementer(IStreamServerEndpoint)
class Certified:
    """
    An endpoint that speaks TLS; `options` may ask for a certificate.
    """

    def __init__(
        self, endpoint: IStreamServerEndpoint, options: CertificateOptions, clock: IReactorTime
    ) -> None:
        self._endpoint = endpoint
        self._options = options
        self._clock = clock

    def listen(self, factory: IProtocolFactory) -> Deferred[Any]:
        over_tls = TLSMemoryBIOFactory(self._options, False, factory, self._clock)
        over_tls.noisy = False
        return self._endpoint.listen(over_tls)


def may_pass(request: Request) -> bool:
    """
    Does it only read, or come with a certificate?
    """
    transport: Any = request.channel.transport
    return request.method in (b"GET", b"HEAD") or transport.getPeerCertificate() is not None
