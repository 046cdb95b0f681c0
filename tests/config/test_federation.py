"""
The configuration of links to other nodes, and its mistakes.
"""

from base64 import b64encode
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.federation import Peer, pin_hash
from msgnode.config.loader import check
from msgnode.config.reload import apply_changes
from msgnode.config.schema import Config, ConfigError

OWN = {"listen": "tcp:9093", "cert": "node.pem"}
B: dict[str, Any] = {"domain": "b.example", "url": "wss://msg-node.b.example:9093/link"}


class FederationTests(SynchronousTestCase):
    """
    Each mistake is an error with the key, what was expected and what was found.
    """

    def config(self, *peers: dict[str, Any], **own: Any) -> Config:
        return check(
            {"domain": "a.example", "node": "a1", "federation": {**OWN, **own}, "peer": list(peers)}, "x"
        )

    def mistake(self, words: str, *peers: dict[str, Any], **own: Any) -> None:
        with self.assertRaises(ConfigError) as raised:
            self.config(*peers, **own)
        self.assertIn(words, str(raised.exception))

    def test_listeners_for_nodes(self) -> None:
        """
        The endpoint in [federation] and tables of kind "node" are listeners for nodes; there is no default.
        """
        table = {"kind": "node", "endpoint": "tcp:9094"}
        config = check({"domain": "a.example", "node": "a1", "federation": OWN, "listen": [table]}, "x")

        self.assertEqual(["tcp:9093", "tcp:9094"], [each.endpoint for each in config.node_listeners()])
        self.assertNotIn("node", [each.kind for each in config.listeners()])
        self.assertEqual([], Config().node_listeners())

    def test_peer_is_dialled_if_it_has_a_url(self) -> None:
        """
        With link "auto" a peer with a URL is dialled, and one without dials this node.
        """
        dialled = [Peer(**B), Peer(domain="b.example", link="dial")]
        others = [Peer(domain="b.example"), Peer(domain="b.example", link="none")]

        self.assertEqual([True, True], [peer.is_dialled for peer in dialled])
        self.assertEqual([False, False], [peer.is_dialled for peer in others])

    def test_certificate_is_needed(self) -> None:
        """
        A listener or a peer needs a certificate of this node, and a key needs a certificate.
        """
        self.mistake(
            "federation.cert: expected the certificate of this node, for msg-node.a.example", cert=""
        )
        self.mistake("federation.cert: expected", B, cert="", listen="")
        self.mistake("federation.key: expected 'cert' with 'key'", cert="", listen="", key="x.pem")

    def test_listener_for_nodes_has_no_certificate_of_its_own(self) -> None:
        """
        The certificate of a listener for nodes is that of [federation].
        """
        for table in (
            {"kind": "node", "endpoint": "tcp:1", "cert": "x"},
            {"kind": "node", "endpoint": "tcp:1", "cert": "x", "client_ca": "x"},
        ):
            with self.assertRaises(ConfigError) as raised:
                check({"domain": "a.example", "node": "a1", "federation": OWN, "listen": [table]}, "x")
            self.assertIn("'cert', 'key' and 'ca' in [federation]", str(raised.exception))
        self.mistake("federation.listen: expected an endpoint such as tcp:9093", listen="ssl:9093")

    def test_domain_twice(self) -> None:
        """
        Each domain is a peer once.
        """
        self.mistake("peer[1].domain: expected each domain once, found 'b.example' as in peer[0]", B, B)

    def test_own_domain_is_no_peer(self) -> None:
        """
        This node's own domain is not a peer.
        """
        self.mistake("found 'a.example', which is this node's own", {"domain": "a.example"})

    def test_names(self) -> None:
        """
        Domains are in lower case; with links, this node's names fit the name of a node.
        """
        self.mistake("peer[0].domain: expected a domain name such as b.example", {"domain": "B.example"})
        self.mistake("peer[0].domain: expected", {"domain": "b.example:9093"})
        for key, value in (("domain", "a.example:8080"), ("domain", "A.example"), ("node", "a 1")):
            with self.assertRaises(ConfigError) as raised:
                check({"domain": "a.example", "node": "a1", "federation": OWN, key: value}, "x")
            self.assertIn(f"{key}: expected", str(raised.exception))
        check({"domain": "A.example:8080", "node": "a 1"}, "x")

    def test_url(self) -> None:
        """
        A URL begins with wss:, names a host, and is there only for a peer that is dialled.
        """
        for url in (
            "ws://b.example/link",
            "https://b.example",
            "wss://",
            "wss://b.example:0/",
            "wss://b.example:x/",
            "wss://u@b.example",
            "wss://b.example/?x=1",
            "b.example",
        ):
            self.mistake("peer[0].url: expected a URL such as wss://", {**B, "url": url})
        self.mistake("expected no 'url' with link = 'listen'", {**B, "link": "listen"})
        self.mistake("expected no 'url' with link = 'none'", {**B, "link": "none"})

    def test_pins(self) -> None:
        """
        A pin is a SHA-256 in hexadecimal, with colons or without, or in base64.
        """
        wanted = bytes(range(32))
        for text in (wanted.hex(), wanted.hex().upper(), wanted.hex(":"), b64encode(wanted).decode()):
            self.assertEqual(wanted, pin_hash(f"sha256:{text}"))
            self.config({**B, "pins": [f"sha256:{text}"]})
        for pin in (wanted.hex(), "sha256:12", "sha1:" + wanted.hex(), "sha256:" + "x" * 64, ""):
            self.mistake("peer[0].pins: expected sha256: and 64 hexadecimal digits", {**B, "pins": [pin]})

    def test_types_of_a_peer(self) -> None:
        """
        An unknown key of a peer is named with the one that is near, a wrong value with those that are known.
        """
        self.mistake("peer[0].pin: unknown key; did you mean 'pins'?", {**B, "pin": []})
        self.mistake(
            "peer[0].link: expected 'auto', 'dial', 'listen' or 'none', found 'x'", {**B, "link": "x"}
        )
        self.mistake("peer[0].domain: is missing", {"url": "wss://b.example"})
        self.mistake("peer[0].cost: expected", {**B, "cost": 0})
        self.mistake("federation.accept: expected 'none', 'peers' or 'open', found 'x'", accept="x")

    def test_limits_of_a_peer(self) -> None:
        """
        A peer has the limits of [federation] unless it has its own; a rate may be 0, which is no limit.
        """
        config = self.config({**B, "rate_messages": 0, "max_grants": 5}, rate_messages=10)

        self.assertEqual((10, 100_000), (config.federation.rate_messages, config.federation.max_grants))
        self.assertEqual((0, 5), (config.peer[0].rate_messages, config.peer[0].max_grants))
        self.assertIsNone(config.peer[0].max_upstream)
        self.mistake("federation.max_grants: expected", max_grants=0)
        self.mistake("federation.rate_bytes: expected", rate_bytes=-1)
        self.mistake("peer[0].rate_bytes: expected", {**B, "rate_bytes": "much"})

    def test_every_key_but_the_listener_changes_at_reload(self) -> None:
        """
        A reload takes each key of [federation] and of a peer, and names the one that needs a restart.
        """
        config = self.config(B)
        own = {
            "queue_messages": 1,
            "queue_bytes": 1,
            "compress": False,
            "max_wait_seconds": 1.0,
            "rate_bytes": 9,
        }

        changed, waiting = apply_changes(
            config, self.config({**B, "cost": 3, "rate_messages": 5}, listen="tcp:1", **own)
        )

        self.assertEqual(sorted(["peer", *(f"federation.{key}" for key in own)]), sorted(changed))
        self.assertEqual(["federation.listen"], waiting)
        self.assertEqual((1, 5), (config.federation.queue_messages, config.peer[0].rate_messages))

    def test_peers_change_at_reload(self) -> None:
        """
        Peers and certificates change at a reload; a listener needs a restart.
        """
        config = self.config(B)

        changed, waiting = apply_changes(config, self.config(cert="new.pem", listen="tcp:1"))

        self.assertEqual(["federation.cert", "peer"], sorted(changed))
        self.assertEqual(["federation.listen"], waiting)
        self.assertEqual(("new.pem", []), (config.federation.cert, config.peer))
