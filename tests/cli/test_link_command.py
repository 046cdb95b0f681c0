"""
`msgnode link` and `msgnode route`, with the admin listener of a node in memory.
"""

import json
from http.client import BadStatusLine
from typing import Any
from urllib.error import URLError

import click
import pytest
from click.testing import CliRunner, Result
from msgspec import structs
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cli import USAGE
from msgnode.cli.links.admin_client import Answer
from msgnode.cli.links.layout import duration, size, table
from msgnode.cli.links.link import link
from msgnode.cli.links.route import route
from msgnode.cli.main import main
from msgnode.links.operations import Check, LinkStatus, StreamStatus
from tests.support.admin_http import MemoryAdminHTTP
from tests.support.fakes import directory
from tests.support.links_operations import A, B, sample
from tests.support.network import Network

LONG = "messaging.department.of.a.rather.large.company.example"
REASON = ("--reason", "it is a test")
VERBS = [*(("link", verb) for verb in link.commands), *(("route", verb) for verb in route.commands)]


class CommandCase(SynchronousTestCase):
    """
    A node with links in memory, and a command line.
    """

    def setUp(self) -> None:
        self.state = directory(self)
        self.net = Network(state=str(self.state))
        self.net.tokens.startService()
        self.net.node.link_operations = self.operations = sample()
        self.http = MemoryAdminHTTP(self.net)

    def run_(self, line: str, exit_code: int = 0, columns: int = 80, **environment: str) -> Result:
        environment = {"COLUMNS": str(columns), **environment}
        state = [] if "--state" in line else ["--state", str(self.state)]
        result = CliRunner().invoke(main, [*line.split(), *state], obj=self.http, env=environment)
        self.assertEqual(exit_code, result.exit_code, result.output)
        return result

    def shown(self, line: str, exit_code: int = 0, columns: int = 80) -> str:
        return self.run_(line, exit_code, columns).stdout

    def json(self, line: str, exit_code: int = 0) -> Any:
        return json.loads(self.shown(f"{line} --json", exit_code))


class DryRunTests(CommandCase):
    """
    `--dry-run` of orders
    """

    def test_each_order_says_what_it_would_hit_and_does_nothing(self) -> None:
        """
        A dry run needs a reason, as the order does, and asks nothing.
        """
        before = self.json("link ls")
        for verb in ("ban", "pause", "resume", "drain"):
            text = self.run_(f"link {verb} b.example --dry-run --reason tried").stdout
            self.assertEqual(f"this would {verb} 1 domain:\n  b.example\n", text)
        text = self.run_("link forget b.example --dry-run --reason tried").stdout
        self.assertRegex(text, r"this would drop [0-9,]+ messages? for b\.example")
        self.assertEqual(before, self.json("link ls"))
        found = self.json("link forget b.example --dry-run --reason tried")
        self.assertTrue(found["dry_run"])
        self.assertIn("--reason", self.run_("link ban b.example --dry-run", exit_code=2).stderr)
        wrong = self.run_("link pause x.example --dry-run --reason tried", exit_code=1)
        self.assertIn("x.example", wrong.stderr)


