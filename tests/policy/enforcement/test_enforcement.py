"""
What the node does with a decision: answers, failures, obligations, dry runs, and what it remembers.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.policy.administration.document_edit import load
from msgnode.policy.enforcement.decision_cache import MAX_KEY_CHARS, MAX_REMEMBERED
from msgnode.protocol.message import compose
from msgnode.sessions.principal import Principal
from tests.support.fakes import MemoryNode, refused_codes
from tests.support.made_policies import document, files, rule, use

RUNTIME, OTHER, THIRD = (f"runtime://example.org/{name}" for name in "abc")
BLOCKED = {"code": 403, "desc": "Blocked by policy", "description": "Blocked by policy"}


class EnforcementTests(SynchronousTestCase):
    """
    Two clients, and rules for what goes between them.
    """

    def setUp(self) -> None:
        self.restart()

    def restart(self, **sections: Any) -> None:
        self.node = MemoryNode(**sections)
        self.a, self.b = self.node.client(RUNTIME), self.node.client(OTHER)

    def use(self, *rules: Any, **how: Any) -> None:
        use(self.node, *rules, **how)

    def tallies(self) -> dict[tuple[str, str, str], int]:
        return {(t.point, t.effect, t.rule): t.hits for t in self.node.enforcement.decisions if t.hits}

    # -- rows of the specification ---------------------------------------------

    def test_denied_request_is_answered_403(self) -> None:
        """
        A request that is denied is answered 403 with its id, as if by whom it was for.
        """
        self.use(rule("deny"))

        self.a.post(f"{OTHER}/x", "create")

        expected = {"id": 9, "type": "response", "from": f"{OTHER}/x", "to": f"{RUNTIME}/x", "body": BLOCKED}
        self.assertEqual([expected], self.a.take())
        self.assertEqual({403: 1}, refused_codes(self.node.counts))

    def test_no_body(self) -> None:
        """
        A message without a body, or with null, passes and is marked.
        """
        self.use(rule("permit"))

        self.a.post(OTHER)
        self.a.post(OTHER, body=None)

        self.assertEqual([{"auth": True}] * 2, [message["body"] for message in self.b.take()])

    def test_what_is_no_message_is_answered_400_not_decided(self) -> None:
        """
        What is no message is answered 400, not decided on; the id 0 is as good as any.
        """
        self.use(rule("permit"))
        whole = {"id": 0, "type": "create", "from": f"{RUNTIME}/x", "to": OTHER}

        for wrong in ({**whole, "body": "text"}, *({**whole, key: None} for key in whole)):
            self.a.tell(wrong)
        self.a.tell(whole)

        codes = [message["body"]["code"] for message in self.a.take() if message["type"] == "response"]
        self.assertEqual({400}, set(codes))
        self.assertEqual([0], [message["id"] for message in self.b.take()])

    def test_indeterminate(self) -> None:
        """
        Where deciding fails the message goes nowhere, its sender hears 500, and it is counted.
        """
        self.use(rule("permit"))
        program: Any = self.node.enforcement.program
        program.decide = lambda context: 1 / 0

        self.a.post(OTHER, "create")

        self.assertEqual([], self.b.take())
        self.assertEqual([500], [message["body"]["code"] for message in self.a.take()])
        self.assertEqual({("in", "indeterminate", ""): 1}, self.tallies())
        self.assertEqual(1, len(self.flushLoggedErrors(ZeroDivisionError)))

    def test_indeterminate_repeated(self) -> None:
        """
        Where clients repeat a 500 they hear 503.
        """
        self.use(rule("permit"))
        program: Any = self.node.enforcement.program
        program.decide = lambda context: 1 / 0

        reply = self.a.ask(type="create", to="domain://msg-node.example.org/hyperty-address-allocation")

        self.assertEqual(503, reply["body"]["code"])
        self.flushLoggedErrors(ZeroDivisionError)

    def test_what_is_published_and_denied_is_answered_by_nothing(self) -> None:
        """
        What is published and denied is answered by nothing.
        """
        self.b.subscribe("comm://example.org/1/changes")
        self.use(rule("deny"))

        self.a.post("comm://example.org/1/changes", "update")

        self.assertEqual(([], []), (self.a.take(), self.b.take()))
        self.assertEqual("refused", self.node.traffic_recorder.outcomes[-1])

    def test_who_asked_for_a_receipt_hears_403(self) -> None:
        """
        Who asked for a receipt hears 403 in it.
        """
        self.use(rule("deny"))

        self.a.post(OTHER, "update", receipt=True)

        (receipt,) = self.a.take()
        self.assertEqual(("receipt", 403), (receipt["type"], receipt["body"]["code"]))

    # -- configuration -------------------------------------------------------------

    def test_defaults(self) -> None:
        """
        What no rule speaks of is decided by the default of its point.
        """
        self.restart(policy={"default_in": "deny"})
        self.use(rule("permit", {"actionType": {"equals": "create"}}))

        self.a.post(OTHER, "create")
        self.a.post(OTHER, "read")

        self.assertEqual(["create"], [message["type"] for message in self.b.take()])
        self.assertEqual([BLOCKED], [message["body"] for message in self.a.take()])

    def test_unenforced_decisions_are_counted(self) -> None:
        """
        With `enforce = false` all pass, and are counted as they would have been decided.
        """
        self.restart(policy={"enforce": False})
        self.use(rule("deny"))

        self.a.post(OTHER, "create")

        self.assertEqual(1, len(self.b.take()))
        self.assertEqual({("in", "deny", "s/p/r"): 1}, self.tallies())

    def test_one_not_enforced(self) -> None:
        """
        A policy with `"enforce": false` is counted, and the others decide.
        """
        made = document(rule("deny"))
        made[0]["policies"][0]["enforce"] = False
        self.node.enforcement.use(load(files(made)), 1)

        for _ in range(3):
            self.a.post(OTHER, "create")

        self.assertEqual(3, len(self.b.take()))
        self.assertEqual(3, self.tallies()["in", "deny (not enforced)", "s/p/r"])

    def test_unmarked(self) -> None:
        """
        With `mark_auth = false` the bytes arrive as they were sent.
        """
        self.restart(policy={"mark_auth": False})
        self.use(rule("permit"))

        sent = self.a.post(OTHER, body={"auth": "mine"})

        self.assertEqual([sent], self.b.take())

    def test_rule_is_told_only_with_expose_reason(self) -> None:
        """
        Only with `expose_reason` is a sender told which rule it was.
        """
        self.restart(policy={"expose_reason": True})
        self.use(rule("deny"))

        self.a.post(OTHER, "create")

        self.assertEqual("Blocked by policy: s/p/r", self.a.take()[0]["body"]["desc"])

    def test_identity(self) -> None:
        """
        A user name counts when a certificate shows it; a claimed one only where claims are trusted.
        """
        mine = rule("permit", {"srcUsername": {"equals": "ann@example.org"}})
        claim = {"identity": {"idp": "x", "userProfile": {"username": "ann@example.org"}}}
        for trust, identity, body, passes in (
            ("verified", "", claim, False),
            ("claimed", "", claim, True),
            ("verified", "ann@example.org", {}, True),
            ("claimed", "bob@example.org", claim, False),
        ):
            self.restart(identity={"trust": trust}, policy={"default_in": "deny"})
            self.a.identity = identity
            self.a.reopen(f"{RUNTIME}/{self.a.token}")
            self.use(mine)

            self.a.post(OTHER, body=body)

            self.assertEqual(passes, bool(self.b.take()), (trust, identity, body))

    def test_older_connection_has_not_the_identity_of_the_one(self) -> None:
        """
        An older connection has not the identity of the one that took its session over.
        """
        ann = self.node.client()
        ann.identity = "ann@example.org"
        ann.open(RUNTIME)
        self.use(rule("deny", {"identityVerified": {"not": {"equals": True}}, "direction": {"equals": "in"}}))

        self.a.post(OTHER, "create")
        ann.post(OTHER, "create")

        self.assertEqual(1, len(self.b.take()))

    def test_not_enforced_mark(self) -> None:
        """
        With `enforce = false` what the policies would not let pass bears no forged permission.
        """
        self.restart(policy={"enforce": False})
        self.use(rule("deny", {"actionType": {"equals": "create"}}))

        for type in ("create", "read"):
            self.a.post(OTHER, type, body={"auth": True})

        self.assertEqual([{"auth": False}] * 2, [message["body"] for message in self.b.take()])

    def test_forged_mark(self) -> None:
        """
        What no rule speaks of passes without permission, whatever its sender wrote.
        """
        self.use(rule("deny", {"actionType": {"equals": "create"}}))

        self.a.post(OTHER, "read", body={"auth": True})

        self.assertEqual([{"auth": False}], [message["body"] for message in self.b.take()])

    def test_padding(self) -> None:
        """
        No padding of a body hides the rest of it from the rules; what cannot be read is refused.
        """
        self.use(rule("deny", {"body.secret": {"equals": "x"}}))
        for depth in range(500, 3000, 20):  # somewhere there is what can be carried, but not read
            self.tell_padded("[" * depth + "]" * depth)
            self.assertEqual([], self.b.take(), depth)
        self.restart()
        self.use(rule("deny", {"body.secret": {"equals": "x"}}))
        for pad in ("1", "1e400", "-1e999", "9" * 5000, "-" + "9" * 5000, '"\\ud800"', '[1e400,"\\ud800"]'):
            self.tell_padded(pad)
            self.assertEqual([BLOCKED], [message["body"] for message in self.a.take()], pad[:9])

        self.assertEqual([], self.b.take())

    def tell_padded(self, pad: str) -> None:
        header = f'"id":9,"type":"create","from":"{RUNTIME}/x","to":"{OTHER}"'
        self.a.tell(f'{{{header},"body":{{"secret":"x","pad":{pad}}}}}'.encode())

    # -- obligations -----------------------------------------------------------------

    def test_redirected_message_is_delivered_and_logged_elsewhere(self) -> None:
        """
        A redirected message goes elsewhere, is decided on again, and written down as it went.
        """
        self.use(
            rule("deny", {"msgTo": {"equals": THIRD}}, "no"),
            rule("permit", {"msgTo": {"equals": OTHER}}, redirect=THIRD),
            rule("permit", {"msgTo": {"equals": RUNTIME}}, "b", redirect=OTHER + "/desk"),
        )

        self.a.post(OTHER, "create")
        self.a.post(RUNTIME, "create")

        self.assertEqual([OTHER], [message["from"] for message in self.a.take()])
        self.assertEqual([f"{OTHER}/desk"], [message["to"] for message in self.b.take()])
        self.assertEqual(f"{OTHER}/desk", self.node.traffic_recorder.messages[-1]["to"])

    def test_redirect_refused(self) -> None:
        """
        A refusal comes from the address that was asked, and does not tell where the message was sent on.
        """
        self.restart(routing={"reply_unknown": True})
        hidden = "domain://msg-node.example.org/hidden"
        for target, rules in (
            (THIRD, [rule("deny", {"msgTo": {"equals": THIRD}}, "no")]),
            (THIRD, [rule("deny", {"msgTo": {"equals": THIRD}, "direction": {"equals": "in"}}, "no")]),
            (hidden, []),
            ("hyperty://example.org/hidden", []),
        ):
            self.use(*rules, rule("permit", {"msgTo": {"equals": OTHER}}, redirect=target))

            self.a.post(OTHER, "create")

            (answer,) = self.a.take()
            self.assertEqual(OTHER, answer["from"])
            self.assertNotIn(target, str(answer))

    def test_one_of_several_fails(self) -> None:
        """
        One recipient for whom it fails costs the others nothing, and each is answered for.
        """
        third = self.node.client(THIRD)
        self.use(
            rule("permit", {"msgTo": {"equals": OTHER}}, redirect="domain://msg-node.example.org/hidden")
        )

        self.a.post([OTHER, THIRD], "create")

        self.assertEqual([(OTHER, 501)], [(m["from"], m["body"]["code"]) for m in self.a.take()])
        self.assertEqual(1, len(third.take()))

        self.node.enforcement.use(load(files(document(rule("permit", log="seen")))), 2)
        program: Any = self.node.enforcement.program
        decide = program.decide
        program.decide = lambda context: 1 / 0 if context.to == OTHER else decide(context)
        self.a.post([OTHER, THIRD], "create")

        self.assertEqual([(OTHER, 500)], [(m["from"], m["body"]["code"]) for m in self.a.take()])
        self.assertEqual(1, len(third.take()))
        self.assertEqual(1, len(self.flushLoggedErrors(ZeroDivisionError)))

    def test_several_answers(self) -> None:
        """
        Where the node itself answers for several recipients, each of its answers arrives.
        """
        self.use(
            rule("permit", {"msgTo": {"in": [OTHER, THIRD]}}, redirect="domain://msg-node.example.org/sm")
        )

        self.a.post([OTHER, THIRD], "subscribe", body={"resource": "comm://example.org/1"})

        self.assertEqual([200, 200], [message["body"]["code"] for message in self.a.take()])

    def test_redirect_twice(self) -> None:
        """
        What would be redirected again goes nowhere: 500.
        """
        self.use(
            rule("permit", {"msgTo": {"equals": OTHER}}, redirect=THIRD),
            rule("permit", {"msgTo": {"not": {"equals": OTHER}}}, "on", redirect=OTHER + "/desk"),
        )

        self.a.post(OTHER, "create")

        self.assertEqual([500], [message["body"]["code"] for message in self.a.take()])
        self.assertEqual([], self.b.take())

    def test_obligations_set_remove_and_cut_fields(self) -> None:
        """
        Fields are set and removed, lists are cut, and what is too large is 413.
        """
        self.use(
            rule(
                "permit",
                set={"body.level": 3},
                remove=["body.secret"],
                limitByNumberOfEntries={"body.value": 2},
                maxBytes=1000,
            )
        )

        self.a.post(OTHER, "response", body={"secret": 1, "value": [1, 2, 3]})
        self.a.post(OTHER, "create", body={"value": "x" * 1000})

        (message,) = self.b.take()
        self.assertEqual({"level": 3, "value": [1, 2], "auth": True}, message["body"])
        self.assertEqual([413], [message["body"]["code"] for message in self.a.take()])

    def test_delayed_message_arrives_later_in_order(self) -> None:
        """
        What has to wait arrives later, in order, and is written down then.
        """
        self.use(rule("permit", rateLimit={"rate": 1, "per": 1, "onExceed": "delay"}))

        for number in range(4):
            self.a.post(OTHER, id=number)
        now = len(self.b.take())
        self.node.clock.pump([0.5] * 8)

        self.assertEqual(1, now)
        self.assertEqual([1, 2, 3], [message["id"] for message in self.b.take()])
        self.assertEqual(["delivered"] * 4, self.node.traffic_recorder.outcomes[-4:])

    def test_delay_bytes(self) -> None:
        """
        What has to wait is bounded in bytes, too; beyond them the answer is 429.
        """
        self.node.config.limits.partial_bytes_per_ip = 20_000
        self.use(rule("permit", rateLimit={"rate": 1, "per": 1, "onExceed": "delay"}))

        for number in range(4):
            self.a.post(OTHER, "create", id=number, body={"value": "x" * 12_000})

        self.assertEqual([0], [message["id"] for message in self.b.take()])
        self.assertEqual([429], [message["body"]["code"] for message in self.a.take()])
        self.node.clock.pump([0.5] * 8)
        self.assertEqual([1, 2], [message["id"] for message in self.b.take()])
        self.assertEqual(0, self.node.partial_input.bytes)

    def test_limit_of_session(self) -> None:
        """
        Of two a minute the third is 429, whatever its sender calls itself; another session has its own.
        """
        self.use(rule("permit", {"actionType": {"equals": "create"}}, rateLimit={"rate": 2, "per": 60}))

        for number in range(3):
            self.a.post(OTHER, "create", **{"from": f"hyperty://example.org/{number}"})
        self.b.post(RUNTIME, "create")

        self.assertEqual(2, len(self.b.take()))
        answer, passed = self.a.take()
        self.assertEqual((429, "create"), (answer["body"]["code"], passed["type"]))

    def test_limit_before_a_session(self) -> None:
        """
        Who opens sessions is counted by its runtimeURL while it has none.
        """
        limit = {"rate": 1, "per": 60}
        self.use(rule("permit", {"direction": {"equals": "connect"}}, rateLimit=limit))

        opened = [self.node.client(f"{THIRD}{number}") for number in range(3)]

        self.assertEqual([None] * 3, [client.lost for client in opened])

    def test_limit_counts_a_message_once_also_where_its_way_out(self) -> None:
        """
        A limit counts a message once, also where its way out is decided on too.
        """
        self.use(
            rule("permit", rateLimit={"rate": 2, "per": 60}),
            rule("deny", {"direction": {"equals": "out"}, "session": {"equals": "nobody"}}, "out"),
        )

        for _ in range(3):
            self.a.post(OTHER)

        self.assertEqual(2, len(self.b.take()))

    def test_each_on_the_way_out(self) -> None:
        """
        What a rule for the way out takes from a message it takes from every recipient's, and counts for each.
        """
        topic, out = "comm://example.org/1/changes", {"direction": {"equals": "out"}}
        clients = (self.b, self.node.client(THIRD))
        for client in clients:
            client.subscribe(topic)
        self.use(rule("permit", out, remove=["body.secret"], rateLimit={"rate": 1, "per": 60}))

        for _ in range(2):
            self.a.post(topic, "update", body={"secret": 1, "value": 2})
        self.node.clock.advance(60)
        self.node.publish(
            compose(1, "update", "domain://registry.example.org", topic, {"secret": 1, "value": 3})
        )

        got = [[message["body"] for message in client.take()] for client in clients]
        self.assertEqual([[{"auth": False, "value": 2}, {"value": 3}]] * 2, got)

    def test_each_of_several_on_the_way_out(self) -> None:
        """
        What was done on the way in for one recipient of several is still to be done for another.
        """
        third = self.node.client(THIRD)
        condition = [{"direction": {"equals": "out"}}, {"msgTo": {"equals": OTHER}}]
        self.use(rule("permit", condition, remove=["body.secret"]))

        self.a.post([OTHER, THIRD], body={"secret": 1})

        self.assertEqual(
            [{"auth": True}, {"auth": False}],
            [message["body"] for client in (self.b, third) for message in client.take()],
        )

    def test_redirected_once(self) -> None:
        """
        Nor is a redirected message counted again on its way out, by the rule that redirected it.
        """
        self.use(
            rule("permit", {"msgTo": {"equals": THIRD}, "direction": {"equals": "in"}}, "open"),
            rule(
                "permit",
                [{"msgTo": {"equals": OTHER}}, {"direction": {"equals": "out"}}],
                redirect=THIRD,
                rateLimit={"key": "srcDomain", "rate": 2, "per": 60},
            ),
        )
        third = self.node.client(THIRD)

        for _ in range(3):
            self.a.post(OTHER)

        self.assertEqual(2, len(third.take()))

    def test_redirected_within_a_limit(self) -> None:
        """
        A limit of a set counts once what one of its rules redirects and another lets pass.
        """
        made = document(
            rule("permit", {"msgTo": {"equals": OTHER}}, "x", redirect=THIRD),
            rule("permit", {"msgTo": {"equals": THIRD}}, "y"),
        )
        made[0]["obligations"] = {"permit": {"rateLimit": {"rate": 3, "per": 60}}}
        self.node.enforcement.use(load(files(made)), 1)
        third = self.node.client(THIRD)

        for _ in range(4):
            self.a.post(OTHER, "create")

        self.assertEqual(3, len(third.take()))
        self.assertEqual([429], [message["body"]["code"] for message in self.a.take()])

    def test_several_topics(self) -> None:
        """
        A subscription is one message to a limit, however many addresses it names.
        """
        self.use(rule("permit", {"direction": {"equals": "subscribe"}}, rateLimit={"rate": 1, "per": 60}))

        codes = [
            self.a.ask(
                type="subscribe",
                to="domain://msg-node.example.org/sm",
                body={"resource": f"comm://example.org/{number}", "childrenResources": ["x", "y"]},
            )["body"]["code"]
            for number in range(2)
        ]

        self.assertEqual([200, 429], codes)

    def test_buckets_stay(self) -> None:
        """
        Who has used up a limit is not helped by a reload.
        """
        for _ in range(2):
            self.use(rule("permit", rateLimit={"rate": 1, "per": 60}))
            self.a.post(OTHER)

        self.assertEqual(1, len(self.b.take()))

    def test_rule_may_ask_for_the_rate_of_allocations(self) -> None:
        """
        A rule may ask how often a session allocated in the last minute.
        """
        self.use(rule("deny", {"addrAllastMin": {"moreThan": 2}}))
        codes = []

        for _ in range(4):
            to = "domain://msg-node.example.org/address-allocation"
            codes.append(self.a.ask(type="create", to=to)["body"]["code"])

        self.assertEqual([200, 200, 403, 403], codes)

    # -- what the node says of its own ---------------------------------------------------

    def test_node_publications_go_where_policies_let_them(self) -> None:
        """
        What the node publishes goes to whom the policies let have it, to each as changed for it.
        """
        topic, registry = "comm://example.org/o/registration", "domain://registry.example.org"
        clients = (self.a, self.b, self.node.client(THIRD))
        for client in clients:
            client.subscribe(topic)
        out = {"direction": {"equals": "out"}, "msgFrom": {"equals": registry}}
        self.use(
            rule("deny", {**out, "session": {"equals": OTHER}}, "no"),
            rule("permit", {**out, "session": {"equals": THIRD}}, set={"bodyValue": "hidden"}),
        )

        reached = self.node.publish(compose(1, "update", registry, topic, {"value": "live"}))

        told = [[each["body"]["value"] for each in client.take()] for client in clients]
        self.assertEqual((3, [["live"], [], ["hidden"]]), (reached, told))
        line = self.node.traffic_recorder.messages[-1]
        self.assertEqual(("node", "delivered", 2), (line["connector"], line["outcome"], line["recipients"]))

    def test_own_to_nobody(self) -> None:
        """
        What the node publishes and nobody may have is written down as refused, and no one is told.
        """
        self.a.subscribe("comm://example.org/o/registration")
        self.use(rule("deny", {"direction": {"equals": "out"}}))

        self.node.publish(
            compose(1, "update", "domain://registry.example.org", "comm://example.org/o/registration", {})
        )

        self.assertEqual([], self.a.take())
        line = self.node.traffic_recorder.messages[-1]
        self.assertEqual(("refused", 403, "node"), (line["outcome"], line["code"], line["connector"]))
        self.assertEqual({403: 1}, refused_codes(self.node.counts))

    def test_whose_connection(self) -> None:
        """
        On the way in `peer` is the sender's, on the way out the recipient's.
        """
        self.a.peer, self.b.peer = "192.0.2.1:1", "192.0.2.2:2"
        for point, peer, passes in (
            ("in", self.a.peer, False),
            ("in", self.b.peer, True),
            ("out", self.a.peer, True),
            ("out", self.b.peer, False),
        ):
            self.use(rule("deny", {"direction": {"equals": point}, "peer": {"equals": peer}}))

            self.a.post(OTHER)

            self.assertEqual(passes, bool(self.b.take()), (point, peer))

    def test_counts_forgotten(self) -> None:
        """
        A rule that is not live any more is not counted either; one that stays is counted on.
        """
        self.use(rule("deny", {"actionType": {"equals": "read"}}, "gone"), rule("permit", id="stays"))
        self.a.post(OTHER, "read")
        self.a.post(OTHER, "create")
        self.use(rule("permit", id="stays"))
        self.a.post(OTHER, "create")

        self.assertEqual({("in", "permit", "s/p/stays"): 2}, self.tallies())

    # -- what is remembered ------------------------------------------------------------

    def test_remembered(self) -> None:
        """
        What depends on the header alone is decided once, until other policies are live.
        """
        self.use(rule("permit", {"msgTo": {"equals": OTHER}}))
        decided = self.decided()

        for _ in range(5):
            self.a.post(OTHER)
        self.assertEqual([OTHER], decided)
        self.use(rule("deny"))
        self.a.post(OTHER)

        self.assertEqual(5, len(self.b.take()))

    def test_long_addresses(self) -> None:
        """
        What is long is decided each time rather than remembered.
        """
        self.use(rule("permit"))
        decided = self.decided()
        short, long = (f"{OTHER}/{'x' * length}" for length in (10, MAX_KEY_CHARS))

        for to in (short, long, short, long):
            self.a.post(to)

        self.assertEqual([short, long, long], decided)

    def decided(self) -> list[str]:
        """
        What is decided about from here on, rather than remembered.
        """
        program: Any = self.node.enforcement.program
        found: list[str] = []
        decide = program.decide
        program.decide = lambda context: found.append(context.to) or decide(context)
        return found

    def test_however_many_addresses_are_named_only_so_many(self) -> None:
        """
        However many addresses are named, only so many outcomes are remembered.
        """
        self.use(rule("permit", {"msgTo": {"like": "runtime:*"}}))
        decided = self.decided()

        for number in range(2 * MAX_REMEMBERED + 1):
            self.a.post(f"{OTHER}/{number}")

        decided.clear()
        for number in (0, 2 * MAX_REMEMBERED):
            self.a.post(f"{OTHER}/{number}")
        self.assertEqual([f"{OTHER}/0"], decided)

    # -- dry runs -------------------------------------------------------------------------

    def test_dry_run(self) -> None:
        """
        A dry run changes nothing; how often it would is counted, with examples.
        """
        self.use(rule("permit"))
        self.node.enforcement.set_dry_run(
            load(files(document(rule("deny", {"actionType": {"equals": "read"}}))))
        )

        self.a.post(OTHER, "read")
        self.a.post(OTHER, "create")

        self.assertEqual(2, len(self.b.take()))
        report = self.node.enforcement.dry_run_report()
        self.assertEqual(
            (2, 2, {"s/p/r": 1, "none": 1}), (report["decided"], report["different"], report["rules"])
        )
        self.assertEqual("deny", report["examples"][0]["trial"])

    def dry_run(self, *rules: Any) -> None:
        self.node.enforcement.set_dry_run(load(files(document(*rules))))

    def differing(self) -> tuple[int, int]:
        report = self.node.enforcement.dry_run_report()
        return report["decided"], report["different"]

    def test_dry_run_first(self) -> None:
        """
        The first set of all can be tried too, while everything passes as it came.
        """
        self.dry_run(rule("deny", {"actionType": {"equals": "create"}}))

        self.a.post(OTHER, "create", body={"auth": True})
        self.a.post(OTHER, "read")

        self.assertEqual([{"auth": True}, {}], [each.get("body", {}) for each in self.b.take()])
        self.assertEqual((2, 1), self.differing())
        self.node.enforcement.set_dry_run(None)
        self.a.post(OTHER, "create")
        self.assertFalse(self.node.enforcement.is_on)
        self.assertEqual(1, len(self.b.take()))

    def test_dry_run_of_rates(self) -> None:
        """
        Rates that a policy in a dry run tests are counted.
        """
        self.use(rule("permit"))
        self.dry_run(rule("permit"), rule("deny", {"rate.messages.lastMinute": {"moreThan": 2}}, "slow"))

        for _ in range(5):
            self.a.post(OTHER)

        self.assertEqual(5, len(self.b.take()))
        self.assertEqual((5, 3), self.differing())

    def test_dry_run_of_out(self) -> None:
        """
        Policies in a dry run decide about what goes out, if they test that, and stop nothing.
        """
        for live in (False, True):
            self.restart()
            if live:
                self.use(rule("permit"))
            self.dry_run(rule("permit"), rule("deny", {"direction": {"equals": "out"}}, "no"))
            self.a.post(OTHER)

            self.assertEqual(1, len(self.b.take()))
            examples = self.node.enforcement.dry_run_report()["examples"]
            self.assertIn(("out", "deny"), [(each["point"], each["trial"]) for each in examples])

    def test_counts_stay(self) -> None:
        """
        What a policy as a whole decided is counted on when another set with that policy is live.
        """
        never = rule("permit", {"msgId": {"equals": 0}})
        for _ in range(2):
            self.use(never, algorithm="denyUnlessPermit")
            self.a.post(OTHER, "create")

        (path,) = {rule for _, effect, rule in self.tallies() if effect == "deny"}
        self.assertEqual(2, self.tallies()["in", "deny", path])
        self.assertNotIn(path, self.node.enforcement.rules())

    def test_identity_of_token(self) -> None:
        """
        The log of decisions names the user of a token.
        """
        self.node.enforcement.contexts.who = lambda connection: Principal("user://x/ann@x", "x", "1", "ann@x")
        self.use(rule("deny"))

        self.a.post(OTHER, "create")

        self.assertEqual("ann@x", self.node.enforcement.decisions.recent[-1].identity)

    def test_who_may_not_subscribe_to_an_address_does_not_come(self) -> None:
        """
        Who may not subscribe to an address does not come to hear it by sending from it either.
        """
        secret = {"direction": {"equals": "subscribe"}, "msgTo": {"like": "hyperty://example.org/secret*"}}
        self.use(rule("deny", secret))

        for address, heard in (("hyperty://example.org/secret", 0), ("hyperty://example.org/open", 1)):
            self.a.post(OTHER, **{"from": address})
            self.assertEqual(1, len(self.b.take()))
            self.b.post(address)
            self.assertEqual(heard, len(self.a.take()))

    # -- none yet -------------------------------------------------------------------------

    def test_while_there_must_be_policies_and_are_none_nothing(self) -> None:
        """
        While there must be policies and are none, nothing passes and nobody comes in; later they do.
        """
        self.node.enforcement.close()

        self.a.post(OTHER, "create")
        c = self.node.client()
        c.tell({"id": 1, "type": "open", "from": THIRD, "to": "mn:/session"})
        self.node.clock.advance(5)

        self.assertEqual([503], [message["body"]["code"] for message in self.a.take()])
        self.assertEqual([], self.b.take())
        assert c.lost is not None
        self.assertEqual((1013, "policy", 30), c.lost)

    def test_policies_change_between_two_messages(self) -> None:
        """
        Policies change between two messages: none is lost, and none decided on by both.
        """
        seen: list[Any] = []
        for turn in range(100):
            effect = "deny" if turn % 2 else "permit"
            self.use(rule(effect, {"actionType": {"equals": "create"}}, id=turn))
            for number in range(10):
                self.a.post(OTHER, "create", id=turn * 10 + number)
            seen += [message["id"] for message in self.b.take()]
            seen += [message["id"] for message in self.a.take()]

        self.assertEqual(list(range(1000)), seen)
        self.assertEqual(10, self.tallies()["in", "deny", "s/p/99"])
