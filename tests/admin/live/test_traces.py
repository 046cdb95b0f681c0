"""
Traces: `/api/v1/traces`.
"""

import json
from typing import Any

from msgnode.admin.live.trace_filter import TraceFilter
from msgnode.admin.live.trace_observer import TraceObserver
from msgnode.admin.live.traces import Trace
from tests.support.http_client import Response
from tests.support.made_policies import document, rule
from tests.support.model_plane import NAMES, FlowCase
from tests.support.operators import OperatorCase

REASON = "it is a test"
ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"
TOPIC = "comm://example.org/x"


class TraceCase(OperatorCase):
    """
    Two clients, and an operator who traces.
    """

    def setUp(self) -> None:
        super().setUp()
        self.ann, self.bob = self.client("ann"), self.client("bob")
        self.bob.subscribe(TOPIC)

    def start(self, token: str | None = None, **order: Any) -> str:
        answer = self.order(token, **order)
        self.assertEqual(200, answer.status, answer.body)
        return answer.json()["details"]["trace"]["id"]

    def order(self, token: str | None = None, **order: Any) -> Response:
        return self.ask("POST", "traces", {"reason": REASON, **order}, token)

    def lines(self, id: str) -> list[dict[str, Any]]:
        self.net.advance(2)
        answer = self.ask("GET", f"traces/{id}/lines")
        self.assertEqual(200, answer.status, answer.body)
        return [json.loads(line) for line in answer.body.splitlines()]

    def steps(self, id: str) -> list[str]:
        return [line["step"] for line in self.lines(id)]


