"""
`/api/v1/links` and `/api/v1/routes` on the admin listener.
"""

from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.federation import Peer
from msgnode.links.operations import LinkStatus
from tests.support.fakes import directory
from tests.support.http_client import HTTPClient, Response
from tests.support.links_operations import CHECKS, A, B, C, sample
from tests.support.network import Network

LINKS, ROUTES = "/api/v1/links", "/api/v1/routes"


class LinksCase(SynchronousTestCase):
    """
    A node with links in memory.
    """

    def setUp(self) -> None:
        self.state = directory(self)
        self.net = Network(state=str(self.state))
        self.net.tokens.startService()
        self.token = (self.state / "admin-token").read_text().strip()
        self.net.node.link_operations = self.operations = sample()
        self.http = HTTPClient(self.net, "admin")

    def ask(self, method: str, path: str, token: str | None = None, **headers: str) -> Response:
        headers["Authorization"] = f"Bearer {self.token if token is None else token}"
        headers.setdefault("X_Reason", "it is a test")
        return self.http.request(method, path, **headers)

    def order(self, order: str, domain: str = "b.example") -> Any:
        answer = self.ask("POST", f"{LINKS}/{domain}/{order}")
        self.assertEqual(200, answer.status, answer.body)
        return answer.json()

    def assertRefused(self, answer: Response, code: int, part: str) -> None:
        self.assertEqual((code, code), (answer.status, answer.json()["code"]))
        self.assertIn(part, answer.json()["description"])


class AccessTests(LinksCase):
    """
    The token, the host, and a node without federation.
    """

    def test_every_request_for_links_needs_a_token_of_the_role(self) -> None:
        """
        Without a token 401; a viewer reads, an operator gives orders, too.
        """
        with (self.state / "admin-token").open("a") as file:
            file.write("look viewer\nwork operator\npolicies policy-manager\n")
        pause = f"{LINKS}/b.example/pause"

        read = {token: self.ask("GET", LINKS, token).status for token in ("", "guess", "look", "policies")}
        ordered = {token: self.ask("POST", pause, token).status for token in ("", "look", "policies")}

        self.assertEqual({"": 401, "guess": 401, "look": 200, "policies": 403}, read)
        self.assertEqual({"": 401, "look": 403, "policies": 403}, ordered)
        self.assertEqual({}, self.operations.admin_states)
        self.assertEqual(
            (200, 200), (self.ask("GET", LINKS, "work").status, self.ask("POST", pause, "work").status)
        )

    def test_links_are_not_shown_under_a_foreign_host_name(self) -> None:
        """
        A page that makes its own name resolve to this machine has no token, and reads nothing.
        """
        answer = self.ask("GET", LINKS, "", Host="evil.example")

        self.assertRefused(answer, 421, "evil.example")

    def test_without_federation_every_path_says_what_to_configure(self) -> None:
        """
        404 with a sentence, but only to a client with the token.
        """
        self.net.node.link_operations = None

        for method, path in (("GET", LINKS), ("GET", ROUTES), ("POST", f"{LINKS}/b.example/ban")):
            self.assertRefused(self.ask(method, path), 404, "add [federation] and [[peer]]")
            self.assertEqual(401, self.ask(method, path, "").status)

    def test_links_that_are_configured_and_not_started_are_answered_503(self) -> None:
        """
        They were configured while the node ran, for instance, which loads them at its next start.
        """
        self.net.node.link_operations = None
        self.net.node.config.peer = [Peer(domain="b.example")]

        self.assertRefused(self.ask("GET", LINKS), 503, "start it again")
        self.assertRefused(self.ask("GET", f"{ROUTES}/explain?address=b.example"), 503, "not started")

    def test_a_method_that_a_path_does_not_have_is_answered_405_with_those_that_it_has(self) -> None:
        """
        405 with `Allow`.
        """
        for method, path, allowed in (
            ("POST", LINKS, "GET"),
            ("DELETE", f"{LINKS}/b.example", "GET"),
            ("GET", f"{LINKS}/b.example/ban", "POST"),
            ("POST", f"{ROUTES}/explain?address=b.example", "GET"),
        ):
            answer = self.ask(method, path)
            self.assertEqual((405, allowed), (answer.status, answer.headers["Allow"]))

    def test_unknown_paths_below_links_and_routes_are_answered_404_with_the_known_ones(self) -> None:
        """
        An order that does not exist is no path, either.
        """
        self.assertRefused(self.ask("POST", f"{LINKS}/b.example/destroy"), 404, "ban|pause|resume|drain")
        self.assertRefused(self.ask("GET", f"{LINKS}/b.example/queue/9"), 404, "/api/v1/links/DOMAIN/")
        self.assertRefused(self.ask("GET", f"{ROUTES}/best"), 404, "/api/v1/routes/explain")

    def test_a_failure_is_answered_500_and_logged(self) -> None:
        """
        The log has what the answer has not.
        """
        self.operations.domains = lambda: 1 / 0  # type: ignore[method-assign]

        answer = self.ask("GET", LINKS)

        self.assertRefused(answer, 500, "its log says why")
        self.assertEqual(1, len(self.flushLoggedErrors(ZeroDivisionError)))


