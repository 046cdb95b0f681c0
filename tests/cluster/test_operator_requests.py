"""
Requests of operators to all nodes of a domain: each node answers, refuses, or is named as one that did not
answer.
"""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cluster.member_requests import MemberRequests
from msgnode.cluster.operator_requests import (
    KEEP_SECONDS,
    MAX_ANSWER_BYTES,
    MAX_ASKING,
    MAX_KEPT,
    MAX_REQUEST_BYTES,
    PART_BYTES,
    NodeAnswer,
    Operator,
    OperatorRequests,
)
from msgnode.protocol.errors import Rejected
from tests.support.cluster_members import MemoryCluster

A, B, C = (f"mn://example.com/{name}" for name in "abc")
ANN = Operator("ann", ("viewer",))


class BusyClock:
    """
    A clock of which 10 µs pass each time that it is read.
    """

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self._passed = 0.0

    def seconds(self) -> float:
        self._passed += 1e-5
        return float(self._clock.seconds()) + self._passed

    def callLater(self, delay: float, call: Any, *args: Any, **kwargs: Any) -> Any:
        return self._clock.callLater(delay, call, *args, **kwargs)


class OperatorCase(SynchronousTestCase):
    """
    Three members that know each other.
    """

    def setUp(self) -> None:
        self.cluster = MemoryCluster(max_payload=32 * 1024)
        self.nodes = {name: self.start(name) for name in (A, B, C)}
        self.cluster.connect()
        self.cluster.run(0.1)

    def start(self, name: str) -> OperatorRequests:
        members = self.cluster.start(name)
        members.listener = requests = MemberRequests(members, self.cluster.clock)
        found = OperatorRequests(name, self.cluster.clock)
        found.join(requests, lambda: (A, B, C))
        return found

    def offer(self, verb: str, handler: Any, *roles: str) -> None:
        for node in self.nodes.values():
            node.offer(verb, handler, *roles)

    def all_of(self, verb: str, operator: Operator = ANN, **params: Any) -> dict[str, NodeAnswer]:
        asked = self.nodes[A].ask_all(verb, params, operator)
        self.cluster.run(3)
        return self.successResultOf(asked)


class AnswerTests(OperatorCase):
    """
    Nodes that answer.
    """

    def test_each_node_answers_with_the_parameters(self) -> None:
        """
        Each node answers by its own handler, which gets the parameters.
        """
        for name, node in self.nodes.items():
            node.offer("count", lambda params, operator, name=name: {"of": name, **params})

        found = self.all_of("count", of_kind="x")

        expected = {name: NodeAnswer(200, {"of": name, "of_kind": "x"}) for name in (A, B, C)}
        self.assertEqual(expected, found)

    def test_operator_is_known_at_each_node(self) -> None:
        """
        A handler gets the operator's name and roles, and the node to which the operator is connected.
        """
        self.offer("who", lambda params, operator: [operator.name, list(operator.roles), operator.node])

        found = self.all_of("who")

        got = {name: answer.value for name, answer in found.items()}
        expected = {name: ["ann", ["viewer"], node] for name, node in ((A, ""), (B, A), (C, A))}
        self.assertEqual(expected, got)

    def test_role_is_checked_by_the_node_that_answers(self) -> None:
        """
        A verb that needs another role is refused by each node with 403; the role * stands for all.
        """
        self.offer("kick", lambda params, operator: "done", "operator")

        refused, done = self.all_of("kick"), self.all_of("kick", Operator("bob", ("*",)))

        self.assertEqual({403}, {answer.code for answer in refused.values()})
        self.assertEqual({(200, "done")}, {(answer.code, answer.value) for answer in done.values()})

    def test_handler_may_take_its_time(self) -> None:
        """
        A handler may answer later.
        """
        later: list[Deferred[int]] = []
        self.offer("later", lambda params, operator: later.append(Deferred()) or later[-1])
        asked = self.nodes[A].ask_all("later", {}, ANN)
        self.cluster.run(0.5)

        for number, each in enumerate(later):
            each.callback(number)
        self.cluster.run(0.1)

        found = self.successResultOf(asked)
        self.assertEqual({0, 1, 2}, {answer.value for answer in found.values()})

    def test_long_answer_comes_in_parts(self) -> None:
        """
        An answer that no payload has room for comes whole, and nothing of it is kept then.
        """
        text = "x" * (PART_BYTES * 5 + 7)
        self.offer("list", lambda params, operator: text)

        found = [self.all_of("list") for _ in range(MAX_KEPT + 1)]

        for answers in found:
            self.assertEqual({(200, text)}, {(answer.code, answer.value) for answer in answers.values()})

    def test_one_node_is_asked(self) -> None:
        """
        One node can be asked by its name, the operator's own as any other.
        """
        for name, node in self.nodes.items():
            node.offer("name", lambda params, operator, name=name: name)

        asked = [self.nodes[A].ask(name, "name", {}, ANN) for name in (A, C)]
        self.cluster.run(0.1)

        self.assertEqual([A, C], [self.successResultOf(each).value for each in asked])


