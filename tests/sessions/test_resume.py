"""
Acknowledged resume, rule by rule; test_resume_machine.py has all of them at once.
"""

import json
from itertools import product
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from msgnode.sessions.routing import ALLOCATED, OWNED
from msgnode.structures.time_slices import MESSAGES
from tests.support.durable import SM, Counting, DurableNode
from tests.support.fakes import Client, MemoryNode, directory
from tests.support.http_client import HTTPClient
from tests.support.network import Network
from tests.support.poll_runtime import PollRuntime
from tests.support.runtimes import TCPRuntime, WebSocketRuntime, dumps

ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"


class Counted(Client):
    """
    A connection that counts by itself, as a poller's.
    """

    acks_by_request = True


class ResumeCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.start()

    def start(self, **session: Any) -> None:
        self.node = MemoryNode(session=session)
        self.sender = self.node.client(ANN)
        self.bob = Counting(self.node, BOB)
        self.bob.connect()
        self.bob.send(id="s", type="subscribe", to=SM, body={"resources": ["comm://x"]})
        self.settle()

    def settle(self) -> None:
        """
        All that is on its way arrives and is acknowledged.
        """
        self.node.clock.advance(1)
        self.bob.arrive()
        self.bob.acknowledge()
        self.bob.got.clear()

    def send(self, *numbers: int, **fields: Any) -> None:
        for number in numbers:
            message = {"id": number, "type": "update", "from": ANN, "to": f"{BOB}/x", **fields}
            self.sender.tell(message)

    def got(self) -> list[Any]:
        return [message["id"] for message in self.bob.got]

    def reopen(self, resume: Any) -> dict[str, Any]:
        """
        Come back and say this; what is told.
        """
        client = self.node.client()
        reply = {"id": 2, "type": "re-open", "from": f"{BOB}/{self.bob.token}", "to": "mn:/session"}
        client.tell({**reply, "body": {"resume": resume}})
        self.after = [message["id"] for message in client.got[1:]]
        return client.got[0]["body"]["resume"]


