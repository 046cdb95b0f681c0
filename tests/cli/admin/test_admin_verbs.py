"""
`msgnode admin`: tables, actions, tokens and checks.
"""

import json
from http.client import BadStatusLine
from typing import Any, ClassVar
from urllib.error import URLError

import pytest

from msgnode.cli.admin.group import VERBS
from msgnode.cli.admin.times import Duration
from msgnode.structures.log_levels import LogLevels
from tests.support.admin_case import REASON, A, B, C
from tests.support.admin_command import AdminCommandCase
from tests.support.registry_entries import ROOM, FakeRegistry
from tests.support.runtimes import TCPRuntime, WebSocketRuntime, dumps

WHY = ("--reason", REASON)


class ViewTests(AdminCommandCase):
    """
    Tables
    """

    def test_every_list_is_shown_as_a_table_and_as_json(self) -> None:
        """
        With --json what the API answers.
        """
        for words, key in (
            (("sessions",), "sessions"),
            (("connections",), "connections"),
            (("bans",), "bans"),
            (("limits",), "limits"),
            (("pools",), "leases"),
            (("reservations",), "reservations"),
            (("memory",), "sessions"),
            (("config",), "keys"),
            (("nodes",), "nodes"),
            (("token", "list"), "tokens"),
            (("audit",), "entries"),
            (("refusals",), "refusals"),
            (("session", A), "addresses"),
            (("status",), "troubles"),
        ):
            self.assertIn(key, self.json_of(*words), words)
            self.shown(*words)

    def test_columns_are_chosen_and_heads_left_out(self) -> None:
        """
        A column that does not exist is a usage error that names those there are.
        """
        text = self.shown("sessions", "--columns", "runtime,peer,in_bytes", "--no-headers")

        self.assertEqual([A, B], [line.split()[0] for line in text.splitlines()])
        self.assertEqual(2, text.count("192.0.2.1"))
        self.assertNotIn("RUNTIME", text)
        self.assertNotIn("line", text)
        wrong = self.run_("sessions", "--columns", "colour", exit_code=2)
        self.assertIn("there are runtime, state", wrong.stderr)

    def test_an_empty_list_has_no_head_and_a_number(self) -> None:
        """
        Not the name of a column alone.
        """
        for words, text in (
            (("bans",), "0 bans; 0 clients kept out since the node started\n"),
            (("limits",), "0 temporary limits\n"),
            (("token", "list"), "0 named tokens\n"),
            (("connections", "--closed"), "0 of 0 that match\n"),
            (("sessions", "nobody"), "0 of 0 that match, of 2 sessions\n"),
        ):
            self.assertEqual(text, self.shown(*words), words)

    def test_a_view_is_shown_again_until_it_is_interrupted(self) -> None:
        """
        With --watch.
        """
        text = self.shown("sessions", "--watch", "2", exit_code=130)

        self.assertEqual(([2.0, 2.0, 2.0], 3), (self.http.pauses, text.count("2 of 2 that match")))

    def test_all_nodes_are_shown_one_after_the_other(self) -> None:
        """
        With --node all.
        """
        text = self.shown("sessions", "--node", "all")

        self.assertIn("mn://example.org/test", text)
        self.assertIn(A, text)
        self.assertIn("there are test", self.run_("status", "--node", "x", exit_code=1).stderr)

    def test_names_of_peers_cannot_write_to_the_terminal(self) -> None:
        """
        Control characters are escaped.
        """
        name = "runtime://example.org/\x1b[2Jx"
        TCPRuntime(self.net, name).open()

        for words in (("sessions",), ("session", name), ("connections",), ("memory",)):
            self.assertNotIn("\x1b[2J", self.shown(*words), words)

    def test_pages_follow_by_cursor(self) -> None:
        """
        The last line names it.
        """
        first = self.shown("sessions", "--limit", "1")
        cursor = first.split("--cursor ")[1].strip()

        self.assertIn(B, self.shown("sessions", "--limit", "1", "--cursor", cursor))

    def test_every_verb_has_help_with_a_sentence(self) -> None:
        """
        And lists its options.
        """
        for verb in VERBS:
            assert verb.name is not None
            self.assertIn("Usage: ", self.shown(verb.name, "--help"))


