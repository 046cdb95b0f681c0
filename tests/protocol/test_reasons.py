"""
Why something was refused: one word that does not change, wherever it can be read.
"""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

import msgnode
from msgnode.bus.receipts import OVERFLOW, REASONS
from msgnode.links.exchange.status import TEXTS
from msgnode.protocol.errors import Rejected
from msgnode.storage.traffic_log import TrafficLog
from tests.docs.test_docs import rows
from tests.support.fakes import Client, MemoryNode, directory
from tests.support.made_policies import rule, use
from tests.support.source import sources

SOURCE = Path(msgnode.__file__).parent
ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"
SM = "domain://msg-node.example.org/sm"
WORDS = {cells[0].strip("`") for cells in rows("docs/protocol.md", "## Reasons")}
PLAIN = {400, 404, 409, 412, 502, 504}  # codes that say why by themselves


def kinds(base: type[Rejected] = Rejected) -> Iterator[type[Rejected]]:
    """
    Every class of refusals, wherever it is.
    """
    yield base
    for kind in base.__subclasses__():
        yield from kinds(kind)


def modules() -> Iterator[tuple[str, Path]]:
    """
    The node's source, without the programs that only talk to it.
    """
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.split("/")[0] not in ("client", "cli", "mining", "devregistry", "stub"):
            import_module("msgnode." + name[:-3].replace("/", ".").removesuffix(".__init__"))
            yield name, path


MODULES = list(modules())


@cache
def all_calls() -> dict[str, list[tuple[str, ast.Call]]]:
    """
    By the name of what is called, where, and the call.
    """
    found: dict[str, list[tuple[str, ast.Call]]] = {}
    for name, path in MODULES:
        for call in sources()[path].calls:
            if isinstance(call.func, ast.Name):
                found.setdefault(call.func.id, []).append((f"{name}:{call.lineno}", call))
    return found


def calls(name: str) -> list[tuple[str, ast.Call]]:
    return all_calls().get(name, [])


def given(call: ast.Call, name: str, position: int) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return call.args[position] if len(call.args) > position else None


def test_every_refusal_class_has_a_reason_word() -> None:
    """
    A refusal of each class that has a code of its own says why in a word of docs/protocol.md.
    """
    silent = [kind.__name__ for kind in kinds() if kind.code != 400 and not kind.reason]
    unknown = {kind.__name__: kind.reason for kind in kinds() if kind.reason and kind.reason not in WORDS}

    assert ([], {}) == (silent, unknown)


@pytest.mark.parametrize("name, code, reason", [("Rejected", 1, 2), ("Malformed", 3, 5)])
def test_every_place(name: str, code: int, reason: int) -> None:
    """
    Whoever refuses with a code that does not say why says it in a word.
    """
    silent = []
    for where, call in calls(name):
        expression = given(call, "code", code)
        is_plain = expression is None or (isinstance(expression, ast.Constant) and expression.value in PLAIN)
        if not is_plain and given(call, "reason", reason) is None:
            silent.append(where)

    assert not silent, f"name a reason of docs/protocol.md, such as reason='limit', in {', '.join(silent)}"


def test_every_word() -> None:
    """
    Every word that is written in the source stands in docs/protocol.md, and each of those is used.
    """
    positions = {"Rejected": 2, "Malformed": 5, "Blocked": 3, "Claimed": 2, "NoSession": 2, "_complaint": 2}
    found = {
        word.value: where
        for name, position in positions.items()
        for where, call in calls(name)
        for word in ast.walk(given(call, "reason", position) or ast.Constant(None))
        if isinstance(word, ast.Constant) and isinstance(word.value, str) and word.value
    }
    elsewhere = {*REASONS.values(), OVERFLOW, *(kind.reason for kind in kinds() if kind.reason)}
    elsewhere |= set(TEXTS)  # the outcomes of streams
    elsewhere |= {Rejected("", code).reason for code in PLAIN} | {Rejected("", 500).reason}

    unknown = {word: where for word, where in found.items() if word not in WORDS}

    assert not unknown, f"not in docs/protocol.md: {unknown}"
    assert WORDS == {*found, *elsewhere}


def test_fallback() -> None:
    """
    Even a code that nobody thought of has a word.
    """
    assert {"failed"} == {Rejected("no", code).reason for code in (403, 418, 599)}


def test_answers_unchanged() -> None:
    """
    What clients are answered has the three keys that it always had.
    """
    body = Rejected("no", 403, "identity").body()

    assert {"code": 403, "desc": "no", "description": "no"} == body