class TraceTests(TraceCase):
    """
    What a trace shows.
    """

    def test_trace_of_a_session_shows_each_step(self) -> None:
        """
        A message of a traced sender is shown with its recipient and its outcome, and no other's is.
        """
        id = self.start(session=ANN)

        self.ann.post(TOPIC)
        self.bob.post("comm://example.org/nobody")

        handed, outcome = self.lines(id)
        self.assertEqual(("handed-over", BOB), (handed["step"], handed["recipient"]))
        self.assertEqual(
            ("outcome", "delivered", 1), (outcome["step"], outcome["outcome"], outcome["recipients"])
        )
        self.assertLessEqual(outcome["came"], outcome["time"])

    def test_trace_of_a_recipient_shows_what_comes_for_it(self) -> None:
        """
        What another session sends to the traced one is shown up to its outcome.
        """
        id = self.start(session=BOB)

        self.ann.post(TOPIC)

        self.assertEqual(["handed-over", "outcome"], self.steps(id))

    def test_trace_shows_a_message_that_waits(self) -> None:
        """
        A message to a session without a connection waits; later it is handed over late.
        """
        id = self.start(address=TOPIC)
        self.bob.drop()
        self.ann.post(TOPIC)

        again = self.node.client()
        again.tell(
            {
                "id": 2,
                "type": "open",
                "from": BOB,
                "to": "mn:/session",
                "body": {"runtimeToken": self.bob.token},
            }
        )

        steps = self.steps(id)
        self.assertEqual(["waits", "outcome"], steps[:2])
        self.assertIn("handed-over-late", steps)

    def test_trace_shows_a_refusal_with_its_reason(self) -> None:
        """
        A refused message has code and reason.
        """
        id = self.start(session=ANN)

        self.ann.tell({"id": 5, "type": "create", "from": ANN, "to": "domain://msg-node.example.org/no"})

        [line] = self.lines(id)
        self.assertEqual(("refused", 501, "not-handled"), (line["outcome"], line["code"], line["reason"]))

    def test_trace_shows_acknowledgements(self) -> None:
        """
        A client that acknowledges what it got makes a line.
        """
        cat = self.node.client()
        cat.tell(
            {"id": 1, "type": "open", "from": f"{ANN}-cat", "to": "mn:/session", "body": {"resume": True}}
        )
        cat.runtime = f"{ANN}-cat"
        cat.subscribe("comm://example.org/y")
        id = self.start(session=cat.runtime)
        self.ann.post("comm://example.org/y")

        cat.tell({"id": 9, "type": "ack", "from": cat.runtime, "to": "mn:/session", "body": {"received": 2}})

        self.assertIn("acknowledged", self.steps(id))

    def test_trace_of_a_peer(self) -> None:
        """
        A network is traced with all its clients.
        """
        id = self.start(peer="192.0.2.0/24")

        self.ann.post("comm://example.org/nobody")

        self.assertEqual(["no-route"], [line["outcome"] for line in self.lines(id)])

    def test_trace_ends_after_its_time(self) -> None:
        """
        When the time is over, messages are recorded as if there had been no trace, and the lines stay.
        """
        before = self.node.traffic.message
        id = self.start(session=ANN, seconds=10)
        self.ann.post(TOPIC)

        self.net.advance(11)
        self.ann.post(TOPIC)

        self.assertEqual(before, self.node.traffic.message)
        self.assertEqual(2, len(self.lines(id)))
        self.assertEqual(("ended", "time"), _state(self.ask("GET", f"traces/{id}").json()))

    def test_trace_ends_after_its_lines(self) -> None:
        """
        With `max` lines the trace ends.
        """
        id = self.start(session=ANN, max=3)

        for _ in range(5):
            self.ann.post(TOPIC)

        self.assertEqual(3, len(self.lines(id)))
        self.assertEqual(("ended", "lines"), _state(self.ask("GET", f"traces/{id}").json()))

    def test_file_is_the_operators_only_and_goes_after_a_day(self) -> None:
        """
        The file has the mode 0600; a day after the trace ended it is deleted.
        """
        id = self.start(session=ANN, seconds=5)
        self.ann.post(TOPIC)
        self.net.advance(6)
        path = self.state / "traces" / f"{id}.jsonl"
        self.assertEqual(0o600, path.stat().st_mode & 0o777)
        self.assertEqual(0o700, path.parent.stat().st_mode & 0o777)

        for _ in range(26):
            self.net.clock.advance(3600)

        self.assertFalse(path.exists())
        self.assertEqual([], list(self.net.live.traces))

    def test_stop_keeps_the_lines_and_delete_does_not(self) -> None:
        """
        A trace that is stopped can still be read; one that is deleted is gone.
        """
        because = {"reason": REASON}
        id = self.start(session=ANN)
        self.ann.post(TOPIC)
        self.net.advance(1)

        stopped = self.ask("POST", f"traces/{id}/stop", because).json()["details"]["trace"]
        self.assertEqual("stopped", stopped["why"])
        self.assertEqual(2, len(self.lines(id)))
        self.assertEqual(200, self.ask("DELETE", f"traces/{id}", because).status)

        self.assertEqual(404, self.ask("GET", f"traces/{id}/lines").status)
        self.assertEqual([], [*(self.state / "traces").iterdir()])

    def test_lines_are_read_in_parts(self) -> None:
        """
        Trace-Next says where to go on; there is nothing new at that place.
        """
        id = self.start(session=ANN)
        self.ann.post(TOPIC)
        self.net.advance(1)
        first = self.ask("GET", f"traces/{id}/lines")

        second = self.ask("GET", f"traces/{id}/lines?from={first.headers['Trace-Next']}")

        self.assertEqual("running", first.headers["Trace-State"])
        self.assertEqual(b"", second.body)
        self.assertEqual(400, self.ask("GET", f"traces/{id}/lines?from=99999").status)

    def test_the_fifth_trace_is_refused(self) -> None:
        """
        Four traces may run at a time.
        """
        for _ in range(4):
            self.start(session=ANN)

        answer = self.order(session=ANN)

        self.assertEqual(429, answer.status)
        self.assertIn("stop one", answer.json()["description"])

    def test_orders_that_make_no_sense_are_refused(self) -> None:
        """
        A trace of everything, for too long, of too many lines, or with an unknown key is answered 400.
        """
        for order in (
            {},
            {"session": ANN, "seconds": 3601},
            {"session": ANN, "max": 100_001},
            {"who": "me"},
            {"session": "x" * 20_000},
            {"session": ANN, "reason": ""},
        ):
            self.assertEqual(400, self.order(**order).status, order)
        self.assertIn("peer", self.order(peer="here").json()["description"])
        self.assertEqual([], list(self.net.live.traces))

    def test_a_trace_leaves_the_rest_of_the_disk_to_messages(self) -> None:
        """
        While the disk is low a running trace ends with the reason, and no other one begins.
        """
        id = self.start(session=ANN)
        self.node.watermark.free, self.node.watermark.low = 5, True
        why = self.node.watermark.why

        self.net.advance(2)

        self.assertEqual(("ended", why), _state(self.ask("GET", f"traces/{id}").json()))
        self.assertEqual(503, self.order(session=ANN).status)

    def test_roles(self) -> None:
        """
        A viewer may see that there are traces, and neither start one nor read it.
        """
        viewer = self.token_for("viewer")
        id = self.start(self.token_for("operator"), session=ANN)

        self.assertEqual(200, self.ask("GET", "traces", token=viewer).status)
        self.assertEqual(403, self.order(viewer, session=ANN).status)
        self.assertEqual(403, self.ask("GET", f"traces/{id}/lines", token=viewer).status)
        self.assertEqual(403, self.ask("DELETE", f"traces/{id}", token=viewer).status)


