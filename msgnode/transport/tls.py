"""
TLS for a listener of the configuration: client certificates, and certificates that SIGHUP reloads.

An `ssl:` endpoint string is converted to the equivalent table, so that its certificate is reloaded too.
CertificateOptions releases idle buffers, which are half the memory of a connection.
"""

import re
from typing import Any

from cryptography import x509
from msgspec import structs
from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.internet.protocol import Factory
from twisted.internet.ssl import (
    CertificateOptions,
    trustRootFromCertificates,
)
from twisted.protocols.tls import TLSMemoryBIOFactory
from zope.interface import implementer

from msgnode.config.schema import ConfigError, Listen
from msgnode.transport import pem

_WORD = re.compile(r"((?:[^:\\]|\\.)+)")  # of an endpoint string; a backslash escapes
_ESCAPED = re.compile(r"\\(.)")
_FILES = ("privateKey", "certKey")


@implementer(IOpenSSLServerConnectionCreator)
class TLSFactory(TLSMemoryBIOFactory):
    """
    A factory of TLS connections (1.2 or later) with the listener's current certificate.
    """

    noisy = False

    def __init__(self, listen: Listen, factory: Factory, clock: Any) -> None:
        self._listen = listen
        self._options = options_for(listen)
        super().__init__(self, False, factory, clock)

    def serverConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        """
        Called by Twisted for each new connection. Open connections keep the certificate they have.
        """
        return self._options.serverConnectionForTLS(protocol)

    @property
    def certificate(self) -> x509.Certificate:
        """
        The certificate that new connections get.
        """
        used = self._options.certificate
        assert isinstance(used, x509.Certificate)  # options_for gives one
        return used

    def read(self) -> CertificateOptions:
        """
        Load the listener's files again. ConfigError if they are unusable.
        """
        return options_for(self._listen)

    def use(self, options: CertificateOptions) -> CertificateOptions:
        before, self._options = self._options, options
        return before


def over_tls(listen: Listen, factory: Factory, clock: Any) -> TLSFactory:
    return TLSFactory(listen, factory, clock)


def as_table(listen: Listen) -> Listen:
    """
    The table equivalent to an `ssl:` endpoint; else, or if no table is equivalent, `listen` itself.
    """
    if listen.cert or not listen.endpoint.startswith("ssl:"):
        return listen
    files: dict[str, str] = {}
    rest = ["tcp"]
    for number, word in enumerate(_WORD.findall(listen.endpoint)[1:]):
        name, given, value = word.partition("=")
        if given and name in _FILES:
            files[name] = _ESCAPED.sub(r"\1", value)
        elif (given and name in ("port", "interface", "backlog")) or number == 0:
            rest.append(word)
        else:
            return listen
    key = files.get("privateKey", "server.pem")
    cert = files.get("certKey", key)
    return structs.replace(listen, endpoint=":".join(rest), cert=cert, key=key)


def options_for(listen: Listen, required: bool = True) -> CertificateOptions:
    """
    The listener's certificate and key as options for OpenSSL. ConfigError names an unusable file.

    If `client_ca` is set, a client certificate is requested. `required`: connections without one are refused.
    """
    key_file = listen.key or listen.cert
    try:
        chain, key = pem.x509_certificates(listen.cert), pem.private_key(key_file)
        authorities = pem.authorities(listen.client_ca) if listen.client_ca else None
    except pem.PEMError as why:
        raise ConfigError(str(why)) from why
    trust = trustRootFromCertificates(authorities) if authorities is not None else None
    certificate, *rest = chain
    options = CertificateOptions(
        privateKey=key, certificate=certificate, extraCertChain=rest, trustRoot=trust
    )
    options.requireCertificate = required  # CertificateOptions takes no such argument together with trustRoot
    try:
        options.getContext()  # else the error would appear only at the first connection
    except SSL.Error as why:
        raise ConfigError(f"{listen.cert}: expected a certificate for the key in {key_file}") from why
    return options
