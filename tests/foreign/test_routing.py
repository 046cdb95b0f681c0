"""
Messages between clients here and a foreign domain that a stub leads to.
"""

import json
from typing import Any

from tests.support.foreign_case import B, ForeignCase, stub_code

H2 = f"hyperty://{B}/h2"
OBJECT = f"comm://{B}/o1"


class SendingTests(ForeignCase):
    """
    From here to there.
    """

    def test_message_reaches_the_stub_as_it_was_sent(self) -> None:
        """
        A message for a foreign domain is posted into the bus of its stub, after its sender was subscribed.
        """
        self.send(body={"a": 1, "via": "mine"})
        stub = self.hosts.last.live()

        subscribed, sent = stub.posted

        self.assertEqual(
            ("subscribe", "domain://msg-node.b.example/sm"), (subscribed["type"], subscribed["to"])
        )
        self.assertEqual([f"{self.ann.runtime}/x"], subscribed["body"]["resources"])
        self.assertEqual(
            {"id": 7, "type": "create", "from": f"{self.ann.runtime}/x", "to": H2, "body": {"a": 1}}, sent
        )

    def test_messages_keep_their_order(self) -> None:
        """
        What waits, and what comes then, leaves in the order in which it was sent.
        """
        for id in range(3):
            self.send(id=id)
        stub = self.hosts.last.live()
        for id in range(3, 6):
            self.send(id=id)

        self.assertEqual([0, 1, 2, 3, 4, 5], [message["id"] for message in stub.take()])

    def test_message_waits_for_the_subscription_of_its_sender(self) -> None:
        """
        A message leaves when the foreign node knows the way back to its sender, or does not say in 5 s.
        """
        stub = self.live()
        stub.answering = None
        self.send(from_="runtime://a.example/ann/y")
        self.ann.tell({"id": 8, "type": "create", "from": f"{self.ann.runtime}/y", "to": H2, "body": {}})
        self.assertEqual([7], [message["id"] for message in stub.take()])

        self.node.clock.advance(5)

        self.assertEqual([8], [message["id"] for message in stub.take()])

    def test_message_waits_while_the_stub_is_full(self) -> None:
        """
        A stub that takes no more gets the rest, in order, when it is ready.
        """
        stub = self.live()
        stub.room = 1
        for id in range(3):
            self.send(id=id)
        self.assertEqual([0], [message["id"] for message in stub.take()])

        stub.room = 100
        stub.events.ready()

        self.assertEqual([1, 2], [message["id"] for message in stub.take()])

    def test_receipt_says_no_more_than_is_known(self) -> None:
        """
        The receipt says that the message waits, then, finally, that a foreign node was handed it.
        """
        self.send(receipt=True)
        self.hosts.last.live()

        waiting, final = [message["body"] for message in self.ann.take()]

        self.assertEqual(
            (202, "waiting for a route", False), (waiting["code"], waiting["description"], waiting["final"])
        )
        self.assertEqual(
            (202, "handed to a foreign node", True), (final["code"], final["description"], final["final"])
        )
        self.assertEqual("mn://a.example/test", final["path"][0]["node"])

    def test_request_goes_stale(self) -> None:
        """
        A request that waits for 15 s is answered 404 `stale`, and not sent any more.
        """
        self.send(receipt=True)
        self.ann.take()

        self.node.clock.pump([1] * 17)

        self.assertEqual(
            [(408, "stale"), (404, "stale")],
            [(m["body"]["code"], m["body"]["reason"]) for m in self.ann.take()],
        )
        self.assertEqual([], self.hosts.last.live().take())

    def test_publication_waits_longer(self) -> None:
        """
        What nobody waits for is kept for `max_wait_seconds`.
        """
        self.send(to=f"{OBJECT}/changes", type="update")
        self.node.clock.pump([1] * 20)

        self.assertEqual(["update"], [message["type"] for message in self.hosts.last.live().take()])

    def test_queue_is_bounded(self) -> None:
        """
        Beyond `queue_messages` the newest is refused with 507.
        """
        self.make(queue_messages=2)
        for id in range(3):
            self.send(id=id)

        [refused] = self.ann.take()

        self.assertEqual(
            (2, 507, "overflow"), (refused["id"], refused["body"]["code"], refused["body"]["reason"])
        )

    def test_one_session_may_have_a_quarter_of_the_queue(self) -> None:
        """
        A client that fills its quarter of the queue leaves room for others.
        """
        self.make(queue_bytes=4000, message_bytes=900)
        for id in range(5):
            self.send(id=id, body={"text": "x" * 400})
        refused = [message["id"] for message in self.ann.take()]
        bob = self.node.client("runtime://a.example/bob")
        bob.tell({"id": 1, "type": "create", "from": "runtime://a.example/bob/x", "to": H2, "body": {}})

        self.assertEqual([1, 2, 3, 4], refused)
        self.assertEqual([], bob.take())

    def test_too_large_a_message_is_refused(self) -> None:
        """
        A message beyond `message_bytes` is refused with 413.
        """
        self.make(message_bytes=1000)
        self.send(body={"text": "x" * 2000})

        self.assertEqual(413, self.ann.take()[0]["body"]["code"])

    def test_only_senders_of_this_domain_may_send(self) -> None:
        """
        A sender of a third domain is refused: the foreign node would know no way back.
        """
        self.ann.tell({"id": 1, "type": "create", "from": "hyperty://c.example/h", "to": H2, "body": {}})

        [answer] = self.ann.take()
        self.assertEqual((403, "peer"), (answer["body"]["code"], answer["body"]["reason"]))

    def test_request_without_an_answer_is_told_when_the_stub_dies(self) -> None:
        """
        A request that was handed over, and whose stub died before the answer, is answered 504 `in-doubt`.
        """
        stub = self.live()
        self.send(id=9)
        stub.end()
        self.node.clock.pump([1] * 25)

        answers = [(m["id"], m["body"]["code"], m["body"]["reason"]) for m in self.ann.take()]

        self.assertEqual([(7, 504, "in-doubt"), (9, 504, "in-doubt")], answers)


