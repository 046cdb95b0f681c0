"""
The questions of an operator: each test makes the trouble, and finds it by the API and by `msgnode admin`.
"""

import json
import time
from types import SimpleNamespace

from cryptography import x509

from msgnode.admin.node_facts import NodeFacts
from tests.support import certificate
from tests.support.admin_case import REASON, A, B, C, url
from tests.support.admin_command import AdminCommandCase
from tests.support.runtimes import TCPRuntime, WebSocketRuntime, dumps

CHAT = "comm://example.org/chat/changes"


def update(to: str = f"{B}/y", size: int = 1) -> bytes:
    body = {"value": "v" * size}
    return dumps({"id": 1, "type": "update", "from": f"{A}/x", "to": to, "body": body})


class WhoTests(AdminCommandCase):
    """
    Who is there?
    """

    def test_is_it_up_and_how_many_sessions_are_there(self) -> None:
        """
        `status`
        """
        self.assertEqual(("up", 2), (self.get("node")["status"], self.get("node")["sessions"]["attached"]))
        self.assertShows(("up", "2 attached (1 line, 1 websocket), 0 away"), "status")

    def test_who_is_connected_from_where_since_when_as_whom(self) -> None:
        """
        `sessions`
        """
        self.node.sessions.get(A).identity = "user://example.org/ann"

        [row] = self.get("sessions?q=ann")["sessions"]
        self.assertEqual((A, "line"), (row["runtime"], row["connector"]))
        self.assertShows((A, "user://example.org/ann", "line", row["peer"], "1 of 1"), "sessions", "ann")

    def test_who_hears_an_address(self) -> None:
        """
        `address`
        """
        manager = "domain://msg-node.example.org/sm"
        self.browser.ask(type="subscribe", to=manager, body={"resources": [CHAT]})

        self.assertEqual([B], [each["runtime"] for each in self.get(f"addresses/{url(CHAT)}")["hearers"]])
        self.assertShows((B, "subscribed", "heard by 1 session"), "address", CHAT)
        self.assertShows((CHAT, "1"), "address", "--prefix", "comm:")

    def test_who_left_and_why(self) -> None:
        """
        `connections --closed`
        """
        self.browser.drop()

        self.assertEqual("client", self.get("connections?state=closed")["connections"][0]["by"])
        self.assertShows((B, "client", "1 of 1"), "connections", "--closed")


class LoadTests(AdminCommandCase):
    """
    What is slow, and who makes the load?
    """

    def test_which_session_holds_the_memory(self) -> None:
        """
        `sessions --sort -waiting_bytes`, `memory`
        """
        WebSocketRuntime(self.net, C).open()
        self.browser.drop()
        for _ in range(5):
            self.device.send(update(size=1000))

        rows = self.get("sessions?sort=-waiting_bytes")["sessions"]
        self.assertEqual((B, 5), (rows[0]["runtime"], rows[0]["waiting"]))
        self.assertEqual(B, self.get("memory")["sessions"][0]["runtime"])
        table = self.shown("sessions", "--sort", "-waiting_bytes", "--limit", "1")
        self.assertIn(B, table)
        self.assertNotIn(A, table)
        self.assertShows(("waiting", B), "memory")

    def test_who_does_not_read(self) -> None:
        """
        `sessions --slow`, and `status` says how many.
        """
        self.browser.stop_reading()
        for _ in range(60):
            self.device.send(update(size=5000))

        found = self.get("sessions?state=slow")
        self.assertEqual([B], [row["runtime"] for row in found["sessions"]])
        self.assertShows((B, "slow"), "sessions", "--slow")
        self.assertShows(("warning: 1 client does not read",), "status")

    def test_who_sends_most_now(self) -> None:
        """
        `top`
        """
        self.get("top")
        for _ in range(20):
            self.device.send(update())
        self.net.advance(1)

        self.assertEqual(A, self.get("top")["rows"][0]["name"])
        lines = self.shown("top", "--once").splitlines()
        self.assertTrue(lines[1].startswith(A), lines)

    def test_whose_queue_is_full(self) -> None:
        """
        A message that is dropped for that is among the refusals, with what bounds the queue.
        """
        self.node.config.session.queue_messages = 3
        self.browser.drop()
        for _ in range(5):
            self.device.send(update())

        [found] = self.get(f"refusals?session={url(B)}")["refusals"]
        self.assertEqual(("overflow", 2), (found["reason"], found["count"]))
        self.assertShows(("overflow (2 times)", "session.queue_messages"), "why", B)

    def test_a_flooder_is_found_and_throttled(self) -> None:
        """
        `top --by refused` and `limit`.
        """
        self.get("top")
        self.shown("limit", "session", A, "--messages", "1", "--reason", "it floods")
        for _ in range(20):
            self.device.send(update())
        self.net.advance(1)

        self.assertEqual(A, self.get("top?by=refused")["rows"][0]["name"])
        self.assertIn(A, self.shown("top", "--once", "--by", "refused"))
        self.assertShows(("rate", "operator's limit"), "why", A)


