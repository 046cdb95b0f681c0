"""
Anonymous sessions whose client comes back by a name: nothing of theirs is lost.
"""

from itertools import pairwise
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.bus.session_merge import MAX_ABSORBED
from msgnode.protocol.errors import Blocked
from msgnode.protocol.message import Message
from msgnode.sessions.limits.memory_budget import SESSION
from msgnode.structures.time_slices import ADDRESSES
from tests.support.durable import SM, Counting, DurableNode, Refusing
from tests.support.fakes import Client, MemoryNode, directory
from tests.support.network import Network
from tests.support.vertx_stub import VertxStub

RUNTIME = "runtime://example.org/a"
ROOM = "comm://example.org/room"
ALLOCATION = "domain://msg-node.example.org/address-allocation"


class Denying:
    """
    A policy that lets nobody in but by some names.
    """

    outward = False

    def __init__(self, *names: str) -> None:
        self.names = names
        self.sessions: list[Any] = []

    def check(self, point: str, message: Any, session: Any, count: int = 1) -> None:
        self.sessions.append(session)
        if message.from_ not in self.names:
            raise Blocked("Blocked by policy")


class RenamedCase(SynchronousTestCase):
    """
    A node, and a client that opened without a name; `come_back` says re-open by RUNTIME.
    """

    def start(self, **sections: Any) -> None:
        self.node: Any = MemoryNode(**sections)
        self.open()

    def open(self) -> None:
        self.client = self.node.client()
        self.client.tell({"id": 1, "type": "open", "to": "mn:/session"})
        self.client.token = self.client.take()[0]["body"]["runtimeToken"]
        self.client.runtime = RUNTIME
        self.session = self.client.session

    def come_back(self, name: str = RUNTIME, type: str = "re-open", client: Client | None = None) -> Client:
        client = client or self.node.client()
        client.runtime = name
        client.tell({"id": 2, "type": type, "from": f"{name}/{self.client.token}", "to": "mn:/session"})
        return client

    def tell(self, type: str, **body: Any) -> None:
        self.client.tell({"id": 7, "type": type, "from": f"{RUNTIME}/sm", "to": SM, "body": body})

    def hears(self, client: Client, address: str) -> bool:
        """
        Does this client, and nobody else, hear what is sent there?
        """
        client.take()
        sender = self.node.client("runtime://example.org/sender")
        message = sender.post(address, "update")
        sender.close()
        return client.take() == [message]


