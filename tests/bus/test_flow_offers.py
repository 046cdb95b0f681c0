"""
Flows: what the node offers to the data plane, and that no flow outlives the decision it repeats.

The data plane here is a model of the compiled one: it keeps flows as long as the node lets it, and carries
nothing.  So these tests need no compiler.
"""

import json
import random
from typing import Any

import pytest

from msgnode.policy.administration.document_edit import load
from msgnode.policy.decision.decision import NOT_APPLICABLE, PERMIT
from msgnode.policy.enforcement.decision_log import DecisionLog
from msgnode.policy.enforcement.points import IN
from msgnode.protocol.message import decode
from msgnode.sessions.routing import LEARNED, OWNED
from msgnode.sessions.session import Session
from msgnode.transport.data_plane import FlowTerms, PermitLine
from tests.support.fakes import Client, MemoryNode
from tests.support.made_policies import document, files, rule, use
from tests.support.model_plane import NAMES, Flow, FlowCase, ModelPlane

ADDRESSES = [
    *NAMES,
    f"{NAMES[0]}/x",
    f"{NAMES[0]}/x/y",
    *(f"hyperty://example.org/{n}" for n in range(3)),
    "comm://example.org/x",
]
SHARED = ADDRESSES[-4:]
PARENTS = ["runtime:", "runtime://example.org", "hyperty://example.org", "comm://example.org"]
SEEDS, STEPS = 20, 500