class RefusalTests(AdminCommandCase):
    """
    Why was this message refused?
    """

    sections = {"session": {"from_check": "refuse"}}

    def test_why_was_this_message_refused(self) -> None:
        """
        `why`, by the id of the message and by the session.
        """
        self.device.send(dumps({"id": 4711, "type": "update", "from": f"{B}/x", "to": f"{B}/y"}))

        [found] = self.get("refusals?id=4711")["refusals"]
        self.assertEqual("not-your-address", found["reason"])
        for what in ("4711", A):
            self.assertShows(("403 not-your-address", "update 4711", "session.from_check"), "why", what)
        self.assertIn("nothing of 4712", self.run_("why", "4712", exit_code=1).stderr)
        self.assertShows(("403 not-your-address", "update 4711", "session.from_check"), "refusals")
        self.assertIn("no such message", self.run_("refusals", "--code", "404").stderr)

    def test_every_refused_message_is_found_not_only_the_first_of_its_kind(self) -> None:
        """
        Equal ones within a second are one entry.
        """
        for id in (4711, 4712):
            self.device.send(dumps({"id": id, "type": "update", "from": f"{B}/x", "to": f"{B}/y"}))

        self.assertEqual(2, self.get("refusals?id=4712")["refusals"][0]["count"])
        self.assertShows(("(2 times)", "not-your-address"), "why", "4712")


