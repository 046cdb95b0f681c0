"""
`mn:/nodes`: which nodes are reached, for clients that a rule of the policies names.
"""

import json
import re
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.links.node_notifications import COST_CHANGED, NODE_ADDED, NODE_REMOVED
from msgnode.protocol.address import NODES
from msgnode.service.wiring import add_link_operations
from tests.support.examples import TOP
from tests.support.fakes import Client, MemoryNode
from tests.support.links_operations import A, B, C, D, MemoryOperations
from tests.support.made_policies import rule, use

SM = "domain://msg-node.example.org/sm"
NAMED = rule("permit", {"msgTo": {"equals": NODES}})


class NodesCase(SynchronousTestCase):
    """
    A node with a map that the test draws: b is reached, then more.
    """

    def setUp(self) -> None:
        self.node = MemoryNode()
        self.operations = MemoryOperations(A)
        self.operations.join(A, B, 10)
        self.notifications = add_link_operations(self.node, self.operations, self.node.clock)
        self.notifications.startService()
        self.addCleanup(self.notifications.stopService)
        self.client = self.node.client("runtime://example.org/a")

    def subscribe(self, client: Client | None = None, address: str = NODES) -> int:
        client = client or self.client
        return client.ask(type="subscribe", to=SM, body={"resources": [address]})["body"]["code"]

    def look(self) -> list[dict[str, Any]]:
        """
        What the client gets when the map has changed.
        """
        self.notifications.map_changed()
        self.node.clock.advance(1)
        return self.client.take()


class NotificationTests(NodesCase):
    """
    What subscribers get.
    """

    def setUp(self) -> None:
        super().setUp()
        use(self.node, NAMED)
        self.assertEqual(200, self.subscribe())

    def test_a_node_that_is_added_is_notified_in_the_final_shape(self) -> None:
        """
        The record NOTIFY_REMOTE_NODE_ADDED, with the fields in their order.
        """
        [message] = self.look()

        expected = {
            "id": 1,
            "type": "update",
            "from": "mn:/nodes",
            "to": "mn:/nodes",
            "record": "be125fa3-b4a7-493c-ad9a-5fa1a23be84d",
            "body": {"REMOTE_NODE": B, "TYPE": "SERVER"},
        }
        self.assertEqual(json.dumps(expected), json.dumps(message))

    def test_removed_nodes_and_changed_costs_have_records_of_their_own(self) -> None:
        """
        A changed cost has the new cost of the route; a node that no route leads to is removed.
        """
        self.look()
        self.operations.join(A, D, 100)
        self.operations.join(A, B, 12)
        changed = self.look()
        self.operations.cut(A, B)
        removed = self.look()

        self.assertEqual(
            [
                (COST_CHANGED, {"REMOTE_NODE": B, "TYPE": "SERVER", "COST": 12}),
                (NODE_ADDED, {"REMOTE_NODE": D, "TYPE": "SERVER"}),
            ],
            [(each["record"], each["body"]) for each in changed],
        )
        [removed_] = removed
        self.assertEqual((NODE_REMOVED, B), (removed_["record"], removed_["body"]["REMOTE_NODE"]))
        self.assertEqual(3, len({NODE_ADDED, NODE_REMOVED, COST_CHANGED}))

    def test_a_client_node_is_added_with_its_type(self) -> None:
        """
        A node that becomes a CLIENT is added again.
        """
        self.operations.kinds[B] = "CLIENT"
        [added] = self.look()
        self.operations.kinds[B] = "SERVER"
        [again] = self.look()

        self.assertEqual(
            [("CLIENT", NODE_ADDED), ("SERVER", NODE_ADDED)],
            [(each["body"]["TYPE"], each["record"]) for each in (added, again)],
        )

    def test_a_link_that_flaps_is_notified_once_a_second_at_most(self) -> None:
        """
        What changed back meanwhile is not notified at all.
        """
        self.look()
        for _ in range(50):
            self.operations.cut(A, B)
            self.notifications.map_changed()
            self.node.clock.advance(0.01)
            self.operations.join(A, B, 10)
            self.notifications.map_changed()
            self.node.clock.advance(0.01)
        self.node.clock.advance(5)

        self.assertLessEqual(len(self.client.take()), 2)
        self.assertEqual([], [call for call in self.node.clock.calls if "_look" in repr(call.func)])

    def test_many_new_nodes_are_notified_a_hundred_a_second(self) -> None:
        """
        None is left out.
        """
        for number in range(250):
            self.operations.join(B, f"mn://n{number}.example/n", 1)

        first = self.look()
        self.node.clock.pump([1] * 5)

        rest = self.client.take()
        added = {each["body"]["REMOTE_NODE"] for each in first + rest}
        self.assertEqual((100, 151), (len(first), len(rest)))
        self.assertEqual(251, len(added))

    def test_the_map_is_read_again_after_a_failure(self) -> None:
        """
        One that could not be read is logged.
        """
        read, self.operations.costs = self.operations.costs, None  # type: ignore[assignment]
        self.assertRaises(AttributeError, self.look)
        self.operations.costs = read

        self.assertEqual(1, len(self.look()))

    def test_nothing_is_notified_after_the_service_has_stopped(self) -> None:
        """
        And no timer is left.
        """
        self.notifications.map_changed()
        self.notifications.stopService()

        self.assertEqual([], self.look())

    def test_policies_at_egress_decide_about_notifications(self) -> None:
        """
        A rule may withhold them from a client that subscribed before.
        """
        use(self.node, rule("deny", {"direction": {"equals": "out"}, "msgTo": {"equals": NODES}}))

        self.assertEqual([], self.look())


