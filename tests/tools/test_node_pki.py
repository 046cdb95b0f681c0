"""
tools/pki: an authority and certificates of nodes.
"""

import contextlib
import io
import stat

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from node_pki.command import main
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.loader import check
from msgnode.links.trust.anchors import trust_anchors
from msgnode.links.trust.certificates import UntrustedCertificate
from msgnode.links.trust.credentials import Credentials
from tests.support.fakes import directory


class PKITests(SynchronousTestCase):
    """
    Certificates in a new directory.
    """

    def setUp(self) -> None:
        self.top = directory(self) / "pki"

    def call(self, *arguments: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main([str(self.top), *arguments])
            except SystemExit as end:
                code = int(end.code or 0)
        return code, out.getvalue(), err.getvalue()

    def chain(self, domain: str) -> list[bytes]:
        found = x509.load_pem_x509_certificates((self.top / f"{domain}.pem").read_bytes())
        return [each.public_bytes(Encoding.DER) for each in found]

    def test_nodes_trust_each_other(self) -> None:
        """
        Nodes with these certificates trust each other by the authority, each for its domain.
        """
        code, said, _ = self.call("a.example", "b.example")
        own = {"cert": str(self.top / "a.example.pem"), "key": str(self.top / "a.example.key")}
        peer = {"domain": "b.example", "ca": str(self.top / "ca.pem")}
        config = check({"domain": "a.example", "node": "a1", "federation": own, "peer": [peer]}, "x")

        self.assertEqual(0, code)
        self.assertIn('cert = "', said)
        self.assertEqual([], Credentials(config).mistakes())
        trust_anchors(config).verify("b.example", self.chain("b.example"))
        with self.assertRaises(UntrustedCertificate):
            trust_anchors(config).verify("b.example", self.chain("a.example"))

    def test_revoked_certificates(self) -> None:
        """
        --revoke adds certificates to a list, by which nodes refuse them; new certificates are accepted.
        """
        self.call("a.example", "b.example", "c.example")
        own = {name: str(self.top / f"a.example.{name}") for name in ("key",)} | {
            "cert": str(self.top / "a.example.pem"),
            "ca": str(self.top / "ca.pem"),
            "crl": str(self.top / "ca.crl"),
        }
        peers = [{"domain": domain} for domain in ("b.example", "c.example")]
        config = check({"domain": "a.example", "node": "a1", "federation": own, "peer": peers}, "x")

        code, said, _ = self.call("--revoke")
        trust_anchors(config).verify("b.example", self.chain("b.example"))
        for domain in ("b.example", "c.example"):
            self.call("--revoke", domain)
        for domain in ("b.example", "c.example"):
            with self.assertRaisesRegex(UntrustedCertificate, "was revoked by"):
                trust_anchors(config).verify(domain, self.chain(domain))
        self.call("--again", "b.example")
        trust_anchors(config).verify("b.example", self.chain("b.example"))

        self.assertEqual((0, True), (code, "ends in 30 days" in said))
        self.assertEqual(1, self.call("--revoke", "d.example")[0])
        self.assertEqual(2, self.call()[0])

    def test_keys_are_private(self) -> None:
        """
        No other user can read a key.
        """
        self.call("a.example")

        modes = [stat.S_IMODE((self.top / name).stat().st_mode) for name in ("ca.key", "a.example.key")]
        self.assertEqual([0o600, 0o600], modes)

    def test_authority_is_kept(self) -> None:
        """
        A second call makes further certificates by the same authority.
        """
        self.call("a.example")
        before = (self.top / "ca.pem").read_bytes()

        code, said, _ = self.call("b.example")

        self.assertEqual((0, before), (code, (self.top / "ca.pem").read_bytes()))
        self.assertIn("used the authority", said)

    def test_certificates_are_not_replaced(self) -> None:
        """
        A certificate that is there is replaced only on demand.
        """
        self.call("a.example")
        before = self.chain("a.example")

        code, _, said = self.call("a.example")
        self.assertEqual((1, before), (code, self.chain("a.example")))
        self.assertIn("a.example.pem: exists already; --again replaces it", said)

        self.assertEqual(0, self.call("--again", "a.example")[0])
        self.assertNotEqual(before, self.chain("a.example"))

    def test_mistakes(self) -> None:
        """
        A wrong domain, and a directory that cannot be used, are told in one line.
        """
        code, _, said = self.call("A.example")
        self.assertEqual(2, code)
        self.assertIn("expected a domain such as a.example, in lower case, found 'A.example'", said)
        self.assertEqual(2, self.call("--days", "0", "a.example")[0])
        self.top.write_text("")

        code, _, said = self.call("a.example")
        self.assertEqual(1, code)
        self.assertIn("tools/pki: ", said)

    def test_foreign_authority(self) -> None:
        """
        An authority without its key, or with another one, is not used.
        """
        self.call("a.example")
        (self.top / "ca.key").write_bytes((self.top / "a.example.key").read_bytes())
        self.assertIn("expected the certificate of the key", self.call("b.example")[2])
        (self.top / "ca.key").write_text("x")
        self.assertIn("expected a certificate and its key in PEM", self.call("b.example")[2])
        (self.top / "ca.key").unlink()
        self.assertIn("No such file", self.call("b.example")[2])