class RenamedTests(RenamedCase):
    """
    Nobody has a session of that name.
    """

    def test_renamed_session_keeps_everything(self) -> None:
        """
        Addresses, what waits and the token are the runtime's from then on, and so is its runtimeURL.
        """
        self.start()
        self.tell("subscribe", resources=[ROOM, f"{RUNTIME}/sm", RUNTIME])
        self.client.drop()
        sender = self.node.client("runtime://example.org/sender")
        message = sender.post(ROOM, "update")

        again = self.come_back()

        answer, waited = again.take()
        self.assertEqual({"code": 200}, answer["body"])
        self.assertEqual(message, waited)
        self.assertIs(self.session, self.node.sessions.get(RUNTIME))
        for address in (ROOM, RUNTIME, f"{RUNTIME}/sm", f"{RUNTIME}/x"):
            self.assertTrue(self.hears(again, address), address)

    def test_comes_back_as_others_do(self) -> None:
        """
        Its token stays valid, and it lives as long as any session with addresses.
        """
        self.start()
        self.tell("subscribe", resources=[ROOM])
        self.come_back().drop()
        self.node.clock.advance(3600)

        again = self.come_back()

        self.assertEqual([{"code": 200}], [message["body"] for message in again.take()])
        self.assertTrue(self.hears(again, ROOM))

    def test_by_open_too_which_is_answered_with_a_new_token(self) -> None:
        """
        By `open` too, which is answered with a new token.
        """
        self.start()
        self.tell("subscribe", resources=[ROOM])
        self.client.drop()

        again = self.come_back(type="open")

        self.assertIn("runtimeToken", again.take()[0]["body"])
        self.assertTrue(self.hears(again, ROOM))

    def test_session_is_renamed_on_its_own_connection(self) -> None:
        """
        Also on the connection that it has.
        """
        self.start()
        self.tell("subscribe", resources=[ROOM])
        self.client.take()

        self.come_back(client=self.client)

        self.assertEqual([{"code": 200}], [message["body"] for message in self.client.take()])
        self.assertTrue(self.hears(self.client, ROOM))

    def test_older_connection(self) -> None:
        """
        A connection that the node does not know to be lost yet is superseded.
        """
        self.start()
        self.tell("subscribe", resources=[ROOM])

        again = self.come_back()
        self.client.drop()

        self.assertTrue(self.hears(again, ROOM))

    def test_its_older_name(self) -> None:
        """
        Its older name is its own as long as it is there: nobody else may open by it and get its answers.
        """
        for merged in (False, True):
            self.start()
            name = self.session.runtime
            if merged:
                self.node.client(RUNTIME).drop()
            again = self.come_back()
            again.take()

            other = self.node.client()
            other.tell({"id": 1, "type": "open", "from": name, "to": "mn:/session"})

            self.node.clock.advance(6)
            self.assertEqual((4403, []), (other.lost and other.lost.code, other.take()))
            sender = self.node.client("runtime://example.org/sender")
            self.assertEqual([sender.post(f"{name}/x", "response")], again.take())
            again.tell({"id": 3, "type": "close", "to": "mn:/session"})
            self.node.clock.advance(1)
            self.assertEqual((), self.node.routes.resolve(f"{name}/x"))
            self.node.client(name).take()
            self.assertIsNotNone(self.node.sessions.get(name))

    def test_what_one_certificate_opened_does_not_become(self) -> None:
        """
        What one certificate opened does not become the user's of another, whoever has its token.
        """
        for named in (False, True):
            self.node = MemoryNode()
            self.client = self.node.client()
            self.client.identity = "CN=ann"
            self.client.tell({"id": 1, "type": "open", "to": "mn:/session"})
            self.client.token = self.client.take()[0]["body"]["runtimeToken"]
            self.session = self.client.session
            if named:
                self.node.client(RUNTIME)
            thief = self.node.client()
            thief.identity = "CN=bob"

            self.come_back(client=thief)

            self.assertIsNot(self.session, thief.session)
            self.assertEqual("CN=ann", self.session.identity)
            self.assertIsNone(self.session.successor)

    def test_renamed_session_owns_what_it_owned(self) -> None:
        """
        What it had allocated or announced is its own still, and what is registered is told at its end.
        """
        self.start()
        self.client.tell({"id": 1, "type": "create", "from": RUNTIME, "to": ALLOCATION})
        (hyperty,) = self.client.take()[-1]["body"]["value"]["allocated"]
        self.node.registered.add(hyperty, self.session, True)
        self.client.drop()

        again = self.come_back()

        self.assertEqual("mine", self.node.owners.topic_owner(hyperty, self.session)[0])
        again.close()
        self.assertNotIn(hyperty, self.node.registered)

    def test_others_below_its_name(self) -> None:
        """
        What others had bound below its name they hear no more, as with every session that opens.
        """
        self.start()
        other = self.node.client("runtime://example.org/b")
        other.subscribe(f"{RUNTIME}/sm")

        again = self.come_back()

        self.assertTrue(self.hears(again, f"{RUNTIME}/sm"))
        self.assertEqual({}, other.session.bindings)

    def test_charged(self) -> None:
        """
        It pays for its name, and once for itself.
        """
        self.start()
        self.come_back()

        self.assertEqual(SESSION + len(RUNTIME), self.node.budget.node.bytes)
        self.assertEqual(1, self.node.budget.node.sessions)

    def test_rename_is_logged_and_the_other_opened(self) -> None:
        """
        The anonymous session is renamed in the log, and the other opened.
        """
        self.start()
        name = self.session.runtime
        self.node.traffic_recorder.events.clear()
        self.client.drop()

        self.come_back()

        self.assertEqual(
            [("detached", name), ("renamed", name), ("opened", RUNTIME), ("attached", RUNTIME)],
            self.node.traffic_recorder.events,
        )


