"""
The traffic log, as docs/traffic-log.md promises it.
"""

import json
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.message import Message
from msgnode.traffic import NoLog, TrafficLog
from tests.fakes import Client, MemoryNode, directory

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
        self.node = MemoryNode(journal=self.log)
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
            message = Message(id, "update", "x", "y", data=b"{}", came=self.now, outcome="delivered")
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

    def test_delivered(self) -> None:
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

    def test_outcomes(self) -> None:
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

    def test_ids(self) -> None:
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

    def test_list(self) -> None:
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

    def test_long(self) -> None:
        """
        Nobody fills the log with an address of a megabyte.
        """
        a = self.node.client("runtime://example.org/a")
        a.post("x" * 100_000, "t" * 100_000, id="i" * 100_000)
        a.post("x", **{"from": "f" * 100_000})
        a.post(["y" * 100_000, SM])

        for line in self.messages():
            self.assertLess(len(json.dumps(line)), 9000)

    def test_sessions(self) -> None:
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

    def test_off(self) -> None:
        """
        It can be switched off.
        """
        node = MemoryNode(journal=NoLog())
        a = node.client("runtime://example.org/a")

        a.post(a.runtime)

        self.assertEqual(1, len(a.got))


def _filled(line: dict[str, Any]) -> dict[str, Any]:
    return {"session": "", **line}
