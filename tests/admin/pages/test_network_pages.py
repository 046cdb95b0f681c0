"""
The pages of a node that has others around it: sessions by node, links to other domains, the map.
"""

from typing import Any, ClassVar
from urllib.parse import quote

from msgnode.admin.pages.topology import drawn
from msgnode.links.operations import LinkStatus, StreamStatus
from tests.support.admin_case import A, C
from tests.support.admin_cluster import HERE, THERE, ClusterCase
from tests.support.dashboard_case import DashboardCase
from tests.support.links_operations import MemoryOperations
from tests.support.runtimes import dumps

OWN, NEAR, FAR = "mn://example.org/test", "mn://b.example/n1", "mn://c.example/n1"


class ClusterPageTests(DashboardCase, ClusterCase):
    """
    Two nodes of one domain.
    """

    def test_nodes_are_listed_with_their_sessions(self) -> None:
        """
        On the overview and on the page on nodes; a node that does not answer is named with the reason.
        """
        for path in ("/", "/nodes"):
            page = self.page(path)
            self.assertIn(f"/sessions?node={quote(HERE, safe='')}", page)
            self.assertIn(f"/sessions?node={quote(THERE, safe='')}", page)

        self.cluster.kill(THERE)

        self.assertIn("no answer", self.page("/nodes"))

    def test_sessions_of_another_node_are_listed(self) -> None:
        """
        The filter has the nodes.
        """
        page = self.page(f"/sessions?node={quote(THERE, safe='')}")

        self.assertIn(C, page)
        self.assertNotIn(A, page)
        self.assertIn(f"<option selected>{THERE}</option>", page)

    def test_a_session_of_another_node_is_shown_and_kicked(self) -> None:
        """
        The page finds it wherever it is, and so does the action.
        """
        self.assertIn(C, self.page(f"/session?name={quote(C)}"))

        self.confirm(self.log_in(), "kick", runtime=C)

        self.assertEqual([], self.other_sessions())

    def test_nodes_at_which_nothing_was_done_are_named(self) -> None:
        """
        Before the confirmation, and after it.
        """
        self.cluster.kill(THERE)
        ban = {"kind": "user", "value": "user://x", "minutes": "5"}

        asked = self.submit(self.log_in(), "ban", **ban).body.decode()
        done = self.confirm(self.log_in(), "ban", **ban).body.decode()

        self.assertIn("Not known at 1 node:", asked)
        self.assertIn("Not done at 1 node; repeat it for them:", done)
        for page in (asked, done):
            self.assertIn(f"<li>{THERE}: ", page)
        self.assertNotIn('class="message good"', done)


class PoolPageTests(DashboardCase):
    """
    A node with two pools.
    """

    sections: ClassVar[dict[str, Any]] = {
        "pools": {
            "guests": {"scheme": "sip", "pattern": "sip:guest{1..2}@example.org"},
            "rooms": {"scheme": "conference", "addresses": ["conference://example.org/b"], "for": "verified"},
        }
    }

    def test_leases_are_listed_and_taken_back(self) -> None:
        """
        The page on addresses has the pools and who leases what, and the page on an address takes it back.
        """
        body = {"scheme": "sip", "value": {"number": 1}}
        allocation = "domain://msg-node.example.org/address-allocation"
        self.device.send(dumps({"id": 1, "type": "create", "from": A, "to": allocation, "body": body}))
        self.net.pump()
        [leased] = self.request("GET", "pools").json()["leases"]

        page = self.page("/addresses")
        for text in ("conference", "verified", leased["address"], A):
            self.assertIn(text, page)
        one = f"/addresses?address={quote(leased['address'])}"
        self.assertIn("Take the lease back", self.page(one))
        self.confirm(self.log_in(), "take-back", address=leased["address"])

        self.assertEqual([], self.request("GET", "pools").json()["leases"])
        self.assertNotIn("Take the lease back", self.page(one))


class LinkPageTests(DashboardCase):
    """
    Links to other domains.
    """

    def setUp(self) -> None:
        super().setUp()
        self.node.link_operations = self.links = MemoryOperations(OWN)
        self.links.join(OWN, NEAR, 12)
        self.links.join(NEAR, FAR, 30)
        up = LinkStatus(
            domain="b.example", node=NEAR, state="up", state_seconds=90.0, round_trip=0.012, cost=12
        )
        self.links.add_peer("b.example", up, streams=[StreamStatus(destination=NEAR, undelivered=7)])
        lost = LinkStatus(
            domain="d.example", url="wss://d.example", state="lost", last_error="<b>timed out</b>"
        )
        self.links.add_peer("d.example", lost)

    def test_links_have_state_cost_round_trip_and_queue(self) -> None:
        """
        What a neighbour says is escaped.
        """
        page = self.page("/nodes")

        for text in ("b.example", "up", "12 ms", ">7<", "lost", "&lt;b&gt;timed out&lt;/b&gt;", "no route"):
            self.assertIn(text, page)

    def test_the_map_is_a_drawing_and_a_table(self) -> None:
        """
        Each link has its cost in both.
        """
        page = self.page("/nodes")

        self.assertEqual(3, page.count("<circle"))
        self.assertIn(">30</text>", page)
        self.assertIn(f"{NEAR} – {FAR}", page)

    def test_places_of_nodes_differ(self) -> None:
        """
        This node is at the left.
        """
        found = drawn(self.links.map())

        places = {(each["x"], each["y"]) for each in found["nodes"]}
        [own] = [each for each in found["nodes"] if each["own"]]
        self.assertEqual(3, len(places))
        self.assertEqual(min(x for x, _ in places), own["x"])