class EventTests(AdminCommandCase):
    """
    `msgnode admin events` and `refusals --follow`
    """

    sections: ClassVar[dict[str, Any]] = {"session": {"from_check": "refuse"}}

    def setUp(self) -> None:
        super().setUp()
        self.net.live.startService()
        self.http.meanwhile = self.happen

    def happen(self) -> None:
        TCPRuntime(self.net, "runtime://example.org/\x1b[2Jx").open()
        self.device.send(dumps({"id": 77, "type": "update", "from": f"{B}/x", "to": f"{B}/y"}))

    def test_events_are_shown_as_they_happen_until_they_are_interrupted(self) -> None:
        """
        One on a line, without control characters of a peer's; filters choose kinds and a session.
        """
        text = self.shown("events", exit_code=130)

        self.assertRegex(text, r"\d\d:\d\d:\d\d  session +event=opened")
        self.assertIn("  refusal ", text)
        self.assertNotIn("\x1b", text)
        text = self.shown("events", "--kinds", "refusal", "--session", A, exit_code=130)
        self.assertEqual(1, len(text.splitlines()), text)
        self.assertIn("code=403", text)
        wrong = self.run_("events", "--kinds", "colour", exit_code=1)
        self.assertIn("colour", wrong.stderr)

    def test_with_json_each_event_is_an_object(self) -> None:
        """
        For jq.
        """
        lines = self.shown("events", "--kinds", "refusal", "--json", exit_code=130).splitlines()

        [found] = map(json.loads, lines)
        self.assertEqual((403, "not-your-address"), (found["code"], found["reason"]))

    def test_refusals_are_followed(self) -> None:
        """
        Each is written as `refusals` writes it.
        """
        text = self.shown("refusals", "--follow", "--code", "403", exit_code=130)

        self.assertEqual(self.shown("refusals", "--code", "403"), text)
        self.assertIn("not-your-address", text)

    def test_columns_of_refusals_are_chosen(self) -> None:
        """
        In a table, and followed: then a line has the fields with tabs between them.
        """
        wanted = ("--columns", "code,reason,rule,id", "--no-headers")

        line = self.shown("refusals", "--follow", *wanted, exit_code=130)
        self.assertEqual(["403", "not-your-address", ""], line.split("\t")[:3])
        self.assertEqual(["403", "not-your-address"], self.shown("refusals", *wanted).split()[:2])
        for words in (
            ("--columns", "colour"),
            ("--code", "599", "--columns", "colour"),  # there is none of these
            ("--follow", "--columns", "colour"),
            ("--follow", "--node", "x"),
        ):
            self.run_("refusals", *words, exit_code=2)

    def test_a_stream_that_ends_is_no_success(self) -> None:
        """
        A node that stops, or a token that ends, ends the command with code 3, and says so.
        """
        self.http.is_cut_off = True

        self.assertIn("ended the stream", self.run_("events", exit_code=3).stderr)

    def test_a_role_that_may_not_read_them_is_refused(self) -> None:
        """
        The role metrics reads figures only.
        """
        wrong = self.run_("events", token=self.named("metrics"), exit_code=1)

        self.assertIn("does not have the role", wrong.stderr)


class RegistryTests(AdminCommandCase):
    """
    `msgnode admin registry`
    """

    def test_entries_of_a_user_and_of_an_address(self) -> None:
        """
        One on a line, with its fields; with --json what the API answers.
        """
        self.node.registry = FakeRegistry()

        for option in ("--url", "--user"):
            self.assertShows((f'{ROOM}  {{"status": "live"}}', "1 of 1"), "registry", option, ROOM)
        self.assertEqual({ROOM: {"status": "live"}}, self.json_of("registry", "--url", ROOM)["entries"])
        self.assertShows(("0 of 0",), "registry", "--user", "user://example.org/nobody")

    def test_errors_are_in_words(self) -> None:
        """
        Neither option or both is a usage error; a registry that does not answer, or none, is a refusal.
        """
        self.node.registry = FakeRegistry()

        for words in ((), ("--user", "u", "--url", "u")):
            self.assertIn("Give --user or --url", self.run_("registry", *words, exit_code=2).stderr)
        self.assertIn("no answer", self.run_("registry", "--url", "comm://x/broken", exit_code=1).stderr)
        self.node.registry = None
        self.assertIn("registry", self.run_("registry", "--url", ROOM, exit_code=1).stderr)