class AckTests(ResumeCase):
    """
    What each side tells the other.
    """

    def acks(self) -> list[int]:
        assert self.bob.wire is not None
        found = [json.loads(data) for data in self.bob.wire.on_its_way]
        return [message["body"]["received"] for message in found if message["type"] == "ack"]

    def test_every_64(self) -> None:
        """
        64 messages are acknowledged at once, fewer within half a second.
        """
        for number in range(70):
            self.bob.send(id=number, type="update", to="comm://nobody")
        self.assertEqual([65], self.acks())  # the subscription was the first

        self.node.clock.advance(0.5)

        self.assertEqual([65, 71], self.acks())

    def test_garbage_counts(self) -> None:
        """
        What cannot be read, and what is refused, counts like everything else.
        """
        assert self.bob.wire is not None
        for data in (b"{", b"3", b'{"id":1}', b'{"id":1,"type":"x","from":"mn:/x","to":"comm://y"}'):
            self.node.receive(data, self.bob.wire)
        self.node.settle()
        self.node.clock.advance(0.5)

        self.assertEqual([5], self.acks())

    def test_wrong_ack(self) -> None:
        """
        A count that cannot be is refused in words, and the refusal is not counted.
        """
        self.bob.received = 99

        self.bob.acknowledge()

        assert self.bob.wire is not None
        (refusal,) = [json.loads(data) for data in self.bob.wire.on_its_way]
        self.assertEqual(("mn:/session", 400), (refusal["from"], refusal["body"]["code"]))
        self.assertIn("'received' must be 1 to 1, not 99", refusal["body"]["desc"])

    def test_odd_acks(self) -> None:
        """
        What is no number of messages, or goes back, is refused in words, and changes nothing.
        """
        self.send(1, 2)
        self.bob.arrive()
        self.bob.acknowledge()
        assert self.bob.wire is not None
        for received in (None, True, "3", 1.5, -1, [], 2):
            body = {"received": received}
            message = {"id": 0, "type": "ack", "from": BOB, "to": "mn:/session", "body": body}
            self.node.receive(json.dumps(message).encode(), self.bob.wire)
            refusal = json.loads(self.bob.wire.on_its_way.pop())
            self.assertEqual(400, refusal["body"]["code"], received)

        self.assertEqual([], self.bob.wire.on_its_way)
        self.assertEqual(3, self.node.sessions.get(BOB).mailbox.outbox.acknowledged)

    def test_acknowledgement_is_not_answered(self) -> None:
        """
        An acknowledgement is not answered, and one that acknowledges nothing new is none.
        """
        assert self.bob.wire is not None
        self.bob.acknowledge()
        self.bob.acknowledge()
        self.node.clock.advance(5)

        self.assertEqual([], self.bob.wire.on_its_way)

    def test_nothing_to_count(self) -> None:
        """
        From a client that did not ask, or before `open`, an acknowledgement means nothing.
        """
        ack = {"id": 0, "type": "ack", "from": ANN, "to": "mn:/session", "body": {"received": 5}}
        stranger = self.node.client()

        for client in (self.sender, stranger):
            client.tell(ack)
            self.assertEqual(([], None), (client.take(), client.lost))

    def test_another_connection(self) -> None:
        """
        What a client without resume says, on a connection that was superseded, is carried and not counted.
        """
        older = self.node.client("runtime://example.org/cleo")
        cleo = Counting(self.node, "runtime://example.org/cleo")
        cleo.connect()

        for data in (b'{"id":1,"type":"x","from":"y","to":"%s"}' % ANN.encode(), b"{"):
            older.tell(data)
        self.node.reject_undecodable(b"\xff", "not UTF-8", older)
        cleo.send(id=2, type="x", to=ANN)
        self.node.clock.advance(0.5)

        self.assertEqual([1, 2], [message["id"] for message in self.sender.take()])
        assert cleo.wire is not None
        (ack,) = [json.loads(data) for data in cleo.wire.on_its_way]
        self.assertEqual({"received": 1}, ack["body"])

    def test_not_before_the_answer(self) -> None:
        """
        A request that is answered late is acknowledged when it is answered; sent again, it is done once.
        """
        late: Deferred[Any] = Deferred()
        asked = []

        class Late:
            def respond(self, message: Any, session: Any) -> Deferred[Any]:
                asked.append(message)
                return late

        self.node.responders["domain://late.example.org"] = Late()
        self.bob.send(id="q", type="read", to="domain://late.example.org")
        self.bob.send(id=2, type="update", to="comm://nobody")
        self.node.clock.advance(0.5)
        self.assertEqual([], self.acks())

        self.bob.lose()
        self.bob.connect()
        late.callback(asked[0].reply({"code": 200}))
        self.node.clock.advance(0.5)

        self.assertEqual([3], self.acks())
        self.bob.arrive()
        self.assertEqual((["q"], 1), (self.got(), len(asked)))