class ReceivingTests(ForeignCase):
    """
    From there to here.
    """

    def test_answers_reach_who_asked(self) -> None:
        """
        Provisional answers and the final one reach the client, without the stub's `via`.
        """
        stub = self.live()
        for code in (100, 180, 200):
            stub.say(
                id=7,
                type="response",
                from_=H2,
                to=f"{self.ann.runtime}/x",
                body={"code": code, "via": stub.start.url},
            )

        self.assertEqual([{"code": 100}, {"code": 180}, {"code": 200}], [m["body"] for m in self.ann.take()])

    def test_message_that_is_sent_again_to_the_next_process_is_dropped(self) -> None:
        """
        A foreign node may send again what it had sent to a stub that died; a client here hears it once.
        """
        stub = self.live()
        for _ in range(2):
            stub.say(id=3, type="update", to=f"{self.ann.runtime}/x")
        self.assertEqual(2, len(self.ann.take()))
        stub.end()
        self.node.clock.advance(1)

        for id in (3, 4):
            self.hosts.last.live().say(id=id, type="update", to=f"{self.ann.runtime}/x")

        self.assertEqual([4], [message["id"] for message in self.ann.take()])

    def test_requests_reach_clients_here(self) -> None:
        """
        A client there sends to one here, whose answer goes back by the stub.
        """
        stub = self.live()
        stub.say(id=3, to=f"{self.ann.runtime}/x")
        self.assertEqual([3], [message["id"] for message in self.ann.take()])

        self.send(id=3, type="response", body={"code": 200})

        self.assertEqual([("response", 3)], [(m["type"], m["id"]) for m in stub.take()])

    def test_stub_is_believed_for_its_own_domain_only(self) -> None:
        """
        What it posts in the name of this domain, of another one, or of the node, reaches nobody.
        """
        stub = self.live()
        for from_ in (
            "hyperty://a.example/h1",
            "hyperty://c.example/h",
            "HYPERTY://A.example/h1",
            "mn:/session",
            "Mn://b.example/stub",
            "domain://msg-node.a.example/sm",
            "hyperty://b.example@c.example/h",
            "hyperty://c.example@b.example/h",
            "hyperty://c.example\\@b.example/h",
            "hyperty://b.example./h",
            "",
        ):
            stub.say(from_=from_, to=f"{self.ann.runtime}/x")

        self.assertEqual([], self.ann.take())
        self.assertEqual(11, self.entry()["figures"]["peer"])
        stub.say(from_="user://b.example/bob@a.example", to=f"{self.ann.runtime}/x")
        self.assertEqual(1, len(self.ann.take()))

    def test_stub_asserts_no_identity(self) -> None:
        """
        An identity that only this node may assert is removed, also where clients do not log in.
        """
        stub = self.live()

        stub.say(to=f"{self.ann.runtime}/x", body={"assertedIdentity": {"user": "root"}, "a": 1})

        self.assertEqual([{"a": 1}], [message["body"] for message in self.ann.take()])

    def test_stub_does_not_answer_for_another_domain(self) -> None:
        """
        Two domains are asked with one id: neither can answer, or confirm a subscription, for the other.
        """
        self.make(stub=[{"domain": B}, {"domain": "c.example"}])
        self.fetcher.codes["c.example"] = stub_code("c.example")
        b = self.live()
        self.send("hyperty://c.example/h2")
        c = self.hosts.last.live()
        c.take()
        b.answering = None
        self.send("hyperty://b.example/h3", **{"from": f"{self.ann.runtime}/y"})
        asked = b.posted[-1]
        x = f"{self.ann.runtime}/x"
        for from_, to in ((H2, x), (asked["to"], asked["from"]), ("hyperty://b.example/h3", x)):
            c.say(id=asked["id"] if to != x else 7, type="response", from_=from_, to=to, body={"code": 200})

        self.assertEqual([], self.ann.take())
        self.assertEqual([], b.take())  # it waits for the subscription
        for stub, domain in ((c, "c.example"), (b, B)):
            stub.say(id=7, type="response", from_=f"hyperty://{domain}/h2", to=x, body={"code": 200})
        self.assertEqual(
            [f"hyperty://{d}/h2" for d in ("c.example", B)], [m["from"] for m in self.ann.take()]
        )

    def test_stub_reaches_only_clients_here(self) -> None:
        """
        It cannot send to the node, to its services, or to third domains.
        """
        stub = self.live()
        for to in (
            "mn:/session",
            "mn:/nodes",
            "global://registry",
            "domain://msg-node.a.example/sm",
            "hyperty://c.example/h",
        ):
            stub.say(type="subscribe", to=to)

        codes = [message["body"]["code"] for message in stub.take()]

        self.assertEqual([403] * 4, codes)
        self.assertEqual(1, self.entry()["figures"]["peer"])

    def test_malformed_messages_are_counted(self) -> None:
        """
        What is no message is dropped and counted, whatever it is.
        """
        stub = self.live()
        for data in (b"", b"[]", b"{", b'{"id":1}', b"\xff"):
            stub.events.posted(data)

        self.assertEqual(5, self.entry()["figures"]["malformed"])

    def test_traffic_log_names_the_source(self) -> None:
        """
        The message of a foreign domain has the domain's session in the traffic log.
        """
        stub = self.live()
        stub.say(id=3, to=f"{self.ann.runtime}/x")

        line = self.node.traffic_recorder.messages[-1]

        self.assertEqual(
            ("mn://b.example/stub", "stub", "delivered"),
            (line["session"], line["connector"], line["outcome"]),
        )