class RefusedTests(RenamedCase):
    """
    What forbids a session to open forbids it this way too, and nothing is lost by the attempt.
    """

    def assertRefused(self, client: Client, code: int) -> None:
        self.node.clock.advance(6)
        self.assertEqual((code, []), (client.lost and client.lost.code, client.take()))
        self.assertTrue(self.session.anonymous)
        self.assertIs(self.session, self.node.sessions.by_token(self.client.token))
        self.assertIsNone(self.node.sessions.get(client.runtime))

    def test_node_address_is_no_name_to_merge_into(self) -> None:
        """
        A node's own address is no name for a session.
        """
        self.start()

        for name in ("domain://msg-node.example.org/sm", "mn:/x", "domain://elsewhere.net/x"):
            self.assertRefused(self.come_back(name), 4403)

    def test_addresses_of_others(self) -> None:
        """
        Nor is the address of another's hyperty.
        """
        self.start()
        other = self.node.client("runtime://example.org/b")
        hyperty = other.ask(type="create", to=ALLOCATION)["body"]["value"]["allocated"][0]

        self.assertRefused(self.come_back(hyperty), 4403)

    def test_policies_are_asked_about_the_new_name(self) -> None:
        """
        The policies are asked about the new name.
        """
        self.start()
        self.node.handshake.policy = Denying("runtime://example.org/other")

        self.assertRefused(self.come_back(), 4403)

    def test_policies_know_the_session(self) -> None:
        """
        And they know whose session it is that gets the name.
        """
        self.start()
        policy = self.node.handshake.policy = Denying(RUNTIME)

        self.come_back()

        self.assertEqual([self.session], policy.sessions)

    def test_below_another(self) -> None:
        """
        With takeover = "token", no name below another's runtimeURL.
        """
        self.start(session={"takeover": "token"})
        self.node.client("runtime://example.org/b")

        self.assertRefused(self.come_back("runtime://example.org/b/x"), 4401)

    def test_rename_without_room_for_the_longer_name(self) -> None:
        """
        Without room for the longer name.
        """
        self.start(limits={"state_bytes_per_session": SESSION + 100})

        self.assertRefused(self.come_back("runtime://example.org/" + "x" * 100), 1013)

    def test_full_node(self) -> None:
        """
        It is not one session more: where no more may open, it comes back all the same.
        """
        self.start(limits={"sessions": 1})
        self.tell("subscribe", resources=[ROOM])
        self.client.drop()

        again = self.come_back()

        self.assertEqual([200], [message["body"]["code"] for message in again.take()])
        self.assertTrue(self.session.bindings)

    def test_tokens_of_named_sessions(self) -> None:
        """
        The token of a session that has a name is worth nothing with another.
        """
        self.start()
        owner = self.node.client("runtime://example.org/b")
        owner.subscribe(ROOM)
        self.client.token = owner.token

        thief = self.come_back("runtime://example.org/thief")

        self.assertIn("runtimeToken", thief.take()[0]["body"])
        self.assertEqual((owner.session,), self.node.routes.resolve(ROOM))