class ReopenTests(ResumeCase):
    """
    What a client is told that comes back.
    """

    def test_nothing_missing(self) -> None:
        """
        What it has not had comes again, in order, and then the rest.
        """
        self.send(1, 2, 3)
        self.bob.lose(arrives=1)
        self.send(4)

        self.bob.connect()
        self.bob.arrive()

        self.assertEqual([1, 2, 3, 4], self.got())

    def test_when_more_came_than_may_wait_it_is_told_exactly_how(self) -> None:
        """
        When more came than may wait, it is told exactly how many are gone.
        """
        self.start(queue_messages=3)
        self.bob.lose()
        self.send(1, 2, 3, 4, 5)

        told = self.reopen({"epoch": self.bob.epoch, "received": self.bob.received})

        self.assertEqual((False, 2), (told["recovered"], told["missed"]))
        self.assertEqual([3, 4, 5], self.after)

    def test_expired_message_counts_as_missed(self) -> None:
        """
        A message whose ttl ran out is missed; one that nobody gave a ttl does not go stale.
        """
        self.bob.lose()
        self.send(1, ttl=5)
        self.send(2, type="create")
        self.node.clock.advance(100)

        told = self.reopen({"epoch": self.bob.epoch, "received": self.bob.received})

        self.assertEqual((1, [2]), (told["missed"], self.after))

    def test_received_and_lost(self) -> None:
        """
        What was missed stands between what had come and what comes: both counts go on from there.
        """
        self.start(queue_messages=3)
        self.send(1)
        self.bob.lose(arrives=0)
        self.send(2, 3, 4, 5)

        self.bob.connect()
        self.bob.arrive()
        self.bob.acknowledge()
        self.send(6)
        self.bob.lose(arrives=0)
        self.bob.connect()
        self.bob.arrive()

        self.assertEqual((1, [1, 3, 4, 5, 6]), (self.bob.missed, self.got()))

    def test_missed_is_unknown_when_the_session_expired(self) -> None:
        """
        When the session expired the node cannot know what is missing, and does not say that nothing is.
        """
        self.bob.lose()
        self.node.clock.advance(86_401)

        told = self.reopen({"epoch": self.bob.epoch, "received": self.bob.received})

        self.assertEqual((0, False, None), (told["received"], told["recovered"], told["missed"]))

    def test_strange_token(self) -> None:
        """
        With a token that is not the session's a new epoch begins, and what was not acknowledged comes again.
        """
        self.send(1, 2)
        self.bob.token = "mns_" + "x" * 43

        told = self.reopen({"epoch": self.bob.epoch, "received": self.bob.received})

        self.assertNotEqual(self.bob.epoch, told["epoch"])
        self.assertEqual((True, 0, [1, 2]), (told["recovered"], told["missed"], self.after))

    def test_missed_meanwhile(self) -> None:
        """
        Who comes back without counting is not told what is missing; who counts again is.
        """
        self.start(queue_messages=3)
        self.bob.lose()
        self.send(1, 2, 3, 4)
        poller = Counted(self.node)
        poller.reopen(f"{BOB}/{self.bob.token}")
        poller.drop()

        told = self.reopen({"epoch": self.bob.epoch, "received": self.bob.received})

        self.assertEqual((1, [2, 3, 4]), (told["missed"], self.after))

    def test_missed_messages_are_told_once(self) -> None:
        """
        What was told is not told again.
        """
        self.start(queue_messages=3)
        self.bob.lose()
        self.send(1, 2, 3, 4)
        self.bob.connect()
        self.bob.lose()

        self.bob.connect()

        self.bob.arrive()
        self.assertEqual((1, [2, 3, 4]), (self.bob.missed, self.got()))

    def test_had_forgotten(self) -> None:
        """
        A client that goes back behind what it acknowledged is told how many it cannot have again.
        """
        self.send(1, 2, 3)
        self.bob.arrive()
        self.bob.acknowledge()

        told = self.reopen({"epoch": self.bob.epoch, "received": self.bob.received - 2})

        self.assertEqual((False, 2, []), (told["recovered"], told["missed"], self.after))

    def test_strange_epochs(self) -> None:
        """
        With an epoch or a count the node does not know it begins anew, and what is missing is unknown.
        """
        self.send(1)
        for resume in (
            {"epoch": "never", "received": 0},
            {"epoch": self.bob.epoch, "received": 1000},
        ):
            told = self.reopen(resume)
            self.assertEqual((0, False, None), (told["received"], told["recovered"], told["missed"]))
            self.assertNotEqual(self.bob.epoch, told["epoch"])
            self.assertEqual([1], self.after)

    def test_odd_wishes(self) -> None:
        """
        Whatever else `resume` is, the answer is 200 and a new epoch.
        """
        for resume in (True, {}, {"epoch": 3}, {"epoch": "x", "received": True}, [1], "yes"):
            self.assertNotEqual(self.bob.epoch, self.reopen(resume)["epoch"])

    def test_re_open_where_it_is_open_sends_nothing_again(self) -> None:
        """
        Who re-opens where it is open already is not sent again what is on its way to it.
        """
        self.send(1, 2)
        resume = {"epoch": self.bob.epoch, "received": 0}
        self.bob.tell("re-open", f"{BOB}/{self.bob.token}", {"resume": resume})
        self.send(3)

        assert self.bob.wire is not None
        came = [json.loads(data) for data in self.bob.wire.on_its_way]
        self.assertEqual([1, 2, 3], [message["id"] for message in came if message["from"] != "mn:/session"])

    def test_on_the_same_connection_with_a_gap(self) -> None:
        """
        What is gone for good is told on the next connection, when nothing is on its way any more.
        """
        self.start(queue_messages=2)
        self.send(1, 2)
        self.send(3, ttl=1)
        self.node.clock.advance(2)
        self.bob.tell(
            "re-open", f"{BOB}/{self.bob.token}", {"resume": {"epoch": self.bob.epoch, "received": 0}}
        )
        self.bob.lose(arrives=2)  # the answer does not

        self.bob.connect()
        self.bob.arrive()

        self.assertEqual(([1, 2], 1), (self.got(), self.bob.missed))

    def test_carried_over_as_it_was(self) -> None:
        """
        What was sent and is carried over keeps its priority, and ends with its `ttl`.
        """
        self.send(1, ttl=5)
        self.send(2, priority=1)
        self.send(3, priority=9)
        self.bob.lose()
        slow = self.node.client()
        slow.write_paused = True
        slow.open(BOB)
        self.node.clock.advance(6)

        self.node.sessions.connections.write_resumed(slow)

        self.assertEqual([3, 2], [message["id"] for message in slow.got if message["from"] != "mn:/session"])

    def test_opened_anew(self) -> None:
        """
        `open` begins a new epoch, and carries over what was not acknowledged.
        """
        self.send(1, 2)
        client = self.node.client()
        client.tell({"id": 1, "type": "open", "from": BOB, "to": "mn:/session", "body": {"resume": True}})

        self.assertEqual(
            (0, True), tuple(client.got[0]["body"]["resume"][k] for k in ("received", "recovered"))
        )
        self.assertEqual([1, 2], [message["id"] for message in client.got[1:]])

    def test_too_much_carried_over(self) -> None:
        """
        What was sent and what waits may be too much together; of that, too, it is told how many are gone.
        """
        self.start(queue_messages=3)
        self.send(1, 2, 3, 4, 5)
        client = self.node.client()
        client.tell({"id": 1, "type": "open", "from": BOB, "to": "mn:/session", "body": {"resume": True}})

        told = client.got[0]["body"]["resume"]
        self.assertEqual((False, 2), (told["recovered"], told["missed"]))
        self.assertEqual([3, 4, 5], [message["id"] for message in client.got[1:]])

    def test_client_without_resume_is_told_nothing_of_it(self) -> None:
        """
        A client that does not ask is told nothing of all this, and gets what waits.
        """
        self.send(1)
        client = self.node.client()

        reply = client.reopen(f"{BOB}/{self.bob.token}")

        self.assertEqual({"code": 200}, reply["body"])
        self.assertEqual([1], [message["id"] for message in client.got])
        self.node.clock.advance(5)
        self.assertEqual(1, len(client.got))