class LinkTests(CommandCase):
    """
    `msgnode link`
    """

    def test_ls_shows_every_link_on_a_line(self) -> None:
        """
        With what waits for the peer, and the last errors below.
        """
        self.assertEqual(
            "PEER          STATE        FOR    RTT  COST  QUEUE  UNACKED  OLDEST  CERT\n"
            "b.example/n1  up           2 h  12 ms    10      5        3   0.4 s  89 d\n"
            "c.example     configured                 30      0\n"
            "d.example     waiting     12 s           60      0    1,200    25 h\n"
            "e.example/x   up                                 0\n"
            "\n"
            "d.example, 12 s ago: the certificate of msg-node.d.example ended on 2026-11-20\n",
            self.shown("link ls"),
        )

    def test_an_empty_domain_is_a_usage_error(self) -> None:
        """
        It does not name the list of all links.
        """
        for verb in ("ls", "check", "ban"):
            arguments = ["link", verb, "", "--state", str(self.state), *(REASON if verb == "ban" else ())]
            result = CliRunner().invoke(main, arguments, obj=self.http)

            self.assertEqual(USAGE, result.exit_code, verb)
            self.assertIn("expected a domain such as b.example", result.stderr)

    def test_ls_shows_long_names_whole_in_80_columns(self) -> None:
        """
        A long name has a line of its own; no other line is longer than the terminal.
        """
        node = f"mn://{LONG}/node-number-1"
        busy = LinkStatus(
            domain=LONG,
            node=node,
            state="synchronising",
            state_seconds=59_000,
            round_trip=1.25,
            cost=1_000_000,
            queue=(10_000_000,),
            certificate_days=-30,
        )
        owed = StreamStatus(destination=node, undelivered=12_345_678, oldest_seconds=600_000)
        self.operations.add_peer(LONG, busy, streams=[owed])

        lines = self.shown("link ls").splitlines()

        at = lines.index(node.removeprefix("mn://"))
        for text in (
            "synchronising",
            "16 h",
            "1.2 s",
            "1,000,000",
            "10,000,000",
            "12,345,678",
            "7 d",
            "-30 d",
        ):
            self.assertIn(text, lines[at + 1])
        self.assertIn(LONG, lines[at])

    def test_ls_of_a_domain_shows_all_about_it(self) -> None:
        """
        Links and streams, with units.
        """
        shown = self.shown("link ls b.example")

        self.assertTrue(
            shown.startswith("b.example: configured, enabled, the route costs 10\n\nlink to mn://b")
        )
        for line in (
            "  state        up for 2 h, dialled by us\n",
            "  queue        5 datagrams, 900 bytes; priority 7: 1, priority 5: 4\n",
            "  bytes        5.0 kB in, 70.0 kB out\n",
            "  certificate  ends in 89 days\n",
            "  undelivered  3 messages, 600 bytes, the oldest for 0.4 s\n",
            "  refused      overflow: 2\n",
        ):
            self.assertIn(line, shown)

    def test_ls_of_a_domain_that_was_never_linked_has_no_time_since_when(self) -> None:
        """
        The state stands alone.
        """
        self.operations.add_peer("f.example", LinkStatus(domain="f.example", state="waiting"))

        self.assertIn("  state        waiting\n", self.shown("link ls f.example"))

    def test_what_a_peer_said_cannot_control_the_terminal(self) -> None:
        """
        Control characters are replaced, in the list and in the details.
        """
        said = LinkStatus(
            domain="f.example", state="waiting", last_error="bye\x1b[2J\x9b2J\n", last_error_seconds=1
        )
        self.operations.add_peer("f.example", said)

        for line in ("link ls", "link ls f.example"):
            self.assertIn("bye\ufffd[2J\ufffd2J\ufffd", self.shown(line))

    def test_subscriptions_are_shown_if_there_are_any(self) -> None:
        """
        The details of a domain have the subscriptions of both directions.
        """
        status = self.operations.domain("b.example")
        none = self.shown("link ls b.example")
        self.operations.domain = lambda name: structs.replace(status, grants=1200, upstream=2)

        self.assertNotIn("subscriptions", none)
        self.assertIn(
            "subscriptions: 1,200 of its clients here, 2 of clients here there\n",
            self.shown("link ls b.example"),
        )

    def test_json_is_what_the_api_answers(self) -> None:
        """
        One value on one line.
        """
        listed, one = self.json("link ls"), self.json("link ls d.example")

        self.assertEqual(A, listed["node"])
        self.assertIn(one, listed["domains"])
        self.assertEqual(1, self.shown("link ls --json").count("\n"))

    def test_orders_show_what_is_now(self) -> None:
        """
        Each order is carried out at the node.
        """
        heads = [
            self.shown(f"link {order} b.example --reason tested").splitlines()[0]
            for order in ("drain", "pause", "ban")
        ]
        state = self.json("link resume b.example --reason tested")["admin_state"]

        self.assertEqual([f"b.example is {word}" for word in ("draining", "paused", "banned")], heads)
        self.assertEqual("enabled", state)

    def test_check_shows_each_step_and_exits_1_if_one_failed(self) -> None:
        """
        Long texts are wrapped behind the name of the step.
        """
        shown = self.shown("link check b.example", 1)
        self.operations.checks = None
        self.assertEqual(
            [
                "ok       dns          msg-node.b.example is 192.0.2.7",
                "failed   certificate  it ended on 2026-11-20",
            ],
            shown.splitlines()[::2],
        )
        self.assertFalse(self.json("link check b.example", 1)["ok"])

    def test_check_exits_0_if_no_step_failed(self) -> None:
        """
        A step that was skipped is no failure.
        """
        from twisted.internet.defer import succeed

        text = "word " * 40
        self.operations.checks = succeed(
            [Check("dns", "ok", text.strip()), Check("pin", "skipped", "no pins")]
        )

        lines = self.shown("link check b.example").splitlines()

        self.assertTrue(all(len(line) <= 80 for line in lines))
        self.assertTrue(lines[1].startswith(" " * 22 + "word"))

    def test_forget_drops_only_what_was_confirmed(self) -> None:
        """
        A script says --yes.
        """
        refused = self.run_("link forget d.example --reason tested", 2)
        shown = self.shown("link forget d.example --yes --reason tested")

        self.assertIn("confirm it with --yes", refused.stderr)
        self.assertEqual("1,200 messages for d.example dropped\n", shown)

    def test_a_node_without_peers_says_so(self) -> None:
        """
        An empty table says nothing.
        """
        self.operations.statuses.clear()

        self.assertEqual("no peers are configured, and no other domain is linked\n", self.shown("link ls"))


