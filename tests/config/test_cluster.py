"""
The configuration of a cluster, and its mistakes.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.loader import check
from msgnode.config.schema import Config, ConfigError
from msgnode.service.options import Options

URL = "nats://127.0.0.1:4222"


class ClusterTests(SynchronousTestCase):
    """
    Each mistake is an error with the key, what was expected and what was found.
    """

    def config(self, domain: str = "a.example", node: str = "n1", **cluster: Any) -> Config:
        return check({"domain": domain, "node": node, "cluster": {"url": [URL], **cluster}}, "x")

    def mistake(self, words: str, **given: Any) -> None:
        with self.assertRaises(ConfigError) as raised:
            self.config(**given)
        self.assertEqual(f"x: {words}", str(raised.exception))

    def test_option_names_several_servers(self) -> None:
        """
        The option --cluster has the servers with commas between them, and replaces those of the file.
        """
        options = Options()
        options.parseOptions(["--domain", "a.example", "--cluster", "nats://one:4222,tls://two"])

        self.assertEqual(["nats://one:4222", "tls://two"], options.loaded.cluster.url)
        self.assertEqual([], Config().cluster.url)

    def test_url_is_one_of_nats(self) -> None:
        """
        The URL of a server is one of NATS; the error does not repeat a password.
        """
        self.mistake(
            "cluster.url: expected nats://HOST:PORT or tls://HOST:PORT, found 'h:1/x'",
            url=["nats://me:secret@h:1/x"],
        )
        self.mistake(
            "cluster.url: expected nats://HOST:PORT or tls://HOST:PORT, found 'http://h:1'",
            url=["http://h:1"],
        )

    def test_one_way_to_prove_itself(self) -> None:
        """
        A node proves itself by a user with a password, by a token or by a file, and by one of them only.
        """
        self.mistake("cluster.user: expected 'user' and 'password' together", user="me")
        self.mistake(
            "cluster: expected one of 'user', 'token' and 'credentials'", token="t", credentials="a.creds"
        )
        self.mistake("cluster.key: expected 'cert' with 'key'", key="n.key")

    def test_names_that_can_be_in_a_cluster(self) -> None:
        """
        In a cluster the domain and the node have names that can stand in mn://DOMAIN/NODE; the list of
        members, where there is one, has this node.
        """
        self.mistake(
            "domain: expected a domain name in lower case without a port, for a cluster, found 'A.example'",
            domain="A.example",
        )
        self.mistake(
            "node: expected at most 128 letters, digits, '.', '_', '~' and '-', for a cluster, found 'n 1'",
            node="n 1",
        )
        self.mistake("cluster.members: expected this node, 'n1', among them", members=["n2"])
        self.assertEqual(["n1", "n2"], self.config(members=["n1", "n2"]).cluster.members)