class OneAtATimeTests(ResumeCase):
    """
    Connections of one session.
    """

    def test_older_connection_is_closed_4409_and_told(self) -> None:
        """
        The older connection is closed 4409 and told not to come back.
        """
        older = self.bob.wire
        self.bob.connect()

        assert older is not None and older.lost is not None
        self.assertEqual((4409, "superseded", None), older.lost)

    def test_unacknowledging_client_is_sent_only_a_window(self) -> None:
        """
        To a client that does not acknowledge no more is sent than may wait; once it does, it goes on.
        """
        self.start(queue_messages=3)
        self.send(1, 2, 3, 4, 5)
        self.bob.arrive()
        self.assertEqual([1, 2, 3], self.got())

        self.bob.acknowledge()
        self.bob.arrive()

        self.assertEqual([1, 2, 3, 4, 5], self.got())

    def test_window_of_bytes(self) -> None:
        """
        The same in bytes; one message always goes.
        """
        self.node = MemoryNode(limits={"message_bytes": 2000}, session={"queue_bytes": 2000})
        self.sender = self.node.client(ANN)
        self.bob = Counting(self.node, BOB)
        self.bob.connect()

        self.send(1, 2, 3, body={"v": "x" * 1200})
        self.bob.arrive()
        self.assertEqual([1, 2], self.got())
        self.bob.acknowledge()
        self.bob.arrive()

        self.assertEqual([1, 2, 3], self.got())

    def test_acknowledges_while_full(self) -> None:
        """
        An acknowledgement makes room, but nothing leaves while the transport takes no more.
        """
        self.start(queue_messages=3)
        self.send(1, 2, 3, 4)
        self.bob.arrive()
        assert self.bob.wire is not None
        self.node.sessions.connections.write_paused(self.bob.wire)

        self.bob.acknowledge()
        self.assertEqual([], self.bob.wire.on_its_way)
        self.node.sessions.connections.write_resumed(self.bob.wire)
        self.bob.arrive()

        self.assertEqual([1, 2, 3, 4], self.got())

    def test_legacy_takes_over(self) -> None:
        """
        A client that does not count takes over as ever: what was not acknowledged is its own, uncounted.
        """
        self.send(1, 2)
        older = self.bob.wire

        client = self.node.client()
        client.tell({"id": 1, "type": "open", "from": BOB, "to": "mn:/session"})
        self.send(3)
        self.node.clock.advance(5)

        assert older is not None and older.lost is not None
        self.assertEqual(4409, older.lost.code)
        self.assertEqual([1, 1, 2, 3], [message["id"] for message in client.got])
        self.assertIsNone(self.node.sessions.get(BOB).mailbox.outbox)

    def test_never_acknowledges(self) -> None:
        """
        When too much waits for it, it is closed 4413, and its session stays.
        """
        self.start(queue_messages=3)
        self.send(*range(7))
        self.node.clock.advance(0)

        assert self.bob.wire is not None and self.bob.wire.lost is not None
        self.assertEqual(4413, self.bob.wire.lost.code)
        self.assertIsNotNone(self.node.sessions.get(BOB))