class LinksTests(LinksCase):
    """
    What is seen of other domains, and orders about them.
    """

    def test_links_lists_every_domain_with_its_links_and_streams(self) -> None:
        """
        Configured domains without a connection, and connected ones that are not configured, are listed, too.
        """
        listed = self.ask("GET", LINKS).json()

        found = {domain["domain"]: domain for domain in listed["domains"]}
        self.assertEqual(A, listed["node"])
        self.assertEqual(["b.example", "c.example", "d.example", "e.example"], list(found))
        self.assertEqual([True, True, True, False], [each["is_configured"] for each in found.values()])
        [link], [stream] = found["b.example"]["links"], found["b.example"]["streams"]
        self.assertEqual(
            ("up", B, "us", 10, 0.0121),
            tuple(link[key] for key in ("state", "node", "dialled_by", "cost", "round_trip")),
        )
        self.assertEqual([0, 0, 0, 0, 0, 4, 0, 1, 0, 0], link["queue"])
        self.assertEqual(
            (3, 32, {"overflow": 2}), (stream["undelivered"], stream["window"], stream["refused"])
        )
        self.assertEqual("waiting", found["d.example"]["links"][0]["state"])

    def test_one_domain_is_shown_by_its_name(self) -> None:
        """
        The same as in the list; a domain without link and configuration is 404, a text that is none is 400.
        """
        listed = {each["domain"]: each for each in self.ask("GET", LINKS).json()["domains"]}

        self.assertEqual(listed["d.example"], self.ask("GET", f"{LINKS}/d.example").json())
        self.assertRefused(
            self.ask("GET", f"{LINKS}/x.example"), 404, "peers: b.example, c.example, d.example"
        )
        self.assertRefused(
            self.ask("GET", f"{LINKS}/no%20domain"), 400, "expected a domain such as b.example"
        )

    def test_orders_change_the_administrative_state_and_answer_what_is_now(self) -> None:
        """
        A paused domain has no link and no route until `resume`.
        """
        states = [self.order(order)["admin_state"] for order in ("drain", "pause", "ban", "resume")]
        shown = self.ask("GET", f"{LINKS}/b.example").json()

        self.assertEqual(["draining", "paused", "banned", "enabled"], states)
        self.assertEqual(("enabled", None), (shown["admin_state"], shown["links"][0]["cost"]))

    def test_each_order_has_a_line_in_the_audit_log_with_its_operator_and_reason(self) -> None:
        """
        One that is refused, too.
        """
        self.ask("POST", f"{LINKS}/b.example/pause", X_Reason="maintenance")
        self.order("forget")
        self.ask("POST", f"{LINKS}/x.example/pause")

        lines = [line for line in self.net.operations.audit.recent if line["phase"] == "result"]
        self.assertEqual(
            [
                ("link pause", ["b.example"], "maintenance", True),
                ("link forget", ["b.example"], "it is a test", True),
                ("link pause", ["x.example"], "it is a test", False),
            ],
            [tuple(line[key] for key in ("action", "target", "reason", "ok")) for line in lines],
        )

    def test_an_order_without_a_reason_is_refused_and_changes_nothing(self) -> None:
        """
        400, in words; `check` needs none.
        """
        for order in ("ban", "pause", "resume", "drain", "forget"):
            answer = self.ask("POST", f"{LINKS}/b.example/{order}", X_Reason="")
            self.assertRefused(answer, 400, "reason")
        self.assertEqual("enabled", self.ask("GET", f"{LINKS}/b.example").json()["admin_state"])
        self.assertEqual(200, self.ask("POST", f"{LINKS}/b.example/check", X_Reason="").status)

    def test_a_dry_run_says_what_an_order_would_hit_and_does_nothing(self) -> None:
        """
        A domain, or messages; an unknown domain is 404.
        """
        found = self.ask("POST", f"{LINKS}/d.example/forget?dry_run=1").json()
        self.assertEqual((1200, True, ["d.example"]), (found["done"], found["dry_run"], found["targets"]))
        self.assertTrue(self.ask("POST", f"{LINKS}/b.example/ban?dry_run=1").json()["dry_run"])
        self.assertEqual(404, self.ask("POST", f"{LINKS}/x.example/pause?dry_run=1").status)
        self.assertEqual("enabled", self.ask("GET", f"{LINKS}/b.example").json()["admin_state"])
        self.assertEqual(1200, self.order("forget", "d.example")["dropped"])

    def test_a_domain_may_be_banned_before_it_comes(self) -> None:
        """
        Other orders about it are 404.
        """
        for order in ("pause", "resume", "drain", "forget", "check"):
            self.assertEqual(404, self.ask("POST", f"{LINKS}/evil.example/{order}").status)

        self.assertEqual("banned", self.order("ban", "evil.example")["admin_state"])

    def test_forget_says_how_many_messages_it_dropped(self) -> None:
        """
        What is undelivered is dropped, and nothing else changes.
        """
        self.assertEqual({"domain": "d.example", "dropped": 1200}, self.order("forget", "d.example"))
        self.assertEqual([], self.ask("GET", f"{LINKS}/d.example").json()["streams"])

    def test_check_answers_when_it_is_done(self) -> None:
        """
        One failed check of several means that it is not ok.
        """
        self.operations.checks = Deferred()
        self.http.start("POST", f"{LINKS}/b.example/check", Authorization=f"Bearer {self.token}")
        self.net.pump()
        before = self.http.response

        self.operations.checks.callback(CHECKS)
        self.net.pump()

        self.assertIsNone(before)
        found = self.http.response.json()
        self.assertEqual(("b.example", False), (found["domain"], found["ok"]))
        self.assertEqual(["ok", "ok", "failed", "skipped"], [each["result"] for each in found["checks"]])

    def test_a_check_that_no_client_waits_for_is_cancelled(self) -> None:
        """
        An operator who presses Ctrl-C leaves nothing behind; and no more than ten checks run at a time.
        """
        cancelled: list[Any] = []
        clients = []
        for _ in range(10):
            self.operations.checks = Deferred(cancelled.append)
            client = HTTPClient(self.net, "admin")
            client.start("POST", f"{LINKS}/b.example/check", Authorization=f"Bearer {self.token}")
            self.net.pump()
            clients.append(client)
        self.assertRefused(self.ask("POST", f"{LINKS}/b.example/check"), 429, "10 checks are under way")

        for client in clients:
            client.hang_up()
        self.operations.checks = None

        self.assertEqual(10, len(cancelled))
        self.assertFalse(self.order("check")["ok"])


