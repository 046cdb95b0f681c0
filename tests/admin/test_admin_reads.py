"""
`GET /api/v1/...` on the admin listener: what an operator reads.
"""

import json
from collections import Counter, deque
from copy import deepcopy
from typing import Any

from twisted.internet.defer import Deferred

import twisted
from msgnode.admin.links_api import ORDERS
from msgnode.admin.node_facts import NodeFacts
from msgnode.admin.policy_api import ROUTES
from msgnode.admin.reads.inspector import Busy
from msgnode.admin.reads.session_keys import KEYS
from msgnode.config.foreign import ConnectorOptions
from msgnode.config.reload import Reloading
from msgnode.config.secrets import without_secrets
from msgnode.sessions.principal import Principal
from tests.support.admin_case import REASON, A, AdminCase, B, C, url
from tests.support.http_client import HTTPClient
from tests.support.made_policies import rule, use
from tests.support.poll_runtime import PollRuntime
from tests.support.registry_entries import ROOM, FakeRegistry
from tests.support.runtimes import TCPRuntime, WebSocketRuntime, dumps

BAN = {"kind": "user", "value": "user://example.org/eve", "reason": REASON}


class SessionTests(AdminCase):
    """
    `sessions`
    """

    def test_every_session_is_listed_with_its_peer_connector_and_counters(self) -> None:
        """
        Who is connected, from where, since when, as whom.
        """
        self.node.sessions.get(A).identity = "user://example.org/ann"
        self.net.advance(5)
        self.device.send(dumps({"id": 1, "type": "update", "from": f"{A}/x", "to": f"{B}/y"}))

        found = self.get("sessions")

        self.assertEqual((2, 2, None), (found["total"], found["matched"], found["next"]))
        first, second = found["sessions"]
        self.assertEqual((A, "attached", "line"), (first["runtime"], first["state"], first["connector"]))
        self.assertEqual("user://example.org/ann", first["user"])
        self.assertTrue(first["peer"].startswith("192.0.2.1:"))
        self.assertEqual(self.net.wall() - 5, first["since"])
        self.assertEqual((1, 0), (first["in_messages"], first["out_messages"]))
        self.assertEqual((0, 1), (second["in_messages"], second["out_messages"]))
        self.assertEqual(first["in_bytes"], second["out_bytes"])

    def test_a_session_with_an_older_connection_is_superseding(self) -> None:
        """
        Until the older one is closed; the list of connections says which is current.
        """
        newer = TCPRuntime(self.net, A)
        newer.token = self.device.token
        newer.reopen()

        [row] = self.get("sessions?state=superseding")["sessions"]
        self.assertEqual((A, 1), (row["runtime"], row["reconnects_1h"]))
        of_a = [row for row in self.get("connections")["connections"] if row["session"] == A]
        self.assertEqual([True, False], [row["is_current"] for row in of_a])
        body = {"from": A, "to": A, "type": "update"}
        self.assertEqual("delivered", self.request("POST", "probe", body).json()["outcome"])

        self.device.drop()

        self.assertEqual([], self.get("sessions?state=superseding")["sessions"])
        self.assertEqual("attached", self.get(f"sessions/{url(A)}")["session"]["state"])

    def test_a_session_has_its_last_events(self) -> None:
        """
        The newest first, at most twenty, and none of other sessions.
        """
        for _ in range(12):
            self.device.drop()
            self.device.come_back()
        self.browser.drop()

        events = self.get(f"sessions/{url(A)}")["events"]

        self.assertEqual(20, len(events))
        newest = events[0]
        self.assertEqual(("session", A), (newest["kind"], newest["session"]))
        self.assertEqual(("attached", "line"), (newest["event"], newest["connector"]))
        self.assertEqual({A}, {event["session"] for event in events})

    def test_a_client_that_resumes_elsewhere_closes_its_older_connection(self) -> None:
        """
        With the reason superseded, by the node.
        """
        older = TCPRuntime(self.net, C)
        older.session("open", **{"from": C}, body={"resume": True})
        newer = TCPRuntime(self.net, C)
        newer.token = older.token
        newer.reopen()
        self.net.advance(5)

        [row] = self.get("connections?state=closed&code=4409")["connections"]

        self.assertEqual((C, "superseded", "node"), (row["session"], row["reason"], row["by"]))

    def test_sessions_are_filtered(self) -> None:
        """
        By a part of the name, by state, connector, user, network, and what waits.
        """
        PollRuntime(self.net, C).open()
        self.browser.drop()
        self.device.send(dumps({"id": 1, "type": "update", "from": f"{A}/x", "to": f"{B}/y"}))
        self.node.sessions.get(A).identity = "user://example.org/ann"

        for query, expected in (
            ("q=ORG/a", [A]),
            ("q=ann", [A]),
            ("state=away", [B]),
            ("state=attached", [A, C]),
            ("state=slow", []),
            ("connector=poll", [C]),
            ("user=user://example.org/ann", [A]),
            ("peer=192.0.2.0/24", [A, C]),
            ("peer=10.0.0.1", []),
            ("min_waiting_bytes=10", [B]),
            ("idle_over=10000000", [B, C]),
        ):
            found = self.get(f"sessions?{query}")
            self.assertEqual(expected, [row["runtime"] for row in found["sessions"]], query)
            self.assertEqual(len(expected), found["matched"], query)

    def test_flapping_anonymous_and_old_clients_are_found(self) -> None:
        """
        By how often they came back in an hour, by their program, and by what they showed.
        """
        for _ in range(3):
            self.browser.drop()
            self.browser.come_back()

        def found(query: str) -> list[str]:
            return [row["runtime"] for row in self.get(f"sessions?{query}")["sessions"]]

        self.assertEqual([B], found("min_reconnects=3&sort=-reconnects_1h"))
        self.assertEqual([], found("min_reconnects=4"))
        self.assertEqual(3, self.get(f"sessions/{url(B)}")["session"]["reconnects_1h"])
        self.net.clock.advance(2 * 3600)
        self.assertEqual(0, self.get(f"sessions/{url(B)}")["session"]["reconnects_1h"])

        self.node.sessions.get(B).connection.user_agent = "stub/0.9"
        self.assertEqual([B], found("user_agent=STUB/0"))
        self.node.sessions.get(A).anonymous = True
        self.assertEqual([A], found("anonymous=true"))
        self.assertEqual([B], found("anonymous=false"))
        until = self.net.wall() + 600
        self.node.sessions.get(A).proof = Principal("user://example.org/a", until=until)
        self.assertEqual([A], found("token_ends_in=700"))
        self.assertEqual([], found("token_ends_in=500"))

    def test_messages_that_wait_have_an_age(self) -> None:
        """
        The oldest one in the list, each one on the session's own report.
        """
        self.browser.drop()
        self.device.send(dumps({"id": 1, "type": "update", "from": A, "to": B, "body": {}}))
        self.node.sessions.get(B).mailbox.queued_messages()[0].came = int((self.net.wall() - 60) * 1e9)

        [first, _] = self.get("sessions?sort=-oldest_waiting_s")["sessions"]
        self.assertEqual(B, first["runtime"])
        self.assertGreaterEqual(first["oldest_waiting_s"], 59)
        [kept] = self.get(f"sessions/{url(B)}")["queue"]
        self.assertGreaterEqual(kept["age_s"], 59)

    def test_sessions_are_sorted_by_each_key_in_pages(self) -> None:
        """
        Each session is on one page, in order, whatever the key and the direction.
        """
        for number in range(7):
            client = WebSocketRuntime(self.net, f"runtime://example.org/n{number}").open()
            for _ in range(number % 3):
                client.send(dumps({"id": 1, "type": "update", "from": f"{client.url}/x", "to": f"{A}/y"}))

        for key in ("runtime", *KEYS, *(f"-{key}" for key in KEYS)):
            seen: list[tuple[float, str]] = []
            cursor: str | None = ""
            while cursor is not None:
                found = self.get(f"sessions?sort={key}&limit=2&cursor={cursor}")
                seen += [(row[key.lstrip("-")] or 0, row["runtime"]) for row in found["sessions"]]
                cursor = found["next"]
            self.assertEqual(9, len({runtime for _, runtime in seen}), key)
            self.assertEqual(9, len(seen), key)
            if key != "opened_at":
                values = [value for value, _ in seen]
                self.assertEqual(sorted(values, reverse=key.startswith("-")), values, key)

    def test_wrong_parameters_are_answered_with_what_is_expected(self) -> None:
        """
        400, with the name of the parameter.
        """
        for query, part in (
            ("colour=red", "known are q, state"),
            ("state=asleep", "attached, away, slow"),
            ("sort=beauty", "waiting_bytes"),
            ("limit=0", "1 to 1000"),
            ("limit=many", "parameter limit"),
            ("peer=there", "10.0.0.0/8"),
            ("cursor=!!", "`next`"),
            ("q=a&q=b", "twice"),
        ):
            self.assertRefused(self.request("GET", f"sessions?{query}"), 400, part)

    def test_numbers_that_are_none_or_too_large_are_refused(self) -> None:
        """
        NaN, infinity, and what fits no machine word; in a body, too.
        """
        huge = str(10**30)
        for path in (
            "series?from=nan",
            "series?step=inf",
            "sessions?idle_over=nan",
            "audit?since=-inf",
            f"addresses?prefix=c&cursor={huge}",
            f"connections?cursor={huge}",
            f"sessions/{url(A)}?addresses_from={huge}",
        ):
            name = path.rpartition("?")[2].split("&")[-1].partition("=")[0]
            self.assertRefused(self.request("GET", path), 400, name)
        limit = {"kind": "user", "value": "x", "rate_messages": 10**30, "reason": "it is a test"}
        self.assertRefused(self.request("POST", "limits", limit), 400, "rate_messages")

    def test_one_token_has_two_lists_made_at_a_time_and_all_together_four(self) -> None:
        """
        The next is answered 429, and may come again.
        """
        walks, made = self.net.operations.inspector.walks, [Deferred[None]() for _ in range(4)]
        viewer = self.named("viewer")
        for number, each in enumerate(made):
            walks.list(lambda walk=each: walk, f"{number // 2}")  # type: ignore[misc]
            if number == 1:
                self.assertRaises(Busy, walks.list, Deferred[None], "0")

        answer = self.request("GET", "sessions", token=viewer)
        self.assertRefused(answer, 429, "4 lists are being made at this moment; try again")
        self.assertEqual("1", answer.headers["Retry-After"])

        made[0].callback(None)
        made[1].errback(Busy(1, "x"))
        self.assertEqual(200, self.request("GET", "sessions", token=viewer).status)
        self.failureResultOf(made[1], Busy)

    def test_an_action_has_no_limit_in_common_with_lists_and_waits_for_its_turn(self) -> None:
        """
        However many lists a viewer has made: a ban is made. Too many actions that wait are refused.
        """
        walks = self.net.operations.inspector.walks
        for number in range(4):
            walks.list(Deferred[None], f"{number // 2}")
        self.assertEqual(200, self.request("POST", "bans", BAN).status)
        held = Deferred[None]()
        waiting = [walks.act(lambda: held) for _ in range(65)]
        later = HTTPClient(self.net, "admin")
        later.start("POST", "/api/v1/bans", dumps(BAN), Authorization=f"Bearer {self.token}")
        self.net.pump()

        self.assertRefused(self.request("POST", "bans", BAN), 429, "64 actions wait")
        held.callback(None)
        self.net.advance(1)

        self.assertEqual([None] * 65, [self.successResultOf(each) for each in waiting])
        assert later.response is not None
        self.assertEqual(200, later.response.status)

    def test_one_session_is_shown_with_addresses_queue_and_refusals(self) -> None:
        """
        Everything about one.
        """
        self.browser.ask(
            type="subscribe",
            to="domain://msg-node.example.org/sm",
            body={"resources": ["comm://example.org/chat/changes"]},
        )
        self.browser.drop()
        self.device.send(dumps({"id": 1, "type": "update", "from": f"{A}/x", "to": f"{B}/y"}))
        self.device.send(
            dumps({"id": 2, "type": "create", "from": f"{A}/x", "to": "domain://registry.example.org"})
        )

        away, device = self.get(f"sessions/{url(B)}"), self.get(f"sessions/{url(A)}")

        self.assertEqual("away", away["session"]["state"])
        self.assertEqual(
            [{"address": "comm://example.org/chat/changes", "why": ["subscribed"]}], away["addresses"]
        )
        self.assertEqual(1, len(away["queue"]))
        self.assertNotIn("body", json.dumps(away["queue"]))
        self.assertEqual(["not-handled"], [each["reason"] for each in device["refusals"]])
        self.assertRefused(self.request("GET", f"sessions/{url(C)}"), 404, "there is no session")

    def test_names_with_percent_signs_are_found(self) -> None:
        """
        A path is decoded once.
        """
        name = "runtime://example.org/50%25"
        WebSocketRuntime(self.net, name).open()

        self.assertEqual(name, self.get(f"sessions/{url(name)}")["session"]["runtime"])