class MergedTests(RenamedCase):
    """
    There is a session of that name: both become one, if it may be had.
    """

    def start(self, **sections: Any) -> None:
        super().start(**sections)
        self.owner = self.node.client(RUNTIME)
        self.named = self.owner.session

    def test_merged_session_keeps_what_both_had(self) -> None:
        """
        What either heard the one session hears now, and what waited for both comes, in order.
        """
        self.start()
        self.tell("subscribe", resources=[ROOM, "comm://both"])
        self.owner.subscribe("comm://other", "comm://both")
        self.client.drop()
        self.owner.drop()
        sender = self.node.client("runtime://example.org/sender")
        for address in (ROOM, "comm://other", ROOM):
            sender.post(address, "update")

        again = self.come_back()

        answer, *waited = again.take()
        self.assertIn("runtimeToken", answer["body"])
        self.assertEqual(["comm://other", ROOM, ROOM], [message["to"] for message in waited])
        self.assertIs(self.named, self.node.sessions.get(RUNTIME))
        for address in (ROOM, "comm://other", "comm://both"):
            self.assertTrue(self.hears(again, address), address)

    def test_merged_session_owns_what_both_owned(self) -> None:
        """
        Allocated addresses stay allocated, are freed by their key, and what is registered is told at the end.
        """
        self.start()
        body = {"value": {"number": 2, "allocationKey": "key"}}
        self.client.tell({"id": 1, "type": "create", "from": RUNTIME, "to": ALLOCATION, "body": body})
        first, second = self.client.take()[-1]["body"]["value"]["allocated"]
        self.node.registered.add(first, self.session, True)
        again = self.come_back()
        self.assertEqual(
            ["mine", "mine"], [self.node.owners.topic_owner(one, self.named)[0] for one in (first, second)]
        )
        self.assertTrue(self.node.routes.is_allocated(first))
        self.assertIn(first, self.node.registered)

        again.tell(
            {"id": 1, "type": "delete", "from": RUNTIME, "to": ALLOCATION, "body": {"resource": "key"}}
        )
        again.close()

        self.assertFalse(self.node.routes.is_allocated(first))
        self.assertNotIn(first, self.node.registered)

    def test_one_account(self) -> None:
        """
        The one pays for all that it has, and nothing is paid for twice.
        """
        self.start()
        self.tell("subscribe", resources=[ROOM], resource="comm://object", children=["n"])
        self.owner.subscribe("comm://other")
        self.client.tell(
            {
                "id": 1,
                "type": "create",
                "from": RUNTIME,
                "to": ALLOCATION,
                "body": {"value": {"allocationKey": "k"}},
            }
        )
        before = self.node.budget.node.bytes

        self.come_back()

        gone = SESSION + len("runtime://example.org/anonymous-") + 32
        self.assertEqual((before - gone, 1), (self.node.budget.node.bytes, self.node.budget.node.sessions))
        self.assertEqual(before - gone, self.named.account.bytes)

    def test_children_end_with_their_object(self) -> None:
        """
        What was subscribed with an object still is.
        """
        self.start()
        self.tell("subscribe", resource=ROOM, children=["n"])
        again = self.come_back()

        again.tell({"id": 7, "type": "unsubscribe", "from": RUNTIME, "to": SM, "body": {"resource": ROOM}})

        self.assertEqual({}, self.named.bindings)

    def test_token_proves_nothing_for_the_other(self) -> None:
        """
        Where the other session takes its own token, that of the anonymous one opens nothing, and stays good.
        """
        self.start(session={"takeover": "token"})
        self.tell("subscribe", resources=[ROOM])

        thief = self.come_back()

        self.node.clock.advance(6)
        self.assertEqual((4401, []), (thief.lost and thief.lost.code, thief.take()))
        self.assertEqual([ROOM], list(self.session.bindings))
        self.assertEqual({}, self.named.bindings)
        self.assertIs(self.session, self.node.sessions.by_token(self.client.token))

    def test_somebodys_is_not_given_away(self) -> None:
        """
        What somebody has shown to be his does not go to a session that is nobody's.
        """
        self.start()
        self.session.identity = "CN=owner"
        self.tell("subscribe", resources=[ROOM])

        again = self.come_back()

        self.assertEqual(200, again.take()[0]["body"]["code"])
        self.assertEqual([ROOM], list(self.session.bindings))
        self.assertEqual({}, self.named.bindings)

    def test_within_the_limits(self) -> None:
        """
        What there is no room for is free, and counted.
        """
        self.start(limits={"bindings_per_session": 3})
        self.tell("subscribe", resources=["comm://1", "comm://2", "comm://3"])
        self.owner.subscribe("comm://3", "comm://4")

        self.come_back()

        self.assertEqual({"comm://1", "comm://3", "comm://4"}, set(self.named.bindings))
        self.assertEqual((), self.node.routes.resolve("comm://2"))
        self.assertEqual(1, self.node.budget.refused["bindings_per_session"])

    def test_thousands_in_slices(self) -> None:
        """
        Thousands of addresses move some at a time; what comes for them meanwhile arrives in order, and what
        the client sends behind it waits.
        """
        self.start()
        many = [f"comm://d/{number}" for number in range(4 * ADDRESSES)]
        self.tell("subscribe", resources=many)
        self.node.clock.advance(0)
        sender = self.node.client("runtime://example.org/sender")
        moved = []

        again = self.come_back()
        again.tell({"id": 9, "type": "update", "from": RUNTIME, "to": "comm://nobody"})
        while len(self.named.bindings) < len(many):
            moved.append(len(self.named.bindings))
            self.assertFalse(again.reading)
            sender.post(many[-1], "update", body={"value": len(moved)})
            self.node.clock.turn()
        self.node.clock.advance(0)
        sender.post(many[-1], "update", body={"value": len(moved) + 1})

        heard = [message["body"]["value"] for message in again.take()[1:]]
        self.assertLessEqual(max(after - before for before, after in pairwise(moved)), ADDRESSES)
        self.assertEqual(list(range(1, len(moved) + 2)), heard)
        self.assertTrue(again.reading)
        self.assertEqual({}, self.session.bindings)

    def test_late_answers(self) -> None:
        """
        What is answered to the anonymous session after that reaches the one that they have become.
        """
        self.start()
        self.client.drop()
        again = self.come_back()
        again.take()

        self.session.deliver(Message(5, "response", RUNTIME, SM, None, data=b'{"id":5}'))

        self.assertEqual([{"id": 5}], again.take())

    def test_late_receipts(self) -> None:
        """
        So do the receipts for what it had sent.
        """
        self.start()
        recipient = self.node.client("runtime://example.org/b")
        recipient.drop()
        self.client.post(recipient.runtime, "update", receipt=True)
        self.client.drop()
        again = self.come_back()
        again.take()

        self.node.client().reopen(f"{recipient.runtime}/{recipient.token}")

        self.assertEqual([("receipt", 202)], [(m["type"], m["body"]["code"]) for m in again.take()])

    def test_its_other_connection(self) -> None:
        """
        A connection of the anonymous session may open again, and speaks for nobody until then.
        """
        self.start()

        self.come_back()
        self.client.tell({"id": 9, "type": "update", "from": RUNTIME, "to": "comm://x"})

        self.assertEqual(401, self.client.take()[-1]["body"]["code"])
        self.node.clock.advance(11)
        self.assertEqual(4408, self.client.lost.code)

    def test_merge_is_logged_as_a_rename(self) -> None:
        """
        The anonymous session is renamed in the log.
        """
        self.start()
        name = self.session.runtime
        self.client.drop()
        self.owner.drop()
        self.node.traffic_recorder.events.clear()

        self.come_back()

        self.assertEqual([("attached", RUNTIME), ("renamed", name)], self.node.traffic_recorder.events)
        self.node.clock.advance(3600)
        self.assertEqual(1, len([event for event, who in self.node.traffic_recorder.events if who == name]))