class ObservingTests(ForeignCase):
    """
    Clients here that listen to objects of the foreign domain.
    """

    def subscribe(self, *addresses: str, **more: Any) -> list[dict[str, Any]]:
        self.ann.tell(
            {
                "id": 5,
                "type": "subscribe",
                "from": f"{self.ann.runtime}/sm",
                "to": "domain://msg-node.a.example/sm",
                "body": {"resources": list(addresses)},
                **more,
            }
        )
        return self.ann.take()

    def test_observer_hears_what_is_published_there(self) -> None:
        """
        A subscription here becomes one there; it is answered when the foreign node has answered.
        """
        self.assertEqual([], self.subscribe(f"{OBJECT}/changes"))

        stub = self.hosts.last.live()

        self.assertEqual([200], [message["body"]["code"] for message in self.ann.take()])
        self.assertEqual([f"{OBJECT}/changes"], stub.posted[0]["body"]["resources"])
        stub.say(type="update", from_=OBJECT, to=f"{OBJECT}/changes")
        self.assertEqual(["update"], [message["type"] for message in self.ann.take()])

    def test_manager_of_the_other_domain_means_the_one_here(self) -> None:
        """
        `domain://msg-node.b.example/sm` is the same as the manager of this node.
        """
        self.live()

        [answer] = self.subscribe(f"{OBJECT}/changes", to="domain://msg-node.b.example/sm")

        self.assertEqual(200, answer["body"]["code"])

    def test_refusal_reaches_the_observer(self) -> None:
        """
        What the foreign node refuses is refused here, and nothing stays bound.
        """
        stub = self.live()
        stub.answering = 403

        [answer] = self.subscribe(f"{OBJECT}/changes")

        self.assertEqual(403, answer["body"]["code"])
        stub.say(type="update", from_=OBJECT, to=f"{OBJECT}/changes")
        self.assertEqual([], self.ann.take())

    def test_silence_is_told_and_asked_again(self) -> None:
        """
        Without an answer in 5 s the observer is told 504; the subscription is made all the same later.
        """
        stub = self.live()
        stub.answering = None
        self.assertEqual([], self.subscribe(f"{OBJECT}/changes"))
        self.node.clock.advance(5)
        self.assertEqual([504], [message["body"]["code"] for message in self.ann.take()])

        stub.posted.clear()
        self.node.clock.pump([10] * 7)

        self.assertEqual([[f"{OBJECT}/changes"]], [message["body"]["resources"] for message in stub.posted])

    def test_one_subscription_for_all_observers(self) -> None:
        """
        The foreign node is asked once for an address, and is told when the last observer has left.
        """
        stub = self.live()
        bob = self.node.client("runtime://a.example/bob")
        for client in (self.ann, bob):
            client.ask(
                type="subscribe",
                to="domain://msg-node.a.example/sm",
                body={"resources": [f"{OBJECT}/changes"]},
            )
        self.assertEqual(1, len(stub.posted))

        bob.close()
        self.ann.ask(
            type="unsubscribe", to="domain://msg-node.a.example/sm", body={"resources": [f"{OBJECT}/changes"]}
        )

        self.assertEqual("unsubscribe", stub.posted[-1]["type"])
        self.assertEqual([f"{OBJECT}/changes"], stub.posted[-1]["body"]["resources"])

    def test_observers_here_hear_each_other(self) -> None:
        """
        What an observer here publishes reaches the others here once, though the foreign node echoes it.
        """
        stub = self.live()
        bob = self.node.client("runtime://a.example/bob")
        for client in (self.ann, bob):
            client.ask(
                type="subscribe",
                to="domain://msg-node.a.example/sm",
                body={"resources": [f"{OBJECT}/children/"]},
            )
        self.ann.take()
        self.send(to=f"{OBJECT}/children/", body={"via": "ann"})
        [sent] = stub.take()
        stub.events.posted(json.dumps(sent).encode())

        self.assertEqual([7], [message["id"] for message in bob.take()])
        self.assertEqual([], self.ann.take())

    def test_observer_answers_from_the_address_it_listens_to(self) -> None:
        """
        An observer answers a child from the address of the children, which is of the foreign domain.
        """
        stub = self.live()
        self.subscribe(f"{OBJECT}/children/")
        self.ann.tell(
            {"id": 4, "type": "response", "from": f"{OBJECT}/children/", "to": H2, "body": {"code": 100}}
        )

        self.assertEqual([4], [message["id"] for message in stub.take()])

    def test_subscriptions_are_made_again_after_a_reconnect(self) -> None:
        """
        When the stub is live again, the foreign node is told all addresses again, before what waits leaves.
        """
        stub = self.live()
        self.subscribe(f"{OBJECT}/changes")
        stub.events.status("disconnected", "cut")
        stub.posted.clear()
        self.send(id=8)
        stub.events.status("live", "")

        subscribed, sent = stub.posted

        self.assertEqual({f"{OBJECT}/changes", f"{self.ann.runtime}/x"}, set(subscribed["body"]["resources"]))
        self.assertEqual(8, sent["id"])

    def test_senders_are_unsubscribed_when_their_sessions_end(self) -> None:
        """
        The address of a sender stays subscribed for the life of its session.
        """
        stub = self.live()
        stub.posted.clear()
        self.ann.close()

        self.node.clock.pump([30] * 2)

        self.assertEqual(
            [("unsubscribe", [f"{self.ann.runtime}/x"])],
            [(m["type"], m["body"]["resources"]) for m in stub.posted],
        )

    def test_addresses_are_bounded(self) -> None:
        """
        Beyond `max_addresses` a new sender or observer is refused.
        """
        self.make(max_addresses=1)
        self.live()

        [answer] = self.subscribe(f"{OBJECT}/changes")

        self.assertEqual((429, "limit"), (answer["body"]["code"], answer["body"]["reason"]))

    def test_one_session_has_a_quarter_of_the_addresses(self) -> None:
        """
        Others still find room; a list that does not fit is refused as a whole.
        """
        self.make(max_addresses=8)
        stub = self.live()
        [answer] = self.subscribe(f"{OBJECT}/changes", f"{OBJECT}/children/c")
        self.assertEqual((429, "limit"), (answer["body"]["code"], answer["body"]["reason"]))
        stub.posted.clear()
        bob = self.node.client("runtime://a.example/bob")
        bob.tell(
            {"id": 1, "type": "create", "from": f"{bob.runtime}/x", "to": f"hyperty://{B}/h2", "body": {}}
        )

        self.assertEqual(1, len(stub.take()))
        [answer] = self.subscribe(f"{OBJECT}/children/c")
        self.assertEqual(200, answer["body"]["code"])