class RoutesTests(LinksCase):
    """
    The map, and explanations.
    """

    def explain(self, query: str) -> Any:
        answer = self.ask("GET", f"{ROUTES}/explain?{query}")
        self.assertEqual(200, answer.status, answer.body)
        return answer.json()

    def test_routes_has_nodes_and_links_with_costs_and_ages(self) -> None:
        """
        This node comes first.
        """
        found = self.ask("GET", ROUTES).json()

        self.assertEqual((A, A, 0), (found["node"], found["nodes"][0]["node"], found["nodes"][0]["cost"]))
        [c] = [node for node in found["nodes"] if node["node"] == C]
        self.assertEqual((30, 2, B, 90.0), (c["cost"], c["hops"], c["first_hop"], c["age_seconds"]))
        self.assertEqual(4, len(found["links"]))
        self.assertEqual(
            (A, B, [10, 10], 10), tuple(found["links"][0][key] for key in ("one", "other", "costs", "cost"))
        )

    def test_explain_has_the_path_the_alternatives_and_what_would_change(self) -> None:
        """
        The cheaper, longer path is taken; without its second link the other way remains.
        """
        found = self.explain("address=comm://c.example/chat&without=b.example,c.example")

        self.assertEqual(("remote", "c.example", C), (found["kind"], found["domain"], found["destination"]))
        self.assertEqual(
            (30, [B, C]), (found["path"]["cost"], [hop["node"] for hop in found["path"]["hops"]])
        )
        self.assertEqual([130], [path["cost"] for path in found["alternatives"]])
        self.assertEqual((True, 130), (found["is_supposed"], found["supposed"]["cost"]))

    def test_explain_takes_several_links_and_costs(self) -> None:
        """
        An end is a domain or a node; one end alone means a link of this node.
        """
        cheap = self.explain("address=c.example&cost=d.example=1&cost=mn://c.example/n1,d.example=2")
        cut = self.explain(f"address=c.example&without=mn://d.example/n1&without={B},{C}")

        self.assertEqual((3, True), (cheap["supposed"]["cost"], cheap["is_supposed"]))
        self.assertEqual((None, True), (cut["supposed"], cut["is_supposed"]))

    def test_explain_tells_addresses_of_this_node_and_of_unknown_domains_apart(self) -> None:
        """
        Neither has a path, and each has a sentence.
        """
        kinds = [self.explain(f"address=hyperty://{host}.example/1")["kind"] for host in "axe"]

        self.assertEqual(["here", "unknown", "unknown"], kinds)

    def test_explain_may_take_its_time(self) -> None:
        """
        A large map is looked at in a thread; a refusal may come late, too.
        """
        explain = self.operations.explain
        self.operations.explain = lambda *given: maybeDeferred(explain, *given)  # type: ignore[method-assign]

        self.assertEqual(30, self.explain("address=c.example")["path"]["cost"])
        refused = self.ask("GET", f"{ROUTES}/explain?address=c.example&without=x.example")
        self.assertRefused(refused, 400, "no link of the map is between")

    def test_explain_refuses_what_it_does_not_understand(self) -> None:
        """
        400 with what was expected and what was found.
        """
        for query, part in (
            ("", "expected one parameter address"),
            ("address=", "expected one parameter address"),
            ("address=a&address=b", "expected one parameter address"),
            (
                "address=c.example&wihout=b",
                "expected the parameters address, without and cost, found 'wihout'",
            ),
            ("address=c.example&cost=b.example", "expected a cost as LINK=N, N from 1 to 1000000"),
            ("address=c.example&cost=b.example=0", "expected a cost as LINK=N"),
            ("address=c.example&cost=b.example=1000001", "expected a cost as LINK=N"),
            ("address=c.example&cost==7", "expected a link as DOMAIN"),
            ("address=c.example&without=a,b,c", "expected a link as DOMAIN, or as two ends"),
            ("address=c.example&without=mn://b.example", "expected the end of a link"),
            ("address=c.example&without=b.example/n1", "expected the end of a link"),
            ("address=c.example&without=x.example", "no link of the map is between"),
        ):
            self.assertRefused(self.ask("GET", f"{ROUTES}/explain?{query}"), 400, part)


class NamesTests(LinksCase):
    """
    Names that nobody expects.
    """

    def test_long_names_are_shown_as_they_are_and_cut_in_refusals(self) -> None:
        """
        A domain has up to 253 characters.
        """
        long = "x" * 240 + ".example"
        self.operations.add_peer(long, LinkStatus(domain=long, node=f"mn://{long}/{'n' * 128}", state="up"))

        self.assertEqual(long, self.ask("GET", f"{LINKS}/{long}").json()["domain"])
        self.assertLess(len(self.ask("GET", f"{LINKS}/{'y' * 4000}").body), 1000)