class ActionTests(AdminCommandCase):
    """
    Actions
    """

    def test_a_reason_is_required(self) -> None:
        """
        Without one it is a usage error.
        """
        for words in (("kick", A), ("purge", A), ("drain",), ("ban", "user", "x"), ("reload",)):
            self.assertIn("--reason", self.run_(*words, exit_code=2).stderr)

    def test_one_client_is_kicked(self) -> None:
        """
        A dry run only names it.
        """
        self.assertIn(A, self.shown("kick", A, "--dry-run", *WHY))
        self.assertEqual("attached", self.get("sessions?q=/a")["sessions"][0]["state"])

        self.assertIn("kick: done to 1 session", self.shown("kick", A, *WHY))

        self.net.advance(6)
        self.assertEqual("away", self.get("sessions?q=/a")["sessions"][0]["state"])
        self.assertEqual(("cli", REASON), tuple(self.audit()[-1][key] for key in ("via", "reason")))

    def test_many_are_kicked_after_a_confirmation(self) -> None:
        """
        With --yes; without a terminal it is an error that says so.
        """
        WebSocketRuntime(self.net, C).open()

        refused = self.run_("kick", "--peer", "192.0.2.0/24", *WHY, exit_code=2)
        self.assertIn("this would kick 3 sessions; confirm it with --yes", refused.stderr)
        self.assertIn("done to 2 sessions", self.shown("kick", "--connector", "websocket", "--yes", *WHY))
        self.assertIn("no session matches", self.run_("kick", "--user", "x", *WHY, exit_code=1).stderr)
        self.assertIn("Give RUNTIME", self.run_("kick", *WHY, exit_code=2).stderr)

    def test_a_ban_is_made_listed_and_lifted(self) -> None:
        """
        By its id.
        """
        self.assertIn(A, self.shown("ban", "runtime", A, "--dry-run", *WHY))
        text = self.shown("ban", "runtime", A, "--for", "2h", *WHY)
        self.assertIn("1 client disconnected", text)
        id = text.split()[1].rstrip(":")
        self.assertShows((id, A, REASON), "bans")

        self.shown("unban", id, *WHY)
        self.assertNotIn(id, self.shown("bans"))

    def test_a_ban_of_several_and_a_drain_are_confirmed(self) -> None:
        """
        With --yes; without a terminal it is an error that says so.
        """
        words = ("ban", "peer", "192.0.2.0/24", *WHY)
        refused = self.run_(*words, exit_code=2)
        self.assertIn("this would disconnect 2 clients; confirm it with --yes", refused.stderr)
        self.assertEqual([], self.json_of("bans")["bans"])
        self.assertIn("2 clients disconnected", self.shown(*words, "--yes"))

        refused = self.run_("drain", *WHY, exit_code=2)
        self.assertIn("of all clients within 10 min; confirm it with --yes", refused.stderr)
        for more in (("--keep",), ("--yes",), ("--dry-run",)):
            self.assertShows(("1 node",), "drain", *WHY, *more)

    def test_messages_that_wait_are_dropped(self) -> None:
        """
        `purge`
        """
        self.browser.drop()
        self.device.send(dumps({"id": 1, "type": "update", "from": f"{A}/x", "to": f"{B}/y"}))

        self.assertShows(("messages: 1",), "purge", B, *WHY)

    def test_a_limit_is_set_and_lifted(self) -> None:
        """
        By its id.
        """
        self.shown("limit", "session", A, "--messages", "5", *WHY)
        [found] = self.json_of("limits")["limits"]
        self.shown("unlimit", found["id"], *WHY)
        self.assertEqual([], self.json_of("limits")["limits"])

    def test_other_actions_say_what_was_done(self) -> None:
        """
        expire-token, unbind, reload.
        """
        chat = "comm://example.org/chat/changes"
        self.browser.ask(type="subscribe", to="domain://msg-node.example.org/sm", body={"resources": [chat]})

        self.assertShows(("done to 1 session",), "expire-token", A, *WHY)
        self.assertShows((f"address: {chat}",), "unbind", chat, *WHY)
        self.assertIn("nothing to reload", self.run_("reload", *WHY, exit_code=1).stderr)

    def test_the_level_of_the_log_is_changed_for_a_while(self) -> None:
        """
        Only where the node filters its log itself.
        """
        words = ("log-level", "msgnode.links", "warn", "--for", "60s", *WHY)
        self.assertIn("every level", self.run_(*words, exit_code=1).stderr)
        self.net.facts.log_levels = LogLevels()

        self.assertShows(("would change 1 namespace", "msgnode.links: warn"), *words, "--dry-run")
        self.assertShows(("done to 1 namespace", "before: info"), *words)
        self.assertShows(("the log has info", "msgnode.links: warn, for"), "log-level")
        self.run_("log-level", "msgnode.links", exit_code=2)
        self.assertEqual("warn", self.net.facts.log_levels.of("msgnode.links.x"))
        self.net.advance(61)
        self.assertEqual("info", self.net.facts.log_levels.of("msgnode.links.x"))

    def test_a_viewer_may_look_and_not_act(self) -> None:
        """
        The node's words are shown.
        """
        token = self.named("viewer")

        self.shown("sessions", token=token)
        refused = self.run_("kick", A, *WHY, token=token, exit_code=1)

        self.assertIn("this token does not have the role operator", refused.stderr)

    def test_a_token_is_printed_once(self) -> None:
        """
        It is all of stdout, for a file.
        """
        text = self.shown("token", "add", "grafana", "--role", "viewer", "--expires", "90d", *WHY)

        token = text.strip()
        self.shown("status", token=token)
        self.assertNotIn(token, self.shown("token", "list"))
        [row] = self.json_of("token", "list")["tokens"]
        self.assertEqual(90 * 86400, row["until"] - row["created"])
        self.shown("token", "revoke", "grafana", *WHY)
        self.assertIn("does not accept the token", self.run_("status", token=token, exit_code=1).stderr)


