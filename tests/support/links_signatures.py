"""
Certificate authorities, node certificates and trust anchors in memory, for tests of signed advertisements.
"""

import datetime
import random

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from msgnode.links.overlay.advertisement import Advertisement
from msgnode.links.overlay.network import NodeKeys
from msgnode.links.overlay.signatures import Signatures
from msgnode.links.overlay.trust import TrustedKey, Untrusted

NOW = 1_800_000_000.0
DAY = 86_400.0
_chance = random.Random(1)


def node_keys(start=None):
    return NodeKeys(start or _chance.randbytes(16), _chance.randbytes(32), b"", frozenset({"zstd"}))


def advertisement(
    node="mn://a.example/n", audience="", links=None, sequence=(1, 1), kind="SERVER", keys=None
):
    links = {"mn://b.example/n": 10} if links is None else links
    start, counter = sequence
    return Advertisement(node, audience, kind, start, counter, False, links, keys or KEYS)


KEYS = node_keys()


class Authority:
    """
    A certificate authority.
    """

    def __init__(self, name="Test authority"):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

    def issue(self, name, key=None, until=NOW + DAY):
        """
        A key and its chain for a DNS name.
        """
        key = key or ec.generate_private_key(ec.SECP256R1())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_time(NOW - 400 * DAY))
            .not_valid_after(_time(until))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        return key, [certificate.public_bytes(Encoding.DER)]


class Anchors:
    """
    TrustAnchors of one authority for each domain. It counts how often it is asked.
    """

    def __init__(self, authorities, pins=()):
        self.authorities = authorities
        self.pins = list(pins)  # public keys
        self.asked = 0

    def verify(self, domain, chain):
        self.asked += 1
        try:
            leaf = x509.load_der_x509_certificate(chain[0])
            key = leaf.public_key()
            until = leaf.not_valid_after_utc.timestamp()
        except Exception as why:  # a malformed certificate raises errors of many kinds
            raise Untrusted("no certificate") from why
        if key in self.pins:
            return TrustedKey(key, until, pinned=True)
        authority = self.authorities.get(domain)
        if authority is None:
            raise Untrusted(f"no certificate authority for {domain}")
        try:
            authority.key.public_key().verify(
                leaf.signature, leaf.tbs_certificate_bytes, ec.ECDSA(hashes.SHA256())
            )
        except (InvalidSignature, ValueError):
            raise Untrusted("another authority") from None
        return TrustedKey(key, until)


class Owner:
    """
    The owner of a domain: an authority, and the seal of its node.
    """

    def __init__(self, domain, anchors=None, wall=lambda: NOW, name=None, key=None, until=NOW + DAY):
        self.domain = domain
        self.authority = Authority()
        self.anchors = anchors or Anchors({})
        self.anchors.authorities[domain] = self.authority
        self.wall = wall
        key, chain = self.authority.issue(name or f"msg-node.{domain}", key, until)
        self.key = key
        self.seal = Signatures(self.anchors, wall, key, chain)


def _time(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
