"""
Flow terms: what the messages of a flow are subject to, so that policies and limits apply to each of them.
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from msgnode.policy.administration.document_edit import load
from msgnode.policy.decision.conditions import Condition
from msgnode.policy.decision.context import Context
from msgnode.policy.decision.tree import PolicyNode, decide
from msgnode.policy.enforcement.decision_log import DecisionLog
from msgnode.protocol.message import decode
from msgnode.transport.data_plane import FlowTerms, PermitLine
from tests.support.fakes import directory
from tests.support.made_policies import document, files, rule, use
from tests.support.model_plane import NAMES, FlowCase

PERMITTED, MARKED = b'"auth":true', b'"auth":false'


class TermsCase(FlowCase):
    """
    A node with two clients.
    """

    def setUp(self) -> None:
        super().setUp()
        self.ann, self.bob = self.connect(NAMES[0]), self.connect(NAMES[1])

    def terms(self, **message: Any) -> list[FlowTerms]:
        """
        The terms on which a message is offered.
        """
        self.send(self.ann, NAMES[0], NAMES[1], **message)
        return [flow.terms for flow in self.plane.flows_kept]


class PolicyTests(TermsCase):
    """
    Decisions of policies that are repeated, and those that are not.
    """

    def hits(self) -> dict[tuple[str, str], tuple[int, int]]:
        decisions = self.node.enforcement.decisions
        return {(each.rule, each.effect): (each.hits, each.last) for each in decisions if each.point == "in"}

    def test_decision_by_header(self) -> None:
        """
        A permit that depends on the header only is repeated, with the mark in the body, its count and sample.
        """
        use(self.node, rule("permit", {"msgFrom": {"equals": NAMES[0]}}))

        terms = FlowTerms(member=PERMITTED, tallies=(0,), samples=1, permit_line=PermitLine())

        self.assertEqual([terms], self.terms())

    def test_line_of_the_decision_log(self) -> None:
        """
        The line about a permit is the one that the node writes, but for the time and the id.
        """
        home = directory(self)
        log = DecisionLog(str(home), "test", self.node.clock)
        self.node.enforcement.decisions.log = log
        self.node.config.policy.hash_fields = ["session"]
        self.node.config.policy.permit_sample_rate = 1.0
        self.node.apply()
        use(self.node, rule("permit", {"msgFrom": {"like": "runtime://*"}}))
        log.startService()
        self.terms()  # whose line says how long the decision took

        for id in ("", 'é\u2028 "x'):
            (terms,) = self.terms(id=id)

            assert terms.permit_line is not None
            before_time, before_id, after_id = terms.permit_line
            wanted = self.written(log, home)
            time = json.loads(wanted)["time"]
            encoded = b',"id":' + msgspec.json.encode(id) if id else b""
            self.assertEqual(wanted, b"%s%d%s%s%s" % (before_time, time, before_id, encoded, after_id))
            self.assertIn(b"sha256:", wanted)

    def written(self, log: DecisionLog, home: Path) -> bytes:
        """
        The last line of the log.
        """
        log.flush()
        (path,) = home.glob("*.jsonl")
        return path.read_bytes().splitlines(keepends=True)[-1]

    def test_line_with_an_identity(self) -> None:
        """
        With authentication the identity in the line may change: the node writes it.
        """
        self.node.enforcement.decisions.log = DecisionLog("not written", "test", self.node.clock)
        self.node.config.identity.auth = "optional"
        self.node.apply()
        use(self.node, rule("permit"))

        self.assertEqual([(1, None)], [(terms.samples, terms.permit_line) for terms in self.terms()])

    def test_no_rule_applies(self) -> None:
        """
        What passes by default is marked as not permitted by a rule; without mark_auth nothing is marked.
        """
        use(self.node, rule("deny", {"msgFrom": {"equals": NAMES[2]}}))
        self.assertEqual([MARKED], [terms.member for terms in self.terms()])

        self.node.config.policy.mark_auth = False
        self.node.apply()

        self.assertEqual([None], [terms.member for terms in self.terms()])

    def test_one_type(self) -> None:
        """
        What is permitted for one type is not offered for a type that is refused.
        """
        use(self.node, rule("deny", {"actionType": {"equals": "delete"}}))

        self.terms(type="delete")

        self.assertEqual(set(), self.plane.flows_kept)

    def test_decisions_for_one_message(self) -> None:
        """
        What depends on time, rate, body, size, identity or session, or has an obligation, is not repeated.
        """
        for condition in (
            {"time": {"lessThan": "23:59:59"}},
            {"weekday": {"in": ["monday"]}},
            {"rate.messages.lastMinute": {"lessThan": 1000}},
            {"body.value": {"exists": False}},
            {"msgSize": {"lessThan": 10_000}},
            {"msgId": {"equals": 1}},
            {"srcUsername": {"exists": False}},
            {"identityVerified": {"equals": False}},
            {"connector": {"equals": "memory"}},
            {"fromOwned": {"equals": True}},
            {"message.identity.state": {"exists": False}},
            {"direction": {"equals": "in"}},
        ):
            use(self.node, rule("permit", condition))
            self.assertEqual([], self.terms(), condition)
        for obligations in (
            {"maxBytes": 1000},
            {"rateLimit": {"rate": 1000, "per": 1, "key": ["msgFrom"]}},
            {"set": {"body.x": 1}},
            {"log": "seen"},
        ):
            use(self.node, rule("permit", None, **obligations))
            self.assertEqual([], self.terms(), obligations)

    def test_rule_that_is_not_enforced(self) -> None:
        """
        A rule that is only counted makes a decision one for this message.
        """
        use(self.node, rule("deny") | {"enforce": False})

        self.assertEqual([], self.terms())

    def test_dry_run(self) -> None:
        """
        While policies are tried in a dry run every message is compared.
        """
        self.assertEqual([FlowTerms()], self.terms())
        self.node.enforcement.set_dry_run(load(files(document(rule("permit")))))
        self.assertEqual([], self.terms())

        self.node.enforcement.set_dry_run(None)

        self.assertEqual([FlowTerms()], self.terms())

    def test_other_policies(self) -> None:
        """
        When other policies become live, or none any more, every flow ends.
        """
        use(self.node, rule("permit"))
        self.terms()
        use(self.node, rule("permit", id="other"))
        self.assertEqual(set(), self.plane.flows_kept)
        self.terms()

        self.node.enforcement.close()

        self.assertEqual(set(), self.plane.flows_kept)

    def test_counts(self) -> None:
        """
        What the data plane has counted is in the counts of the rule, with the time of the last.
        """
        use(self.node, rule("permit"))
        self.terms()
        self.plane.counted = [(0, 41, 2**62)]

        self.assertEqual({("s/p/r", "permit"): (42, 2**62)}, self.hits())
        self.assertEqual({("s/p/r", "permit"): (42, 2**62)}, self.hits())

    def test_counts_at_a_change(self) -> None:
        """
        What was counted before other policies became live counts for the rules that remain.
        """
        use(self.node, rule("permit"), rule("deny", {"msgTo": {"equals": "x"}}, id="gone"))
        self.terms()
        self.plane.counted = [(0, 41, 2**62)]

        use(self.node, rule("permit"))

        self.assertEqual({("s/p/r", "permit"): (42, 2**62)}, self.hits())
        self.assertEqual([(0,)], [terms.tallies for terms in self.terms()])

    def test_unknown_condition(self) -> None:
        """
        A condition that does not say how it reads messages makes a decision one for this message.
        """

        class Whim(Condition):
            """
            A condition of a new kind.
            """

            def __init__(self) -> None:
                self.test = lambda context: True
                self.needs = {}

        node = PolicyNode("rule", "r", Whim(), {}, True)
        node.rule(Whim(), "permit")
        context = Context(decode(b'{"id":1,"type":"update","from":"a","to":"b"}'))

        outcome = decide(node, context)

        assert outcome is not None
        self.assertEqual("permit", outcome.effect)
        self.assertTrue(context.consulted)


class LimitTests(TermsCase):
    """
    Rate limits, and the body keys that the node reads.
    """

    def test_rates(self) -> None:
        """
        Messages draw from the buckets of the session and of its address, which Python draws from as well.
        """
        self.node.config.limits.session_rate_messages = 1000
        self.node.config.limits.ip_rate_bytes = 1_000_000
        self.node.apply()

        (terms,) = self.terms()

        self.assertEqual(self.node.rates.shared(self.ann.session, self.ann.peer), terms.buckets)
        self.assertEqual(2, len(terms.buckets))
        self.assertEqual(2, len(self.node.rates))

    def test_rates_that_nodes_share(self) -> None:
        """
        Messages that draw from a bucket which other nodes draw from are decided on one by one.
        """
        told: list[tuple[str, float, float]] = []
        self.node.config.limits.session_rate_messages = 1000
        self.node.config.limits.shared = True
        self.node.rates.share(lambda kind, take: lambda *taken: told.append(taken))
        self.node.apply()

        self.assertEqual([], self.terms())
        self.assertEqual({(1, len(told[0][0]))}, {(taken[1], 16) for taken in told})

    def test_idle_bucket(self) -> None:
        """
        A bucket from which nothing was taken for a minute is forgotten, and the flows that draw from it end.
        """
        self.node.config.limits.session_rate_messages = 1000
        self.node.apply()
        self.terms()
        self.plane.idle = {1}

        self.send(self.bob, NAMES[1], NAMES[2])
        self.send(self.bob, NAMES[1], NAMES[2])

        self.assertEqual(1, len(self.node.rates))
        self.assertEqual(set(), self.plane.flows_kept)

    def test_identities(self) -> None:
        """
        With authentication, messages that name an asserted identity are decided on one by one.
        """
        self.node.config.identity.auth = "optional"
        self.node.apply()

        self.assertEqual([("assertedIdentity",)], [terms.refused for terms in self.terms()])
