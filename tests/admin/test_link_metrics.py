"""
Links and streams in `/metrics` and `/live`, by peer.
"""

from typing import Any

from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families
from twisted.trial.unittest import SynchronousTestCase

from msgnode.links.operations import LinkStatus, StreamStatus
from msgnode.links.peer_counts import PeerTable
from tests.support.http_client import HTTPClient
from tests.support.links_operations import MemoryOperations, sample
from tests.support.network import Network


class LinkMetricsTests(SynchronousTestCase):
    """
    A node with three peers, and a link of a stranger.
    """

    def setUp(self) -> None:
        self.net = Network(state="none")
        self.net.node.link_operations = self.operations = sample()

    def get(self, path: str) -> Any:
        return HTTPClient(self.net, "admin").request("GET", path)

    def metrics(self) -> dict[str, dict[tuple[str, ...], float]]:
        """
        The samples of each metric about links, by the values of their labels, that of the peer first.
        """
        text = self.get("/metrics").body.decode()
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(text):
            for each in family.samples:
                if "peer" in each.labels:
                    labels = {**each.labels}
                    key = (labels.pop("peer"), *labels.values())
                    found.setdefault(each.name.removeprefix("msgnode_"), {})[key] = each.value
        return found

    def test_own_certificate(self) -> None:
        """
        The days of this node's own certificate have no label; those of revocation lists are there if one is.
        """
        before = self.get("/metrics").body.decode()
        self.operations.list_days = 2.5
        after = self.get("/metrics").body.decode()

        self.assertIn("msgnode_node_certificate_days 80.5\n", before)
        self.assertNotIn("msgnode_revocation_list_days", before)
        self.assertIn("msgnode_revocation_list_days 2.5\n", after)

    def test_metrics_of_links_are_by_peer(self) -> None:
        """
        Each configured domain has its own label; what there is not, such as a round trip, is absent.
        """
        found = self.metrics()

        peers = ["b.example", "c.example", "d.example", "other"]
        self.assertEqual(peers, [labels[0] for labels in found["stream_undelivered_messages"]])
        self.assertEqual([3, 0, 1200, 0], list(found["stream_undelivered_messages"].values()))
        self.assertEqual({("b.example",): 0.0121}, found["link_round_trip_seconds"])
        self.assertEqual({("b.example",): 89.2}, found["link_certificate_days"])
        self.assertEqual([10, 30, 60], list(found["route_cost"].values()))
        self.assertEqual(90_000, found["stream_oldest_seconds"]["d.example",])
        self.assertEqual((4, 0), tuple(found["link_queue_datagrams"]["b.example", n] for n in "56"))
        self.assertEqual({("b.example", "overflow"): 2}, found["stream_refused_total"])
        self.assertEqual(70_000, found["link_bytes_out_total"]["b.example",])

    def test_what_crosses_and_what_peers_did_wrong_is_counted(self) -> None:
        """
        Events between the domains, and faults by layer, have the peer's label; strangers share one.
        """
        table = self.operations.table
        table.of("b.example").exchanged["rate"] = 3
        table.fault("mn://b.example/n1", "stream", "tag")
        for host in ("192.0.2.1", "192.0.2.2"):
            table.fault(host, "link", "tls")

        found = self.metrics()

        self.assertEqual({("b.example", "rate"): 3}, found["exchange_total"])
        self.assertEqual(
            {("b.example", "tag", "stream"): 1, ("other", "tls", "link"): 2},
            {
                (key[0], *sorted(key[1:], reverse=True)): value
                for key, value in found["peer_faults_total"].items()
            },
        )

    def test_subscriptions_of_both_directions_are_shown(self) -> None:
        """
        Each peer has the number of its subscriptions here, and of those of clients here at it.
        """
        status = self.operations.domain("b.example")
        self.operations.domains = lambda: [structs.replace(status, grants=4, upstream=2)]  # type: ignore

        found = self.metrics()

        self.assertEqual(
            (4, 2), (found["grants"]["b.example",], found["upstream_subscriptions"]["b.example",])
        )

    def test_the_room_of_all_streams_is_a_metric(self) -> None:
        """
        What all messages for other nodes take, and may take, has no label.
        """
        self.operations.used = 70_000, 100_000

        text = self.get("/metrics").body.decode()

        self.assertIn("msgnode_streams_bytes 70000.0", text)
        self.assertIn("msgnode_streams_limit_bytes 100000.0", text)

    def test_links_are_counted_by_state(self) -> None:
        """
        A peer without any link that is up shows 0, for an alert.
        """
        links = self.metrics()["links"]

        self.assertEqual(
            {("b.example", "up"): 1, ("d.example", "up"): 0, ("d.example", "waiting"): 1, ("other", "up"): 1},
            {labels: number for labels, number in links.items() if labels[0] != "c.example"},
        )

    def test_administrative_states_are_counted(self) -> None:
        """
        A domain that an operator paused and forgot is seen.
        """
        self.operations.pause("b.example")
        self.operations.ban("e.example")

        states = self.metrics()["peer_admin_state"]

        self.assertEqual(1, states["b.example", "paused"])
        self.assertEqual(1, states["other", "banned"])
        self.assertNotIn(("b.example", "enabled"), states)

    def test_strangers_share_one_label(self) -> None:
        """
        A thousand domains that nobody configured make no thousand time series.
        """
        for number in range(1000):
            domain = f"s{number}.example"
            link = LinkStatus(domain=domain, state="up", queue_bytes=1)
            self.operations.add_stranger(domain, link, streams=[StreamStatus(destination=f"mn://{domain}/n")])
            self.operations.table.of(domain).bytes_in += 1

        found = self.metrics()

        self.assertEqual({"b.example", "c.example", "d.example", "other"}, {key[0] for key in found["links"]})
        self.assertEqual(1001, found["links"]["other", "up"])
        self.assertEqual(
            (1000, 1000), (found["link_queue_bytes"]["other",], found["link_bytes_in_total"]["other",])
        )

    def test_without_federation_there_are_no_metrics_of_links(self) -> None:
        """
        Nothing about links is in `/metrics` and `/live`.
        """
        self.net.node.link_operations = None

        self.assertEqual({}, self.metrics())
        self.assertNotIn("peers", self.get("/live").json())

    def test_own_domain_is_no_peer(self) -> None:
        """
        Nodes of the own domain, with which a cluster has links, are not among the peers of `/live`; a node
        without other domains has no peers there.
        """
        operations = self.net.node.link_operations = MemoryOperations()
        operations.add_peer(self.net.node.config.domain, LinkStatus(domain="own"))
        alone = self.get("/live").json()
        operations.add_stranger("x.example", LinkStatus(domain="x.example"))

        self.assertNotIn("peers", alone)
        self.assertEqual(["other"], list(self.get("/live").json()["peers"]))

    def test_live_has_the_state_of_each_peer(self) -> None:
        """
        `/live` on the admin listener has one line of each configured peer, and strangers if there are any.
        """
        self.operations.drain("b.example")

        peers = self.get("/live").json()["peers"]

        self.assertEqual(["b.example", "c.example", "d.example", "other"], list(peers))
        self.assertEqual(
            {"state": "up", "admin_state": "draining", "links_up": 1, "reachable": True, "undelivered": 3},
            peers["b.example"],
        )
        self.assertEqual(
            ("waiting", 0, 1200), tuple(peers["d.example"][k] for k in ("state", "links_up", "undelivered"))
        )
        self.assertNotIn("peers", HTTPClient(self.net, "web").request("GET", "/live").json())