class RefusalTests(OperatorCase):
    """
    Nodes that refuse, are away, or fail.
    """

    def test_node_that_is_away_did_not_answer(self) -> None:
        """
        A node that is known and has no link is named as one that did not answer; the others answer.
        """
        self.offer("ping", lambda params, operator: "pong")
        self.cluster.kill(C)

        found = self.all_of("ping")

        self.assertEqual((200, 200, 503), tuple(found[name].code for name in (A, B, C)))
        self.assertEqual([True, True, False], [found[name].has_answered for name in (A, B, C)])

    def test_node_that_says_nothing_did_not_answer(self) -> None:
        """
        What is not answered in time is answered for it, of this node and of others.
        """
        self.offer("never", lambda params, operator: Deferred())
        asked = self.nodes[A].ask_all("never", {}, ANN, seconds=1.0)
        self.cluster.run(0.9)
        self.assertNoResult(asked)

        self.cluster.run(0.3)

        found = self.successResultOf(asked)
        self.assertEqual({(503, "no-path")}, {(answer.code, answer.reason) for answer in found.values()})

    def test_node_of_another_release_says_so(self) -> None:
        """
        A node that does not know a verb answers 501.
        """
        self.nodes[A].offer("new", lambda params, operator: 1)

        self.assertEqual([200, 501, 501], [self.all_of("new")[name].code for name in (A, B, C)])

    def test_refusal_and_error_of_a_handler(self) -> None:
        """
        A handler that raises Rejected refuses with its code, text and reason; another error is 500, and is
        logged.
        """

        def refuse(params: dict[str, Any], operator: Operator) -> None:
            raise Rejected("there is no such session", 404, "not-found")

        self.offer("refuse", refuse)
        self.offer("fail", lambda params, operator: params["missing"])

        refused, failed = self.all_of("refuse"), self.all_of("fail")

        for answer in refused.values():
            expected = (404, "there is no such session", "not-found")
            self.assertEqual(expected, (answer.code, answer.text, answer.reason))
        self.assertEqual({(500, "failed")}, {(answer.code, answer.reason) for answer in failed.values()})
        self.assertEqual(3, len(self.flushLoggedErrors(KeyError)))

    def test_requests_and_answers_have_a_size(self) -> None:
        """
        A request that is too long is refused before it is sent, and an answer by the node that made it.
        """
        self.offer("long", lambda params, operator: "x" * MAX_ANSWER_BYTES)

        with self.assertRaises(Rejected) as refused:
            self.nodes[A].ask_all("long", {"x": "x" * MAX_REQUEST_BYTES}, ANN)
        found = self.all_of("long")

        self.assertEqual(413, refused.exception.code)
        self.assertEqual({413}, {answer.code for answer in found.values()})

    def test_requests_under_way_are_bounded(self) -> None:
        """
        More than MAX_ASKING at a time are refused, also when some were cancelled meanwhile.
        """
        self.offer("never", lambda params, operator: Deferred())
        asked = [self.nodes[A].ask_all("never", {}, ANN) for _ in range(MAX_ASKING)]
        with self.assertRaises(Rejected) as refused:
            self.nodes[A].ask_all("never", {}, ANN)
        self.assertEqual((503, "limit"), (refused.exception.code, refused.exception.reason))

        asked[0].cancel()
        again = self.nodes[A].ask_all("never", {}, ANN)
        self.cluster.run(3)

        for each in [*asked, again]:
            self.assertEqual(3, len(self.successResultOf(each)))

    def test_time_that_passes_while_code_runs_is_not_in_the_text(self) -> None:
        """
        A node that does not answer is reported with the seconds that the operator has given it, although a
        little of them has passed when the other node is asked.
        """
        members = self.cluster.nodes[A]
        requests = MemberRequests(members, self.cluster.clock)
        members.listener = requests
        node = OperatorRequests(A, BusyClock(self.cluster.clock))
        node.join(requests, lambda: (A, B, C))
        self.cluster.stop(B)

        asked = node.ask(B, "never", {}, ANN)
        self.cluster.run(4)

        found = self.successResultOf(asked)
        self.assertEqual((503, "no-path"), (found.code, found.reason))
        self.assertEqual(f"{B} did not answer in 2 s", found.text)

    def test_long_answers_that_are_not_fetched_are_dropped(self) -> None:
        """
        A node that went away with parts missing leaves nothing behind: after a while others get theirs.
        """
        self.offer("list", lambda params, operator: "x" * (PART_BYTES * 2))
        for _ in range(MAX_KEPT):
            self.nodes[B].ask(A, "list", {}, ANN)
        self.cluster.run(0.002)
        self.cluster.cut(A, B)
        self.cluster.run(0.1)
        full = self.nodes[C].ask(A, "list", {}, ANN)
        self.cluster.run(0.1)
        refused = self.successResultOf(full)
        self.assertEqual((503, "limit"), (refused.code, refused.reason))

        self.cluster.run(KEEP_SECONDS)
        again = self.nodes[C].ask(A, "list", {}, ANN)
        self.cluster.run(0.1)

        self.assertEqual(200, self.successResultOf(again).code)


class LoneTests(SynchronousTestCase):
    """
    A node that is alone in its domain.
    """

    def test_only_this_node_answers(self) -> None:
        """
        Without a cluster this node is all there is.
        """
        node = OperatorRequests(A, MemoryCluster().clock)
        node.offer("ping", lambda params, operator: "pong")

        found = self.successResultOf(node.ask_all("ping", {}, ANN))
        other = self.successResultOf(node.ask(B, "ping", {}, ANN))

        self.assertEqual(({A: NodeAnswer(200, "pong")}, 404), (found, other.code))