class RestartTests(SynchronousTestCase):
    """
    Over the end of the process.
    """

    def setUp(self) -> None:
        self.node: Any = DurableNode(directory(self))
        self.addCleanup(lambda: (self.node.spool.close(), self.node.store.shut()))

    def kill(self) -> None:
        self.node = self.node.killed()

    def test_receipt_is_given_for_what_waited_over_a_restart(self) -> None:
        """
        A receipt is given for what waited over a restart.
        """
        ann, bob = self.node.client(ANN), self.node.client(BOB)
        for client in (ann, bob):
            client.tell(
                {
                    "id": 1,
                    "type": "subscribe",
                    "from": ANN,
                    "to": SM,
                    "body": {"resources": [f"comm://{id(client)}"]},
                }
            )
        self.node.clock.advance(0)
        bob.drop()
        ann.tell({"id": 7, "type": "update", "from": ANN, "to": BOB, "receipt": True})
        self.kill()

        ann = self.node.client(ANN)
        self.node.client(BOB)

        self.assertEqual([202], [message["body"]["code"] for message in ann.take()])

    def test_allocated_addresses_their_keys_subscriptions(self) -> None:
        """
        Allocated addresses, their keys, subscriptions and tokens are there again; what was freed is not.
        """
        ann = self.node.client(ANN)
        body = {"scheme": "comm", "value": {"number": 2, "allocationKey": "k"}}
        to = "domain://msg-node.example.org/address-allocation"
        ann.tell({"id": 1, "type": "create", "from": ANN, "to": to, "body": body})
        self.node.clock.advance(0)
        first, second = ann.take()[0]["body"]["value"]["allocated"]
        ann.tell({"id": 2, "type": "delete", "from": ANN, "to": to, "body": {"resource": first}})
        self.node.clock.advance(0)
        self.kill()

        session = self.node.sessions.get(ANN)
        self.assertEqual({second: ALLOCATED | OWNED}, session.bindings)
        self.assertTrue(session.has_token(ann.token))
        again = self.node.client()
        again.reopen(f"{ANN}/{ann.token}")
        again.tell({"id": 3, "type": "delete", "from": ANN, "to": to, "body": {"resource": "k"}})
        self.assertEqual({}, session.bindings)

    def test_expiry_goes_on(self) -> None:
        """
        The time a session was away before the restart counts.
        """
        ann = self.node.client(ANN)
        ann.tell({"id": 1, "type": "subscribe", "from": ANN, "to": SM, "body": {"resources": ["comm://x"]}})
        self.node.clock.advance(0)
        ann.drop()
        self.node.clock.advance(80_000)
        self.kill()

        self.node.clock.advance(6000)
        self.assertIsNotNone(self.node.sessions.get(ANN))
        self.node.clock.advance(1000)
        self.assertIsNone(self.node.sessions.get(ANN))

    def test_staleness_goes_on(self) -> None:
        """
        So does the time a message waited.
        """
        ann, bob = self.node.client(ANN), self.node.client(BOB)
        bob.drop()
        ann.post(BOB, type="create")
        ann.post(BOB, type="update")
        self.node.clock.advance(10)
        self.kill()
        self.node.clock.advance(6)

        back = self.node.client()
        back.reopen(BOB)

        self.assertEqual(["update"], [message["type"] for message in back.got])