class NodeTests(AdminCommandCase):
    """
    What runs here, and what was done to it?
    """

    def test_which_version_and_configuration_run(self) -> None:
        """
        `status`, `config`
        """
        found = self.get("node")
        self.assertShows((found["version"], found["config_revision"]), "status")
        self.assertShows(("limits.sessions", "100,000", "default"), "config", "limits")

    def test_what_was_it_like_some_minutes_ago(self) -> None:
        """
        `history`, from the history that the node keeps; an unknown figure is answered with those there are.
        """
        service = self.net.operations.history
        service.startService()
        self.addCleanup(service.stopService)
        self.net.advance(60)
        self.browser.drop()
        self.net.advance(60)

        values = self.get(f"series?names=sessions_attached&from={self.net.wall() - 115}")["series"]
        self.assertEqual((2, 1), (values["sessions_attached"][0], values["sessions_attached"][-1]))
        words = ("history", "sessions_attached", "--since", "10m", "--rows", "4")
        found = self.json_of(*words)["series"]["sessions_attached"]
        self.assertEqual({1, 2}, {value for value in found if value is not None})
        head, *rows = self.shown(*words).splitlines()
        self.assertIn("sessions_attached", head)
        self.assertLessEqual(len(rows), 4)
        self.assertEqual(self.shown(*words).splitlines()[1:], self.shown(*words, "--no-headers").splitlines())
        wrong = self.run_("history", "luck", exit_code=1)
        self.assertIn("in_messages", wrong.stderr)

    def test_when_does_a_certificate_end(self) -> None:
        """
        A trouble in `status` and `check` two weeks before.
        """
        made = x509.load_pem_x509_certificate(certificate.PEM)
        facts: NodeFacts = self.net.operations.inspector.facts
        tls = SimpleNamespace(certificate=made)
        facts.listening = [SimpleNamespace(kind="web", where="tcp:443", tls=tls)]  # type: ignore[list-item]
        facts.wall = time.time

        [trouble] = self.get("node")["troubles"]
        self.assertEqual(("certificate", "warning"), (trouble["what"], trouble["level"]))
        self.assertShows(("the certificate of the web listener tcp:443 ends in 1 day",), "status")
        self.assertShows(("CRITICAL certificate",), "check", exit_code=2)
        self.assertShows(("OK certificate",), "check", "--cert-warn", "3600", "--cert-crit", "60")

    def test_what_did_operators_do(self) -> None:
        """
        `audit`, with a check that no line was changed or removed.
        """
        self.shown("purge", A, "--reason", REASON)

        self.assertEqual("purge", self.get("audit")["entries"][0]["action"])
        self.assertShows(("admin-token", "cli", "purge", A, REASON), "audit")
        state = ("--state", str(self.state))
        self.assertShows(("2 lines, 0 mistakes",), "audit", "--verify", *state)
        missing = self.run_("audit", "--verify", exit_code=2)
        self.assertIn("with --state", missing.stderr)
        nowhere = self.run_("audit", "--verify", "--state", str(self.state / "none"), exit_code=2)
        self.assertIn("there are no lines", nowhere.stderr)
        (self.state / "admin-token").unlink()
        [path] = (self.state / "audit").iterdir()
        path.write_text(path.read_text().replace(A, C))
        self.assertShows(("line 1: was changed",), "audit", "--verify", *state, exit_code=1)

    def test_what_does_one_session_send_and_get_now(self) -> None:
        """
        `trace`, on the screen or into a file, which a path that cannot be written leaves unbegun.
        """
        out = self.state / "lines.jsonl"
        out.write_text("of before")
        words = ("trace", "--session", A, "--reason", REASON)
        self.net.clock.callLater(0.2, self.device.send, update())

        self.assertShows(("type=update", "outcome=delivered"), *words, exit_code=130)  # Ctrl-C
        for _ in range(2):
            self.net.clock.callLater(0.2, self.device.send, update())
        self.http.pauses.clear()
        self.shown(*words, "--max", "2", "--out", str(out))
        steps = [json.loads(line)["step"] for line in out.read_text().splitlines()]
        self.assertEqual(["handed-over", "outcome"], steps)
        lines = len(self.audit())
        wrong = self.run_(*words, "--out", str(self.state / "none" / "x"), exit_code=2)
        self.assertIn("No such file or directory", wrong.stderr)
        self.assertEqual(([], lines), (self.get("traces")["traces"], len(self.audit())))

    def test_what_would_become_of_a_message(self) -> None:
        """
        `probe`
        """
        self.assertShows(("delivered", B), "probe", "--from", f"{A}/x", "--to", f"{B}/y")
        text = self.shown("probe", "--from", f"{A}/x", "--to", "comm://nobody", exit_code=1)
        self.assertIn("no-route", text)

    def test_may_clients_be_sent_away_without_a_stop(self) -> None:
        """
        `drain` and `undrain`
        """
        self.shown("drain", "--yes", "--over", "1s", "--reason", REASON)
        self.net.advance(10)

        self.assertEqual(0, self.get("node")["sessions"]["attached"])
        self.assertShows(("draining", "warning: the node takes no new clients"), "status")
        self.shown("undrain", "--reason", REASON)
        TCPRuntime(self.net, A).open()
        self.assertEqual("up", self.get("node")["status"])