class DocumentTests(SynchronousTestCase):
    """
    docs/protocol.md
    """

    def test_protocol_documents_every_record_of_nodes(self) -> None:
        """
        The table of records has the three ids, and no other.
        """
        text = (TOP / "docs/protocol.md").read_text("utf-8")

        section = text.partition("\n## Nodes\n")[2].partition("\n## ")[0]

        documented = re.findall(r"^\| `([0-9a-f-]{36})` \|", section, re.MULTILINE)
        self.assertEqual([NODE_ADDED, NODE_REMOVED, COST_CHANGED], documented)


class AccessTests(NodesCase):
    """
    Who may do what with the address.
    """

    def test_subscribing_nodes_is_403_unless_a_rule_names_the_address(self) -> None:
        """
        Neither without policies, nor by a rule that permits everything, nor for what is below it.
        """
        codes = [self.subscribe()]
        use(self.node, rule("permit"))
        codes.append(self.subscribe())
        use(self.node, NAMED)
        codes.append(self.subscribe(address=f"{NODES}/changes"))
        codes.append(self.subscribe(address="mn:/session"))
        codes.append(self.subscribe(address="mn:/sessions"))

        self.assertEqual([403] * 5, codes)
        self.assertEqual(0, len(self.node.routes))
        self.assertEqual(200, self.subscribe())

    def test_a_rule_names_one_client_and_no_other(self) -> None:
        """
        The rest is refused, though another rule permits everything.
        """
        one = {"msgTo": {"equals": NODES}, "session": {"equals": "runtime://example.org/a"}}
        use(self.node, rule("permit", one), rule("permit"), algorithm="firstApplicable")
        other = self.node.client("runtime://example.org/b")

        self.assertEqual([200, 403], [self.subscribe(), self.subscribe(other)])

    def test_a_node_without_federation_lets_no_client_subscribe(self) -> None:
        """
        Nothing would ever come.
        """
        self.node = MemoryNode()
        use(self.node, NAMED)

        self.assertEqual(403, self.subscribe(self.node.client("runtime://example.org/a")))

    def test_nobody_opens_or_allocates_or_owns_nodes(self) -> None:
        """
        A subscriber is not its owner, whatever `from_check` is.
        """
        use(self.node, NAMED)
        self.subscribe()
        stranger = Client(self.node)
        stranger.post("mn:/session", "open", from_=NODES)

        self.assertEqual(0, len(self.node.routes.owners))
        self.assertIsNone(self.node.owners.owner(NODES))
        self.assertFalse(any(session.runtime == NODES for session in self.node.sessions))

    def test_nobody_sends_from_nodes(self) -> None:
        """
        Not even a subscriber; 403, and nobody gets it.
        """
        use(self.node, NAMED, rule("permit"), algorithm="firstApplicable")
        listener = self.node.client("runtime://example.org/b")
        for client in (self.client, listener):
            self.assertEqual(200, self.subscribe(client))

        for to in (NODES, "runtime://example.org/b/x"):
            self.client.tell({"id": 9, "type": "read", "from": NODES, "to": to, "body": {}})
            self.assertEqual([403], [each["body"]["code"] for each in self.client.take()])

        self.assertEqual([], listener.take())

    def test_only_the_node_publishes_at_nodes(self) -> None:
        """
        What a client sends to the address reaches no subscriber, with policies and without.
        """
        forged = {"REMOTE_NODE": "mn://evil.example/x", "TYPE": "SERVER"}
        use(self.node, NAMED, rule("permit"), algorithm="firstApplicable")
        self.subscribe()
        evil = self.node.client("runtime://example.org/evil")

        for _ in range(2):
            for type in ("update", "create", "read", "response"):
                evil.post(NODES, type, body=forged)
            evil.tell(
                {
                    "id": 3,
                    "type": "update",
                    "from": "runtime://example.org/evil/x",
                    "to": [NODES, "comm://x"],
                    "body": forged,
                }
            )
            self.node.config.policy.enforce = False
            self.node.apply()

        self.assertEqual([], self.client.take())

    def test_the_list_of_nodes_is_read_by_clients_that_a_rule_names(self) -> None:
        """
        So that a subscriber knows what was there before.
        """
        self.operations.join(B, C, 20)
        refused = self.client.ask(type="read", to=NODES)["body"]
        use(self.node, NAMED)
        listed = self.client.ask(type="read", to=NODES)["body"]
        other = self.client.ask(type="create", to=NODES)["body"]

        self.assertEqual((403, 501), (refused["code"], other["code"]))
        self.assertEqual(
            [
                {"REMOTE_NODE": B, "TYPE": "SERVER", "COST": 10},
                {"REMOTE_NODE": C, "TYPE": "SERVER", "COST": 30},
            ],
            listed["value"],
        )
