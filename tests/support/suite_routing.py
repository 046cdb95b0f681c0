"""
How messages find their way, on every connector.
"""

import json
from typing import Any

from tests.support.suite import ALLOCATION, SM, Suite

OBJECT = "comm://example.org/9d2"


def update(to: Any = f"{OBJECT}/changes", id: Any = 5, **fields: Any) -> dict[str, Any]:
    return {"id": id, "type": "update", "from": OBJECT, "to": to, **fields}


class Delivery(Suite):
    """
    Who is given a message.
    """

    def test_below_a_runtime(self: Any) -> None:
        """
        A runtimeURL and everything below it at a `/` reach the runtime from open on, in any domain.
        """
        sender = self.client("b")
        for url in ("runtime://example.org/1", "runtime://other.example/1/2", "hyperty-runtime://d/x"):
            runtime = self.connect(self.net, url).open()
            for to in (url, f"{url}/sm", f"{url}/registry/a/b", f"{url}/"):
                sender.send(update(to))

                self.assertEqual([update(to)], runtime.take(), to)

    def test_not_beside_a_runtime(self: Any) -> None:
        """
        A name that only begins like a runtimeURL is another name.
        """
        one, ten, sender = self.client("1"), self.client("10"), self.client("b")

        sender.send(update(f"{ten.url}/sm"), update(f"{one.url}2"), update("runtime://example.org"))

        self.assertEqual([], one.take())
        self.assertEqual([update(f"{ten.url}/sm")], ten.take())
        self.assertEqual(2, self.net.node.counts.no_route)

    def test_message_arrives_as_it_was_written(self: Any) -> None:
        """
        A message arrives as it was written, to the byte, whatever stands in it.
        """
        receiver, sender = self.client(), self.client("b")
        data = (
            '{ "to":"TO/x" , "id" : 18446744073709551617, "odd":[1.50,"\\u0041\\/"],"type":"tYpE",'
            '"from":"ż","body" : {"a":{"b":[ ]} ,"a":1} }'
        ).replace("TO", receiver.url)

        sender.send(data.encode())
        self.net.pump()

        self.assertEqual([data.encode()], receiver.raw)

    def test_ids_pass_and_are_answered_as_they_are(self: Any) -> None:
        """
        Ids pass and are answered as they are: zero, strings, integers beyond what a float holds.
        """
        receiver, sender = self.client(), self.client("b")
        for id in (0, -1, "", "0", "a", 2**53 + 1, 10**30):
            sender.send(update(f"{receiver.url}/x", id))
            reply = sender.ask(id=id, type="subscribe", to=SM, body={"resources": [OBJECT]})

            self.assertEqual(id, receiver.take()[0]["id"])
            self.assertEqual((id, type(id)), (reply["id"], type(reply["id"])))

    def test_any_type_passes_untouched_and_the_node_own(self: Any) -> None:
        """
        Any type passes untouched, and the node's own are understood in any case.
        """
        receiver, sender = self.client(), self.client("b")
        for type in ("ping", "PING", "execute", "forward", "event", "handshake", "", "Création"):
            sender.send({**update(f"{receiver.url}/x"), "type": type})

            self.assertEqual(type, receiver.take()[0]["type"])
        reply = sender.ask(type="SUBSCRIBE", to=SM, body={"resources": [OBJECT]})
        self.assertEqual(("response", {"code": 200}), (reply["type"], reply["body"]))

    def test_message_may_have_no_body_an_empty_one_or_null(self: Any) -> None:
        """
        A message may have no body, an empty one or null.
        """
        receiver, sender = self.client(), self.client("b")
        for fields in ({}, {"body": None}, {"body": {}}, {"body": {"value": "żółć €\u2028\U0001f600"}}):
            sender.send(update(f"{receiver.url}/x", **fields))

            self.assertEqual([update(f"{receiver.url}/x", **fields)], receiver.take())

    def test_unknown_recipient(self: Any) -> None:
        """
        A message to nobody is dropped and counted; nobody is told.
        """
        sender = self.client()

        for type in ("create", "read", "update", "response"):
            sender.send({**update("hyperty://example.org/nobody"), "type": type})

        self.assertEqual([], sender.take())
        self.assertEqual(("no-route", 0), self.logged())
        self.assertEqual(4, self.net.node.counts.no_route)

    def test_unknown_recipient_told(self: Any) -> None:
        """
        Where it is configured, a request to nobody is answered 404; what is published or answered is not.
        """
        self.restart(routing={"reply_unknown": True})
        sender = self.client()
        for type in ("create", "READ", "subscribe", "execute"):
            reply = sender.ask(type=type, to="hyperty://example.org/nobody")

            self.assertRefused(reply, 404)
            self.assertEqual("hyperty://example.org/nobody", reply["from"])
            self.assertEqual(("no-route", 404), self.logged())
        for type in ("update", "delete", "response", "ping"):
            sender.send({**update("hyperty://example.org/nobody"), "type": type})
        sender.send({**update(f"{OBJECT}/children/"), "type": "create"})
        self.assertEqual([], sender.take())

    def test_several_recipients(self: Any) -> None:
        """
        Each recipient in a list gets a copy with its own `to`, once, and each copy is written down.
        """
        one, two, sender = self.client("1"), self.client("2"), self.client("b")
        message = update([one.url, f"{two.url}/x", "x://nobody", one.url], body={"value": 1})

        sender.send(message)

        self.assertEqual([{**message, "to": one.url}], one.take())
        self.assertEqual([{**message, "to": f"{two.url}/x"}], two.take())
        lines = self.net.traffic_recorder.messages[-3:]
        expected = [(one.url, "delivered"), (f"{two.url}/x", "delivered"), ("x://nobody", "no-route")]
        self.assertEqual(expected, [(line["to"], line["outcome"]) for line in lines])

    def test_list_of_one(self: Any) -> None:
        """
        A list of one recipient is as good as the recipient, also for the node's own addresses.
        """
        sender = self.client()

        reply = sender.ask(type="subscribe", to=[SM], body={"resources": [OBJECT]})

        self.assertEqual((SM, {"code": 200}), (reply["from"], reply["body"]))

    def test_messages_arrive_in_the_order_they_were_sent(self: Any) -> None:
        """
        Messages arrive in the order they were sent, long and short, in one read or several.
        """
        receiver, sender = self.client(), self.client("b")
        messages = [update(f"{receiver.url}/x", n, body={"value": "x" * (n % 7 * 500)}) for n in range(150)]

        sender.send(*messages[:100])
        for message in messages[100:]:
            sender.send(message)

        self.assertEqual(messages, receiver.take())

    def test_responses_pass_as_often_as_sent(self: Any) -> None:
        """
        Responses pass as often as they are sent, provisional ones first.
        """
        asker, sender = self.client(), self.client("b")
        responses = [
            {"id": 1, "type": "response", "from": OBJECT, "to": f"{asker.url}/sm", "body": {"code": code}}
            for code in (100, 200, 200)
        ]

        sender.send(*responses)

        self.assertEqual(responses, asker.take())

    def test_answers_where_it_was_asked(self: Any) -> None:
        """
        The node answers on the connection that asked, also when `from` is nobody's address or another's.
        """
        asker, other = self.client(), self.client("b")
        for from_ in ("hyperty-runtime://d/protostub/1/registry", f"{other.url}/sm"):
            reply = asker.ask(type="subscribe", **{"from": from_}, to=SM, body={"resources": [OBJECT]})

            self.assertEqual({"code": 200}, reply["body"])
            self.assertEqual(from_, reply["to"])
        self.assertEqual([], other.take())