class ConnectionTests(AdminCase):
    """
    `connections`
    """

    def test_open_and_closed_connections_are_listed(self) -> None:
        """
        With who closed them, and why.
        """
        self.browser.drop()

        opened, closed = self.get("connections"), self.get("connections?state=closed")

        self.assertEqual([A], [row["session"] for row in opened["connections"]])
        [row] = closed["connections"]
        self.assertEqual((B, "client", "websocket"), (row["session"], row["by"], row["connector"]))
        self.assertEqual([], self.get("connections?state=closed&by=admin")["connections"])
        self.assertRefused(self.request("GET", "connections?state=new"), 400, "open or closed")

    def test_connections_have_pages(self) -> None:
        """
        The newest first.
        """
        first = self.get("connections?limit=1")
        second = self.get(f"connections?limit=1&cursor={first['next']}")

        self.assertEqual([B, A], [found["connections"][0]["session"] for found in (first, second)])
        self.assertIsNone(second["next"])


class AddressTests(AdminCase):
    """
    `addresses`
    """

    def test_an_address_names_who_hears_it_and_why(self) -> None:
        """
        A subscription, a runtimeURL, an address of the node, and nobody.
        """
        chat = "comm://example.org/chat/changes"
        manager = "domain://msg-node.example.org/sm"
        self.browser.ask(type="subscribe", to=manager, body={"resources": [chat]})

        found = self.get(f"addresses/{url(chat)}")
        self.assertEqual([(B, ["subscribed"])], [(each["runtime"], each["why"]) for each in found["hearers"]])
        self.assertEqual(["runtime"], self.get(f"addresses/{url(A + '/x')}")["hearers"][0]["why"])
        self.assertTrue(self.get(f"addresses/{url(manager)}")["is_of_node"])
        self.assertEqual(0, self.get(f"addresses/{url('comm://nobody')}")["number"])

    def test_policies_say_what_they_would_decide_about_a_session_and_its_address(self) -> None:
        """
        At connect, subscribe and in, with the rule; nothing is counted.
        """
        use(self.node, rule("deny", {"direction": {"equals": "subscribe"}}, id="no-topics"), rule("permit"))
        before = dict(self.node.counts.refused)

        words = self.get(f"sessions/{url(A)}?to={url('comm://x/room')}&type=update")["policy"]
        self.assertEqual(
            [("connect", "permit", True), ("subscribe", "deny", False), ("in", "permit", True)],
            [(each["point"], each["effect"], each["passes"]) for each in words],
        )
        self.assertIn("no-topics", words[1]["rule"])
        self.assertEqual("deny", self.get(f"addresses/{url(A)}")["hearers"][0]["subscribe"])
        self.assertEqual(before, dict(self.node.counts.refused))

    def test_without_policies_there_is_no_word_of_them(self) -> None:
        """
        An empty list, an empty text.
        """
        self.assertEqual([], self.get(f"sessions/{url(A)}")["policy"])
        self.assertEqual("", self.get(f"addresses/{url(A)}")["hearers"][0]["subscribe"])

    def test_an_entry_of_the_registry_is_beside_its_address(self) -> None:
        """
        By address, by user; none is no error, a registry that fails is one in words.
        """
        self.node.registry = FakeRegistry()

        self.assertEqual({ROOM: {"status": "live"}}, self.get(f"addresses/{url(ROOM)}")["registry"])
        self.assertIsNone(self.get(f"addresses/{url('comm://x/none')}")["registry"])
        found = self.get(f"addresses/{url('comm://x/broken')}")
        self.assertEqual((None, "no answer"), (found["registry"], found["registry_error"]))
        self.assertEqual({ROOM: {"status": "live"}}, self.get(f"registry?url={url(ROOM)}")["entries"])
        self.assertEqual(1, self.get(f"registry?user={url(ROOM)}")["number"])
        self.assertEqual(0, self.get("registry?user=none")["number"])
        self.assertRefused(self.request("GET", "registry"), 400, "user and url")
        self.assertRefused(self.request("GET", "registry?url=broken"), 504, "no answer")

    def test_a_node_without_a_registry_says_so(self) -> None:
        """
        404, in words.
        """
        self.node.registry = None
        self.assertRefused(self.request("GET", "registry?user=x"), 404, "calls no domain registry")

    def test_addresses_are_found_by_their_beginning(self) -> None:
        """
        In pages; without a beginning it is an error.
        """
        addresses = [f"comm://example.org/{number}/changes" for number in range(5)]
        manager = "domain://msg-node.example.org/sm"
        self.browser.ask(type="subscribe", to=manager, body={"resources": [*addresses, "data://x/y"]})

        seen: list[str] = []
        cursor: int | None = 0
        while cursor is not None:
            found = self.get(f"addresses?prefix={url('comm:')}&limit=2&cursor={cursor}")
            seen += [row["address"] for row in found["addresses"]]
            cursor = found["next"]
        self.assertEqual(sorted(addresses), sorted(seen))
        self.assertRefused(self.request("GET", "addresses"), 400, "prefix")