class ConnectorTests(SynchronousTestCase):
    """
    A session goes on by another connector, without a gap.
    """

    def setUp(self) -> None:
        self.net = Network()
        self.sender = TCPRuntime(self.net, ANN).open()

    def send(self, *numbers: int) -> None:
        for number in numbers:
            self.sender.send({"id": number, "type": "update", "from": "x", "to": f"{BOB}/x"})

    def opened(self, make: Any) -> Any:
        client = make(self.net, BOB)
        self.epoch = client.session("open", **{"from": BOB, "body": {"resume": True}})["body"]["resume"][
            "epoch"
        ]
        return client

    def resumed(self, make: Any, token: str, received: int) -> Any:
        client = make(self.net, BOB)
        client.token = token
        resume = {"epoch": self.epoch, "received": received}
        reply = client.session("re-open", **{"from": f"{BOB}/{token}", "body": {"resume": resume}})
        self.told = reply["body"]["resume"]
        self.assertEqual(self.epoch, self.told["epoch"])
        return client

    def ids(self, client: Any) -> list[int]:
        return [message["id"] for message in client.take() if message["type"] == "update"]

    def test_from_websocket_to_lines(self) -> None:
        """
        WebSocket breaks, lines go on.
        """
        first = self.opened(WebSocketRuntime)
        self.send(1, 2, 3)
        first.drop()
        self.send(4)

        second = self.resumed(TCPRuntime, first.token, received=2)

        self.assertEqual([3, 4], self.ids(second))

    def test_from_websocket_to_polling(self) -> None:
        """
        WebSocket breaks, and a GET names what had come.
        """
        first = self.opened(WebSocketRuntime)
        self.send(1, 2, 3)
        first.drop()
        second = self.resumed(PollRuntime, first.token, received=1)

        self.assertEqual([2, 3], self.ids(second))
        self.send(4)
        self.assertEqual([4], self.ids(second))
        self.assertEqual(4, second.cursor)

    def test_from_polling_to_websocket(self) -> None:
        """
        And back.
        """
        first = self.opened(PollRuntime)
        self.send(1, 2)
        self.assertEqual([1, 2], self.ids(first))
        first.drop()
        self.send(3)

        second = self.resumed(WebSocketRuntime, first.token, received=2)

        self.assertEqual([3], self.ids(second))

    def test_every_pair(self) -> None:
        """
        From each connector to each: both directions go on where they were.
        """
        for first, second in product((WebSocketRuntime, TCPRuntime, PollRuntime), repeat=2):
            self.setUp()
            client = self.opened(first)
            self.send(1, 2, 3)
            self.assertEqual([1, 2, 3], self.ids(client))
            client.send(*({"id": n, "type": "x", "from": BOB, "to": ANN} for n in (1, 2)))
            client.drop()
            self.send(4, 5)

            later = self.resumed(second, client.token, received=3)

            with self.subTest(first=first.__name__, second=second.__name__):
                self.assertEqual(2, self.told["received"])
                self.assertEqual([4, 5], self.ids(later))
                later.send({"id": 3, "type": "x", "from": BOB, "to": ANN})
                self.net.advance(1)
                self.assertEqual([1, 2, 3], [message["id"] for message in self.sender.take()])
                self.assertEqual(3, self.net.node.sessions.get(BOB).mailbox.inbox.received)

    def test_poller_is_superseded(self) -> None:
        """
        What a poller still posts when a WebSocket has resumed its session is not counted as the WebSocket's.
        """
        first = self.opened(PollRuntime)
        second = self.resumed(WebSocketRuntime, first.token, received=0)

        first.send({"id": 1, "type": "x", "from": BOB, "to": ANN})
        second.send({"id": 2, "type": "x", "from": BOB, "to": ANN})
        self.net.advance(1)

        acks = [message["body"]["received"] for message in second.take() if message["type"] == "ack"]
        self.assertEqual([1], acks)

    def test_late_post_of_a_superseded_poller_is_not_taken(self) -> None:
        """
        A POST that the node reads after its client resumed by lines is refused 409: all comes again there.
        """
        poll = self.opened(PollRuntime)
        lines = self.resumed(TCPRuntime, poll.token, received=0)
        messages = [{"id": n, "type": "x", "from": BOB, "to": ANN} for n in (1, 2)]

        late = self.begin_post(poll.token, messages)
        lines.send(*messages)
        self.net.advance(1)

        self.assertEqual(409, late.response.status)
        self.assertEqual([1, 2], [message["id"] for message in self.sender.take()])

    def test_post_under_way_is_not_taken_when_its_client_resumes_elsewhere(self) -> None:
        """
        The same when the client resumes while its POST is looked through, in slices.
        """
        numbers = list(range(9 * MESSAGES))
        messages = [{"id": n, "type": "x", "from": BOB, "to": ANN} for n in numbers]
        poll = self.opened(PollRuntime)
        post = self.begin_post(poll.token, messages)
        self.assertIsNone(post.response)

        again = self.net.node.client()
        again.tell(self.reopening(poll.token))
        for message in messages:
            again.tell(message)
        self.net.pump()

        self.assertEqual(409, post.response.status)
        self.assertEqual(numbers, [message["id"] for message in self.sender.take()])

    def test_post_under_way_is_not_taken_when_its_client_polls_anew(self) -> None:
        """
        A POST that is looked through while its client polls anew is refused 409, not answered 202 in vain.
        """
        messages = [{"id": n, "type": "x", "from": BOB, "to": ANN} for n in range(9 * MESSAGES)]
        poll = self.opened(PollRuntime)
        post = self.begin_post(poll.token, messages)

        self.begin_post("", self.reopening(poll.token))
        self.net.pump()

        self.assertEqual(409, post.response.status)
        self.assertEqual([], self.sender.take())

    def reopening(self, token: str) -> dict[str, Any]:
        resume = {"epoch": self.epoch, "received": 0}
        from_ = f"{BOB}/{token}"
        return {"id": 1, "type": "re-open", "from": from_, "to": "mn:/session", "body": {"resume": resume}}

    def begin_post(self, token: str, body: Any) -> HTTPClient:
        """
        Post without letting a turn pass.
        """
        client = HTTPClient(self.net)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        client.start("POST", "/poll?seq=1" if token else "/poll", dumps(body), **headers)
        while client.link.pump(advanceClock=False):
            pass
        return client