class UnderWayTests(RenamedCase):
    """
    What the session was asked before its client came back by its name is the other session's, too.
    """

    MANY = [f"comm://example.org/{number}" for number in range(4 * ADDRESSES)]

    def start(self, **sections: Any) -> None:
        super().start(**sections)
        self.node.client(RUNTIME)

    def bind_some(self, most: int = ADDRESSES) -> None:
        for _ in range(100):
            if len(self.session.bindings) >= most:
                break
            self.node.clock.turn()
        self.assertGreaterEqual(len(self.session.bindings), most)

    def answers(self, client: Client) -> list[int]:
        for _ in range(100):
            self.node.clock.turn()
        self.node.clock.advance(1)
        self.assertEqual([], [session for session in self.node.sessions if session.runtime != RUNTIME])
        return [message["body"]["code"] for message in client.take()]

    def test_subscribe_under_way_during_a_merge(self) -> None:
        """
        Addresses that are being bound.
        """
        self.start()
        many = [f"comm://example.org/{number}" for number in range(9 * ADDRESSES)]
        self.tell("subscribe", resources=many)
        self.bind_some(4 * ADDRESSES)
        self.client.drop()

        again = self.come_back()

        self.assertEqual([200, 200], self.answers(again))
        self.assertEqual(set(many), set(self.node.sessions.get(RUNTIME).bindings))

    def test_unsubscribe_under_way_during_a_merge(self) -> None:
        """
        Addresses that are being freed stay free.
        """
        self.start()
        self.tell("subscribe", resources=self.MANY)
        self.bind_some(len(self.MANY))
        self.node.clock.advance(1)
        self.tell("unsubscribe", resources=self.MANY)
        self.node.clock.turn()
        self.client.drop()

        again = self.come_back()

        self.assertEqual([200, 200], self.answers(again))
        self.assertEqual([], list(self.node.sessions.get(RUNTIME).bindings))

    def test_allocate(self) -> None:
        """
        Addresses that are being made up, and their key.
        """
        self.start(allocation={"per_request": 4 * ADDRESSES})
        body = {"value": {"number": 4 * ADDRESSES, "allocationKey": "key"}}
        self.client.tell({"id": 1, "type": "create", "from": RUNTIME, "to": ALLOCATION, "body": body})
        self.bind_some()
        self.client.drop()

        again = self.come_back()

        self.assertEqual([200, 200], self.answers(again))
        session = self.node.sessions.get(RUNTIME)
        self.assertEqual(4 * ADDRESSES, len(session.bindings))
        self.assertEqual(set(session.bindings), set(session.keys.find("key")))

    def test_another_merge(self) -> None:
        """
        Addresses that a session before it is still giving to this one.
        """
        self.start()
        first = self.client
        self.tell("subscribe", resources=self.MANY)
        self.bind_some(len(self.MANY))
        self.node.clock.advance(1)
        self.open()
        second, self.client = self.client, first
        between = self.come_back(second.session.runtime)
        self.client.token = between.take()[0]["body"]["runtimeToken"]

        again = self.come_back()

        self.assertEqual([200], self.answers(again))
        self.assertEqual(set(self.MANY), set(self.node.sessions.get(RUNTIME).bindings))

    def test_frames_behind(self) -> None:
        """
        What came behind it by the connection it came by, before the client came back.
        """
        self.start()
        self.tell("subscribe", resources=self.MANY)
        self.bind_some()
        self.client.tell(
            {"id": 8, "type": "subscribe", "from": RUNTIME, "to": SM, "body": {"resources": ROOM}}
        )

        again = self.come_back()

        self.assertEqual([200], self.answers(again))
        self.assertEqual([7, 8], [m["id"] for m in self.client.take() if m["body"]["code"] == 200])
        self.assertEqual({*self.MANY, ROOM}, set(self.node.sessions.get(RUNTIME).bindings))

    def test_last_frame_that_takes_its_time(self) -> None:
        """
        The last of what came behind may take many turns as well, and is waited for.
        """
        self.start()
        lots = [f"comm://example.org/{number}/x" for number in range(9 * ADDRESSES)]
        self.tell("subscribe", resources=lots)
        self.bind_some(len(lots))
        self.node.clock.advance(1)
        self.tell("subscribe", resources=self.MANY)
        self.node.clock.turn()
        self.tell("unsubscribe", resources=lots)

        again = self.come_back()

        self.answers(again)
        self.assertEqual(set(self.MANY), set(self.node.sessions.get(RUNTIME).bindings))

    def test_in_order_with_the_other(self) -> None:
        """
        What the session of that name was asked by its older connection comes before what this one asks.
        """
        self.start()
        self.tell("subscribe", resources=self.MANY)
        self.bind_some(len(self.MANY))
        self.node.clock.advance(1)
        owner = self.node.sessions.get(RUNTIME).connection
        body = {"resources": [f"comm://example.org/{number}/x" for number in range(9 * ADDRESSES)]}
        owner.tell({"id": 8, "type": "subscribe", "from": RUNTIME, "to": SM, "body": body})

        again = self.come_back()
        again.tell({"id": 9, "type": "unsubscribe", "from": RUNTIME, "to": SM, "body": body})

        self.answers(again)
        self.assertEqual(set(self.MANY), set(self.node.sessions.get(RUNTIME).bindings))

    def test_what_the_registry_confirms_only_now_is_kept(self) -> None:
        """
        What the registry confirms only now is kept for it.
        """
        self.start()
        self.client.drop()
        self.come_back()

        self.assertTrue(self.node.registered.add("hyperty://example.org/late", self.session, True))

        session = self.node.sessions.get(RUNTIME)
        self.assertEqual(["hyperty://example.org/late"], self.node.registered.ended(session))