class Feeds(Suite):
    """
    What is published.
    """

    def test_subscribers(self: Any) -> None:
        """
        All sessions bound to exactly that address get what is published there, once each, and nobody else.
        """
        one, two, three, reporter = [self.client(name) for name in ("1", "2", "3", "r")]
        self.subscribe(one, f"{OBJECT}/changes", f"{OBJECT}/changes")
        self.subscribe(one, f"{OBJECT}/changes")
        self.subscribe(two, f"{OBJECT}/changes")
        self.subscribe(three, f"{OBJECT}/changes/", OBJECT, f"{OBJECT}/children/")

        reporter.send(update(body={"value": 1}))

        self.assertEqual([update(body={"value": 1})], one.take())
        self.assertEqual([update(body={"value": 1})], two.take())
        self.assertEqual([], three.take())
        self.assertEqual([], reporter.take())
        self.assertEqual(2, self.net.traffic_recorder.messages[-1]["recipients"])

    def test_unsubscribing_from_less_ends_the_feed(self: Any) -> None:
        """
        Who unsubscribed from less than it subscribed to gets nothing more all the same.
        """
        observer, other, reporter = self.client("1"), self.client("2"), self.client("r")
        self.subscribe(other, f"{OBJECT}/changes", f"{OBJECT}/children/")
        for body in ({"resource": OBJECT, "resources": [f"{OBJECT}/children/"]}, {"resource": OBJECT}):
            self.subscribe(observer, f"{OBJECT}/changes", f"{OBJECT}/children/")

            reply = observer.ask(type="unsubscribe", to=SM, body=body)
            reporter.send(update(), update(f"{OBJECT}/children/"))

            self.assertEqual({"code": 200}, reply["body"])
            self.assertEqual([], observer.take())
            self.assertEqual([update(), update(f"{OBJECT}/children/")], other.take())

    def test_allocated_address_reaches_owner_and_subscribers(self: Any) -> None:
        """
        What goes to an allocated address that others subscribed reaches the owner and them.
        """
        owner, observer, sender = self.client("1"), self.client("2"), self.client("b")
        (address,) = self.allocate(owner)
        self.subscribe(observer, address)

        sender.send(update(address))

        self.assertEqual([update(address)], owner.take())
        self.assertEqual([update(address)], observer.take())

    def test_subscribed_sender_gets_its_own_message_back(self: Any) -> None:
        """
        A sender that is subscribed gets its own message back, unless the message names a stub in `via`.
        """
        sender, other = self.client(), self.client("b")
        for client in (sender, other):
            self.subscribe(client, f"{OBJECT}/changes")
        plain, stubbed = update(body={"v": "via"}), update(body={"via": "runtime://d/protostub/1"})

        sender.send(plain, stubbed)

        self.assertEqual([plain], sender.take())
        self.assertEqual([plain, stubbed], other.take())
        self.assertEqual(1, self.net.node.counts.echoes)

    def test_echo_only(self: Any) -> None:
        """
        A message that only its own sender would get, and that names a stub, goes nowhere.
        """
        sender = self.client()
        self.subscribe(sender, f"{OBJECT}/changes")

        sender.send(update(body={"via": "runtime://d/protostub/1"}))

        self.assertEqual([], sender.take())
        self.assertEqual(("dropped", 0), self.logged())

    def test_hyperty_that_nobody_owns_is_known_by_its_first(self: Any) -> None:
        """
        A hyperty that nobody owns is known by its first message, so that answers find the way.
        """
        stranger, other = self.client(), self.client("b")
        hyperty = "hyperty://foreign.example/h1"
        answer = {"id": 1, "type": "response", "from": "x", "to": hyperty}

        other.send(answer)
        self.assertEqual([], stranger.take())
        stranger.send({"id": 1, "type": "create", "from": hyperty, "to": other.url})
        other.send(answer)

        self.assertEqual([answer], stranger.take())

    def test_learnt_address_is_anothers_once_subscribed(self: Any) -> None:
        """
        A learnt address is another's as soon as that one subscribes it, and is not learnt again.
        """
        stranger, owner, sender = self.client(), self.client("1"), self.client("b")
        hyperty = "hyperty://foreign.example/h1"
        stranger.send({"id": 1, "type": "create", "from": hyperty, "to": sender.url})

        self.subscribe(owner, hyperty)
        stranger.send({"id": 2, "type": "create", "from": hyperty, "to": sender.url})
        sender.send(update(hyperty))

        self.assertEqual([], stranger.take())
        self.assertEqual([update(hyperty)], owner.take())

    def test_not_learnt(self: Any) -> None:
        """
        Nothing but a hyperty's own address is learnt from `from`.
        """
        stranger, sender = self.client(), self.client("b")
        addresses = ["comm://foreign.example/o", "runtime://foreign.example/1", "user://d/ann", "hyper-1"]
        addresses += [f"hyperty://d/h{end}" for end in ("/children/", "/changes", "/subscription")]
        for address in addresses:
            stranger.send({"id": 1, "type": "create", "from": address, "to": sender.url})
            sender.take()
            sender.send(update(address))

            self.assertEqual([], stranger.take(), address)

    def test_allocation(self: Any) -> None:
        """
        An allocated address reaches who allocated it, until it is given back or the session ends.
        """
        owner, sender = self.client(), self.client("b")
        reply = owner.ask(to=ALLOCATION, body={"scheme": "comm", "value": {"number": 2}})
        first, second = reply["body"]["value"]["allocated"]

        self.assertEqual({"code": 200, "value": {"allocated": [first, second]}}, reply["body"])
        self.assertEqual((ALLOCATION, f"{owner.url}/sm"), (reply["from"], reply["to"]))
        sender.send(update(first), update(second))
        self.assertEqual([update(first), update(second)], owner.take())
        reply = owner.ask(type="delete", to=ALLOCATION, body={"childrenResources": [[first]]})
        self.assertEqual({"code": 200}, reply["body"])
        sender.send(update(first), update(second))
        self.assertEqual([update(second)], owner.take())
        owner.close()
        self.assertEqual(0, len(self.net.node.routes))


