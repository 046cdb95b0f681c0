"""
The TLS front of a domain registry: clients without a certificate may only read.

A write without a certificate is redirected to `/error`, as by HAProxy in the setup that the reTHINK server
documents; `/error` answers 401.
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
class TLSEndpoint:
    """
    An endpoint over TLS. `options` may request a client certificate.
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
    Is the request read-only, or sent with a client certificate?
    """
    transport: Any = request.channel.transport
    return request.method in (b"GET", b"HEAD") or transport.getPeerCertificate() is not None