class BodyTests(TraceCase):
    """
    Bodies, for the role admin, where the configuration allows it.
    """

    sections = {"admin": {"trace_bodies": True}}

    def test_bodies_are_shown_without_secrets(self) -> None:
        """
        Tokens and identities are masked at any depth, and text is cut at 4 KiB.
        """
        id = self.start(session=ANN, bodies=True)
        body = {"a": [{"Token": "s3cret", "identity": {"x": 1}}], "auth": True, "text": "fine"}

        self.ann.post(TOPIC, body=body)
        self.ann.post(TOPIC, body={"long": "y" * 10_000})
        self.ann.post(TOPIC, body={"ciphertext": "abc"})

        first, second, third = (line["body"] for line in self.lines(id) if line["step"] == "outcome")
        self.assertEqual({"a": [{"Token": "***", "identity": "***"}], "auth": "***", "text": "fine"}, first)
        self.assertEqual(4097, len(second))
        self.assertEqual("(encrypted)", third)

    def test_secrets_are_masked_by_every_usual_name_and_in_texts(self) -> None:
        """
        Those of OAuth (RFC 6749), in JSON within a text, in URLs and forms, and what is a token by its form.
        """
        id = self.start(session=ANN, bodies=True)
        names = ("access_token", "refreshToken", "id_token", "client_secret", "newPassword", "X-API-Key")
        texts = {
            "json": '{"a": [{"access_token": "s3cret", "n": 1}]}',
            "nested": json.dumps({"b": json.dumps({"refresh_token": "s3cret"})}),
            "part": 'sent {"access_token": "s3cret", "n": 1',
            "url": "https://ann:s3cret@x.example/cb?n=1&access_token=s3cret#id_token=s3cret",
            "path": "/cb?n=1&token=s3cret",
            "form": "grant_type=refresh_token&refresh_token=s3cret&client_secret=s3cret",
            "header": "Authorization: Bearer s3cret-s3cret",
            "jwt": "it is eyJhbGciOiJub25lIn0.eyJzM2NyZXQiOjF9.s3cret",
        }
        fine = {
            "code": 404,
            "tokens": 3,
            "text": "no token = none",
            "list": '[1, 2,  "x"]',
            "url": "https://x.example/?n=1",
        }

        self.ann.post(TOPIC, body=dict.fromkeys(names, "s3cret"))
        self.ann.post(TOPIC, body=texts)
        self.ann.post(TOPIC, body=fine)

        named, shown, same = (line["body"] for line in self.lines(id) if line["step"] == "outcome")
        self.assertEqual(dict.fromkeys(names, "***"), named)
        self.assertNotIn("s3cret", json.dumps(shown))
        self.assertNotIn("eyJzM2NyZXQ", json.dumps(shown))
        self.assertEqual('{"a": [{"access_token": "***", "n": 1}]}', shown["json"])
        self.assertEqual("https://***@x.example/cb?n=1&access_token=***#id_token=***", shown["url"])
        self.assertEqual(fine, same)

    def test_bodies_are_for_admins(self) -> None:
        """
        An operator may not trace bodies.
        """
        answer = self.order(self.token_for("operator"), session=ANN, bodies=True)

        self.assertEqual(403, answer.status)

    def test_messages_that_are_not_logged(self) -> None:
        """
        With `log: false` an admin sees the header only, and an operator that something is hidden.
        """
        admin = self.start(session=ANN, bodies=True)
        other = self.start(self.token_for("operator"), session=ANN)

        self.ann.post(TOPIC, log=False, body={"secret": 1})

        shown = [line for line in self.lines(admin) if line["step"] == "outcome"]
        self.assertEqual(1, len(shown))
        self.assertNotIn("body", shown[0])
        self.assertEqual([], self.lines(other))
        self.assertEqual(1, self.ask("GET", f"traces/{other}").json()["hidden"])