class PeerTableTests(SynchronousTestCase):
    """
    Counts by peer.
    """

    def test_counts_of_a_peer_that_is_removed_go_to_other(self) -> None:
        """
        No count ever falls, whatever is configured and removed.
        """
        table = PeerTable(["b.example", "c.example"])
        table.of("b.example").bytes_in = 5
        table.of("b.example").refused["overflow"] = 2
        table.of("b.example").exchanged["rate"] = 1
        table.fault("b.example", "map", "untrusted")
        table.of("x.example").bytes_in = 1

        table.apply(["c.example", "d.example", "c.example"])

        other = table.of("b.example")
        self.assertEqual(["c.example", "d.example", "other"], list(table.counts))
        self.assertEqual((6, {"overflow": 2}), (other.bytes_in, other.refused))
        self.assertEqual(({"rate": 1}, {("map", "untrusted"): 1}), (other.exchanged, other.faults))
        self.assertIs(other, table.of("x.example"))

    def test_counts_stay_when_the_configuration_is_read_again(self) -> None:
        """
        Of peers, and of others.
        """
        table = PeerTable(["b.example"])
        for domain in ("b.example", "x.example"):
            table.of(domain).failures += 1

        table.apply(["b.example"])

        self.assertEqual([1, 1], [counts.failures for counts in table.counts.values()])