class DurableTests(RenamedCase):
    """
    kill -9 undoes nothing.
    """

    def start(self, **sections: Any) -> None:
        self.node = DurableNode(directory(self), **sections)
        self.open()

    def kill(self) -> None:
        self.node = self.node.killed()
        self.addCleanup(self.node.store.shut)
        self.addCleanup(self.node.spool.close)

    def test_after_kill_9_the_session_has_its_name_addresses(self) -> None:
        """
        After kill -9 the session has its name, addresses and what waits, whether it was long ago or just now.
        """
        for long_ago in (True, False):
            self.start()
            self.tell("subscribe", resources=[ROOM])
            self.node.clock.advance(1)
            self.come_back().drop()
            sender = self.node.client("runtime://example.org/sender")
            message = sender.post(ROOM, "update")
            if long_ago:
                self.node.clock.advance(1)
            self.kill()

            again = self.come_back()

            self.assertEqual(message, again.take()[-1])
            self.node.clock.advance(3600)
            self.assertEqual([RUNTIME], [session.runtime for session in self.node.sessions])

    def test_merged_and_killed(self) -> None:
        """
        The same where both became one; and nothing comes twice.
        """
        for long_ago in (True, False):
            self.start()
            owner = self.node.client(RUNTIME)
            self.tell("subscribe", resources=[ROOM, "comm://both"], resource="comm://object", children=["n"])
            body = {"value": {"allocationKey": "key"}}
            self.client.tell({"id": 1, "type": "create", "from": RUNTIME, "to": ALLOCATION, "body": body})
            owner.tell(
                {
                    "id": 7,
                    "type": "subscribe",
                    "from": RUNTIME,
                    "to": SM,
                    "body": {"resources": "comm://both"},
                }
            )
            self.node.clock.advance(1)
            self.client.drop()
            sender = self.node.client("runtime://example.org/sender")
            message = sender.post(ROOM, "update")
            bound = {*self.session.bindings}
            again = self.come_back()
            self.client.token = again.raw and again.got[0]["body"]["runtimeToken"]
            self.assertEqual(message, again.take()[-1])
            again.drop()
            messages = [sender.post(address, "update") for address in (ROOM, "comm://both")]
            if long_ago:
                self.node.clock.advance(1)
            for _ in range(2):
                self.kill()
                new = self.node.client("runtime://example.org/new")  # whatever number it is given
                self.node.clock.advance(1)
            charged = self.node.budget.node.bytes

            again = self.come_back()

            self.assertEqual(messages, again.take()[1:])
            session = self.node.sessions.get(RUNTIME)
            self.assertEqual(bound, set(session.bindings))
            self.assertEqual(
                {"comm://object/children/n", "comm://object/n"}, set(session.children.find("comm://object"))
            )
            self.assertIn("key", session.keys)
            self.assertEqual(charged, self.node.budget.node.bytes)
            new.drop()
            self.node.clock.advance(3600)
            self.assertEqual([RUNTIME], [session.runtime for session in self.node.sessions])

    def test_killed_under_way(self) -> None:
        """
        Nothing that was answered is undone when the node is killed while both become one.
        """
        many = [f"comm://example.org/{number}" for number in range(3 * ADDRESSES)]
        for turns in range(0, 30, 3):
            self.node = DurableNode(directory(self))
            self.open()
            self.node.client(RUNTIME)
            self.tell("subscribe", resources=many)
            self.client.drop()
            again = self.come_back()
            for _ in range(turns):
                self.node.clock.turn()
                self.node.store.committed()
            self.node.clock.advance(turns / 10)
            answered = [message["id"] for message in again.take()]

            self.kill()

            bound = self.node.sessions.get(RUNTIME).bindings
            if 7 in answered:
                self.assertEqual(set(many), set(bound))
        self.assertIn(7, answered)

    def test_killed_twice(self) -> None:
        """
        Nor when it is killed again while the database takes in what the spool said of the first time.
        """
        for written in (True, False):
            self.node = DurableNode(directory(self))
            self.open()
            self.node.client(RUNTIME)
            self.tell("subscribe", resources=[ROOM])
            self.node.clock.advance(1)
            self.client.drop()
            self.come_back()
            self.kill()
            if written:
                self.node.settle()

            self.kill()
            self.kill()

            self.assertEqual([ROOM], list(self.node.sessions.get(RUNTIME).bindings))
            self.node.clock.advance(3600)
            self.assertEqual([RUNTIME], [session.runtime for session in self.node.sessions])

    def test_in_a_row(self) -> None:
        """
        Nor where the session that another became one with becomes one with a third.
        """
        for long_ago in (True, False):
            self.node = DurableNode(directory(self))
            self.open()
            self.tell("subscribe", resources=[ROOM])
            first, name = self.client, self.session.runtime
            self.open()
            self.node.client(RUNTIME)
            self.node.clock.advance(1)
            second, self.client = self.client, first
            between = self.come_back(second.session.runtime)
            self.client.token = between.take()[0]["body"]["runtimeToken"]
            if long_ago:
                self.node.clock.advance(1)

            self.come_back().drop()
            self.kill()
            self.kill()

            self.assertEqual([ROOM], list(self.node.sessions.get(RUNTIME).bindings))
            self.assertIsNone(self.node.sessions.get(name))
            self.assertEqual([RUNTIME], [session.runtime for session in self.node.sessions])

    def test_of_more_at_a_time_than_the_node_writes_down_at_once(self) -> None:
        """
        Of more at a time than the node writes down at once some are told to try again, and none is lost.
        """
        self.node = DurableNode(directory(self))
        self.node.client(RUNTIME)
        rooms = [f"comm://example.org/{number}" for number in range(MAX_ABSORBED + 5)]
        clients = []
        for room in rooms:
            self.open()
            self.tell("subscribe", resources=[room])
            clients.append(self.client)
        self.node.clock.advance(1)

        refused = []
        for self.client in clients:
            refused += [] if self.come_back().take() else [self.client]
        self.kill()
        self.node.clock.advance(1)
        for self.client in refused:
            self.assertEqual(200, self.come_back().take()[0]["body"]["code"])

        self.assertEqual(5, len(refused))
        self.assertEqual(set(rooms), set(self.node.sessions.get(RUNTIME).bindings))

    def test_merge_killed_before_the_disk_took_it(self) -> None:
        """
        Killed before the disk took that both are one: nobody new gets the number of the one that is gone.
        """
        self.node = DurableNode(directory(self))
        owner = self.node.client(RUNTIME)
        self.open()
        self.tell("subscribe", resources=[ROOM])
        self.node.clock.advance(1)
        self.client.drop()
        self.come_back().drop()
        owner.drop()
        self.node.clock.advance(1)
        disk = Refusing()
        disk.full = True
        self.node = self.node.killed(disk)
        stranger = self.node.client("runtime://example.org/stranger")
        body = {"resources": ["comm://secret"]}
        stranger.tell({"id": 3, "type": "subscribe", "from": stranger.runtime, "to": SM, "body": body})
        self.node.clock.advance(1)

        self.kill()

        session = self.node.sessions.get(RUNTIME)
        self.assertIn(ROOM, session.bindings)
        self.assertNotIn("comm://secret", session.bindings)

    def test_counts_go_on(self) -> None:
        """
        A client that acknowledges and opened without a name misses nothing, and gets nothing twice.
        """
        for killed in (False, True):
            for named in (False, True):
                self.node = DurableNode(directory(self), session={"unused_expiry_seconds": 3600})
                counting = Counting(self.node, RUNTIME)
                counting.runtime = ""
                counting.connect()
                counting.runtime = RUNTIME
                counting.send(id=1, type="subscribe", to=SM, body={"resources": [ROOM]})
                self.node.clock.advance(1)
                sender = self.node.client("runtime://example.org/sender")
                sender.post(ROOM, "update", body={"value": 1})
                counting.arrive()
                counting.lose()
                for value in (2, 3):
                    sender.post(ROOM, "update", body={"value": value})
                if named:
                    self.node.client(RUNTIME).drop()

                counting.connect()
                counting.lose(arrives=1)
                sender.post(ROOM, "update", body={"value": 4})
                if killed:
                    self.kill()
                    counting.node = self.node
                counting.connect()
                counting.arrive()

                heard = [message["body"]["value"] for message in counting.got if message["type"] == "update"]
                self.assertEqual(([1, 2, 3, 4], 0), (heard, counting.missed), (killed, named))
                self.assertEqual(([], 1), (counting.kept, counting.sent))


