"""
`mn:/sessions` and `mn:/policy`: what happens to sessions and policies, for clients that a rule names; and the
catalogue of records on the bus.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.bus.records.known_records import read_records
from msgnode.bus.records.notifications import MAX_PENDING, POLICY_REPLACED, SESSION_ENDED, SESSION_OPENED
from msgnode.links.node_notifications import COST_CHANGED, NODE_ADDED, NODE_REMOVED
from msgnode.protocol.address import POLICY, SESSIONS
from msgnode.records.checker import Checker
from msgnode.records.reader import system_records
from tests.bus.test_record_check import GET_TEMPERATURE, THERMOMETER
from tests.support.fakes import Client, MemoryNode
from tests.support.made_policies import rule, use

SM = "domain://msg-node.example.org/sm"
CATALOGUE = "domain://msg-node.example.org/records"


def named(*addresses: str) -> list[dict[str, Any]]:
    return [
        rule("permit", {"msgTo": {"equals": address}}, id=f"r{number}")
        for number, address in enumerate(addresses)
    ]


class ObserverCase(SynchronousTestCase):
    """
    A node with a client that a rule lets subscribe.
    """

    def setUp(self) -> None:
        self.node = MemoryNode()
        self.client = self.node.client("runtime://example.org/observer")

    def observe(self, address: str) -> None:
        use(self.node, *named(address))
        self.assertEqual(200, self.subscribe(address))
        self.node.clock.advance(2)
        self.client.take()

    def subscribe(self, address: str, client: Client | None = None) -> int:
        client = client or self.client
        return client.ask(type="subscribe", to=SM, body={"resources": [address]})["body"]["code"]

    def heard(self, seconds: float = 0) -> list[dict[str, Any]]:
        self.node.clock.advance(seconds)
        return self.client.take()


class SessionTests(ObserverCase):
    """
    What is published at `mn:/sessions`.
    """

    def test_a_session_that_is_opened_and_closed_is_notified(self) -> None:
        """
        In messages that fit their records.
        """
        self.observe(SESSIONS)
        other = self.node.client("runtime://example.org/other")
        opened = self.heard()
        other.tell({"type": "close", "id": 2, "from": other.runtime, "to": "mn:/session"})
        ended = self.heard(1)

        [first], [last] = opened, ended
        self.assertEqual((SESSIONS, SESSIONS, "update"), (first["from"], first["to"], first["type"]))
        self.assertEqual(SESSION_OPENED, first["record"])
        self.assertEqual({"SESSION": "runtime://example.org/other", "CONNECTOR": "memory"}, first["body"])
        self.assertEqual(SESSION_ENDED, last["record"])
        self.assertEqual({"SESSION": "runtime://example.org/other", "CAUSE": "CLOSED"}, last["body"])
        checker = Checker(system_records())
        for message in (first, last):
            self.assertIsNone(checker.check(message["record"], message["body"]))

    def test_a_session_that_expires_is_notified_with_that_cause(self) -> None:
        other = self.node.client("runtime://example.org/other")
        self.observe(SESSIONS)
        other.drop()
        self.node.clock.advance(100_000)

        self.assertEqual(["EXPIRED"], [each["body"]["CAUSE"] for each in self.heard(1)])

    def test_a_client_that_no_rule_names_can_neither_subscribe_nor_read(self) -> None:
        """
        Not even if everything is permitted.
        """
        for rules in ([], [rule("permit")]):
            use(self.node, *rules)
            for address in (SESSIONS, POLICY, CATALOGUE):
                self.assertEqual(403, self.client.ask(type="read", to=address)["body"]["code"], address)
            for address in (SESSIONS, POLICY):
                self.assertEqual(403, self.subscribe(address), address)

    def test_a_client_cannot_publish_there(self) -> None:
        self.observe(SESSIONS)
        other = self.node.client("runtime://example.org/other")
        self.heard()
        other.tell({"id": 1, "type": "update", "from": SESSIONS, "to": SESSIONS, "body": {}})
        other.post(SESSIONS, "update")
        self.assertEqual([], self.heard(5))

    def test_an_observer_gets_a_hundred_a_second_and_is_told_what_was_dropped(self) -> None:
        """
        Those beyond wait, as many as have room; the next notification has the number of the others.
        """
        self.observe(SESSIONS)
        for number in range(MAX_PENDING + 7):
            self.node.client(f"runtime://example.org/n{number}")
        first, second = self.heard(), self.heard(1)

        self.assertEqual([100, 100], [len(first), len(second)])
        self.assertEqual(7, first[0]["body"]["dropped"])
        self.assertEqual([], [each for each in first[1:] + second if "dropped" in each["body"]])
        self.node.clock.pump([1] * 20)
        self.assertEqual(MAX_PENDING - 200, len(self.client.take()))

    def test_what_happens_to_a_session_while_it_waits_is_one_notification(self) -> None:
        self.observe(SESSIONS)
        for number in range(100):
            self.node.client(f"runtime://example.org/n{number}")
        self.heard()
        other = self.node.client("runtime://example.org/other")
        other.tell({"type": "close", "id": 2, "from": other.runtime, "to": "mn:/session"})

        self.assertEqual([SESSION_ENDED], [each["record"] for each in self.heard(1)])

    def test_nothing_is_kept_while_nobody_observes(self) -> None:
        self.node.clock.advance(100)
        before = len(self.node.clock.calls)
        self.node.client("runtime://example.org/other")
        self.assertLessEqual(len(self.node.clock.calls), before)

    def test_an_observer_reads_how_many_there_are(self) -> None:
        self.observe(SESSIONS)
        self.assertEqual({"SESSIONS": 1}, self.client.ask(type="read", to=SESSIONS)["body"]["value"])


class PolicyTests(ObserverCase):
    """
    What is published at `mn:/policy`.
    """

    def test_policies_that_are_replaced_are_notified(self) -> None:
        self.observe(POLICY)
        use(self.node, *named(POLICY, SESSIONS))

        [message] = self.heard(1)
        self.assertEqual((POLICY_REPLACED, {"VERSION": "1"}), (message["record"], message["body"]))
        self.assertIsNone(Checker(system_records()).check(message["record"], message["body"]))
        self.assertEqual({"VERSION": "1"}, self.client.ask(type="read", to=POLICY)["body"]["value"])


class CatalogueTests(ObserverCase):
    """
    `read` at the node's own address.
    """

    def test_a_client_that_a_rule_names_reads_the_records(self) -> None:
        """
        The list, or one definition.
        """
        self.node.known_records.use(read_records(THERMOMETER, ()))
        use(self.node, *named(CATALOGUE))
        listed = self.client.ask(type="read", to=CATALOGUE)["body"]["value"]
        one = self.client.ask(type="read", to=CATALOGUE, body={"resource": GET_TEMPERATURE})["body"]["value"]

        names = [record["name"] for record in listed]
        self.assertLess({"GET_TEMPERATURE", "NOTIFY_SESSION_OPENED"}, set(names))
        self.assertEqual(("GET_TEMPERATURE", "ROOM"), (one["name"], one["slots"][0]["name"]))
        for wrong in ("x", 5):
            answer = self.client.ask(type="read", to=CATALOGUE, body={"resource": wrong})
            self.assertEqual(404, answer["body"]["code"])

    def test_the_nodes_own_records_are_defined(self) -> None:
        ids = {record.id for record in system_records()}
        ours = {NODE_ADDED, NODE_REMOVED, COST_CHANGED, SESSION_OPENED, SESSION_ENDED, POLICY_REPLACED}
        self.assertEqual(ours, ids)
        self.assertEqual({("SYSTEM",)}, {record.namespaces for record in system_records()})
