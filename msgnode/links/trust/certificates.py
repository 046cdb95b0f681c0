"""
Trust between nodes: does this certificate prove that domain?

A node proves its domain by a certificate for `msg-node.<domain>`, which an authority signed that is trusted
for the domain, or whose public key is pinned. The same rules hold for links and for signed advertisements.

OpenSSL's X509Store verifies the chains, not cryptography.x509.verification: that one follows the rules of web
browsers. It refuses Ed25519, authorities without key identifiers, as a company's own often are, and, from a
client, each certificate that is marked for servers only, as those of public authorities now are.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.hashes import MD5, SHA1
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID
from OpenSSL import SSL
from OpenSSL.crypto import X509, X509Store, X509StoreContext, X509StoreContextError
from service_identity.cryptography import extract_patterns
from service_identity.exceptions import CertificateError, VerificationError
from service_identity.hazmat import DNS_ID, DNSPattern, verify_service_identity

from msgnode.config.federation import pin_hash
from msgnode.links.overlay.trust import TrustedKey, Untrusted
from msgnode.links.trust.revocation import RevocationLists, Revoked
from msgnode.structures.bounded_cache import BoundedCache

MAX_CHAIN = 8  # certificates
MAX_CHAIN_BYTES = 64 * 1024
MIN_RSA_BITS = 2048
MAX_REMEMBERED = 4096  # chains that were verified
_PURPOSES = {
    ExtendedKeyUsageOID.SERVER_AUTH,
    ExtendedKeyUsageOID.CLIENT_AUTH,
    ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
}


class UntrustedCertificate(Untrusted):
    """
    A certificate does not prove the domain. The text says why, in words for the operators of both nodes.
    """


class RevokedCertificate(UntrustedCertificate):
    """
    A certificate that its authority has revoked, or of which no valid list says that it has not.
    """


class NotPinned(UntrustedCertificate):
    """
    A certificate whose public key is not among the pins of the domain.
    """


class Authorities(msgspec.Struct, frozen=True):
    """
    A set of trusted authorities. `owner` keeps a store that belongs to a context of OpenSSL from being freed.
    """

    store: X509Store
    owner: SSL.Context | None = None


class Anchor(msgspec.Struct, frozen=True):
    """
    The trust for one domain. `authorities` is None if pins alone count. `lists` has what these have revoked;
    `needs_list`: they must have a list.
    """

    authorities: Authorities | None
    pins: frozenset[bytes] = frozenset()
    lists: RevocationLists = RevocationLists()
    needs_list: bool = False


class DomainTrust:
    """
    The authorities and pins that certificates of nodes are checked by, for each domain; TrustAnchors.

    `others` is for domains that are not configured, or None if these are refused. `files` are those that it
    was made from.
    """

    def __init__(
        self,
        anchors: Mapping[str, Anchor],
        others: Anchor | None,
        wall: Callable[[], float] = time.time,
        files: Sequence[str] = (),
    ) -> None:
        self.files = tuple(files)
        self._anchors = dict(anchors)
        self._others = others
        self._wall = wall
        self._proved: BoundedCache[tuple[str, bytes], TrustedKey] = BoundedCache(MAX_REMEMBERED)

    def use(self, other: "DomainTrust") -> None:
        """
        Trust what another one trusts: after a reload, for those who hold this one.
        """
        self._anchors, self._others, self.files = other._anchors, other._others, other.files
        self._proved.clear()

    def copy(self) -> "DomainTrust":
        return DomainTrust(self._anchors, self._others, self._wall, self.files)

    @property
    def lists_end(self) -> float:
        """
        When the first of the revocation lists ends, in seconds since 1970.
        """
        anchors = [*self._anchors.values(), *([] if self._others is None else [self._others])]
        return min((each.lists.ends for each in anchors), default=float("inf"))

    def mistakes(self) -> list[str]:
        """
        Reasons for which certificates of peers will be refused here.
        """
        now = self._wall()
        issuers = {name for anchor in self._anchors.values() for name in anchor.lists.ended(now)}
        return [f"federation: the revocation list of {name} has ended; renew it" for name in sorted(issuers)]

    def forget(self) -> None:
        """
        Check each chain again at its next use.
        """
        self._proved.clear()

    def verify(self, domain: str, chain: Sequence[bytes]) -> TrustedKey:
        """
        The key of a chain (DER, the node's own certificate first) that proves the domain, and when it ends.

        UntrustedCertificate says why if it does not.
        """
        _check_size(chain)
        key = (domain, sha256(b"".join(sha256(each).digest() for each in chain)).digest())
        trusted = self._proved.get(key)
        if trusted is None or trusted.until <= self._wall():
            trusted = self._prove(domain, chain)
            self._proved.put(key, trusted)
        return trusted

    def _prove(self, domain: str, chain: Sequence[bytes]) -> TrustedKey:
        anchor = self._anchors.get(domain)
        if anchor is None:
            if self._others is None:
                raise UntrustedCertificate(f"the domain {domain} is not a peer of this node")
            anchor = self._others
        try:
            certificates = [x509.load_der_x509_certificate(each) for each in chain]
            leaf = certificates[0]
            now = self._wall()
            _check_time(leaf, now)
            _check_name(leaf, domain, bare=bool(anchor.pins))
            _check_purpose(leaf)
            _check_pin(leaf, domain, anchor.pins)
            trusted = anchor.authorities
            used = [leaf] if trusted is None else _verified(trusted.store, certificates, domain)
            for each in used[1:]:  # OpenSSL knows no other clock than the machine's
                _check_time(each, now)
            anchor.lists.check(used, now, anchor.needs_list)
            for each in used[:-1] or used:  # the signature of an authority that is trusted does not matter
                _check_strength(each)
            until = min(each.not_valid_after_utc.timestamp() for each in used)
            return TrustedKey(leaf.public_key(), until, bool(anchor.pins))
        except UntrustedCertificate:
            raise
        except Revoked as why:
            raise RevokedCertificate(str(why)) from None
        except Exception as why:  # a malformed certificate raises errors of many kinds
            raise UntrustedCertificate(f"expected a certificate that can be read: {str(why)[:200]}") from None


def _check_size(chain: Sequence[bytes]) -> None:
    if not 1 <= len(chain) <= MAX_CHAIN:
        raise UntrustedCertificate(f"expected 1 to {MAX_CHAIN} certificates, found {len(chain)}")
    size = sum(map(len, chain))
    if size > MAX_CHAIN_BYTES:
        raise UntrustedCertificate(f"expected certificates of at most {MAX_CHAIN_BYTES} bytes, found {size}")


def _check_time(certificate: x509.Certificate, now: float) -> None:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    name = certificate.subject.rfc4514_string()[:100]
    if now >= end.timestamp():
        raise UntrustedCertificate(f"the certificate of {name} expired at {end:%Y-%m-%d %H:%M} UTC")
    if now < begin.timestamp():
        found = f"valid only from {begin:%Y-%m-%d %H:%M} UTC; are the clocks right?"
        raise UntrustedCertificate(f"the certificate of {name} is {found}")


def dns_names(leaf: x509.Certificate) -> list[str]:
    """
    The DNS names in the subject alternative names.
    """
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.DNSName)


def _check_name(leaf: x509.Certificate, domain: str, bare: bool) -> None:
    """
    Does the certificate name `msg-node.<domain>`, or, if `bare`, the domain itself? A wildcard is not enough.
    """
    wanted = [f"msg-node.{domain}", *([domain] if bare else [])]
    for name in wanted:
        try:
            patterns = [
                pattern
                for pattern in extract_patterns(leaf)
                if isinstance(pattern, DNSPattern) and b"*" not in pattern.pattern
            ]
            verify_service_identity(patterns, [DNS_ID(name)], [])
            return
        except (VerificationError, CertificateError, ValueError):
            continue
    found = ", ".join(dns_names(leaf)[:5])[:300] or "no name"
    raise UntrustedCertificate(f"the certificate names {found}; expected {' or '.join(wanted)}")


def _check_purpose(leaf: x509.Certificate) -> None:
    """
    A node is a client on one link and a server on the next, so a certificate for either is enough.
    """
    try:
        purposes = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    if not _PURPOSES & set(purposes):
        raise UntrustedCertificate("the certificate is not for TLS servers or clients")


def pin_of(certificate: x509.Certificate) -> str:
    """
    The pin of the certificate's public key, as `pins` has it.
    """
    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{sha256(key).hexdigest()}"


def _check_pin(leaf: x509.Certificate, domain: str, pins: frozenset[bytes]) -> None:
    found = pin_of(leaf)
    if pins and pin_hash(found) not in pins:
        raise NotPinned(f"the public key {found} is not pinned for {domain}")


def _check_strength(certificate: x509.Certificate) -> None:
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < MIN_RSA_BITS:
            raise UntrustedCertificate(f"expected an RSA key of {MIN_RSA_BITS} bits, found {key.key_size}")
    elif not isinstance(key, ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
        raise UntrustedCertificate("expected an RSA, EC, Ed25519 or Ed448 key")
    if isinstance(certificate.signature_hash_algorithm, MD5 | SHA1):
        raise UntrustedCertificate("the certificate is signed with MD5 or SHA-1")


def _verified(
    store: X509Store, certificates: Sequence[x509.Certificate], domain: str
) -> list[x509.Certificate]:
    """
    The chain from the node's own certificate to a trusted authority.
    """
    leaf, *rest = (X509.from_cryptography(each) for each in certificates)
    try:
        return [each.to_cryptography() for each in X509StoreContext(store, leaf, rest).get_verified_chain()]
    except X509StoreContextError as why:
        raise UntrustedCertificate(
            f"no authority that is trusted for {domain} vouches for the certificate: {why}"
        ) from None