class OfferTests(FlowCase):
    """
    What is offered.
    """

    def setUp(self) -> None:
        super().setUp()
        self.ann, self.bob = self.connect(NAMES[0]), self.connect(NAMES[1])

    def flows(self) -> list[tuple[str, str]]:
        return [(flow.from_, flow.to) for flow in self.plane.flows_kept]

    def test_plain_delivery(self) -> None:
        """
        A plain message that was delivered is repeated for the same sender, address and type.
        """
        self.send(self.ann, NAMES[0], NAMES[1])

        self.assertEqual({Flow(1, NAMES[0], NAMES[1], "update", (2,))}, self.plane.flows_kept)

    def test_learned_sender(self) -> None:
        """
        A hyperty is learned with its first message, and carried from then on.
        """
        for _ in range(2):
            self.send(self.ann, "hyperty://example.org/1", NAMES[1])

        self.assertEqual([("hyperty://example.org/1", NAMES[1])], self.flows())

    def test_unusual_messages(self) -> None:
        """
        Receipts, forwarding and lists are not offered, nor what is sent to oneself, to the node or to nobody.
        """
        self.send(self.ann, NAMES[0], NAMES[1], receipt=True)
        self.send(self.ann, NAMES[0], NAMES[1], forward=True)
        self.send(self.ann, NAMES[0], [NAMES[1], NAMES[2]])
        for to in (NAMES[0], "domain://msg-node.example.org/sm", "comm://example.org/nobody"):
            self.send(self.ann, NAMES[0], to)

        self.assertEqual([], self.flows())

    def test_answers_that_are_noted(self) -> None:
        """
        A response from an address that was at another node when the recipient asked is not offered.
        """
        offers = self.node.router.flow_offers
        assert offers is not None
        offers.awaits = lambda session, address: (session.runtime, address) == (NAMES[1], NAMES[0])
        self.send(self.ann, NAMES[0], NAMES[1], type="response")
        self.send(self.bob, NAMES[1], NAMES[0], type="response")

        self.assertEqual([(NAMES[1], NAMES[0])], self.flows())

    def test_waiting_recipient(self) -> None:
        """
        What is queued for a recipient is not offered.
        """
        self.node.sessions.connections.write_paused(self.bob)

        self.send(self.ann, NAMES[0], NAMES[1])

        self.assertEqual([], self.flows())

    def acknowledging(self) -> Client:
        carl = Client(self.node)
        self.plane.connections.append(carl)
        carl.tell({"id": 1, "type": "open", "from": NAMES[2], "to": "mn:/session", "body": {"resume": True}})
        return carl

    def test_acknowledging_clients(self) -> None:
        """
        What a client that acknowledges sends is counted, and what it is sent has the room of its outbox.
        """
        carl = self.acknowledging()
        bounds = self.node.config.session

        self.send(carl, NAMES[2], NAMES[1])
        self.send(self.ann, NAMES[0], NAMES[2])

        counted = Flow(3, NAMES[2], NAMES[1], "update", (2,), FlowTerms(counted=True))
        self.assertEqual({counted, Flow(1, NAMES[0], NAMES[2], "update", (3,))}, self.plane.flows_kept)
        messages, size = self.plane.room[3]
        self.assertEqual(bounds.queue_messages - 1, messages)
        self.assertLess(size, bounds.queue_bytes)

        carl.tell({"id": 0, "type": "ack", "from": NAMES[2], "to": "mn:/session", "body": {"received": 1}})
        self.assertEqual((bounds.queue_messages, bounds.queue_bytes), self.plane.room[3])

    def test_message_sent_again(self) -> None:
        """
        While a client that acknowledges sends messages again, each is looked at: it may be a duplicate.
        """
        carl = self.acknowledging()
        message = b'{"id":1,"type":"update","from":"%s","to":"%s"}' % (NAMES[2].encode(), NAMES[1].encode())
        for _ in range(3):
            self.node.receive(message, carl)
        assert carl.session is not None and carl.session.mailbox.inbox is not None
        self.plane.change_all()
        carl.session.mailbox.inbox.expect_again()  # nothing is on disk yet

        self.node.receive(message, carl)

        self.assertEqual([], self.flows())

    def test_crowded_spool(self) -> None:
        """
        When the spool has more than it may have, all flows end, and no outbox has room.
        """
        carl = self.acknowledging()
        self.send(self.ann, NAMES[0], NAMES[1])
        self.node.sessions.journal.limit_disk(-1)

        self.send(self.ann, NAMES[0], NAMES[2])

        assert carl.session is not None and carl.session.mailbox.outbox is not None
        self.assertEqual([], self.flows())
        self.assertEqual((0, 0), carl.session.mailbox.outbox.room)

    def test_many_recipients(self) -> None:
        """
        One flow has as many recipients as a message is sent to without slices.
        """
        for n in range(30):
            self.connect(f"runtime://example.org/listener{n}")
        listeners = [client.session for client in self.plane.connections[2:]]
        for listener in listeners:
            self.node.routes.bind(ADDRESSES[-1], listener, OWNED)

        self.send(self.ann, NAMES[0], ADDRESSES[-1])

        self.assertEqual([tuple(range(3, 33))], [flow.recipients for flow in self.plane.flows_kept])
        self.node.config.limits.recipients_at_once = 29
        self.node.apply()
        self.send(self.ann, NAMES[0], ADDRESSES[-1])
        self.assertEqual([], self.flows())

    def test_connection_without_a_port(self) -> None:
        """
        A recipient that the data plane does not write to is served by Python.
        """
        self.node.client(NAMES[2])

        self.send(self.ann, NAMES[0], NAMES[2])

        self.assertEqual([], self.flows())

    def test_token_in_each_message(self) -> None:
        """
        Where each message must carry a token nothing is offered.
        """
        self.node.config.session.message_token = "require"
        self.node.apply()

        self.send(self.ann, NAMES[0], NAMES[1])

        self.assertEqual([], self.flows())

    def test_checked_sender(self) -> None:
        """
        With a check of the sender, messages from its runtimeURL and from addresses that it is bound to are
        offered, others are not.
        """
        self.node.config.session.from_check = "log"
        self.node.apply()

        for from_ in (NAMES[0], f"{NAMES[0]}/x", NAMES[2]):
            self.send(self.ann, from_, NAMES[1])

        self.assertEqual([(NAMES[0], NAMES[1])], self.flows())