class ReasonTests(SynchronousTestCase):
    """
    One message, and what of its refusal can be read: in the receipt, the log and the decisions.
    """

    def setUp(self) -> None:
        self.start()

    def start(self, **sections: Any) -> None:
        self.place = directory(self)
        self.log = TrafficLog(str(self.place), "test", Clock())
        self.log.startService()
        self.node = MemoryNode(traffic_recorder=self.log, **sections)
        self.ann = self.node.client(ANN)

    def logged(self) -> list[Any]:
        """
        The reasons of what was not carried, as the log has them.
        """
        self.log.stopService()
        lines = [json.loads(line) for path in self.place.iterdir() for line in path.read_bytes().splitlines()]
        return [line.get("reason") for line in lines if line.get("outcome") in ("refused", "no-route")]

    def receipt(self, to: Any = BOB, **fields: Any) -> tuple[int, str, str, int]:
        """
        Code, reason, words and recipients of the receipt for such a message.
        """
        self.ann.tell({"id": 1, "type": "update", "from": ANN, "to": to, "receipt": True, **fields})
        bodies = [told["body"] for told in self.ann.take() if told["type"] == "receipt"]
        (body,) = bodies
        return body["code"], body["reason"], body["description"], body["recipients"]

    def test_policy_refusal_says_why_everywhere(self) -> None:
        """
        A policy's refusal: in the receipt, the traffic log and what was lately decided.
        """
        use(self.node, rule("deny"))

        found = self.receipt()

        self.assertEqual((403, "policy", "Blocked by policy", 0), found)
        (decision,) = self.node.enforcement.decisions.recent
        self.assertEqual("policy", decision.reason)
        self.assertEqual(["policy"], self.logged())

    def test_policy_rate_refusal_says_rate(self) -> None:
        """
        What a policy lets pass so often only is refused for its rate, not for what it is.
        """
        use(self.node, rule("permit", rateLimit={"rate": 1, "per": 60}))
        self.ann.post(BOB)

        code, reason, text, _ = self.receipt()

        self.assertEqual((429, "rate"), (code, reason))
        self.assertIn("slow down", text)

    def test_who_sends_too_fast_reads_it_in_the_receipt(self) -> None:
        """
        Who sends too fast reads it in the receipt.
        """
        self.start(limits={"session_rate_messages": 1})
        self.ann.post(BOB)

        code, reason, text, recipients = self.receipt()

        self.assertEqual((429, "rate", 0), (code, reason, recipients))
        self.assertIn("slow down", text)
        self.assertEqual(["no-route", "rate"], self.logged())

    def test_address_of_the_node_and_one_of_somebody_else(self) -> None:
        """
        An address of the node's, and one of somebody else's.
        """
        bob = self.node.client(BOB)
        bob.subscribe("comm://example.org/1")

        reserved = self.receipt(**{"from": "domain://msg-node.example.org/x"})[:2]
        self.ann.subscribe(SM)
        self.ann.subscribe(f"{BOB}/x")

        self.assertEqual((403, "reserved-address"), reserved)
        self.assertEqual(["reserved-address", "reserved-address", "not-your-address"], self.logged())

    def test_what_is_no_message_what_comes_before_a_session(self) -> None:
        """
        What is no message, what comes before a session, and what nobody offers or hears.
        """
        stranger = Client(self.node)
        stranger.tell({"id": 1, "type": "read", "from": ANN, "to": BOB})
        self.ann.tell(b"{")
        self.ann.tell({"id": 1, "type": "read", "from": ANN, "to": [BOB] * 1001})
        self.ann.post("domain://weather.example.org", "read")
        self.ann.post(BOB, "read")
        self.ann.post(SM, "read")

        expected = ["no-session", "malformed", "limit", "not-handled", "no-route", "malformed"]
        self.assertEqual(expected, self.logged())

    def test_what_came_as_more_than_a_message_may(self) -> None:
        """
        What came as more than a message may be.
        """
        self.node.reject_undecodable(b"x" * 100, "a message has at most 99 bytes", self.ann, 413)

        self.assertEqual(["too-long"], self.logged())

    def test_session_that_is_not_opened(self) -> None:
        """
        A session that is not opened: a name that nobody may have, too many, a policy.
        """
        self.start(limits={"sessions": 1})

        for runtime in ("mn:/x", BOB):
            Client(self.node).tell({"id": 1, "type": "open", "from": runtime, "to": "mn:/session"})
        use(self.node, rule("deny"))
        Client(self.node).tell({"id": 1, "type": "open", "from": ANN, "to": "mn:/session"})

        self.assertEqual(["reserved-address", "limit", "policy"], self.logged())

    def test_each_copy_of_a_message_to_a_list_has_its_own_reason(self) -> None:
        """
        Each copy of a message to a list has its own reason; those that share a line have the same.
        """
        use(self.node, rule("deny", {"msgTo": {"equals": BOB}}), rule("permit"))
        nobody = [f"comm://example.org/{number}" for number in range(100)]

        self.ann.post([BOB, *nobody], "update")

        reasons = self.logged()
        self.assertEqual("policy", reasons[0])
        self.assertEqual({"no-route"}, set(reasons[1:]))

    def test_node_failure_says_no_more_than_failed(self) -> None:
        """
        What the node itself failed over says no more than that.
        """
        self.node.responders[SM] = object()

        self.ann.post(SM, "subscribe")

        self.assertEqual(["failed"], self.logged())
        self.flushLoggedErrors()


def test_metric_words() -> None:
    """
    A reason is one word of small letters, fit for a label.
    """
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", word) for word in WORDS)


def test_an_update_that_the_node_refuses_is_told_by_its_receipt():
    """
    Nobody answers an update; who asked for a receipt hears why it was refused, once.
    """
    node = MemoryNode()
    client = node.client("runtime://example.org/a")

    client.post(SM, "update", receipt=True)
    client.post(SM, "read", receipt=True)

    receipt, answer = client.take()
    assert ("receipt", 400) == (receipt["type"], receipt["body"]["code"])
    assert receipt["body"]["reason"] == "malformed"
    assert ("response", 400) == (answer["type"], answer["body"]["code"])
