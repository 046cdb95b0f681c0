"""
Forms of the dashboard: what an operator does, after the page has said whom it concerns.
"""

from tests.support.admin_case import A, B
from tests.support.dashboard_case import DashboardCase
from tests.support.runtimes import dumps


class FormTests(DashboardCase):
    """
    Each action is asked for, shown, confirmed, and audited.
    """

    def setUp(self) -> None:
        super().setUp()
        self.operator = self.log_in(self.named("operator"))

    def test_kick_shows_whom_it_concerns_and_then_does_it(self) -> None:
        """
        The first time nothing is done.
        """
        asked = self.submit(self.operator, "kick", runtime=A)
        self.assertIn(b"this concerns:", asked.body)
        self.assertIsNotNone(self.node.sessions.get(A).connection)

        done = self.confirm(self.operator, "kick", runtime=A)

        self.assertEqual(200, done.status)
        self.assertIn(b"its connection is closed", done.body)
        self.assertIsNone(self.node.sessions.get(A).connection)

    def test_audit_has_who_why_and_that_it_was_a_page(self) -> None:
        """
        What did I do last night?
        """
        self.confirm(self.operator, "kick", runtime=A)

        intent, result = [line for line in self.audit() if line["action"] == "kick"]
        self.assertEqual(
            ("operator", "page", "it is a test"), (intent["who"], intent["via"], intent["reason"])
        )
        self.assertEqual([A], result["target"])

    def test_audit_page_has_it_for_admins(self) -> None:
        """
        An operator has no such page.
        """
        self.confirm(self.operator, "kick", runtime=A)

        page = self.page("/audit?action=kick")

        for text in ("operator", A, "it is a test", "page "):
            self.assertIn(text, page)
        self.assertEqual(403, self.fetch("GET", "/audit", **self.operator).status)
        self.assertNotIn('"/audit"', self.page("/", self.operator))

    def test_audit_page_says_of_which_lines_it_is(self) -> None:
        """
        The newest, also those from before the start; so it does if none matches.
        """
        self.confirm(self.operator, "kick", runtime=A)

        for path, text in (
            ("/audit", "last 1,000 lines, two for each action, also those from before the node started"),
            ("/audit?action=none", "The last 1,000 lines have nothing that matches"),
        ):
            self.assertIn(text, self.page(path))

    def test_a_confirmation_is_for_that_form_only(self) -> None:
        """
        Who changes the form after the dry run is asked again.
        """
        asked = self.submit(self.operator, "kick", runtime=A)
        check = asked.body.decode().partition('name="check" value="')[2][:64]

        other = self.submit(self.operator, "end", runtime=B, confirm="1", check=check)

        self.assertIn(b"this concerns:", other.body)
        self.assertIsNotNone(self.node.sessions.get(B))

    def test_many_are_kicked_if_their_number_is_still_the_same(self) -> None:
        """
        The number that the operator saw is confirmed.
        """
        done = self.confirm(self.operator, "kick-many", q="example.org")

        self.assertIn(b"their connections are closed", done.body)
        self.assertIsNone(self.node.sessions.get(A).connection)

    def test_other_actions_on_sessions(self) -> None:
        """
        End, purge, void the token, slow down.
        """
        for action, sentence in (
            ("purge", b"what waited is dropped"),
            ("expire-token", b"its token is void"),
            ("end", b"the session has ended"),
        ):
            self.assertIn(sentence, self.confirm(self.operator, action, runtime=A).body)
        self.assertIsNone(self.node.sessions.get(A))
        limited = self.confirm(
            self.operator, "limit", kind="session", value=B, rate_messages="5", minutes="10"
        )
        self.assertIn(b"slowed down for 10 min", limited.body)

    def test_a_ban_is_made_seen_and_lifted(self) -> None:
        """
        The page on bans has it, and a form to lift it.
        """
        self.confirm(self.operator, "ban", kind="runtime", value=A, minutes="60")
        self.assertIsNone(self.node.sessions.get(A).connection)

        page = self.page("/bans", self.operator)
        self.assertIn(A, page)
        id = page.partition('name="id" value="')[2].partition('"')[0]
        self.confirm(self.operator, "unban", id=id)

        self.assertIn("Nobody is banned", self.page("/bans", self.operator))

    def test_a_client_that_is_not_connected_is_banned(self) -> None:
        """
        Nobody is disconnected, and the ban counts all the same.
        """
        self.confirm(self.operator, "ban", kind="runtime", value="runtime://example.org/later", minutes="60")

        self.assertIn("runtime://example.org/later", self.page("/bans", self.operator))

    def test_an_address_is_freed(self) -> None:
        """
        The session that has it loses it.
        """
        address = "comm://example.org/room/changes"
        to = "domain://msg-node.example.org/sm"
        self.device.ask(id=5, type="subscribe", from_=A, to=to, body={"resources": [address]})
        self.assertIn("subscribed", self.page(f"/addresses?address={address}", self.operator))

        done = self.confirm(self.operator, "unbind", address=address, session=A)

        self.assertIn(b"the address is free", done.body)
        self.assertIn("No session hears", self.page(f"/addresses?address={address}", self.operator))

    def test_drain_and_reload_are_for_admins(self) -> None:
        """
        An operator has no such forms, and is refused without them.
        """
        self.assertNotIn("Drain", self.page("/", self.operator))
        self.assertEqual(403, self.submit(self.operator, "drain", minutes="1").status)

        admin = self.log_in()
        self.assertIn("Drain", self.page("/", admin))
        self.confirm(admin, "drain", minutes="0")
        self.assertIn("the node takes no new clients", self.page("/", admin))
        self.confirm(admin, "undrain")
        self.assertIn("All is well", self.page("/", admin))

    def test_viewers_have_no_forms_and_may_not_act(self) -> None:
        """
        403, and nothing is done.
        """
        viewer = self.log_in(self.named("viewer"))

        for path in (
            "/",
            "/sessions?q=a",
            f"/session?name={A}",
            "/trace",
            "/bans",
            f"/addresses?address={A}",
        ):
            self.assertNotIn('action="/act"', self.page(path, viewer), path)
        for action in ("kick", "end", "purge", "expire-token", "trace"):
            fields = {"runtime": A, "key": "session", "value": A, "minutes": "5", "max": "10"}
            self.assertEqual(403, self.submit(viewer, action, **fields).status, action)
        self.assertIsNotNone(self.node.sessions.get(A).connection)

    def test_mistakes_are_told_in_words(self) -> None:
        """
        A missing reason, an unknown action, a number that is none.
        """
        for action, fields, text in (
            ("kick", {"runtime": A, "reason": ""}, b"reason: expected 3 to 200"),
            ("explode", {}, b"there is no action"),
            ("ban", {"kind": "runtime", "value": A, "minutes": "soon"}, b"minutes: expected a number"),
            ("kick", {"runtime": "runtime://no/one"}, b"runtime://no/one"),
            ("kick-many", {}, b"name at least one filter"),
        ):
            found = self.submit(self.operator, action, **fields)
            self.assertGreaterEqual(found.status, 400)
            self.assertIn(text, found.body)

    def test_a_trace_is_started_read_stopped_and_deleted(self) -> None:
        """
        The steps of a message are on the page of its trace.
        """
        started = self.confirm(self.operator, "trace", key="session", value=A, minutes="5", max="100")
        id = started.body.decode().partition("/trace?id=")[2].partition('"')[0]

        self.device.send(dumps({"id": 77, "type": "update", "from": A, "to": B, "body": {}}))
        self.net.advance(1)
        page = self.page(f"/trace?id={id}", self.operator)

        self.assertIn("update 77", page)
        self.assertIn(f"/api/v1/traces/{id}/lines", page)
        lines = self.fetch("GET", f"/api/v1/traces/{id}/lines", **self.operator)
        self.assertEqual(200, lines.status)
        self.assertIn(b"is stopped", self.confirm(self.operator, "stop-trace", id=id).body)
        self.assertIn(b"is deleted", self.confirm(self.operator, "delete-trace", id=id).body)
        noted = [
            line for line in self.audit() if line["action"].startswith("trace ") and line["phase"] == "result"
        ]
        self.assertEqual(["trace start", "trace stop", "trace delete"], [line["action"] for line in noted])
        self.assertEqual({"page"}, {line["via"] for line in noted})
