"""
`msgnode check` and the certificates for links to other nodes.
"""

from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cli.main import main
from tests.support.authority import DAY, Authority
from tests.support.fakes import directory


class CheckLinksTests(SynchronousTestCase):
    """
    A configuration with a listener for nodes and a peer.
    """

    def setUp(self) -> None:
        self.directory = directory(self)
        self.authority = Authority(self.directory)
        self.cert = self.authority.issue("msg-node.a.example")

    def check(self, peer: str = "", **own: str) -> tuple[int, str]:
        federation = {"listen": "tcp:9093", "cert": self.cert, **own}
        lines = [f'{key} = "{value}"' for key, value in federation.items()]
        file = self.directory / "node.toml"
        file.write_text(
            'domain = "a.example"\nnode = "a1"\n[federation]\n'
            + "\n".join(lines)
            + f'\n[[peer]]\ndomain = "b.example"\nurl = "wss://b.example/link"\n{peer}'
        )
        result = CliRunner().invoke(main, ["check", str(file)])
        return result.exit_code, result.output

    def test_good_configuration(self) -> None:
        """
        The listener and the peers are listed.
        """
        code, said = self.check(f'ca = "{self.authority.path}"')

        self.assertEqual(0, code)
        self.assertIn("node     tcp:9093 with TLS", said)
        self.assertIn("peer     b.example, dials wss://b.example/link", said)

    def test_mistakes(self) -> None:
        """
        Files that are missing, and certificates that peers would refuse, are errors with the file's name.
        """
        other = self.authority.issue("www.a.example")
        old = self.authority.issue("msg-node.a.example", file="old", until=-DAY / 24)
        for (code, said), words in (
            (self.check(cert="/nowhere.pem"), "federation: /nowhere.pem: cannot be read: No such file"),
            (self.check(key="/nowhere.key"), "federation: /nowhere.key: cannot be read: No such file"),
            (self.check(ca="/nowhere.pem"), "federation.ca: /nowhere.pem: cannot be read: No such file"),
            (self.check('ca = "/nowhere.pem"'), "peer[0].ca: /nowhere.pem: cannot be read: No such file"),
            (self.check('pins = ["sha256:1"]'), "peer[0].pins: expected sha256: and 64 hexadecimal digits"),
            (self.check(cert=other), "expected a certificate for msg-node.a.example, found www.a.example"),
            (self.check(cert=old), "the certificate expired at "),
            (self.check(key=other), "expected a certificate for the key in"),
            (self.check(listen="tcp:x"), "node: expected an endpoint such as tcp:9090, found 'tcp:x'"),
        ):
            self.assertEqual(2, code)
            self.assertIn(words, said)

    def test_revocation_lists(self) -> None:
        """
        A list that cannot be read or has ended, and an own certificate that is revoked, are errors.
        """
        ca, good = self.authority.path, self.authority.revoke(file="good.pem")
        ended = self.authority.revoke(file="ended.pem", until=-DAY / 2)
        mine = self.authority.revoke(self.cert, file="mine.pem")

        self.assertEqual(0, self.check(ca=ca, crl=good)[0])
        self.assertEqual(0, self.check(f'ca = "{ca}"\ncrl = "{good}"')[0])
        for (code, said), words in (
            (
                self.check(ca=ca, crl="/nowhere.crl"),
                "federation.crl: /nowhere.crl: cannot be read: No such file",
            ),
            (self.check(ca=ca, crl=self.cert), "expected certificate revocation lists in PEM or DER"),
            (self.check(f'ca = "{ca}"\ncrl = "/nowhere.crl"'), "peer[0].crl: /nowhere.crl: cannot be read"),
            (self.check(f'ca = "{ca}"\ncrl = "{ended}"'), "list of CN=Test authority has ended; renew it"),
            (
                self.check(ca=ca, crl=mine),
                "federation.cert: the certificate of CN=msg-node.a.example was revoked",
            ),
        ):
            self.assertEqual(2, code)
            self.assertIn(words, said)