class RefusalTests(AdminCase):
    """
    `refusals`
    """

    sections = {"session": {"from_check": "refuse"}}

    def test_a_refusal_says_why_and_what_would_change_it(self) -> None:
        """
        By session, by code, by the id of the message.
        """
        self.device.send(dumps({"id": 77, "type": "update", "from": f"{B}/x", "to": f"{B}/y"}))

        for query in ("", f"?session={A}", "?code=403", "?id=77", "?reason=not-your-address", "?to=/b/y"):
            [found] = self.get(f"refusals{query}")["refusals"]
            self.assertIn("is not yours to send from", found["text"])
            self.assertIn("session.from_check", found["remedy"])
        for query in ("?code=404", "?session=x", "?after=1", "?since=99999999999"):
            self.assertEqual([], self.get(f"refusals{query}")["refusals"])


class Calls:
    """
    A back end that is called.
    """

    name = "calls"
    url = "https://calls.example.org"
    counts: Any = Counter({"2xx": 100})
    latest: Any = deque(number / 100 for number in range(100))
    since = 0.0
    under_way = 2
    queued = 1
    down = False


class NodeTests(AdminCase):
    """
    `node`, `config`, `top`, `series`, `pools`
    """

    sections = {
        "pools": {"sip": {"scheme": "sip", "pattern": "sip:guest{1..3}@example.org"}},
        "limits": {"sessions": 2},
    }

    def test_the_node_says_how_it_is_and_what_is_wrong(self) -> None:
        """
        A limit that is reached is a trouble, as a sentence.
        """
        found = self.get("node")

        self.assertEqual(("up", {"attached": 2, "away": 0}), (found["status"], found["sessions"]))
        self.assertEqual({"used": 2, "limit": 2}, found["uses"]["sessions"])
        self.assertIn("sessions: 2 of 2 are used (100%)", [each["text"] for each in found["troubles"]])
        self.assertGreater(found["rss"], 0)
        self.assertEqual(twisted.__version__, found["twisted"])
        self.assertEqual({"bytes": 0, "segments": 0, "owed_bytes": 0}, found["spool"])

    def test_a_back_end_has_its_url_its_calls_and_their_time(self) -> None:
        """
        Without a password; while its breaker is open, one call under way is a trial.
        """
        calls = Calls()
        self.node.components.call(calls)

        [row] = [each for each in self.get("node")["back_ends"] if each["name"] == "calls"]
        self.assertEqual(
            ("closed", 2, 1, 0.98), tuple(row[key] for key in ("state", "in_flight", "queued", "p99"))
        )
        calls.down = True
        [row] = [each for each in self.get("node")["back_ends"] if each["name"] == "calls"]
        self.assertEqual("trial", row["state"])

    def test_rates_of_a_session_are_those_of_top(self) -> None:
        """
        None before it is asked.
        """
        self.assertIsNone(self.get(f"sessions/{url(A)}")["session"]["in_rate"])
        self.get("top")
        for _ in range(10):
            self.device.send(dumps({"id": 1, "type": "update", "from": f"{A}/x", "to": f"{B}/y"}))
        self.net.advance(1)

        self.assertGreater(self.get(f"sessions/{url(A)}")["session"]["in_rate"], 0)
        self.assertGreater(self.get(f"sessions/{url(B)}")["session"]["out_rate"], 0)

    def test_the_configuration_has_the_origin_of_each_key_and_no_secret(self) -> None:
        """
        Default, file, option; a password in a URL is hidden, too.
        """
        facts = self.net.operations.inspector.facts
        facts.given = {"domain": "example.org"}
        path = self.state / "node.toml"
        path.write_text("[limits]\nsessions = 2\n")
        facts.config_file = str(path)

        keys = {row["key"]: row for row in self.get("config")["keys"]}

        self.assertEqual(
            ("option", "file", "default"),
            tuple(keys[key]["origin"] for key in ("domain", "limits.sessions", "limits.connections")),
        )
        self.assertEqual(2, keys["limits.sessions"]["value"])
        self.assertEqual("***", without_secrets("cluster.password", "hush"))
        self.assertEqual("", without_secrets("cluster.password", ""))
        self.assertEqual(["nats://***@h:1"], without_secrets("cluster.url", ["nats://u:hush@h:1"]))
        self.assertEqual("https://***@h/a@b", without_secrets("policy.source", "https://u:hush@h/a@b"))
        self.assertEqual(
            [{"client_secret": "***", "issuer": "https://x"}],
            without_secrets("identity.providers", [{"client_secret": "hush", "issuer": "https://x"}]),
        )

    def test_the_keys_that_a_reload_leaves_for_a_restart_are_marked(self) -> None:
        """
        Those alone, not their whole section; all of a table that is in the file no more.
        """
        config = self.node.config
        config.connectors = {"idm": ConnectorOptions(stub="a.example")}
        fresh = deepcopy(config)
        fresh.cluster.url, fresh.connectors = ["nats://h:1"], {"qos": ConnectorOptions(stub="a.example")}
        reloading = Reloading(config, lambda: fresh, [], [], lambda act: act(), self.net.wall)
        self.net.operations.inspector.facts.reloading = reloading
        reloading.reload()

        waiting = {row["key"] for row in self.get("config")["keys"] if row["needs_restart"]}

        connectors = {f"connectors.idm.{key}" for key in ConnectorOptions.__struct_fields__}
        self.assertEqual({"cluster.url", *connectors}, waiting)

    def test_top_shows_who_sends_most_now(self) -> None:
        """
        Rates are measured from the first question on.
        """
        self.get("top")
        for _ in range(20):
            self.device.send(dumps({"id": 1, "type": "update", "from": f"{A}/x", "to": f"{B}/y"}))
        self.net.advance(1)

        found = self.get("top?by=in_messages")

        self.assertEqual(A, found["rows"][0]["name"])
        self.assertAlmostEqual(20, found["rows"][0]["in_messages"] * found["over"], delta=1)
        self.assertEqual("192.0.2.1", self.get("top?group=peer")["rows"][0]["name"])
        self.assertRefused(self.request("GET", "top?by=beauty"), 400, "in_messages")

    def test_nothing_is_sampled_when_nobody_asks_for_the_top(self) -> None:
        """
        Five minutes after the last question.
        """
        self.get("top")
        self.net.advance(320)

        slices = self.node.slices.done
        self.net.advance(60)

        self.assertEqual(slices, self.node.slices.done)

    def test_history_has_totals_as_rates_and_levels(self) -> None:
        """
        Every five seconds, and it survives a restart.
        """
        history = self.net.operations.history
        history.startService()
        for _ in range(10):
            self.device.send(dumps({"id": 1, "type": "update", "from": f"{A}/x", "to": f"{B}/y"}))
        self.net.advance(11)
        query = f"series?names=in_messages,sessions_attached&from={self.net.wall() - 15}"
        before = self.get(query)
        history.stopService()
        history.startService()

        self.assertIn(2, before["series"]["in_messages"])
        self.assertEqual(2, before["series"]["sessions_attached"][-1])
        self.assertEqual(before["series"], self.get(query)["series"])
        history.stopService()
        self.assertRefused(self.request("GET", "series?names=luck"), 400, "in_messages")

    def test_history_goes_on_when_the_clock_is_set_back(self) -> None:
        """
        Nothing of the time that is now ahead is shown as of another time, and uptime and lifetimes go on.
        """
        facts: NodeFacts = self.net.operations.inspector.facts
        back = [0.0]
        facts.wall = lambda: self.net.wall() + 20_000 - back[0]
        history = self.net.operations.history
        history.startService()
        self.addCleanup(history.stopService)
        self.net.advance(60)
        self.browser.drop()
        back[0] = 600.0
        self.net.advance(60)

        values = self.get("series?names=sessions_attached")["series"]["sessions_attached"]
        self.assertEqual({1, None}, set(values))
        self.assertEqual(12, len([value for value in values if value is not None]))
        self.assertEqual(120, self.get("node")["uptime"])
        self.assertLessEqual(0, self.get("connections")["connections"][0]["lifetime"])

    def test_pools_show_who_has_each_address(self) -> None:
        """
        Three addresses, two leased.
        """
        to = "domain://msg-node.example.org/address-allocation"
        self.device.ask(to=to, body={"scheme": "sip", "value": {"number": 2}})

        found = self.get("pools")

        self.assertEqual(({"sip": 3}, {"sip": 2}), (found["sizes"], found["leased"]))
        self.assertEqual({A}, {lease["session"] for lease in found["leases"]})

    def test_other_nodes_of_the_domain_are_asked_by_their_name(self) -> None:
        """
        A node that is alone asks itself; a name that it does not know is 404.
        """
        every = self.get("sessions?node=all&limit=1")["nodes"]

        self.assertEqual(["mn://example.org/test"], list(every))
        self.assertEqual(1, len(every["mn://example.org/test"]["sessions"]))
        self.assertEqual(2, self.get("sessions?node=test")["total"])
        self.assertRefused(self.request("GET", "sessions?node=other"), 404, "there are test")

    def test_openapi_describes_every_endpoint(self) -> None:
        """
        A document made from the types.
        """
        found = self.get("openapi.json")

        self.assertEqual("3.1.0", found["openapi"])
        for endpoint in self.net.operations.endpoints():
            self.assertIn(endpoint.verb.lower(), found["paths"][f"/api/v1/{endpoint.path}"])
        rows = found["components"]["schemas"]["SessionRow"]["properties"]
        self.assertIn("waiting_bytes", rows)

    def test_openapi_describes_what_is_no_endpoint_of_the_api_too(self) -> None:
        """
        Events, the lines of a trace, policies and links: each path is answered, and orders are all there are.
        """
        paths = self.get("openapi.json")["paths"]

        for verb, path in ROUTES:
            self.assertIn(verb.lower(), paths[f"/api/v1/policy/{path}"])
        for path in ("events", "traces/{id}/lines", "links", "links/{domain}", "routes", "routes/explain"):
            self.assertIn("get", paths[f"/api/v1/{path}"])
        [order] = [
            each
            for each in paths["/api/v1/links/{domain}/{order}"]["post"]["parameters"]
            if each["name"] == "order"
        ]
        self.assertEqual(list(ORDERS), order["schema"]["enum"])
        self.assertIn("content", paths["/api/v1/events"]["get"]["responses"]["200"])

    def test_unknown_paths_and_methods_are_answered_with_the_known_ones(self) -> None:
        """
        404 and 405.
        """
        self.assertRefused(self.request("GET", "luck"), 404, "sessions")
        answer = self.request("DELETE", "sessions")
        self.assertRefused(answer, 405, "expected GET")
        self.assertEqual("GET", answer.headers["Allow"])
