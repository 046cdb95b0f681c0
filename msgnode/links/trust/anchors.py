"""
The trust that the configuration says: authorities, pins and revocation lists, read from their files.
"""

import time
from collections.abc import Callable

from OpenSSL import SSL
from OpenSSL.crypto import X509, X509Store, X509StoreFlags

from msgnode.config.federation import Peer, pin_hash
from msgnode.config.schema import Config, ConfigError
from msgnode.links.trust.certificates import Anchor, Authorities, DomainTrust
from msgnode.links.trust.revocation import RevocationLists, read_lists
from msgnode.transport import pem


def trust_anchors(config: Config, wall: Callable[[], float] = time.time) -> DomainTrust:
    """
    The trust that the configuration says. ConfigError names an unusable file.
    """
    federation = config.federation
    default = Anchor(
        _authorities("federation.ca", federation.ca),
        lists=_lists("federation.crl", federation.crl),
        needs_list=bool(federation.ca and federation.crl),
    )
    anchors = {config.domain: default}
    for number, peer in enumerate(config.peer):
        anchors[peer.domain] = _anchor(f"peer[{number}]", peer, default)
    paths = [federation.ca, federation.crl, *(path for peer in config.peer for path in (peer.ca, peer.crl))]
    return DomainTrust(
        anchors, default if federation.accept == "open" else None, wall, list(filter(None, paths))
    )


def _anchor(key: str, peer: Peer, default: Anchor) -> Anchor:
    pins = frozenset(map(pin_hash, peer.pins))
    if peer.crl and pins and not peer.ca:
        raise ConfigError(f"{key}.crl: with pins and no ca, authorities do not count; remove the pin instead")
    lists = default.lists.and_those(_lists(f"{key}.crl", peer.crl)) if peer.crl else default.lists
    if peer.ca:
        return Anchor(_authorities(f"{key}.ca", peer.ca), pins, lists, bool(peer.crl))
    return Anchor(None if pins else default.authorities, pins, lists, bool(peer.crl) or default.needs_list)


def _lists(key: str, path: str) -> RevocationLists:
    if not path:
        return RevocationLists()
    try:
        return read_lists(path)
    except pem.PEMError as why:
        raise ConfigError(f"{key}: {why}") from why


def _authorities(key: str, path: str) -> Authorities:
    """
    The authorities in the file, or those the machine trusts.
    """
    if not path:
        context = SSL.Context(SSL.TLS_METHOD)
        context.set_default_verify_paths()
        store = context.get_cert_store()
        assert store is not None
        return Authorities(store, context)
    store = X509Store()
    # Whatever certificate the operator names is an anchor, also an intermediate authority.
    store.set_flags(X509StoreFlags.PARTIAL_CHAIN)
    try:
        for each in pem.x509_certificates(path):
            store.add_cert(X509.from_cryptography(each))
    except pem.PEMError as why:
        raise ConfigError(f"{key}: {why}") from why
    return Authorities(store)