class RouteTests(CommandCase):
    """
    `msgnode route`
    """

    def test_show_has_nodes_and_links(self) -> None:
        """
        With the first hop of each route, and costs.
        """
        lines = self.shown("route show").splitlines()

        self.assertEqual("NODE          FIRST HOP     COST  HOPS   AGE", lines[0])
        self.assertEqual("a.example/n1  this node        0     0", lines[1])
        self.assertEqual("c.example/n1  b.example/n1    30     2  90 s", lines[3])
        self.assertEqual("b.example/n1 - c.example/n1    20  90 s", lines[9])

    def test_show_marks_nodes_without_a_route(self) -> None:
        """
        They are in the map, for a while.
        """
        self.operations.cut(A, B)
        self.operations.cut(A, "mn://d.example/n1")

        self.assertIn("b.example/n1  no route", self.shown("route show"))

    def test_explain_shows_the_path_the_alternatives_and_what_would_change(self) -> None:
        """
        Costs are summed up.
        """
        self.assertEqual(
            "c.example is reached by mn://b.example/n1\n"
            "\n"
            "PATH          LINK  COST\n"
            "a.example/n1           0\n"
            "b.example/n1    10    10\n"
            "c.example/n1    20    30\n"
            "\n"
            "ALTERNATIVES                COST\n"
            "d.example/n1, c.example/n1   130\n"
            "\n"
            "SUPPOSED\n"
            "The path would be another one, of cost 130 instead of 30:\n"
            "  d.example/n1\n"
            "  c.example/n1\n",
            self.shown("route explain hyperty://c.example/lamp --without b.example"),
        )

    def test_explain_exits_1_where_no_path_is_or_would_be(self) -> None:
        """
        The negative result is the answer to the question that was asked.
        """
        both = "--without b.example,c.example --without c.example,d.example"
        self.assertIn("There would be no path.", self.shown(f"route explain c.example {both}", 1))
        self.assertIn("neither configured", self.shown("route explain x.example", 1))
        self.assertIn("the domain of this node", self.shown("route explain hyperty://a.example/1"))
        self.operations.cut("mn://c.example/n1", "mn://d.example/n1")
        self.operations.cut(B, "mn://c.example/n1")
        self.assertIn("no path leads to", self.shown("route explain c.example", 1))

    def test_explain_says_when_nothing_would_change_or_only_the_cost(self) -> None:
        """
        Neither repeats the path as another one.
        """
        same = self.shown("route explain c.example --cost d.example=500")
        dearer = self.shown("route explain c.example --cost b.example=11")

        self.assertIn("Nothing would change.", same)
        self.assertIn("The path would be the same, and its cost 31 instead of 30", dearer)


