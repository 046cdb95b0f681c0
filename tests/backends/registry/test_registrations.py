"""
What each session has registered, over the lives of sessions and nodes.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.protocol.message import compose
from msgnode.sessions.principal import Principal
from tests.support.durable import DurableNode
from tests.support.fakes import MemoryNode, directory
from tests.support.registry import REGISTRY, RegistryNode

ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"
H1, H2 = "hyperty://example.org/1", "hyperty://example.org/2"


class RegisteredTests(SynchronousTestCase):
    """
    Whose an address is.
    """

    def setUp(self) -> None:
        self.node = MemoryNode()
        self.ann, self.bob = (self.node.client(runtime).session for runtime in (ANN, BOB))
        self.registered = self.node.registered

    def test_session_leaves_behind_what_it_registered_and_did(self) -> None:
        """
        A session leaves behind what it registered and did not take back.
        """
        for url in (H1, H2):
            self.assertTrue(self.registered.add(url, self.ann, anew=True))
        self.registered.drop(H2)

        self.assertEqual([H1], self.registered.ended(self.ann))
        self.assertEqual([], self.registered.ended(self.ann))
        self.assertNotIn(H1, self.registered)

    def test_last_one(self) -> None:
        """
        Who registers an address anew has it; who keeps it alive only if nobody has.
        """
        self.registered.add(H1, self.ann, anew=True)
        self.registered.add(H1, self.bob, anew=False)
        self.assertEqual([], self.registered.ended(self.bob))

        self.registered.add(H1, self.bob, anew=True)
        self.registered.add(H2, self.bob, anew=False)

        self.assertEqual([], self.registered.ended(self.ann))
        self.assertEqual([H1, H2], self.registered.ended(self.bob))

    def test_ended_session_registers_nothing(self) -> None:
        """
        A session that has ended registers nothing, though another has its name by now.
        """
        self.node.sessions.end(self.ann, "closed")
        self.node.client(ANN)

        self.assertFalse(self.registered.add(H1, self.ann, anew=True))
        self.assertNotIn(H1, self.registered)

    def test_of_one_session_no_more_is_remembered_than_it_may(self) -> None:
        """
        Of one session no more is remembered than it may bind.
        """
        node = MemoryNode(limits={"bindings_per_session": 2})
        ann = node.client(ANN).session
        for number in range(5):
            self.assertTrue(node.registered.add(f"comm://{number}", ann, anew=True))

        self.assertEqual(2, len(node.registered.ended(ann)))

    def test_it_is_known_after_kill_9_and_gone_from_the_disk(self) -> None:
        """
        It is known after kill -9, and gone from the disk when the session has ended.
        """
        node = DurableNode(directory(self))
        self.addCleanup(lambda: node.store.shut())
        client = node.client(ANN)
        client.session.identity = "urn:ann"
        for url in (H1, H2):
            node.registered.add(url, client.session, anew=True)
        node.registered.drop(H2)
        node.session_store.changed(client.session)
        node.clock.advance(0)

        again = node.killed()

        self.assertEqual(([True, False]), [url in again.registered for url in (H1, H2)])
        again.sessions.end(again.sessions.get(ANN), "closed")
        self.assertNotIn(H1, again.registered)
        again.clock.advance(0)
        last = again.killed()
        self.addCleanup(last.store.shut)
        self.assertNotIn(H1, last.registered)


class PublishTests(SynchronousTestCase):
    """
    Messages of the node's own.
    """

    def test_what_the_node_publishes_reaches_all_who_are_bound(self) -> None:
        """
        What the node publishes reaches all who are bound, waits for who is away, and nobody is told of it.
        """
        node = MemoryNode()
        ann, bob = node.client(ANN), node.client(BOB)
        for client in (ann, bob):
            client.subscribe("comm://example.org/o/registration")
        bob.drop()
        message = compose(
            1, "update", "domain://registry.example.org", "comm://example.org/o/registration", {}
        )

        reached = node.publish(message)

        self.assertEqual((2, 1, 1), (reached, len(ann.take()), node.sessions.get(BOB).mailbox.queued))
        line = node.traffic_recorder.messages[-1]
        self.assertEqual(
            ("node", "delivered", 1, 1),
            tuple(line[key] for key in ("connector", "outcome", "recipients", "waiting")),
        )
        self.assertEqual(0, node.publish(compose(2, "update", "x", "comm://example.org/nobody", {})))


class OwnerTests(SynchronousTestCase):
    """
    What somebody registered whom the node knows is nobody else's to change.
    """

    def setUp(self) -> None:
        self.node = RegistryNode()
        self.ann, self.eve = self.node.client(ANN), self.node.client(BOB)
        self.ann.session.identity = "user://example.org/ann@example.org"
        self.eve.session.identity = "user://example.org/eve@example.org"

    def create(self, client: Any, user: str, url: str = H1) -> int:
        value = {"url": url, "user": user, "descriptor": "d", "resources": [], "dataSchemes": []}
        value |= {"expires": 3600, "runtime": "r", "status": "live"}
        return self.code(client, "create", {"value": value})

    def code(self, client: Any, type: str, body: Any) -> int:
        client.take()
        client.post(REGISTRY, type, body=body)
        self.node.pump()
        (reply,) = [message for message in client.take() if message["type"] == "response"]
        code: int = reply["body"]["code"]
        return code

    def test_one_registers_for_oneself_by_url_or_by_name(self) -> None:
        """
        One registers for oneself, by URL or by name; who has no identity for anybody, as ever.
        """
        nobody = self.node.client("runtime://example.org/nobody")

        self.assertEqual(200, self.create(self.ann, "ann@example.org", H1))
        self.assertEqual(200, self.create(self.ann, self.ann.session.identity, H2))
        self.assertEqual(403, self.create(self.eve, "ann@example.org", f"{H1}/x"))
        self.assertEqual(200, self.create(nobody, "whoever@example.org", f"{H1}/x"))

    def test_nobody_else_changes_a_registered_record(self) -> None:
        """
        Nobody else replaces it, changes its status or deletes it.
        """
        self.create(self.ann, "ann@example.org")
        nobody = self.node.client("runtime://example.org/nobody")
        gone = {"resource": H1, "value": {"status": "disconnected"}}

        for client, user in ((self.eve, "eve@example.org"), (nobody, "ann@example.org")):
            self.assertEqual(403, self.create(client, user))
            self.assertEqual(403, self.code(client, "update", gone))
        self.assertEqual(200, self.code(self.ann, "update", gone))

    def test_name_behind_a_slash(self) -> None:
        """
        A name that ends in another's does not do for it; the registry would find the other by it.
        """
        ann = "ann@example.org"
        user = f"user://example.org/eve+%2F{ann}"
        self.eve.session.identity, self.eve.session.proof = user, Principal(user, username=f"eve+/{ann}")

        self.assertEqual(403, self.create(self.eve, ann))
        self.assertEqual(403, self.create(self.eve, f"eve+/{ann}"))
        self.assertEqual(200, self.create(self.eve, f"eve+%2F{ann}"))
        self.assertEqual(200, self.create(self.eve, user, H2))

    def test_logs_in_later(self) -> None:
        """
        What a session registered before it was somebody's is its user's once it is kept alive.
        """
        ann = self.ann.session.identity
        self.ann.session.identity = ""
        self.create(self.ann, "ann@example.org")
        self.ann.session.identity = ann

        self.assertEqual(200, self.code(self.ann, "update", {"resource": H1, "value": {"status": "live"}}))
        self.assertEqual(403, self.code(self.eve, "update", {"resource": H1}))

    def test_who_only_listens_to_whoever_reports_a_data_object(self) -> None:
        """
        Who only listens to whoever reports a data object does not delete it by its name.
        """
        url, reporter = "comm://example.org/1", "hyperty://example.org/reporter"
        value = {"url": url, "name": "room", "schema": "s", "reporter": reporter, "expires": 3600}
        self.code(self.ann, "create", {"value": value})
        self.eve.subscribe(reporter)

        self.assertEqual(404, self.code(self.eve, "delete", {"value": {"name": "room"}}))
        self.assertEqual(200, self.code(self.ann, "delete", {"value": {"name": "room"}}))

    def test_nor_does_anybody_revive_it_under_its_user_name(self) -> None:
        """
        Nor does anybody revive it under its user's name when it has expired.
        """
        self.create(self.ann, "ann@example.org")
        self.node.registry.changed(H1, "disconnected")
        nobody = self.node.client("runtime://example.org/nobody")

        for client in (self.eve, nobody):
            self.assertEqual(403, self.code(client, "update", {"resource": H1, "value": {"runtime": BOB}}))
        self.assertEqual(200, self.code(self.ann, "update", {"resource": H1, "value": {"status": "live"}}))

    def test_not_known_to_the_node(self) -> None:
        """
        What the node knows nothing of, the registry knows the user of.
        """
        self.create(self.ann, "ann@example.org")
        self.ann.close()
        self.assertEqual("", self.node.registered.owner(H1))

        self.assertEqual(403, self.code(self.eve, "update", {"resource": H1, "value": {"status": "live"}}))
        self.assertEqual(403, self.code(self.eve, "delete", {"value": {"url": H1}}))
        body = {"value": {"url": H1, "user": "ann@example.org"}}
        self.assertEqual(403, self.code(self.eve, "delete", body))
        nobody = self.node.client("runtime://example.org/nobody")
        self.assertEqual(200, self.code(nobody, "update", {"resource": H1, "value": {"status": "live"}}))
        nobody.close()
        again = self.node.client(ANN)
        again.session.identity = "user://example.org/ann@example.org"
        self.assertEqual(200, self.code(again, "update", {"resource": H1, "value": {"status": "live"}}))
        self.assertEqual(404, self.code(again, "update", {"resource": H2}))
