"""
The traffic log, as docs/traffic-log.md promises it.
"""

import json
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.bus.records.known_records import read_records
from msgnode.protocol.message import Message
from msgnode.storage.traffic_log import NoLog, TrafficLog
from tests.support.examples import TOP
from tests.support.fakes import Client, MemoryNode, directory

MORNING = 1_767_258_000_000_000_000  # 2026-01-01T09:00:00Z
NAME = "traffic-test-20260101T09.jsonl"
SM = "domain://msg-node.example.org/sm"


class TrafficTests(SynchronousTestCase):
    """
    A node that writes its log in a directory of its own, at nine in the morning.
    """

    def setUp(self) -> None:
        self.directory = directory(self) / "traffic"
        self.now = MORNING
        self.start()

    def start(self, node: str = "test") -> None:
        self.clock = Clock()
        self.log = TrafficLog(str(self.directory), node, self.clock, lambda: self.now)
        self.node = MemoryNode(traffic_recorder=self.log)
        self.writer = Client(self.node)
        self.log.startService()
        self.addCleanup(self.stop)

    def stop(self) -> None:
        if self.log.running:
            self.log.stopService()

    def write(self, *ids: int, **fields: Any) -> None:
        """
        One message for each id, now.
        """
        for id in ids:
            message = Message(id, "update", "x", "y", data=b"{}", received_at=self.now, outcome="delivered")
            for name, value in fields.items():
                setattr(message, name, value)
            message.origin = self.writer
            self.log.message(message, None)

    def flush(self) -> None:
        self.clock.advance(1)

    def lines(self) -> list[dict[str, Any]]:
        """
        All that is written, by file name.
        """
        self.flush()
        return [
            json.loads(line)
            for path in sorted(self.directory.iterdir())
            for line in path.read_bytes().splitlines()
        ]

    def ids(self, name: str = NAME) -> list[int]:
        return [json.loads(line)["id"] for line in (self.directory / name).read_bytes().splitlines()]


