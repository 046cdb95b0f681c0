"""
Overlays over the carriers' links in memory, where entries are encoded, with real signatures and the trust
of a configuration.
"""

import random
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.loader import check
from msgnode.links.carrier.memory import Faults, MemoryNetwork
from msgnode.links.overlay.overlay import Overlay
from msgnode.links.overlay.signatures import Signatures
from msgnode.links.trust.anchors import trust_anchors
from msgnode.links.wire.datagram import HOP_LIMIT, Datagram
from tests.support.authority import Authority
from tests.support.fakes import directory
from tests.support.links_signatures import node_keys

DOMAINS = ("a.example", "b.example", "c.example")
A, B, C = (f"mn://{domain}/n" for domain in DOMAINS)


class Streams:
    """
    The streams of a node, which keep what they receive.
    """

    def __init__(self):
        self.datagrams = []

    def received(self, datagram):
        self.datagrams.append(datagram)

    def route_changed(self, node):
        pass

    def keys_changed(self, node):
        pass

    def has_room(self):
        pass


class ChainTests(SynchronousTestCase):
    """
    Three domains in a chain, each with an authority of its own.
    """

    def setUp(self):
        self.clock = Clock()
        self.network = MemoryNetwork(self.clock, random.Random(1))
        self.authorities = {}
        for domain in DOMAINS:
            (path := directory(self) / domain).mkdir()
            self.authorities[domain] = Authority(path)
        self.wall = (
            x509.load_pem_x509_certificate(
                Path(self.authorities[DOMAINS[0]].path).read_bytes()
            ).not_valid_before_utc.timestamp()
            + 3600
        )
        self.certificates, self.anchors, self.seals = {}, {}, {}
        self.overlays = {domain: self.overlay(domain) for domain in DOMAINS}
        self.streams = Streams()
        self.overlays["c.example"].listen(self.streams)

    def overlay(self, domain, believes=DOMAINS):
        self.certificates[domain] = self.authorities[domain].issue(f"msg-node.{domain}")
        pem = Path(self.certificates[domain]).read_bytes()
        chain = [each.public_bytes(Encoding.DER) for each in x509.load_pem_x509_certificates(pem)]
        anchors = self.anchors[domain] = self.trust(domain, believes)
        seal = self.seals[domain] = Signatures(
            anchors, lambda: self.wall, load_pem_private_key(pem, None), chain
        )
        name = f"mn://{domain}/n"
        found = Overlay(self.clock, name, seal, node_keys(), wall=lambda: self.wall)
        self.addCleanup(found.stop)
        self.network.add(name, found)
        return found

    def trust(self, domain, believes=DOMAINS, crl=False):
        own = {"cert": "x", "ca": self.authorities[domain].path}
        peers = [
            {"domain": peer, "ca": self.authorities[peer].path, "link": "none"}
            for peer in believes
            if peer != domain
        ]
        if crl:
            own["crl"] = str(Path(self.authorities["c.example"].path).with_name("crl.pem"))
        config = check({"domain": domain, "node": "n", "federation": own, "peer": peers}, "x")
        return trust_anchors(config, lambda: self.wall)

    def run_for(self, seconds):
        self.clock.pump([0.1] * int(seconds * 10))

    def send(self, size=100):
        datagram = Datagram(A, C, HOP_LIMIT, [], 5, "k", 1, b"t" * 16, b"h" * 5000, b"x" * size)
        return self.overlays["a.example"].send(datagram)

    def test_a_revoked_certificate_ends_routes(self):
        """
        When the certificate of a node is revoked, it has no route and no key any more, and its streams end.
        """
        self.network.join(A, B, cost=3)
        self.network.join(B, C, delay=0.010)
        self.run_for(5)
        near, distrusted = self.overlays["a.example"], []
        near.distrusted = distrusted.append
        self.assertIsNotNone(near.public_key(C))

        self.authorities["c.example"].revoke(self.certificates["c.example"])
        self.anchors["a.example"].use(self.trust("a.example", crl=True))
        self.seals["a.example"].trust_changed()
        near.trust_changed()
        self.run_for(1)

        self.assertEqual([C], distrusted)
        self.assertEqual((False, None, None), (near.has_route(C), near.public_key(C), near.keys(C)))
        self.assertTrue(near.has_route(B))
        self.assertFalse(self.send())

    def test_an_expired_certificate_ends_streams(self):
        """
        A node whose certificate has expired loses its streams; one that is silent for an hour keeps them.
        """
        self.network.join(A, B, cost=3)
        self.run_for(5)
        near, distrusted = self.overlays["a.example"], []
        near.distrusted = distrusted.append

        self.wall += 2 * 86_400
        self.run_for(11)

        self.assertEqual([B], distrusted)

    def test_datagrams_pass_over_a_chain(self):
        """
        The ends of the chain reach each other through the middle, and know each other's keys.
        """
        self.network.join(A, B, cost=3)
        self.network.join(B, C, delay=0.010)
        self.run_for(5)

        taken = self.send(size=32 * 1024)
        self.run_for(1)

        self.assertTrue(taken)
        self.assertEqual([A, B], [node for node, _ in self.streams.datagrams[0].path])
        self.assertEqual(23, self.overlays["a.example"].routes.cost(C))
        self.assertEqual(self.overlays["a.example"].own.keys, self.overlays["c.example"].keys(A))
        for overlay in self.overlays.values():
            self.assertEqual({}, dict(overlay.refusals.by_reason))

    def test_a_domain_that_cannot_be_verified_is_in_no_route(self):
        """
        A node without the authority of a domain has no route to it, whoever passes its advertisement on.
        """
        self.overlays["a.example"].stop()
        self.overlays["a.example"] = self.overlay("a.example", believes=("b.example",))
        self.network.join(A, B)
        self.network.join(B, C)
        self.run_for(5)

        self.assertTrue(self.overlays["a.example"].has_route(B))
        self.assertFalse(self.overlays["a.example"].has_route(C))
        self.assertEqual(1, self.overlays["a.example"].refusals.by_reason["untrusted"])

    def test_faults_of_the_links(self):
        """
        With loss, doubling and disorder on all links, routes are found in the end.
        """
        faults = Faults(loss=0.3, doubling=0.3, disorder=0.3)
        self.network.join(A, B, faults=faults)
        self.network.join(B, C, faults=faults)
        self.run_for(20)
        faults.loss = faults.doubling = faults.disorder = 0.0
        self.run_for(100)

        self.assertTrue(self.overlays["a.example"].has_route(C))
        self.assertTrue(self.overlays["c.example"].has_route(A))

    def test_a_slow_link_lets_higher_priorities_pass(self):
        """
        On a saturated link a datagram of high priority overtakes those of low priority.
        """
        self.network.join(A, B)
        self.network.join(B, C, bytes_per_second=50_000.0, max_bytes=64 * 1024)
        self.run_for(5)
        for number in range(60):
            low = Datagram(A, C, HOP_LIMIT, [], 1, "k", number, b"t" * 16, b"", b"x" * 10_000)
            self.assertTrue(self.overlays["a.example"].send(low))
        self.run_for(1)
        high = Datagram(A, C, HOP_LIMIT, [], 9, "k", 1000, b"t" * 16, b"", b"x")

        self.overlays["a.example"].send(high)
        self.run_for(60)

        order = [each.nonce for each in self.streams.datagrams]
        self.assertLess(order.index(1000), 30)
        self.assertEqual(61, len(order))