class NoBodyTests(TraceCase):
    """
    The default.
    """

    def test_bodies_need_a_key_of_the_configuration(self) -> None:
        """
        Not even an admin sees bodies unless `admin.trace_bodies` is true.
        """
        self.assertEqual(403, self.order(session=ANN, bodies=True).status)


class PolicyTraceTests(TraceCase):
    """
    Decisions.
    """

    sections = {"policy": {"source": "push"}}

    def test_trace_names_the_rule_that_decided(self) -> None:
        """
        Each decision is a line with its point, effect and rule.
        """
        self.net.policies.startService()
        answer = self.http.request(
            "PUT", "/policy/policies", json.dumps(document(rule("permit"))).encode(), **self.auth()
        )
        self.assertEqual(200, answer.status, answer.body)
        id = self.start(session=ANN)

        self.ann.post(TOPIC)

        decided = self.lines(id)[0]
        self.assertEqual(("policy", "in", "permit"), (decided["step"], decided["point"], decided["effect"]))
        self.assertTrue(decided["rule"])


class DataPlaneTests(FlowCase):
    """
    Traced sessions with a compiled data plane.
    """

    def test_traced_sessions_leave_the_compiled_plane(self) -> None:
        """
        While a trace of a session runs, Python routes what it sends and gets; others stay in the plane.
        """
        clients = [self.connect(name) for name in NAMES[:4]]
        a, b, c, d = clients
        pairs = ((a, b), (b, a), (c, d))
        for sender, recipient in pairs:
            self.send(sender, sender.runtime, recipient.runtime)
        self.assertEqual(3, len(self.plane.flows_kept))

        observer = TraceObserver(lambda: 0)
        observer.traces = [Trace(TraceFilter(session=a.runtime), 0, 60, 100, "me")]
        self.node.observe(observer)
        for sender, recipient in pairs:
            self.send(sender, sender.runtime, recipient.runtime)
        self.assertEqual({c.runtime}, {flow.from_ for flow in self.plane.flows_kept})

        self.node.observe(None)
        for sender, recipient in pairs:
            self.send(sender, sender.runtime, recipient.runtime)
        self.assertEqual(3, len(self.plane.flows_kept))


def _state(trace: dict[str, Any]) -> tuple[str, str]:
    return trace["state"], trace["why"]