class StubTests(SynchronousTestCase):
    """
    The deployed Vert.x stub: disconnect, connect, and a lost connection.
    """

    def test_vertx_stub(self) -> None:
        """
        It hears what it subscribed without a name when it is back by its name.
        """
        net = Network()
        stub = VertxStub(net, "msg-node.example.org/protostub/1", RUNTIME)
        stub.start()
        stub.disconnect()
        stub.start()
        body = {"resources": [f"{ROOM}/changes"]}
        stub.post({"id": 5, "type": "subscribe", "from": f"{RUNTIME}/sm", "to": SM, "body": body})
        stub.drop()
        net.advance(10)

        stub.start()
        net.advance(120)
        update = {"id": 6, "type": "update", "from": ROOM, "to": f"{ROOM}/changes", "body": {"value": 1}}
        VertxStub(net, "other", "runtime://example.org/b").post(update)

        self.assertEqual([5, 6], [message["id"] for message in stub.bus if "id" in message])
        self.assertEqual([RUNTIME, "runtime://example.org/b"], [s.runtime for s in net.node.sessions])

    def test_two_tabs(self) -> None:
        """
        Also where another page of its has the session of that name meanwhile.
        """
        net = Network()
        stub, other = (VertxStub(net, f"msg-node.example.org/protostub/{n}", RUNTIME) for n in range(2))
        for _ in range(2):
            stub.start()
            stub.disconnect()
        stub.start()
        body = {"resources": [f"{ROOM}/changes"]}
        stub.post({"id": 5, "type": "subscribe", "from": f"{RUNTIME}/sm", "to": SM, "body": body})
        stub.drop()
        other.start()

        stub.start()
        update = {"id": 6, "type": "update", "from": ROOM, "to": f"{ROOM}/changes", "body": {"value": 1}}
        VertxStub(net, "another", "runtime://example.org/b").post(update)
        stub.drop()
        stub.start()

        self.assertEqual([5, 6], [message["id"] for message in stub.bus if "id" in message])
        self.assertEqual([f"{ROOM}/changes"], list(net.node.sessions.get(RUNTIME).bindings))