class ChoosingTests(ForeignCase):
    """
    Which domains are reached by stubs.
    """

    def test_other_domains_are_as_before(self) -> None:
        """
        Without its table, a domain is not fetched, and a message to it has no recipient.
        """
        self.send(to="hyperty://c.example/h")

        self.assertEqual([], self.fetcher.fetched)

    def test_none_by_default(self) -> None:
        """
        Without `accept` nothing is fetched for anybody.
        """
        self.make(accept="none", stub=[])
        self.send()

        self.assertEqual([], self.fetcher.fetched)
        self.assertIsNone(self.node.router.foreign)

    def test_any_domain(self) -> None:
        """
        With `accept = "any"` the domain of each address is looked for, but none without a dot, an IP address,
        or a port of this machine.
        """
        self.make(accept="any", stub=[])
        for to in (
            "hyperty://c.example/h",
            "domain://registry.d.example",
            "hyperty://localhost/h",
            "hyperty://127.0.0.1/h",
        ):
            self.send(to=to)

        self.assertEqual(["c.example", "d.example"], self.fetcher.fetched)

    def test_clients_of_that_domain_may_be_here(self) -> None:
        """
        With `accept = "any"` a client of another domain that is connected here still gets what is sent to it.
        """
        self.make(accept="any", stub=[])
        carl = self.node.client("runtime://c.example/carl")
        self.send(to="runtime://c.example/carl/sm")

        self.assertEqual([7], [message["id"] for message in carl.take()])
        self.assertEqual([], self.fetcher.fetched)

    def test_listed_domain_is_not_caught_here(self) -> None:
        """
        A client here cannot catch what is meant for a listed domain, whatever it binds.
        """
        self.send(type="subscribe", to="domain://msg-node.a.example/sm", body={"resources": [H2]})
        carl = self.node.client(f"runtime://{B}/carl")
        self.send(to=f"runtime://{B}/carl/x")

        self.assertEqual([], carl.take())
        self.assertEqual([7], [m["id"] for m in self.hosts.last.live().take()])

    def test_client_cannot_send_in_the_name_of_a_listed_domain(self) -> None:
        """
        A client here may not send from an address of a listed domain.
        """
        answer = self.ann.ask(type="create", **{"from": H2}, to=f"{self.ann.runtime}/x", body={})

        self.assertEqual(403, answer["body"]["code"])