class FailureTests(CommandCase):
    """
    What may go wrong, with the exit codes and the style of the other verbs.
    """

    def assertStops(self, line: str, exit_code: int, text: str, **environment: str) -> None:
        plain = self.run_(line, exit_code, **environment)
        told = self.run_(f"{line} --json", exit_code, **environment)
        self.assertEqual("", plain.stdout)
        self.assertTrue(plain.stderr.startswith("msgnode: "), plain.stderr)
        self.assertIn(text, plain.stderr)
        self.assertEqual(False, json.loads(told.stdout)["ok"])
        self.assertIn(text, json.loads(told.stdout)["error"])

    def test_refusals_exit_1_with_the_sentence_of_the_node(self) -> None:
        """
        And with its code in JSON.
        """
        self.assertStops("link ls x.example", 1, "neither configured as a peer nor linked")
        self.assertEqual(404, self.json("link pause x.example --reason tested", 1)["code"])
        self.assertStops("route explain c.example --cost b.example", 1, "expected a cost as LINK=N")
        self.net.node.link_operations = None
        self.assertStops("link ls", 1, "add [federation] and [[peer]]")

    def test_a_wrong_token_exits_1_with_advice(self) -> None:
        """
        The token in the environment comes before the file.
        """
        self.assertStops("link ls", 1, "does not accept the token", MSGNODE_ADMIN_TOKEN="mna_wrong")
        for wrong in ("mna_a\nmna_b", "mna_a b", "mna_ä"):
            shown = "the admin token has a space, a line end or a letter that no token has"
            self.assertStops("link ls", 2, shown, MSGNODE_ADMIN_TOKEN=wrong)
        self.assertEqual({"mna_wrong"}, set(self.http.tokens))

    def test_a_missing_token_exits_2_before_anything_is_sent(self) -> None:
        """
        The advice says how to give it.
        """
        elsewhere = directory(self)
        self.assertStops(f"link ls --state {elsewhere}", 2, "set MSGNODE_ADMIN_TOKEN to the token")
        (elsewhere / "admin-token").write_text("# none\n\n")
        self.assertStops(f"link ls --state {elsewhere}", 2, "has no token")
        self.assertEqual([], self.http.tokens)

    def test_the_first_token_of_the_file_is_used_without_its_roles(self) -> None:
        """
        Comments are skipped.
        """
        (self.state / "admin-token").write_text("# ours\nlook viewer\nmna_x\n")

        self.run_("link ls")
        self.assertStops("link ban b.example --reason tested", 1, "does not have the role operator")

        self.assertEqual({"look"}, set(self.http.tokens))

    def test_a_node_that_is_not_there_exits_3(self) -> None:
        """
        4 if it does not answer.
        """
        self.http.error = URLError(ConnectionRefusedError(111, "Connection refused"))
        self.assertStops(
            "route show", 3, "cannot connect to http://127.0.0.1:9092: Connection refused\nIs the"
        )
        self.http.error = ConnectionResetError(104, "Connection reset by peer")
        self.assertStops("route show", 3, "Connection reset by peer")
        for late in (TimeoutError(), URLError(TimeoutError())):
            self.http.error = late
            self.assertStops("route show", 4, "http://127.0.0.1:9092 does not answer")

    def test_another_server_exits_1(self) -> None:
        """
        Whatever it answers.
        """
        for answer in (
            Answer(200, b"<html>"),
            Answer(404, b"[]"),
            Answer(302, b""),
            Answer(500, b'{"a": 1}'),
        ):
            self.http.answer = answer
            self.assertStops(
                "link ls", 1, f"answers {answer.status}, and is not the admin listener of a node"
            )

    def test_a_listener_for_clients_exits_1(self) -> None:
        """
        The web listener answers with a text for clients, TCP lines not with HTTP.
        """
        self.http.answer = Answer(404, b'{"code": 404, "description": "nothing at /api/v1/links; ..."}')
        self.assertStops("link ls", 1, "does not know this request, and is not the admin listener of a node")
        self.http.error = BadStatusLine('{"id": null}')
        self.assertStops("route show", 1, "does not speak HTTP, and is not the admin listener of a node")

    def test_wrong_urls_exit_2(self) -> None:
        """
        Before a token is read.
        """
        for url in ("127.0.0.1:9092", "ws://127.0.0.1:9090/ws", "http://"):
            self.assertStops(
                f"link ls --admin {url}", 2, "--admin: expected a URL such as http://127.0.0.1:9092"
            )


@pytest.mark.parametrize("group, verb", VERBS)
def test_help_of_link_and_route_verbs_shows_examples_and_exit_codes(group: str, verb: str) -> None:
    """
    The help of each verb shows how it is used and what its exit codes mean; every option is explained.
    """
    shown = CliRunner().invoke(main, [group, verb, "--help"]).output

    assert "  Example" in shown and f"    msgnode {group} {verb}" in shown
    assert "Exit code 0: " in shown and "3: cannot connect" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    for parameter in main.commands[group].commands[verb].params:  # type: ignore[attr-defined]
        assert not isinstance(parameter, click.Option) or parameter.help, parameter.name


@pytest.mark.parametrize(
    "seconds, text",
    [
        (None, ""),
        (0, "0 ms"),
        (0.0004, "0.4 ms"),
        (0.0121, "12 ms"),
        (0.4, "0.4 s"),
        (90, "90 s"),
        (130, "2 min"),
        (7300, "2 h"),
        (90_000, "25 h"),
        (200_000, "2 d"),
    ],
)
def test_durations_have_few_digits(seconds: float | None, text: str) -> None:
    """
    A person reads two or three digits and a unit.
    """
    assert text == duration(seconds)


def test_sizes_have_few_digits() -> None:
    """
    Bytes as disks count them.
    """
    assert ["900 bytes", "70.0 kB", "1.2 GB", "5000.0 TB"] == [
        size(n) for n in (900, 70_000, 1_234_000_000, 5 * 10**15)
    ]


def test_tables_leave_out_empty_columns() -> None:
    """
    And keep the first, whatever it has.
    """
    lines = table(("A", "B", "C"), [["x", "", "1"], ["", "", "22"]], 80)

    assert ["A   C", "x   1", "   22"] == [click.unstyle(line) for line in lines]