class CheckTests(AdminCommandCase):
    """
    `check`
    """

    def test_a_healthy_node_is_ok(self) -> None:
        """
        With performance data for Nagios.
        """
        first = self.shown("check").splitlines()[0]

        self.assertTrue(first.startswith("msgnode OK: node: test is up | lag="), first)
        self.assertEqual("ok", json.loads(self.shown("check", "--format", "json"))["level"])
        self.assertIn('msgnode_check_level{check="lag"} 0', self.shown("check", "--format", "prometheus"))

    def test_thresholds_decide_between_warning_and_critical(self) -> None:
        """
        Of clients that do not read, and of a limit.
        """
        self.browser.stop_reading()
        for _ in range(60):
            message = {"id": 1, "type": "update", "from": f"{A}/x", "to": f"{B}/y"}
            self.device.send(dumps({**message, "body": {"value": "v" * 5000}}))
        self.node.config.limits.sessions = 2

        self.assertShows(
            ("WARNING slow: 1 clients",), "check", "--slow-warn", "1", "--limit-crit", "101%", exit_code=1
        )
        self.assertShows(("msgnode CRITICAL: sessions: 100% of 2",), "check", exit_code=2)

    def test_a_node_that_is_not_reached_is_critical_and_a_wrong_token_unknown(self) -> None:
        """
        2 and 3.
        """
        self.assertShows(("msgnode UNKNOWN",), "check", "--admin", "ftp://x", exit_code=3)
        self.run_("check", token="wrong", exit_code=3)
        for error in (URLError(ConnectionRefusedError(111, "refused")), TimeoutError()):
            self.http.error = error
            self.assertShows(("msgnode CRITICAL",), "check", exit_code=2)
        self.http.error = BadStatusLine("x")
        self.run_("check", exit_code=3)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("2h", 7200), ("7d", 604800)]
)
def test_durations_have_units(text: str, seconds: float) -> None:
    """
    A time is seconds, minutes, hours or days.
    """
    assert seconds == Duration().convert(text, None, None)
