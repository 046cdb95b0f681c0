"""
Trust between nodes: which certificates prove a domain.
"""

import datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.loader import check
from msgnode.config.schema import ConfigError
from msgnode.links.trust.anchors import trust_anchors
from msgnode.links.trust.certificates import MAX_CHAIN, DomainTrust, UntrustedCertificate, pin_of
from msgnode.links.trust.credentials import Credentials
from tests.support.authority import DAY, Authority
from tests.support.fakes import directory

NAME = "msg-node.b.example"
HOUR = datetime.timedelta(hours=1)


def chain_of(path: str) -> list[bytes]:
    found = x509.load_pem_x509_certificates(Path(path).read_bytes())
    return [each.public_bytes(Encoding.DER) for each in found]


class TrustTests(SynchronousTestCase):
    """
    b.example is a peer, with an authority of its own.
    """

    def setUp(self) -> None:
        self.directory = directory(self)
        (self.directory / "b").mkdir()
        (self.directory / "c").mkdir()
        self.ours = Authority(self.directory)
        self.theirs = Authority(self.directory / "b")
        self.strangers = Authority(self.directory / "c")
        self.now = datetime.datetime.now(datetime.UTC).timestamp()

    def anchors(self, *peers: dict[str, Any], accept: str = "peers") -> DomainTrust:
        own = {"cert": "x", "ca": self.ours.path, "accept": accept}
        table = {"domain": "a.example", "node": "a1", "federation": own, "peer": list(peers)}
        return trust_anchors(check(table, "x"), lambda: self.now)

    def peer(self, **more: Any) -> dict[str, Any]:
        return {"domain": "b.example", "ca": self.theirs.path, **more}

    def refused(self, anchors: DomainTrust, chain: list[bytes], domain: str = "b.example") -> str:
        with self.assertRaises(UntrustedCertificate) as raised:
            anchors.verify(domain, chain)
        return str(raised.exception)

    def made(self, **more: Any) -> list[bytes]:
        return [made(**more).public_bytes(Encoding.DER)]

    def test_certificate_of_the_peers_authority(self) -> None:
        """
        A certificate for msg-node.DOMAIN by the peer's authority proves the domain, and gives its public key.
        """
        chain = chain_of(self.theirs.issue(NAME))

        trusted = self.anchors(self.peer()).verify("b.example", chain)

        self.assertEqual(x509.load_der_x509_certificate(chain[0]).public_key(), trusted.public_key)
        self.assertFalse(trusted.pinned)

    def test_other_authorities(self) -> None:
        """
        An authority that is trusted for one domain is not trusted for another.
        """
        for authority in (self.ours, self.strangers):
            why = self.refused(self.anchors(self.peer()), chain_of(authority.issue(NAME)))

            self.assertIn("no authority that is trusted for b.example vouches", why)

    def test_peer_without_an_authority_of_its_own(self) -> None:
        """
        Without `ca` of the peer, federation.ca counts.
        """
        self.anchors({"domain": "b.example"}).verify("b.example", chain_of(self.ours.issue(NAME)))

    def test_system_authorities_do_not_know_a_company(self) -> None:
        """
        Without any `ca` the authorities of the machine count.
        """
        config = check({"domain": "a.example", "node": "a1", "federation": {"accept": "open"}}, "x")

        self.assertIn("vouches", self.refused(trust_anchors(config), chain_of(self.ours.issue(NAME))))

    def test_names(self) -> None:
        """
        Another name, a wildcard, the bare domain and a common name alone are refused.
        """
        anchors = self.anchors(self.peer())
        for names in (["msg-node.c.example"], ["*.b.example"], ["b.example"], ["xmsg-node.b.example"], []):
            path = self.theirs.issue(NAME, [x509.DNSName(name) for name in names])

            why = self.refused(anchors, chain_of(path))

            self.assertIn(f"names {', '.join(names) or 'no name'}; expected msg-node.b.example", why)
        self.refused(anchors, chain_of(self.theirs.issue(NAME)), "c.example")

    def test_one_of_several_names_is_enough(self) -> None:
        """
        A certificate may have other names, too, in any case of letters.
        """
        names = [x509.DNSName(name) for name in ("*.b.example", "b.example", "MSG-node.B.example")]

        self.anchors(self.peer()).verify("b.example", chain_of(self.theirs.issue("x", names)))

    def test_times(self) -> None:
        """
        An expired certificate is refused with its end, one from the future with a hint at the clocks.
        """
        anchors = self.anchors(self.peer())
        chain = chain_of(self.theirs.issue(NAME, until=HOUR))
        proof = anchors.verify("b.example", chain)

        self.assertApproximates(self.now + 3600, proof.until, 60)
        self.now += 3660
        self.assertIn("expired at ", self.refused(anchors, chain))
        self.now -= 3 * 86400
        self.assertIn("are the clocks right?", self.refused(self.anchors(self.peer()), chain))

    def test_expired_authority(self) -> None:
        """
        A proof ends with the first certificate of its chain.
        """
        anchors = self.anchors(self.peer())
        chain = chain_of(self.theirs.issue(NAME, until=30 * DAY))

        self.assertApproximates(self.now + 86400, anchors.verify("b.example", chain).until, 60)
        self.now += 2 * 86400
        self.assertIn("the certificate of CN=Test authority expired at ", self.refused(anchors, chain))

    def test_domains_that_are_no_peers(self) -> None:
        """
        With "peers" an unknown domain is refused, with "open" it can prove itself.
        """
        chain = chain_of(self.ours.issue("msg-node.d.example"))

        self.assertEqual(
            "the domain d.example is not a peer of this node",
            self.refused(self.anchors(self.peer()), chain, "d.example"),
        )
        self.anchors(self.peer(), accept="open").verify("d.example", chain)
        self.refused(self.anchors(self.peer(), accept="open"), chain_of(self.ours.issue(NAME)))

    def test_pins(self) -> None:
        """
        A pinned key needs no authority, and may name the domain itself; another key is refused with its pin.
        """
        bare = chain_of(self.strangers.issue("b.example"))
        other = chain_of(self.strangers.issue(NAME))
        pin = pin_of(x509.load_der_x509_certificate(bare[0]))
        anchors = self.anchors({"domain": "b.example", "pins": ["sha256:" + "0" * 64, pin]})

        self.assertTrue(anchors.verify("b.example", bare).pinned)

        self.assertIn("sha256:", self.refused(anchors, other))
        self.assertIn("is not pinned for b.example", self.refused(anchors, other))
        self.now += 2 * 86400
        self.assertIn("expired", self.refused(anchors, bare))

    def test_pin_and_authority(self) -> None:
        """
        With a pin and an authority of the peer, both must hold.
        """
        good, other = chain_of(self.theirs.issue(NAME)), chain_of(self.strangers.issue(NAME))
        pins = [pin_of(x509.load_der_x509_certificate(chain[0])) for chain in (good, other)]
        anchors = self.anchors(self.peer(pins=pins))

        anchors.verify("b.example", good)

        self.assertIn("vouches", self.refused(anchors, other))

    def test_leaf_is_no_authority(self) -> None:
        """
        A certificate of a node cannot sign others.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        path = Path(self.theirs.issue("msg-node.c.example"))
        issuer = x509.load_pem_x509_certificate(path.read_bytes())
        forged = made(signer=(issuer.subject, load_pem_private_key(path.read_bytes(), None)), key=key)
        chain = [forged.public_bytes(Encoding.DER), issuer.public_bytes(Encoding.DER)]

        self.assertIn("vouches", self.refused(self.anchors(self.peer()), chain))

    def test_strength_and_purpose(self) -> None:
        """
        Short RSA keys and certificates for e-mail are refused; Ed25519, and either end of TLS, are accepted.
        """

        def pinned(chain: list[bytes]) -> DomainTrust:
            pin = pin_of(x509.load_der_x509_certificate(chain[0]))
            return self.anchors({"domain": "b.example", "pins": [pin]})

        weak = self.made(key=rsa.generate_private_key(65537, 1024))
        mail = self.made(usage=ExtendedKeyUsageOID.EMAIL_PROTECTION)
        self.assertIn("expected an RSA key of 2048 bits, found 1024", self.refused(pinned(weak), weak))
        self.assertIn("not for TLS", self.refused(pinned(mail), mail))
        for usage in (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH):
            chain = self.made(usage=usage, key=ed25519.Ed25519PrivateKey.generate())
            pinned(chain).verify("b.example", chain)

    def test_garbage(self) -> None:
        """
        Chains that are empty, too long, too large or no certificates are refused in words.
        """
        anchors = self.anchors(self.peer())
        good = chain_of(self.theirs.issue(NAME))

        self.assertIn("found 0", self.refused(anchors, []))
        self.assertIn(f"found {MAX_CHAIN + 1}", self.refused(anchors, good * (MAX_CHAIN + 1)))
        self.assertIn("at most 65536 bytes", self.refused(anchors, [bytes(70_000)]))
        self.assertIn("that can be read", self.refused(anchors, [b"x"]))
        self.assertIn("that can be read", self.refused(anchors, [good[0], b"x"]))
        self.assertIn("that can be read", self.refused(anchors, [good[0][:-1]]))

    def test_unusable_files(self) -> None:
        """
        A missing file of an authority is an error with its key.
        """
        with self.assertRaises(ConfigError) as raised:
            self.anchors(self.peer(ca="/nowhere.pem"))
        self.assertEqual(
            "peer[0].ca: /nowhere.pem: cannot be read: No such file or directory", str(raised.exception)
        )


class CredentialsTests(SynchronousTestCase):
    """
    The certificate of this node.
    """

    def setUp(self) -> None:
        self.directory = directory(self)
        self.authority = Authority(self.directory)

    def credentials(self, cert: str, key: str = "", later: float = 0.0) -> Credentials:
        own = {"cert": cert, "key": key}
        config = check({"domain": "a.example", "node": "a1", "federation": own}, "x")
        now = datetime.datetime.now(datetime.UTC).timestamp()
        return Credentials(config, lambda: now + later)

    def test_mistakes_that_peers_would_refuse(self) -> None:
        """
        A certificate with another name, or an expired one, is a mistake that is said before peers refuse it.
        """
        good, other = self.authority.issue("msg-node.a.example"), self.authority.issue("www.a.example")

        self.assertEqual([], self.credentials(good).mistakes())
        (wrong,) = self.credentials(other).mistakes()
        self.assertIn("expected a certificate for msg-node.a.example, found www.a.example", wrong)
        (expired,) = self.credentials(good, later=2 * 86400).mistakes()
        self.assertIn("the certificate expired at ", expired)

    def test_unusable_files(self) -> None:
        """
        A missing file, one that is no PEM, and a key of another certificate are errors with the file's name.
        """
        good = self.authority.issue("msg-node.a.example")
        other = self.authority.issue("x.example")
        empty = self.directory / "empty.pem"
        empty.write_text("")
        for cert, key, words in (
            ("/nowhere.pem", "", "/nowhere.pem: cannot be read"),
            (good, "/nowhere.key", "/nowhere.key: cannot be read"),
            (str(empty), "", "expected certificates in PEM"),
            (good, str(empty), "expected a private key in PEM"),
            (good, other, f"{good}: expected a certificate for the key in {other}"),
        ):
            with self.assertRaises(ConfigError) as raised:
                self.credentials(cert, key)
            self.assertIn(words, str(raised.exception))


def made(signer: Any = None, key: Any = None, usage: Any = None) -> x509.Certificate:
    """
    A certificate for msg-node.b.example, self-signed or by (name, key).
    """
    key = key or ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
    issuer, issuer_key = signer or (name, key)
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
    )
    if usage is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    is_edwards = isinstance(issuer_key, ed25519.Ed25519PrivateKey)
    return builder.sign(issuer_key, None if is_edwards else hashes.SHA256())