class FullDiskTests(SynchronousTestCase):
    """
    While the disk is full nothing leaves that could be forgotten, also if the node is killed then.
    """

    def setUp(self) -> None:
        self.node: Any = DurableNode(directory(self))
        self.addCleanup(lambda: (self.node.spool.close(), self.node.store.shut()))
        self.disk = self.node.disk
        self.ann, self.bob = Counting(self.node, ANN), Counting(self.node, BOB)
        for client in (self.ann, self.bob):
            client.connect()
            client.send(id="s", type="subscribe", to=SM, body={"resources": [f"comm://{client.runtime}"]})
        self.settle()

    def settle(self) -> None:
        self.node.clock.advance(1)
        for client in (self.ann, self.bob):
            if client.wire is not None and client.wire.lost is not None:
                client.lose(arrives=0)
                client.connect()
            client.arrive()
            client.acknowledge()
            client.got = [message for message in client.got if message["id"] != "s"]

    def publish(self, *numbers: int) -> None:
        for number in numbers:
            self.ann.send(id=number, type="update", to=BOB)

    def got(self) -> list[int]:
        return [message["id"] for message in self.bob.got]

    def test_what_came_meanwhile_is_delivered_once_in_order(self) -> None:
        """
        What came meanwhile is delivered once, in order, and acknowledged, when the disk has room again.
        """
        self.publish(1)
        self.settle()
        self.disk.full = True
        self.publish(2, 3)
        self.settle()
        self.assertEqual(([1], 2), (self.got(), len(self.ann.kept)))

        self.disk.full = False
        self.publish(4)
        for _ in range(3):
            self.settle()

        self.assertEqual(([1, 2, 3, 4], []), (self.got(), self.ann.kept))

    def test_killed_while_the_disk_was_full_the_node_has(self) -> None:
        """
        Killed while the disk was full, the node has promised nothing that it forgot.
        """
        self.publish(1)
        self.settle()
        self.disk.full = True
        self.publish(2, 3)
        self.settle()

        self.node = self.node.killed()
        for client in (self.ann, self.bob):
            client.node, client.wire = self.node, None
            client.connect()
        for _ in range(3):
            self.settle()

        self.assertEqual(([1, 2, 3], []), (self.got(), self.ann.kept))
        self.assertEqual(0, self.bob.missed)

    def test_poller_is_told(self) -> None:
        """
        A POST is not taken while it cannot be written down: 503, and all of it again afterwards.
        """
        net = Network()
        net.node.message_log = net.node.sessions.journal.message_log = self.node.spool
        poller = PollRuntime(net, "runtime://example.org/poller").open()
        bob = TCPRuntime(net, "runtime://example.org/dev").open()
        messages = [{"id": n, "type": "update", "from": poller.url, "to": bob.url} for n in (1, 2)]

        self.disk.full = True
        first = poller.post.request("POST", "/poll?seq=1", dumps(messages), **poller.headers())
        second = poller.post.request("POST", "/poll?seq=1", dumps(messages), **poller.headers())
        self.disk.full = False
        net.clock.advance(2)
        third = poller.post.request("POST", "/poll?seq=1", dumps(messages), **poller.headers())

        self.assertEqual([503, 503, 202], [first.status, second.status, third.status])
        self.assertIn("No space left on device; some of it may have been taken", first.json()["desc"])
        self.assertEqual({"accepted": 2, "received": 2}, third.json())
        self.assertEqual([1, 2], [message["id"] for message in bob.take()])

    def test_not_asked_each_time(self) -> None:
        """
        A full disk is tried once a second, however much comes.
        """
        self.disk.full = True
        self.disk.tried = 0
        for number in range(50):
            self.publish(number)
        self.assertEqual(1, self.disk.tried)

        for _ in range(3):
            self.node.clock.advance(1)
        self.assertLess(self.disk.tried, 8)
