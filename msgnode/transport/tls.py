"""
TLS for a listener of the configuration file.

It adds certificates asked of clients, and certificates that are read again
while the node runs.  An `ssl:` endpoint string is taken for the table it
stands for, so that it does not go on with a certificate that was renewed.
CertificateOptions lets go of idle buffers, half the memory of a connection.
"""

import re
from typing import Any

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

_WORD = re.compile(r"((?:[^:\\]|\\.)+)")  # of an endpoint string, where a backslash quotes
_ESCAPED = re.compile(r"\\(.)")
_FILES = ("privateKey", "certKey")


@implementer(IOpenSSLServerConnectionCreator)
class TLSFactory(TLSMemoryBIOFactory):
    """
    The factory behind TLS 1.2 or later, with the listener's certificate of the day.
    """

    noisy = False

    def __init__(self, listen: Listen, factory: Factory, clock: Any) -> None:
        self._listen = listen
        self._options = options_for(listen)
        super().__init__(self, False, factory, clock)

    def serverConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        """
        Twisted asks for each new connection; those that are open keep what they have.
        """
        return self._options.serverConnectionForTLS(protocol)

    def read(self) -> CertificateOptions:
        """
        What the listener's files hold now; ConfigError if it cannot be used.
        """
        return options_for(self._listen)

    def use(self, options: CertificateOptions) -> CertificateOptions:
        before, self._options = self._options, options
        return before


def over_tls(listen: Listen, factory: Factory, clock: Any) -> TLSFactory:
    return TLSFactory(listen, factory, clock)


def as_table(listen: Listen) -> Listen:
    """
    What an `ssl:` string says, as the table that says the same; else, and if no table can say it, as it is.
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
    The listener's certificate and key; ConfigError names the file that cannot be used.

    A client's certificate is asked for where there is `client_ca`, and may be `required`.
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
    options.requireCertificate = required  # not an argument beside trustRoot
    try:
        options.getContext()  # else a mistake would show at the first connection
    except SSL.Error as why:
        raise ConfigError(f"{listen.cert}: expected a certificate for the key in {key_file}") from why
    return options