class ChurnTests(FlowCase):
    """
    What flows survive.
    """

    def setUp(self) -> None:
        super().setUp()
        self.ann, self.bob = self.connect(NAMES[0]), self.connect(NAMES[1])
        self.send(self.ann, NAMES[0], f"{NAMES[1]}/x")
        self.kept = set(self.plane.flows_kept)

    def test_others_come_and_go(self) -> None:
        """
        Sessions that open, bind addresses, get a name, move to another connection and end leave the flows of
        others as they are.
        """
        self.assertEqual(1, len(self.kept))
        for number in range(20):
            name = f"runtime://example.org/other-{number}"
            other = self.connect(name)
            other.tell(self.subscription(name, f"comm://example.org/{number}"))
            self.send(other, name, NAMES[1])
            anonymous = self.connect("")
            anonymous.tell({"id": 2, "type": "open", "from": f"{name}-b", "to": "mn:/session"})
            again = self.connect(name)
            anonymous.close()
            other.drop()
            again.drop()
            self.node.clock.advance(31)
        self.node.clock.advance(31)

        self.assertEqual(2, len(self.node.sessions))
        self.assertEqual(self.kept, self.plane.flows_kept & self.kept)

    def test_bindings_above_the_recipient(self) -> None:
        """
        A client that binds addresses above those of others again and again leaves their flows as they are: it
        hears nothing of what is below.
        """
        other = self.connect("runtime://example.com/other")
        for address in PARENTS:
            for kind in ("subscribe", "unsubscribe"):
                other.tell(self.subscription(other.session.runtime, address, kind))
                self.assertEqual(200, json.loads(other.raw[-1])["body"]["code"])

        self.assertEqual(self.kept, self.plane.flows_kept)

    def test_name_above_the_recipient(self) -> None:
        """
        A session that opens a name above the address, or nearer to it, ends the flow.
        """
        self.connect(f"{NAMES[1]}/x")

        self.assertEqual(set(), self.plane.flows_kept)

    def test_renamed_sender(self) -> None:
        """
        A session that gets another name is decided on again: its lines in the traffic log name it.
        """
        anonymous = self.connect("")
        self.send(anonymous, anonymous.session.runtime, NAMES[1])
        self.assertEqual(2, len(self.plane.flows_kept))

        anonymous.tell({"id": 2, "type": "open", "from": NAMES[2], "to": "mn:/session"})

        self.assertEqual(self.kept, self.plane.flows_kept)

    @staticmethod
    def subscription(name: str, address: str, kind: str = "subscribe") -> dict[str, Any]:
        to = "domain://msg-node.example.org/sm"
        return {"id": 1, "type": kind, "from": name, "to": to, "body": {"resources": [address]}}