class Secrets(Suite):
    """
    The session's token stays between the node and its runtime.
    """

    def test_token_in_via(self: Any) -> None:
        """
        A stub that writes its session URL into `via` does not give its token away; the rest stays as it is.
        """
        sender, receiver = self.client(), self.client("b")
        token = sender.token or "mns_" + "x" * 43
        via = f"{sender.url}/{token}"
        plain = {"id": 1, "type": "create", "from": f"{sender.url}/x", "to": f"{receiver.url}/x"}

        for spelt in (via, via.replace("/", "\\/"), f"{via}/more"):
            data = json.dumps({**plain, "body": {"via": "VIA", "value": 1.50}}).replace("VIA", spelt)
            sender.send(data.encode())
            self.net.pump()

            (raw,) = receiver.raw
            self.assertNotIn(token.encode(), raw)
            left = f"{sender.url}/{'*' * len(token)}{'/more' if spelt.endswith('more') else ''}"
            expected = {**plain, "body": {"via": left, "value": 1.50}}
            self.assertEqual(expected, json.loads(raw))
            receiver.take()

    def test_token_in_escapes(self: Any) -> None:
        """
        Nor is it given away in escapes, with a letter behind it, in a key, or as the type of a handshake.
        """
        sender, receiver = self.client(), self.client("b")
        token = sender.token or "mns_" + "x" * 43
        plain = {"type": "create", "from": f"{sender.url}/x", "to": f"{receiver.url}/x"}
        spelt = "".join(f"\\u{ord(each):04x}" for each in token)

        for id, (text, body) in enumerate(
            (
                (spelt, {"via": "TOKEN"}),
                (token + "x", {"via": "TOKEN"}),
                (token, {"assertedIdentity/TOKEN": {"userURL": "user://example.org/ann"}}),
                (spelt, {"TOKEN": 1}),
            )
        ):
            sender.send(json.dumps({**plain, "id": id, "body": body}).replace("TOKEN", text).encode())
        sender.send({"id": 4, "type": token, "from": sender.url, "to": "mn:/session"})
        self.net.pump()

        heard = [(message["id"], message["body"]) for message in receiver.take()]
        self.assertEqual([(0, {"via": "*" * 47}), (1, {"via": "*" * 48})], heard)
        answers = [(message["id"], message["body"]["code"]) for message in sender.take()]
        self.assertEqual([(2, 400), (3, 400), (4, 400)], answers)
        self.assertNotIn(token, repr(vars(self.net.traffic_recorder)))

    def test_token_in_via_to_many(self: Any) -> None:
        """
        Nor does it when the message goes to a list, to subscribers or back as an echo.
        """
        sender, one, two = self.client(), self.client("1"), self.client("2")
        token = sender.token or "mns_" + "x" * 43
        for client in (sender, one, two):
            self.subscribe(client, f"{OBJECT}/changes")

        sender.send(update([f"{OBJECT}/changes", two.url], body={"via": f"{sender.url}/{token}"}))
        self.net.pump()

        self.assertEqual([], sender.raw)
        self.assertEqual((1, 2), (len(one.raw), len(two.raw)))
        self.assertNotIn(token.encode(), b"".join(one.raw + two.raw))

    def test_via_without_a_token_passes_untouched(self: Any) -> None:
        """
        A `via` that holds no token passes untouched.
        """
        sender, receiver = self.client(), self.client("b")
        message = update(f"{receiver.url}/x", body={"via": "runtime://example.org/protostub/mns_short"})

        sender.send(message)

        self.assertEqual([message], receiver.take())

    def test_token_in_header(self: Any) -> None:
        """
        A message with a token in `from` or `to` is answered 400, and the traffic log does not have it.
        """
        sender, receiver = self.client(), self.client("b")
        token = sender.token or "mns_" + "x" * 43

        sender.send({"id": 1, "type": "ping", "from": f"{sender.url}/{token}", "to": f"{receiver.url}/x"})
        sender.send({"id": 2, "type": "ping", "from": "x", "to": f"{sender.url}/{token}"})
        sender.send({"id": 3, "type": "subscribe", "from": "x", "to": SM, "body": {"resources": [token]}})

        answers = [(message["id"], message["body"]["code"]) for message in sender.take()]
        self.assertEqual([(1, 400), (2, 400), (3, 200)], answers)
        self.assertEqual([], receiver.take())
        self.assertNotIn(token, repr(vars(self.net.traffic_recorder)))
