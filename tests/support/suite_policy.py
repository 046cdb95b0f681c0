"""
What the policies forbid is forbidden on every connector, at each point where they are asked.
"""

from typing import Any

from tests.support.made_policies import rule, use
from tests.support.suite import ALLOCATION, SM, Suite

BLOCKED = {"code": 403, "desc": "Blocked by policy", "description": "Blocked by policy"}


class Enforced(Suite):
    """
    connect, in, subscribe, out.
    """

    def use(self: Any, *rules: Any, **how: Any) -> None:
        use(self.net.node, *rules, **how)

    def test_policy_connect(self: Any) -> None:
        """
        A runtime that may not come in is closed and has no session; others come in.
        """
        self.use(rule("deny", {"direction": {"equals": "connect"}, "msgFrom": {"like": "*/evil"}}))
        evil = self.arrive("evil")

        if evil.is_connected:
            evil.attempt({"id": 1, "type": "open", "from": evil.url, "to": "mn:/session"})

        self.assertIsNone(self.net.node.sessions.get(evil.url))
        self.assertIsNotNone(self.client("good"))

    def test_policy_in(self: Any) -> None:
        """
        What is denied on its way in is not delivered; a request is answered 403 by whom it was for.
        """
        a, b = self.client("a"), self.client("b")
        self.use(rule("deny", {"actionType": {"equals": "create"}}))

        reply = a.ask(to=f"{b.url}/x")

        self.assertEqual((f"{b.url}/x", f"{a.url}/sm", 7), (reply["from"], reply["to"], reply["id"]))
        self.assertEqual(BLOCKED, reply["body"])
        self.assertEqual(("refused", 403), self.logged())
        self.assertEqual([], b.take())

    def test_policy_before_responders(self: Any) -> None:
        """
        What is denied on its way in has no effect: nothing is allocated, nobody is learnt.
        """
        a = self.client("a")
        self.use(rule("deny", {"actionType": {"equals": "create"}}))
        before = len(self.net.node.routes)

        reply = a.ask(to=ALLOCATION, body={"value": {"number": 1}}, **{"from": "hyperty://example.org/new"})

        self.assertEqual(BLOCKED, reply["body"])
        self.assertEqual(before, len(self.net.node.routes))

    def test_policy_each_recipient(self: Any) -> None:
        """
        Of several recipients each is decided on: one 403 for each that is denied, the others get it.
        """
        a, b, c = self.client("a"), self.client("b"), self.client("c")
        self.use(rule("deny", {"msgTo": {"like": "*/c/x"}}))

        a.send({"id": 5, "type": "create", "from": f"{a.url}/x", "to": [f"{b.url}/x", f"{c.url}/x"]})

        self.assertEqual([f"{b.url}/x"], [message["to"] for message in b.take()])
        self.assertEqual([], c.take())
        self.assertEqual([(f"{c.url}/x", BLOCKED)], [(m["from"], m["body"]) for m in a.take()])

    def test_policy_out(self: Any) -> None:
        """
        What is published reaches only those it may leave to.
        """
        a, b, c = self.client("a"), self.client("b"), self.client("c")
        for client in (b, c):
            self.subscribe(client, "comm://example.org/1/changes")
        self.use(rule("deny", {"direction": {"equals": "out"}, "session": {"like": "*/c"}}))

        a.send(
            {"id": 5, "type": "update", "from": "comm://example.org/1", "to": "comm://example.org/1/changes"}
        )

        self.assertEqual(1, len(b.take()))
        self.assertEqual([], c.take())

    def test_policy_out_waiting(self: Any) -> None:
        """
        What waits for who is away was decided on before, and is not again.
        """
        a, b = self.client("a"), self.client("b")
        address = self.allocate(b)[0]
        b.drop()
        self.use(rule("deny", {"direction": {"equals": "out"}, "actionType": {"equals": "create"}}))
        for kind in ("create", "update"):
            a.send({"id": 5, "type": kind, "from": f"{a.url}/x", "to": address})
        self.use(rule("deny", {"direction": {"in": ["in", "out", "subscribe"]}}))

        b.come_back()

        self.assertEqual(
            ["update"], [message["type"] for message in b.take() if message["type"] != "response"]
        )

    def test_policy_out_answer(self: Any) -> None:
        """
        An answer of the node itself that may not leave does not.
        """
        a = self.client("a")
        self.use(rule("deny", {"direction": {"equals": "out"}, "msgFrom": {"equals": SM}}))

        a.send({"id": 5, "type": "subscribe", "from": f"{a.url}/x", "to": SM, "body": {"resources": ["x:1"]}})

        self.assertEqual([], a.take())

    def test_policy_subscribe(self: Any) -> None:
        """
        Who may not hear one of the addresses is subscribed to none.
        """
        a = self.client("a")
        self.use(rule("deny", {"msgTo": {"equals": "comm://example.org/secret"}}))
        wanted = ["comm://example.org/open", "comm://example.org/secret"]

        reply = a.ask(type="subscribe", to=SM, body={"resources": wanted})

        self.assertEqual((SM, BLOCKED), (reply["from"], reply["body"]))
        for address in wanted:
            self.assertEqual((), self.net.node.routes.resolve(address))

    def test_policy_response(self: Any) -> None:
        """
        A response that is denied is dropped and written down, and answered by nothing.
        """
        a, b = self.client("a"), self.client("b")
        self.use(rule("deny"))

        a.send({"id": 5, "type": "response", "from": f"{a.url}/x", "to": f"{b.url}/x", "body": {"code": 200}})

        self.assertEqual([], a.take())
        self.assertEqual([], b.take())
        self.assertEqual(("refused", 403), self.logged())

    def test_third_of_two_a_minute_is_429(self: Any) -> None:
        """
        The third of two a minute is answered 429, and when to come back.
        """
        a, b = self.client("a"), self.client("b")
        self.use(rule("permit", rateLimit={"rate": 2, "per": 60}))

        for _ in range(3):
            a.send({"id": 5, "type": "create", "from": f"{a.url}/x", "to": f"{b.url}/x"})

        self.assertEqual(2, len(b.take()))
        (refused,) = a.take()
        self.assertEqual((429, f"{b.url}/x"), (refused["body"]["code"], refused["from"]))
        self.assertEqual(30, round(refused["body"]["retryAfter"]))

    def test_policy_auth(self: Any) -> None:
        """
        `body.auth` says whether a rule permitted it, whatever its sender said.
        """
        a, b = self.client("a"), self.client("b")
        for rules, expected in (([rule("permit")], True), ([rule("deny", {"msgId": {"equals": 0}})], False)):
            self.use(*rules)
            for body in ({}, {"auth": not expected}, {"x": [1, {"auth": 3}]}):
                a.send({"id": 5, "type": "x", "from": f"{a.url}/x", "to": f"{b.url}/x", "body": body})

                (message,) = b.take()
                self.assertEqual({**body, "auth": expected}, message["body"])

    def test_policy_none(self: Any) -> None:
        """
        Without policies the bytes arrive as they were sent.
        """
        self.assertReaches(self.client("a"), self.client("b"))