class Life:
    """
    A random life of a node, after each step of which every flow is compared with what Python would decide.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.plane = ModelPlane()
        self.node = MemoryNode(data_plane=self.plane, session={"expiry_seconds": 30})
        self.node.enforcement.decisions.log = DecisionLog(
            "not written", "test", self.node.clock, data_plane=self.plane
        )
        self.clients: list[Client] = []
        self.works: list[Any] = []
        self.expected: list[Any] = []
        self.known: dict[str, tuple[str, str, int]] = {}  # token, epoch and count by runtime
        self.most = self.most_counted = 0

    def step(self) -> None:
        acts = [self.send] * 60 + [self.subscribe] * 5 + [self.unsubscribe] * 3 + [self.connect, self.reopen]
        acts += [self.drop, self.close, self.pause, self.hold, self.expect, self.wait, self.configure]
        acts += [self.change_policies] * 2
        acts += [self.acknowledge] * 3
        act = self.random.choice(acts) if len(self.clients) > 4 else self.connect
        act()
        self.node.clock.advance(0)
        self.check()

    def client(self) -> Client:
        return self.random.choice(self.clients)

    def connect(self) -> None:
        client = Client(self.node)
        self.plane.connections.append(client)
        self.clients.append(client)
        self.open(client)

    def open(self, client: Client) -> None:
        message: dict[str, Any] = {"id": 1, "type": "open", "to": "mn:/session"}
        names = PARENTS if self.random.random() < 0.02 else [*NAMES, f"{NAMES[0]}/x", ""]
        message["from"] = client.runtime = self.random.choice(names)
        if self.random.random() < 0.5:
            message["body"] = {"resume": True}
        if message["from"] in self.known and self.random.random() < 0.5:
            # With its token, and the numbers of a client that has lost some of what came.
            token, epoch, received = self.known[message["from"]]
            message |= {"type": "re-open", "from": f"{message['from']}/{token}"}
            message["body"] = {"resume": {"epoch": epoch, "received": max(0, received)}}
        before = len(client.raw)
        client.tell(message)
        if not client.runtime and client.session is not None:
            client.runtime = client.session.runtime
        self.learn(client, before)

    def learn(self, client: Client, before: int) -> None:
        """
        Note the token and the epoch that a client was given.
        """
        for data in client.raw[before:]:
            answer = json.loads(data)
            body = answer.get("body", {})
            if answer.get("type") == "response" and "resume" in body:
                known = self.known.get(client.runtime, ("", "", 0))
                token = body.get("runtimeToken", known[0])
                self.known[client.runtime] = token, body["resume"]["epoch"], 0

    def acknowledge(self) -> None:
        """
        A client acknowledges some of what it was sent.
        """
        client = self.client()
        if client.session is None or client.session.mailbox.outbox is None:
            return
        outbox = client.session.mailbox.outbox
        number = self.random.randint(outbox.acknowledged, outbox.last)
        client.tell({"id": 0, "type": "ack", "from": "", "to": "mn:/session", "body": {"received": number}})
        if client.runtime in self.known:
            token, epoch, _ = self.known[client.runtime]
            self.known[client.runtime] = token, epoch, number

    def reopen(self) -> None:
        self.open(self.client())

    def send(self) -> None:
        client, kind = self.client(), self.random.choice(("update", "response"))
        from_ = self.random.choice((client.runtime, client.runtime, *ADDRESSES))
        client.tell({"id": 1, "type": kind, "from": from_, "to": self.random.choice([*ADDRESSES, *SHARED])})

    def subscribe(self, kind: str = "subscribe") -> None:
        client, body = self.client(), {"resources": [self.random.choice([*SHARED, *ADDRESSES, *PARENTS])]}
        to = "domain://msg-node.example.org/sm"
        client.tell({"id": 1, "type": kind, "from": client.runtime, "to": to, "body": body})

    def unsubscribe(self) -> None:
        self.subscribe("unsubscribe")

    def drop(self) -> None:
        client = self.client()
        self.clients.remove(client)
        client.drop()

    def close(self) -> None:
        self.client().close()

    def pause(self) -> None:
        client, connections = self.client(), self.node.sessions.connections
        (connections.write_resumed if client.write_paused else connections.write_paused)(client)

    def hold(self) -> None:
        if self.works:
            self.node.input_order.release(self.works.pop())
        else:
            self.works.append(self.node.input_order.hold(self.client()))

    def expect(self) -> None:
        if self.expected:
            self.expected.pop()()
            return
        request = b'{"id":1,"type":"read","from":"%s","to":"x"}' % self.random.choice(ADDRESSES).encode()
        session = self.client().session
        if session is not None:
            expected = self.node.expected_responses
            self.expected.append(expected.expect(decode(request, None), session, lambda message: None))

    def wait(self) -> None:
        self.node.clock.advance(self.random.choice((1, 10, 40)))

    def configure(self) -> None:
        config, choice = self.node.config, self.random.choice
        config.limits.session_rate_messages = choice((0, 0, 1000))
        config.limits.ip_rate_bytes = choice((0, 0, 10**9))
        config.identity.auth = choice(("none", "optional"))
        config.session.message_token = choice((*["off"] * 5, "require"))
        config.policy.mark_auth = choice((True, False))
        config.policy.hash_fields = choice(([], ["from", "session"]))
        self.node.apply()

    def change_policies(self) -> None:
        """
        Other policies become live, or are tried in a dry run.
        """
        choice = self.random.choice
        rules = [rule("deny", {"msgFrom": {"equals": choice(ADDRESSES)}}, id="d")]
        rules.append(rule("permit", choice((None, {"actionType": {"equals": "update"}})), id="p"))
        if self.random.random() < 0.2:
            unusual = choice(({"body.value": {"equals": 1}}, {"connector": {"equals": "memory"}}))
            rules.append(rule(choice(("permit", "deny")), unusual, id="u"))
        if self.random.random() < 0.2:
            rules[1]["obligations"] = {"maxBytes": 10_000}
        if self.random.random() < 0.8:
            use(self.node, *rules)
        self.node.enforcement.set_dry_run(choice((None, None, None, load(files(document(*rules))))))

    # -- what must be true ------------------------------------------------------------

    def check(self) -> None:
        flows = self.plane.repeated()
        self.most = max(self.most, len(flows))
        waiting = {(key[0], key[1]) for key in self.node.expected_responses.waiting}
        assert self.plane.awaited == waiting
        assert self.plane.blocked == {self.plane.port(each) for each in self.node.input_order.pending} - {0}
        for flow in flows:
            self.check_flow(flow)

    def check_flow(self, flow: Flow) -> None:
        """
        Python would decide so now: about who may send, and about who gets it at once.
        """
        connection = self.plane.connections[flow.port - 1]
        session = connection.session
        assert session is not None
        # What comes by a connection that was superseded is not counted.
        inbox = session.mailbox.inbox if session.connection is connection else None
        assert flow.terms.counted == (inbox is not None)
        assert inbox is None or inbox.is_current
        self.most_counted += flow.terms.counted
        assert session.bindings.get(flow.from_, 0) & (OWNED | LEARNED) or not flow.from_.startswith("hyperty")
        recipients = self.node.routes.resolve(flow.to)
        assert session not in recipients
        ports = {self.plane.port(each.connection) for each in recipients}
        assert ports == set(flow.recipients), (flow, ports)
        self.check_terms(flow, session, connection)
        for each in recipients:
            self.check_recipient(each)

    def check_terms(self, flow: Flow, session: Session, connection: Client) -> None:
        """
        The terms of the flow are those that Python would have each such message subject to.
        """
        node, terms = self.node, flow.terms
        assert node.config.session.message_token == "off"
        assert terms.refused == (() if node.config.identity.auth == "none" else ("assertedIdentity",))
        assert terms.buckets == node.rates.shared(session, connection.peer)
        enforcement = node.enforcement
        program = enforcement.program
        if program is None:
            assert enforcement.dry_run is None
            assert terms[1:5] == (None, terms.buckets, (), 0)
            assert terms.permit_line is None
            return
        data = b'{"id":9,"type":"%s","from":"%s","to":"%s","body":{"value":2}}'
        fields = (each.encode() for each in (flow.type, flow.from_, flow.to))
        context = enforcement.contexts.context(IN, decode(data % tuple(fields), connection), session, 1)
        decision = program.decide(context)
        assert enforcement.dry_run is None
        assert decision.remember
        assert decision.effect in (PERMIT, NOT_APPLICABLE)
        mark = b'"auth":true' if decision.effect == PERMIT else b'"auth":false'
        assert terms.member == (mark if node.config.policy.mark_auth else None)
        (counter,) = [
            c
            for c in enforcement.decisions
            if (c.point, c.rule, c.effect) == (IN, decision.path, decision.effect)
        ]
        assert terms.tallies == (enforcement.decisions.tally(counter),)
        assert terms.samples == 1
        assert self.permit_line(session, flow, connection) == terms.permit_line

    def permit_line(self, session: Session, flow: Flow, connection: Client) -> PermitLine | None:
        """
        The line of the decision log that the node would write now about a message of the flow.
        """
        data = b'{"id":9,"type":"%s","from":"%s","to":"%s","body":{"value":2}}'
        fields = (each.encode() for each in (flow.type, flow.from_, flow.to))
        decision = self.node.enforcement.repeatable(decode(data % tuple(fields), connection), session)
        assert decision is not None
        return decision.line

    def check_recipient(self, session: Session) -> None:
        """
        Python would send to it at once; and the plane knows the room of its outbox.
        """
        outbox = session.mailbox.outbox
        assert session.ready is (session.connection if outbox is None else outbox)
        assert self.plane.room.get(self.plane.port(session.connection)) == (outbox and outbox.room)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_flow_outlives_its_decision(seed: int) -> None:
    """
    Whatever happens to sessions, addresses, connections and the configuration, a flow that is still repeated
    says what the node would decide now.
    """
    life = Life(seed)

    for _ in range(STEPS):
        life.step()

    assert life.most > 0, "nothing was ever repeated"
    assert life.most_counted > 0, "no client that acknowledges was ever served"