class LineTests(TrafficTests):
    """
    What stands in a line.
    """

    def messages(self) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["kind"] == "message" and line.get("type") != "open"]

    def test_the_record_of_a_message_is_in_its_line(self) -> None:
        """
        In lower case; a message without a record has no such key.
        """
        id = "7A0C9A3E-5A0E-4F6F-9D52-0C3C8A2F0A12"
        self.write(1, record=id)
        self.write(2)

        self.assertEqual([id.lower(), None], [line.get("record") for line in self.lines()])

    def test_the_trace_context_of_a_message_is_in_its_line(self) -> None:
        """
        And reaches the recipient unchanged; a message without one has no such key.
        """
        context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        here, there = "runtime://example.org/page", "runtime://example.org/lamp"
        page, lamp = self.node.client(here), self.node.client(there)
        for fields in ({"traceparent": context}, {}, {"traceparent": "mine"}):
            page.tell({"id": 1, "type": "read", "from": here, "to": there, **fields})

        lines = [line.get("traceparent") for line in self.messages() if line["type"] == "read"]
        self.assertEqual([context, None, None], lines)
        self.assertEqual([context, None, "mine"], [message.get("traceparent") for message in lamp.take()])

    def test_the_slot_of_a_message_that_does_not_fit_its_record_is_in_its_line(self) -> None:
        """
        By its name, without what senders choose, such as the key of a map.
        """
        thermometer = str(TOP / "tests/records/thermometer.records.json")
        self.node.known_records.use(read_records(thermometer, ()))
        here, there = "runtime://example.org/page", "runtime://example.org/lamp"
        page, lamp = self.node.client(here), self.node.client(there)
        record = "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a12"
        request = {"id": 1, "type": "read", "from": here, "to": there, "record": record}
        labels = {"ROOM": "a", "LABELS": {"secret": 5}}
        for body in ({"ROOM": 5}, labels, {"1": 5}, {}, {"ROOM": "a", "2": 1}):
            page.tell({**request, "body": body})
        answer = {**request, "type": "response", "from": there, "to": here}
        lamp.tell({**answer, "body": {"code": 200, "WHERE": {"LATITUDE": "north"}}})

        lines = [line for line in self.messages() if "record" in line]
        self.assertEqual(["ROOM", "LABELS", "ROOM", "ROOM", "2", "WHERE"], [line["slot"] for line in lines])
        self.assertEqual({"record"}, {line["reason"] for line in lines})
        self.assertNotIn("secret", json.dumps(lines))

    def test_message_that_was_carried(self) -> None:
        """
        A message that was carried: who sent what to whom, how large, how many had it, how long it took.
        """
        a, b = self.node.client("runtime://example.org/a"), self.node.client("runtime://example.org/b")
        message = a.post(b.runtime, body={"value": "secret"})

        (line,) = self.messages()

        self.assertGreater(line.pop("time"), 1_700_000_000_000_000_000)
        self.assertGreaterEqual(line.pop("micros"), 0)
        expected = {
            "v": 1,
            "kind": "message",
            "node": "test",
            "session": a.runtime,
            "connector": "memory",
            "peer": "192.0.2.1:1",
            "type": "ping",
            "id": 9,
            "from": f"{a.runtime}/x",
            "to": b.runtime,
            "bytes": len(json.dumps(message)),
            "outcome": "delivered",
            "recipients": 1,
            "waiting": 0,
        }
        self.assertEqual(expected, line)

    def test_line_has_outcome_and_answer_code(self) -> None:
        """
        The outcome, and the code of the node's own answer, tell what became of it.
        """
        a, b = self.node.client("runtime://example.org/a"), self.node.client("runtime://example.org/b")
        b.subscribe("x")
        b.drop()
        a.subscribe("y")
        a.post("x")
        a.post("y", body={"via": "v"})
        a.post("nobody")
        a.post(SM, "create")
        a.tell(b"hello")
        self.node.client().post("x")

        found = [
            (m["outcome"], m.get("code"), m["waiting"], m["session"]) for m in map(_filled, self.messages())
        ]

        expected = [
            ("answered", 200, 0, b.runtime),
            ("answered", 200, 0, a.runtime),
            ("waiting", None, 1, a.runtime),
            ("dropped", None, 0, a.runtime),
            ("no-route", None, 0, a.runtime),
            ("refused", 400, 0, a.runtime),
            ("refused", 400, 0, a.runtime),
            ("refused", 401, 0, ""),
        ]
        self.assertEqual(expected, found)

    def test_id_keeps_its_json_type(self) -> None:
        """
        An id keeps its JSON type.
        """
        a = self.node.client("runtime://example.org/a")
        ids = [0, -1, 2**53 + 1, 2**70, "0", "ä"]
        for id in ids:
            a.post("x", id=id)

        self.assertEqual(ids, [line["id"] for line in self.messages()])

    def test_resources(self) -> None:
        """
        The addresses of a subscription or an allocation stand with it.
        """
        a = self.node.client("runtime://example.org/a")
        a.subscribe("x", "y")
        to = "domain://msg-node.example.org/address-allocation"
        allocated = a.ask(type="create", to=to)["body"]["value"]["allocated"]
        a.ask(type="delete", to=to, body={"resource": allocated})

        self.assertEqual([["x", "y"], allocated, allocated], [line["resources"] for line in self.messages()])

    def test_message_to_several_has_a_line_for_each(self) -> None:
        """
        A message to several has a line for each.
        """
        self.node.client("runtime://example.org/a").post(["x", "y"])

        self.assertEqual(["x", "y"], [line["to"] for line in self.messages()])

    def test_refused_list(self) -> None:
        """
        One that is refused has one line that names the first.
        """
        a = self.node.client("runtime://example.org/a")
        a.post(["x", SM, "y"])

        (line,) = self.messages()
        self.assertEqual(("x and 2 more", "refused"), (line["to"], line["outcome"]))

    def test_nobody_fills_the_log_with_an_address_of_a_megabyte(self) -> None:
        """
        Nobody fills the log with an address of a megabyte.
        """
        a = self.node.client("runtime://example.org/a")
        a.post("x" * 100_000, "t" * 100_000, id="i" * 100_000)
        a.post("x", **{"from": "f" * 100_000})
        a.post(["y" * 100_000, SM])

        for line in self.messages():
            self.assertLess(len(json.dumps(line)), 2500)

    def written(self) -> int:
        """
        Bytes of the log.
        """
        self.flush()
        return sum(path.stat().st_size for path in self.directory.iterdir())

    def test_long_names_with_many_children_take_a_small_multiple(self) -> None:
        """
        Long names with many children take a small multiple of the request that names them.
        """
        a = self.node.client("runtime://example.org/a")
        before, sent = self.written(), 0
        for number in range(50):
            body = {"resource": f"comm://example.org/{number}{'o' * 1900}"}
            body["childrenResources"] = [f"c{child}" for child in range(600)]
            message = {"id": 1, "type": "subscribe", "from": a.runtime, "to": SM, "body": body}
            sent += len(json.dumps(message))
            a.tell(message)

        self.assertLess(self.written() - before, 5 * sent)

    def test_resources_count(self) -> None:
        """
        Where not all addresses are named, the line says how many they were.
        """
        a = self.node.client("runtime://example.org/a")
        to = "domain://msg-node.example.org/address-allocation"

        a.tell({"id": 1, "type": "create", "from": a.runtime, "to": to, "body": {"value": {"number": 900}}})

        (line,) = self.messages()
        self.assertEqual(900, line["resources_count"])
        self.assertLess(10, len(line["resources"]))
        self.assertLess(len(json.dumps(line)), 8 * line["bytes"] + 1500)

    def test_line_bytes(self) -> None:
        """
        No line has more bytes than the operator allows, whatever characters it is made of.
        """
        a = self.node.client("runtime://example.org/" + "r" * 1000)
        wide = "\x01" * 5000
        resources = [f"{number}{wide}"[:2000] for number in range(900)]
        a.tell({"id": wide, "type": "subscribe", "from": wide, "to": SM, "body": {"resources": resources}})
        a.post(SM, wide, id=int("7" * 3000), **{"from": wide})
        self.flush()

        lines = [line for path in self.directory.iterdir() for line in path.read_bytes().splitlines()]

        self.assertEqual(2, sum(b'"message"' in line and b'"open"' not in line for line in lines))
        self.assertLessEqual(max(map(len, lines)), 32768)

    def test_lines_of_one_list_are_a_small_multiple(self) -> None:
        """
        The lines of one list are a small multiple of it; what they leave out they count.
        """
        a, b = self.node.client("runtime://example.org/a"), self.node.client("runtime://example.org/b")
        b.subscribe(*(f"x{number}" for number in range(500)))
        before = self.written()

        message = a.post([f"x{number}" for number in range(1000)], id="i" * 2000, type="t" * 2000)

        self.assertLess(self.written() - before, 10 * len(json.dumps(message)))
        lines = [line for line in self.messages() if line["type"].startswith("t")]
        self.assertEqual(500, sum(line["recipients"] for line in lines))
        rest = [line for line in lines if line["to"].endswith(" more")]
        self.assertEqual(["delivered", "no-route"], sorted(line["outcome"] for line in rest))
        number = sum(int(line["to"].split()[-2]) for line in rest) + len(lines)
        self.assertEqual(1000, number)

    def test_answer_keeps_a_long_id(self) -> None:
        """
        What is cut in the log is not cut in the answer.
        """
        a = self.node.client("runtime://example.org/a")

        answer = a.ask(type="create", to=SM, id="i" * 5000)

        self.assertEqual("i" * 5000, answer["id"])

    def test_one_line_for_each_event_in_a_session_life(self) -> None:
        """
        One line for each event in a session's life.
        """
        a = self.node.client("runtime://example.org/a")
        self.node.client("runtime://example.org/a").drop()
        a.drop()
        self.node.clock.advance(60)
        self.node.client("runtime://example.org/a").close()

        lines = [line for line in self.lines() if line["kind"] == "session"]

        events = [
            "opened",
            "attached",
            "superseded",
            "attached",
            "detached",
            "expired",
            "opened",
            "attached",
            "closed",
        ]
        self.assertEqual(events, [line["event"] for line in lines])
        line = {
            "v": 1,
            "kind": "session",
            "time": MORNING,
            "node": "test",
            "session": "runtime://example.org/a",
        }
        self.assertEqual({**line, "event": "opened"}, lines[0])
        attached = {"event": "attached", "connector": "memory", "peer": "192.0.2.1:1"}
        self.assertEqual({**line, **attached}, lines[1])

    def test_no_secrets(self) -> None:
        """
        Never a body, never a token, whatever is said wherever.
        """
        a = self.node.client()
        token = a.open("runtime://example.org/a")
        url = f"runtime://example.org/a/{token}"
        a.post("x", body={"via": url, "value": "secret"})
        a.post(f"{url}/x", "response", id=token, **{"from": f"{url}/sm"})
        a.subscribe(f"comm://d/{token}")
        a.post(SM, "create", body={"secret": 1})
        a.tell({"id": 1, "type": 3, "from": f"{url}/x", "to": "x"})
        a.drop()
        b = self.node.client()
        b.reopen(url)
        b.tell({"id": 1, "type": "ping", "from": url, "to": "mn:/session"})
        b.tell({"id": 3, "type": "close", "from": url, "to": "mn:/session", "body": {"secret": 1}})
        self.node.client().tell({"id": 1, "type": "re-open", "from": f"mn:/x/{token}", "to": "mn:/session"})

        text = json.dumps(self.lines())

        self.assertEqual(10, text.count('"kind": "message"'))
        self.assertNotIn("mns_", text)
        self.assertNotIn("secret", text)

    def test_it_can_be_switched_off(self) -> None:
        """
        It can be switched off.
        """
        node = MemoryNode(traffic_recorder=NoLog())
        a = node.client("runtime://example.org/a")

        a.post(a.runtime)

        self.assertEqual(1, len(a.got))


def _filled(line: dict[str, Any]) -> dict[str, Any]:
    return {"session": "", **line}
