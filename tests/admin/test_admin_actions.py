"""
Actions on the admin listener: who may do them, what they do, and what the audit log has of them.
"""

import json
import shutil
from copy import deepcopy
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred

from msgnode.admin.access.named_tokens import ROLES
from msgnode.admin.actions.audited import ActionResult
from msgnode.admin.actions.ban_actions import id_of
from msgnode.admin.api.endpoint import Endpoint, Reason
from msgnode.admin.node_facts import NodeFacts
from msgnode.config.reload import Reloading
from msgnode.config.schema import ConfigError
from msgnode.storage.audit_log import mistakes
from msgnode.structures.log_levels import LogLevels
from tests.sessions.access.test_bans import Peer
from tests.support.admin_case import REASON, A, AdminCase, B, C, url
from tests.support.http_client import HTTPClient, Response
from tests.support.poll_runtime import PollRuntime
from tests.support.runtimes import TCPRuntime, WebSocketRuntime, dumps
from tests.support.socketio_runtime import SocketPollRuntime, SocketWebSocketRuntime

ELSEWHERE = IPv4Address("TCP", "203.0.113.9", 4000)
VIEWER_READS = (
    *("node", "config", "sessions", "connections", "addresses?prefix=x", "refusals", "top", "pools"),
    "reservations",
)
OPERATOR_ACTS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", f"sessions/{url(A)}/kick", {}),
    ("POST", "sessions/kick", {"filter": {"q": "nobody"}}),
    ("POST", f"sessions/{url(A)}/purge", {}),
    ("POST", f"sessions/{url(A)}/expire-token", {}),
    ("POST", "addresses/x/unbind", {}),
    ("POST", "pools/sip:x/take-back", {}),
    ("POST", "reservations/msgnode-x/take-back", {}),
    ("POST", "bans", {"kind": "runtime", "value": "runtime://x/y"}),
    ("DELETE", "bans/1", {}),
    ("POST", "limits", {"kind": "session", "value": A, "rate_messages": 5}),
    ("DELETE", "limits/1", {}),
]
ADMIN_ACTS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "drain", {}),
    ("POST", "undrain", {}),
    ("POST", "reload", {}),
    ("POST", "tokens", {"name": "x", "roles": ["viewer"]}),
    ("DELETE", "tokens/x", {}),
]


class AccessTests(AdminCase):
    """
    Tokens and roles.
    """

    def test_each_role_may_do_what_is_documented_and_no_more(self) -> None:
        """
        A role below is answered 403, and nothing is done.
        """
        tokens = {role: self.named(role) for role in ROLES}
        for path in VIEWER_READS:
            found = {role: self.request("GET", path, token=token).status for role, token in tokens.items()}
            self.assertEqual(
                {"viewer": 200, "operator": 200, "policy-manager": 403, "admin": 200, "metrics": 403},
                found,
                path,
            )
        for actions, allowed in ((OPERATOR_ACTS, {"operator", "admin"}), (ADMIN_ACTS, {"admin"})):
            for method, path, body in actions:
                for role in set(ROLES) - allowed:
                    answer = self.request(method, path, {"reason": REASON, **body}, tokens[role])
                    self.assertRefused(answer, 403, "does not have the role")
                for role in allowed:
                    answer = self.request(
                        f"{method}", f"{path}?dry_run=1", {"reason": REASON, **body}, tokens[role]
                    )
                    self.assertNotIn(answer.status, (401, 403), (path, role))
        self.assertEqual(2, self.get("sessions?state=attached")["total"])
        for role in set(ROLES) - {"admin"}:
            self.assertRefused(self.request("GET", "audit", token=tokens[role]), 403, "role")

    def test_a_named_token_is_shown_once_and_kept_as_a_hash(self) -> None:
        """
        It ends when its time is over, or it is revoked.
        """
        made = self.act("tokens", name="grafana", roles=["viewer"], seconds=60)
        token = made["details"]["token"]

        self.assertEqual(200, self.request("GET", "node", token=token).status)
        self.assertNotIn(token, (self.state / "admin-tokens").read_text())
        self.assertNotIn(token, json.dumps([self.get("tokens"), self.get("audit"), self.audit()]))
        self.assertEqual(0o600, (self.state / "admin-tokens").stat().st_mode & 0o777)
        self.assertRefused(
            self.request("POST", "tokens", {"reason": REASON, "name": "grafana", "roles": ["viewer"]}),
            409,
            "revoke it first",
        )
        self.net.advance(61)
        self.assertRefused(self.request("GET", "node", token=token), 401, "admin-token")
        self.act("tokens/grafana", "DELETE")
        self.assertEqual([], self.get("tokens")["tokens"])

    def test_a_token_without_a_role_or_of_an_unknown_one_is_not_made(self) -> None:
        """
        Roles are compulsory.
        """
        for roles in ([], ["king"]):
            answer = self.request("POST", "tokens", {"reason": REASON, "name": "x", "roles": roles})
            self.assertRefused(answer, 400, "viewer, operator")

    def test_tokens_that_cannot_be_read_now_are_not_lost(self) -> None:
        """
        A new token is refused then; lines of another release stay when it is made or revoked.
        """
        viewer, path = self.named("viewer"), self.state / "admin-tokens"
        kept = path.read_bytes()
        path.unlink()
        path.mkdir()  # which cannot be read
        body = {"reason": REASON, "name": "x", "roles": ["viewer"]}
        self.assertRefused(self.request("POST", "tokens", body), 503, "cannot be read")
        self.assertRefused(self.request("DELETE", "tokens/viewer", {"reason": REASON}), 503, "cannot be read")
        path.rmdir()
        path.write_bytes(b'{"name": "of a later release", "scopes": []}\n' + kept)

        self.act("tokens", name="x", roles=["viewer"])
        self.act("tokens/x", "DELETE")

        self.assertEqual(200, self.request("GET", "node", token=viewer).status)
        self.assertIn(b"of a later release", path.read_bytes())

    def test_no_token_has_the_name_of_another_operator_in_the_audit_log(self) -> None:
        """
        That of the machine's token, or of a signal.
        """
        for name in ("admin-token", "signal", " Admin-Token "):
            body = {"reason": REASON, "name": name, "roles": ["admin"]}
            self.assertRefused(self.request("POST", "tokens", body), 400, "choose another")
        self.assertEqual([], self.get("tokens")["tokens"])

    def test_the_token_of_the_machine_is_valid_on_this_machine_only(self) -> None:
        """
        A named one is valid from anywhere.
        """
        named = self.named("viewer")

        self.assertEqual(401, self.request("GET", "node", peer=ELSEWHERE).status)
        self.assertEqual(200, self.request("GET", "node", token=named, peer=ELSEWHERE).status)

    def test_what_a_proxy_on_this_machine_forwards_is_not_from_this_machine(self) -> None:
        """
        Neither the machine's token nor figures without a token are for its clients, whether the proxy is
        trusted or not; the audit log has the address of a client of a trusted one.
        """
        for trusted in ([], ["127.0.0.1"], ["127.0.0.1", "203.0.113.9"]):
            self.node.config.trusted_proxies = trusted
            self.net.advance(61)  # failures are limited
            for forwarded in ("203.0.113.9", "127.0.0.1, 203.0.113.9", "nonsense"):
                http = HTTPClient(self.net, "admin")
                headers = {"X_Forwarded_For": forwarded}
                self.assertEqual(401, http.request("GET", "/metrics", **headers).status, (trusted, forwarded))
                self.assertEqual(401, self.request("GET", "node", **headers).status, (trusted, forwarded))
                self.assertEqual({"status", "version"}, set(http.request("GET", "/live", **headers).json()))
            self.assertEqual(200, self.request("GET", "node", X_Forwarded_For="127.0.0.1").status)
            self.assertEqual(401, self.request("GET", "node", X_Real_IP="203.0.113.9").status)

        self.node.config.trusted_proxies = ["127.0.0.1"]
        body = {"reason": REASON, "kind": "user", "value": "x"}
        named = self.named("operator")
        for client in ("203.0.113.7", "203.0.113.8"):
            forwarded = f"198.51.100.1, {client}"
            self.assertEqual(200, self.request("POST", "bans", body, named, X_Forwarded_For=forwarded).status)
            self.assertEqual(client, self.audit()[-1]["peer"])
        codes = [
            self.request("GET", "node", token="x", X_Forwarded_For="192.0.2.66").status for _ in range(7)
        ]
        self.assertEqual([401] * 5 + [429] * 2, codes)
        other = self.request("GET", "node", token="x", X_Forwarded_For="192.0.2.67")
        self.assertEqual(401, other.status)

    def test_guesses_are_throttled_and_a_valid_token_is_not(self) -> None:
        """
        After five failures in a minute 429, with the time to wait.
        """
        named = self.named("viewer")
        codes = [self.request("GET", "node", token=f"guess{n}", peer=ELSEWHERE).status for n in range(7)]

        self.assertEqual([401] * 5 + [429] * 2, codes)
        self.assertEqual(200, self.request("GET", "node", token=named, peer=ELSEWHERE).status)
        self.net.advance(61)
        self.assertEqual(401, self.request("GET", "node", token="guess", peer=ELSEWHERE).status)

    def test_a_page_of_another_origin_can_neither_read_nor_act(self) -> None:
        """
        No answer has a CORS header, and a foreign host name is answered 421.
        """
        origin = {"Origin": "https://evil.example"}
        answer = self.request("GET", "sessions", **origin)
        preflight = HTTPClient(self.net, "admin").request("OPTIONS", "/api/v1/sessions", **origin)

        self.assertNotIn("Access-Control-Allow-Origin", answer.headers)
        self.assertNotIn("Access-Control-Allow-Origin", preflight.headers)
        self.assertEqual(401, preflight.status)
        self.assertRefused(
            self.request("GET", "sessions", token="x", Host="evil.example"), 421, "evil.example"
        )

    def test_a_valid_token_passes_by_any_host_and_guesses_are_counted(self) -> None:
        """
        A page that rebound its name has no token; one that tries is throttled, as elsewhere.
        """
        host = {"Host": "mn.cluster.example"}

        self.assertEqual(200, self.request("GET", "node", token=self.named("viewer"), **host).status)
        self.assertEqual(200, self.request("GET", "node", **host).status)
        codes = [self.request("GET", "node", token=f"guess{n}", **host).status for n in range(6)]
        self.assertEqual([421] * 5 + [429], codes)

    def test_a_request_of_a_page_does_not_pass_by_a_token(self) -> None:
        """
        A proxy may have added it; by a name of the node it passes.
        """
        for header in ({"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "same-origin"}):
            answer = self.request("GET", "node", Host="evil.example", **header)
            self.assertRefused(answer, 421, "of a page needs it also with a token")
            live = HTTPClient(self.net, "admin").request("GET", "/live", Host="evil.example", **header)
            self.assertEqual({"status", "version"}, set(live.json()))
            self.assertEqual(200, self.request("GET", "node", Host="localhost", **header).status)

    def test_live_says_by_any_host_only_how_the_node_is(self) -> None:
        """
        For a load balancer, whose token may have ended; a page that rebound its name learns no more.
        """
        ended = {"Authorization": "Bearer mna_ended"}

        for path, given in [("?node=all", {}), ("/", {}), *[("", ended), ("/", ended)] * 4]:
            client = HTTPClient(self.net, "admin")
            found = client.request("GET", f"/live{path}", Host="evil.example", **given)

            self.assertEqual((200, {"status", "version"}), (found.status, set(found.json())))
            self.assertNotIn("Retry-After", found.headers)

    def test_a_token_that_is_not_valid_is_named_when_the_host_is_refused(self) -> None:
        """
        The name may be a right one, and the token has ended.
        """
        answer = self.request("GET", "node", token="mna_ended", Host="mn.cluster.example")

        self.assertRefused(answer, 421, "add it to admin.hosts; or the token of the request is not valid")

    def test_figures_are_open_on_this_machine_and_need_a_token_from_elsewhere(self) -> None:
        """
        One with the role metrics, viewer or above; without one /live only says how the node is.
        """

        def ask(path: str, token: str = "", peer: IPv4Address | None = ELSEWHERE) -> Response:
            given = {"Authorization": f"Bearer {token}"} if token else {}
            return HTTPClient(self.net, "admin", peer).request("GET", path, **given)

        self.assertIn(b"msgnode_sessions", ask("/metrics", peer=None).body)
        self.assertIn("sessions", ask("/live", peer=None).json())
        self.assertEqual(401, ask("/metrics").status)
        self.assertEqual({"status", "version"}, set(ask("/live").json()))
        for role in ROLES:
            token = self.named(role)
            self.assertEqual(200, ask("/metrics", token).status, role)
            self.assertIn("sessions", ask("/live", token).json(), role)
        self.assertEqual(401, ask("/live", "guess").status)
        self.node.config.admin.open_metrics = True
        self.assertEqual(200, ask("/metrics").status)

    def test_the_policies_are_below_the_api_too(self) -> None:
        """
        At the old path and the new one.
        """
        self.assertEqual(self.get("policy/versions"), [])


class SessionTests(AdminCase):
    """
    Actions on sessions.
    """

    def test_a_kick_closes_the_connection_and_keeps_the_session(self) -> None:
        """
        With 4410 and a time to come back; the closed connection says that an operator did it.
        """
        found = self.act(f"sessions/{url(A)}/kick")

        self.assertEqual((1, [A]), (found["done"], found["targets"]))
        self.net.advance(6)
        self.assertEqual("away", self.get(f"sessions/{url(A)}")["session"]["state"])
        [row] = self.get("connections?state=closed&by=admin")["connections"]
        self.assertEqual((4410, "removed", A), (row["code"], row["reason"], row["session"]))

    def test_a_kick_is_told_at_every_connector(self) -> None:
        """
        A WebSocket by its close code, a line and Socket.IO by a closing object, a poll by status 410.
        """
        kinds = (TCPRuntime, WebSocketRuntime, PollRuntime, SocketPollRuntime, SocketWebSocketRuntime)
        for number, kind in enumerate(kinds):
            client = kind(self.net, f"runtime://example.org/k{number}").open()
            self.act(f"sessions/{url(client.url)}/kick")
            self.net.advance(6)
            if isinstance(client, PollRuntime):
                client.send({"id": 2, "type": "update", "from": client.url, "to": B})
            self.assertEqual(client.closings.get(4410, 4410), client.code, kind)

    def test_a_kick_says_when_the_client_came_back(self) -> None:
        """
        If it is asked to wait for that.
        """
        self.clients: list[TCPRuntime] = []
        self.net.clock.callLater(7, lambda: self.clients.append(TCPRuntime(self.net, A).open()))

        found = self.act(f"sessions/{url(A)}/kick", wait_seconds=10)

        self.assertEqual(7, round(found["details"]["back_after"] - 0.4))
        self.assertIsNone(self.act(f"sessions/{url(B)}/kick", wait_seconds=2)["details"]["back_after"])

    def test_a_kick_may_end_the_session(self) -> None:
        """
        With its addresses and messages.
        """
        self.act(f"sessions/{url(A)}/kick", end=True, retry_after=-1)

        self.assertRefused(self.request("GET", f"sessions/{url(A)}"), 404, "no session")

    def test_a_kick_may_ban_for_a_while(self) -> None:
        """
        The client comes back when it is over.
        """
        self.act(f"sessions/{url(A)}/kick", ban_seconds=30)
        self.net.advance(6)
        again = TCPRuntime(self.net, A)
        again.attempt({"id": 1, "type": "open", "from": A, "to": "mn:/session"})
        self.assertEqual("away", self.get(f"sessions/{url(A)}")["session"]["state"])

        self.net.advance(31)
        TCPRuntime(self.net, A).open()

        self.assertEqual("attached", self.get(f"sessions/{url(A)}")["session"]["state"])

    def test_many_are_kicked_by_a_filter_when_their_number_is_confirmed(self) -> None:
        """
        A dry run says whom; another number by now is 409, and so is none.
        """
        body = {"filter": {"connector": "websocket"}}
        WebSocketRuntime(self.net, C).open()

        tried = self.act("sessions/kick?dry_run=1", **body)
        self.assertEqual((2, True, {B, C}), (tried["done"], tried["dry_run"], set(tried["targets"])))
        for confirm in ("", "?confirm=1"):
            answer = self.request("POST", f"sessions/kick{confirm}", {"reason": REASON, **body})
            self.assertRefused(answer, 409, "confirm=2")
        self.assertEqual(3, self.get("sessions?state=attached")["matched"])
        done = self.act("sessions/kick?confirm=2", **body)

        self.assertEqual({"connections": 2, "ended": False}, done["details"])
        self.net.advance(6)
        self.assertEqual([A], [row["runtime"] for row in self.get("sessions?state=attached")["sessions"]])
        self.assertRefused(
            self.request("POST", "sessions/kick", {"reason": REASON, "filter": {}}), 400, "every client"
        )

    def test_a_purge_drops_what_waits(self) -> None:
        """
        The senders that asked get receipts.
        """
        self.browser.drop()
        for number in range(3):
            self.device.send(dumps({"id": number, "type": "update", "from": f"{A}/x", "to": f"{B}/y"}))

        found = self.act(f"sessions/{url(B)}/purge")

        self.assertEqual(3, found["details"]["messages"])
        self.assertEqual(0, self.get(f"sessions/{url(B)}")["session"]["waiting"])

    def test_a_purge_may_drop_old_messages_only(self) -> None:
        """
        Those that wait for longer than a time; the others stay in their order.
        """
        self.browser.drop()
        for number in range(4):
            message = {"id": number, "type": "update", "from": A, "to": B, "body": {}}
            self.device.send(dumps(message))
        for number, kept in enumerate(self.node.sessions.get(B).mailbox.queued_messages()):
            kept.came = int((self.net.wall() - (3600 if number < 2 else 60)) * 1e9)

        found = self.act(f"sessions/{url(B)}/purge", older_than_s=1800)

        self.assertEqual(2, found["details"]["messages"])
        self.browser.come_back()
        self.assertEqual([2, 3], [each["id"] for each in self.browser.take() if each["type"] == "update"])
        answer = self.request("POST", f"sessions/{url(B)}/purge", {"reason": REASON, "older_than_s": -1})
        self.assertRefused(answer, 400, "older_than_s")

    def test_a_void_token_brings_no_client_back(self) -> None:
        """
        Who comes back with it is given a new session token, as a stranger is.
        """
        before = self.node.sessions.get(A).token_hash

        self.act(f"sessions/{url(A)}/expire-token")

        self.assertTrue(before)
        self.assertEqual(b"", self.node.sessions.get(A).token_hash)

    def test_an_address_is_freed_from_its_session(self) -> None:
        """
        With several sessions the operator names one.
        """
        chat = "comm://example.org/chat/changes"
        for client in (self.device, self.browser):
            manager = "domain://msg-node.example.org/sm"
            client.ask(type="subscribe", to=manager, body={"resources": [chat]})

        answer = self.request("POST", f"addresses/{url(chat)}/unbind", {"reason": REASON})
        self.assertRefused(answer, 409, "name one")
        self.act(f"addresses/{url(chat)}/unbind", session=A)

        self.assertEqual([B], [each["runtime"] for each in self.get(f"addresses/{url(chat)}")["hearers"]])


class LeaseTests(AdminCase):
    """
    Leases of a pool.
    """

    sections = {"pools": {"guests": {"scheme": "sip", "pattern": "sip:guest{1..2}@example.org"}}}

    def test_take_back_a_lease(self) -> None:
        """
        An operator takes an address of a pool back; its session is told, and another one may have it.
        """
        ann, bob = self.device, self.browser
        at, wanted = (
            "domain://msg-node.example.org/address-allocation",
            {"scheme": "sip", "value": {"number": 2}},
        )
        one, two = ann.ask(type="create", to=at, body=wanted)["body"]["value"]["allocated"]
        path = f"pools/{url(one)}/take-back"
        for bad in (f"pools/{url('sip:x@d')}/take-back", f"pools/{url('x')}/take-back"):
            self.assertRefused(self.request("POST", bad, {"reason": REASON}), 404, "not an address of a pool")
        self.assertEqual(1, self.act(f"{path}?dry_run=1")["done"])
        self.assertEqual({"sip": 2}, self.get("pools")["leased"])

        done = self.act(path)

        self.assertEqual((1, [A], {"address": one}), (done["done"], done["targets"], done["details"]))
        [told] = ann.take()
        body = {"resource": one, "reason": "removed"}
        self.assertEqual(("delete", at, A, body), (told["type"], told["from"], told["to"], told["body"]))
        report = self.get("pools")
        self.assertEqual(({"sip": 1}, {"sip": "anybody"}), (report["leased"], report["clients"]))
        self.assertEqual([(two, A)], [(each["address"], each["session"]) for each in report["leases"]])
        self.assertRefused(self.request("POST", path, {"reason": REASON}), 404, "is not leased")
        answer = bob.ask(type="create", to=at, body={"scheme": "sip"})["body"]
        self.assertEqual([one], answer["value"]["allocated"])
        line = self.audit()[-1]
        self.assertEqual(("take-back", REASON, one), (line["action"], line["reason"], line["before"]))


class FarRuntime(TCPRuntime):
    """
    A device at an IPv6 address.
    """

    peer = IPv6Address("TCP", "2001:db8::7", 4000)


class BanTests(AdminCase):
    """
    Bans and temporary limits.
    """

    def test_a_ban_of_a_network_disconnects_and_keeps_out(self) -> None:
        """
        Until it is lifted; the refusal is in the ring with its reason.
        """
        found = self.act("bans?confirm=9", kind="peer", value="192.0.2.0/24", seconds=600)
        self.net.advance(6)
        self.assertEqual(0, self.get("sessions?state=attached")["matched"])
        WebSocketRuntime(self.net, C)
        self.net.advance(6)
        self.assertEqual("banned", self.get("refusals?code=403")["refusals"][0]["reason"])
        self.assertEqual(1, self.get("bans")["refused"])

        self.act(f"bans/{found['details']['ban']['id']}", "DELETE")

        WebSocketRuntime(self.net, C).open()
        self.assertEqual([], self.get("bans")["bans"])

    def test_a_ban_that_disconnects_several_clients_is_confirmed(self) -> None:
        """
        By the number of the dry run, or a higher one: clients come and go. One client needs no confirmation.
        """
        body = {"reason": REASON, "kind": "peer", "value": "0.0.0.0/0"}
        self.assertEqual(2, self.act("bans?dry_run=1", kind="peer", value="0.0.0.0/0")["done"])

        for path in ("bans", "bans?confirm=0", "bans?confirm=1"):
            self.assertRefused(self.request("POST", path, body), 409, "confirm=2")
        self.assertEqual(2, self.get("sessions?state=attached")["matched"])
        self.act("bans", kind="runtime", value=A)
        self.act("bans?confirm=3", kind="peer", value="0.0.0.0/0")

        self.net.advance(6)
        self.assertEqual(0, self.get("sessions?state=attached")["matched"])

    def test_bans_by_name_and_by_user_are_applied_when_a_session_opens(self) -> None:
        """
        Also to a poll, which is answered 410.
        """
        self.act("bans", kind="runtime", value=C, seconds=0)
        client = PollRuntime(self.net, C)

        answer = client.post.request(
            "POST", "/poll", dumps({"id": 1, "type": "open", "from": C, "to": "mn:/session"})
        )

        self.assertEqual(410, answer.status)
        self.assertNotIn("Retry-After", answer.headers)

    def test_bans_survive_a_restart_and_end_in_time(self) -> None:
        """
        In bans.json of the state directory.
        """
        self.act("bans", kind="runtime", value=C, seconds=60)
        self.act("bans", kind="user", value="user://x", seconds=0)
        kept = json.loads((self.state / "bans.json").read_text())
        self.assertEqual([C, "user://x"], [ban["value"] for ban in kept])

        self.node.bans.remove(kept[0]["id"])
        self.node.bans.remove(kept[1]["id"])
        for service in self.net.operations.services():
            service.startService()
            self.addCleanup(service.stopService)
        self.assertEqual(2, len(self.get("bans")["bans"]))
        self.net.advance(61)
        self.assertEqual(["user://x"], [ban["value"] for ban in self.get("bans")["bans"]])

    def test_a_ban_holds_though_the_disk_takes_nothing(self) -> None:
        """
        Neither its line in the audit log nor the file of bans can be written: the answer says so, and the
        lines are counted.
        """
        (self.state / "audit").write_text("a file in the place of the directory")
        (self.state / "bans.json").mkdir()

        answer = self.request(
            "POST", "bans", {"kind": "runtime", "value": A, "seconds": 60, "reason": REASON}
        )
        self.net.advance(6)

        self.assertRefused(answer, 503, "this is in effect, but cannot be written to disk")
        self.assertEqual([A], [ban["value"] for ban in self.get("bans")["bans"]])
        self.assertEqual("away", self.get(f"sessions/{url(A)}")["session"]["state"])
        self.assertEqual(2, self.net.operations.audit.failures)
        self.assertEqual(2, len(self.flushLoggedErrors()))

    def test_a_ban_is_written_when_the_disk_takes_it(self) -> None:
        """
        Some seconds later, or when the node stops: it would be lost at the next start.
        """
        services = list(self.net.operations.services())
        for service in services:
            service.startService()
        file = self.state / "bans.json"
        ban = {"kind": "runtime", "seconds": 0, "reason": REASON}

        def kept() -> list[str]:
            return [each["value"] for each in json.loads(file.read_text())]

        file.mkdir()
        self.assertRefused(self.request("POST", "bans", {**ban, "value": C}), 503, "is in effect")
        self.net.advance(11)
        self.assertEqual([], list(self.state.glob("bans.json.new")))
        file.rmdir()
        self.net.advance(11)
        self.assertEqual([C], kept())

        file.unlink()
        file.mkdir()
        self.assertRefused(self.request("POST", "bans", {**ban, "value": f"{C}2"}), 503, "is in effect")
        file.rmdir()
        for service in reversed(services):
            service.stopService()
        self.assertEqual([C, f"{C}2"], kept())

    def test_a_file_that_the_disk_does_not_give_stops_the_start(self) -> None:
        """
        Bans do not end by a fault of the disk, nor labels: the file stays where it is.
        """
        for name in ("bans.json", "labels.json"):
            file = self.state / name
            file.mkdir()  # as for other faults, reading it is an OSError
            with self.assertRaisesRegex(ConfigError, f"state: cannot read .*/{name}: Is a directory"):
                for service in self.net.operations.services():
                    self.addCleanup(service.stopService)
                    service.startService()
            self.assertEqual([file], list(self.state.glob(f"{name}*")))
            file.rmdir()

    def test_damaged_bans_are_set_aside(self) -> None:
        """
        The next ban does not replace them.
        """
        (self.state / "bans.json").write_text('[{"id": "1", "ki')
        for service in self.net.operations.services():
            service.startService()
            self.addCleanup(service.stopService)
        self.act("bans", kind="runtime", value=C)

        [kept] = self.state.glob("bans.json.damaged-*")
        self.assertEqual('[{"id": "1", "ki', kept.read_text())

    def test_an_operator_bans_for_a_day_at_most(self) -> None:
        """
        For longer the role admin is needed.
        """
        token = self.named("operator")
        for seconds, status in ((86400, 200), (86401, 403), (0, 403)):
            body = {"reason": REASON, "kind": "runtime", "value": C, "seconds": seconds}
            self.assertEqual(status, self.request("POST", "bans", body, token).status)
        answer = self.request("POST", "bans", {"reason": REASON, "kind": "peer", "value": "there"})
        self.assertRefused(answer, 400, "10.0.0.0/8")

    def test_a_kick_bans_no_longer_than_its_operator_may(self) -> None:
        """
        More than 24 hours need the role admin there, too; and a ban that ends never has no date.
        """
        token = self.named("operator")
        many = {"reason": REASON, "filter": {"q": "example"}, "ban_seconds": 86401}
        for path in (f"sessions/{url(A)}/kick", "sessions/kick"):
            body = many if path == "sessions/kick" else {"reason": REASON, "ban_seconds": 86401}
            self.assertRefused(self.request("POST", path, body, token), 403, "24 hours")
            self.assertRefused(self.request("POST", path, {**body, "ban_seconds": 1e18}), 400, "seconds")
            self.assertRefused(self.request("POST", path, {**body, "ban_seconds": -1}), 400, "seconds")
        self.assertEqual([], self.get("bans")["bans"])

    def test_a_ban_closes_connections_without_a_session(self) -> None:
        """
        A client cannot keep one in reserve, and open its session later.
        """
        waiting = TCPRuntime(self.net, C)
        self.act("bans?confirm=9", kind="peer", value="192.0.2.0/24")
        self.net.advance(1)

        self.assertEqual(4410, waiting.code)

    def test_a_banned_client_cannot_post_messages_one_by_one(self) -> None:
        """
        Neither by the token of its session, which stays, nor without one from its address or origin.
        """
        client = PollRuntime(self.net, C)
        client.open()
        message = dumps({"id": 2, "type": "update", "from": "", "to": A, "body": {}})
        by_token = {"Authorization": f"Bearer {client.token}"}
        page = {"Origin": "http://example.org"}
        for kind, value, sent in (
            ("runtime", C, by_token),
            ("peer", "192.0.2.0/24", {}),
            ("origin", "http://example.org", page),
        ):
            http = HTTPClient(self.net)
            self.assertNotEqual(403, http.request("POST", "/message", message, **sent).status, kind)
            made = self.act("bans?confirm=9", kind=kind, value=value)["details"]["ban"]
            answer = http.request("POST", "/message", message, **sent)
            self.assertRefused(answer, 403, "an operator banned this client")
            self.act(f"bans/{made['id']}", "DELETE")

    def test_a_ban_of_an_origin_concerns_its_pages_at_every_connector(self) -> None:
        """
        Those that poll, too.
        """
        self.act("bans", kind="origin", value="http://example.org")
        opening = dumps({"id": 1, "type": "open", "from": C, "to": "mn:/session"})
        for origin, status in (("http://example.org", 410), ("http://other.example", 200)):
            answer = HTTPClient(self.net).request("POST", "/poll", opening, Origin=origin)
            self.assertEqual(status, answer.status, answer.body)

    def test_a_ban_of_a_user_outlives_that_of_a_device_of_the_same_name(self) -> None:
        """
        Each is lifted by itself.
        """
        self.act("bans", kind="user", value="user://x")
        found = self.act("bans", kind="device", value="user://x")
        self.act(f"bans/{found['details']['ban']['id']}", "DELETE")

        self.assertIsNotNone(self.node.bans.of_session(C, "user://x", Peer("192.0.2.1:1")))

    def test_a_client_is_throttled_for_a_while(self) -> None:
        """
        Its messages beyond the limit are refused with 429.
        """
        found = self.act("limits", kind="session", value=A, rate_messages=2, seconds=30)
        message = dumps({"id": 1, "type": "update", "from": f"{A}/x", "to": f"{B}/y"})
        for _ in range(10):
            self.device.send(message)
        self.assertEqual("rate", self.get(f"refusals?session={A}")["refusals"][0]["reason"])
        self.assertEqual(found["details"]["limit"], self.get("limits")["limits"][0])

        self.net.advance(31)
        before = self.get(f"sessions/{url(A)}")["session"]["refused"]
        for _ in range(10):
            self.device.send(message)

        self.assertEqual(before, self.get(f"sessions/{url(A)}")["session"]["refused"])
        self.assertEqual([], self.get("limits")["limits"])

    def test_what_a_ban_or_a_limit_replaces_is_in_the_audit_log(self) -> None:
        """
        An operator may replace or lift the ban of another one: the log has that as it was.
        """
        old = self.act("bans", kind="runtime", value=C, seconds=0)["details"]["ban"]
        self.act("bans", kind="runtime", value=C, seconds=1)
        new = self.get("bans")["bans"][0]
        self.act(f"bans/{old['id']}", "DELETE")
        slow = self.act("limits", kind="session", value=A, rate_messages=5)["details"]["limit"]
        self.act("limits", kind="session", value=A, rate_messages=500)

        lines = [line.get("before") for line in self.audit() if line["phase"] == "result"]
        self.assertEqual([None, old, new, None, slow], lines)

    def test_a_limit_that_would_never_take_effect_is_refused(self) -> None:
        """
        Of a network, of what is no IP address or runtimeURL, or of a text without end.
        """
        for kind, value, part in (
            ("peer", "10.0.0.0/8", "expected an IP address"),
            ("peer", "foo", "expected an IP address"),
            ("session", "nope", "expected a runtimeURL"),
            ("user", "", "1 to 500 characters"),
            ("user", "x" * 501, "1 to 500 characters"),
            ("origin", "http://x", "session, user, peer"),
        ):
            body = {"reason": REASON, "kind": kind, "value": value, "rate_messages": 5}
            self.assertRefused(self.request("POST", "limits", body), 400, part)
        self.assertEqual([], self.get("limits")["limits"])

    def test_a_limit_of_an_ipv6_address_is_one_of_its_network(self) -> None:
        """
        As every limit of an IP address: its client has all of a /64.
        """
        client = FarRuntime(self.net, C).open()
        for value in ("2001:db8::9", "2001:db8::/64", "2001:db8:0:0::1"):
            limit = self.act("limits", kind="peer", value=value, rate_messages=1)["details"]["limit"]
            self.assertEqual("2001:db8::/64", limit["value"])
        for _ in range(5):
            client.send(dumps({"id": 1, "type": "update", "from": f"{C}/x", "to": f"{B}/y"}))

        self.assertEqual("rate", self.get(f"refusals?session={C}")["refusals"][0]["reason"])
        mapped = self.act("limits", kind="peer", value="::ffff:192.0.2.1", rate_messages=1)["details"][
            "limit"
        ]
        self.assertEqual("192.0.2.1", mapped["value"])


class NodeTests(AdminCase):
    """
    Actions on the node.
    """

    def test_a_drain_takes_no_new_clients_and_closes_the_old_ones_evenly(self) -> None:
        """
        `/live` says so; undrain ends it.
        """
        for service in self.net.operations.services():
            service.startService()
            self.addCleanup(service.stopService)
        clients = [TCPRuntime(self.net, f"runtime://example.org/d{number}").open() for number in range(8)]
        self.assertEqual(8, len(clients))

        self.act("drain", seconds=10)
        self.assertEqual("draining", self.get("node")["status"])
        self.net.advance(5.5)
        half = self.get("sessions?state=attached")["matched"]
        self.net.advance(12)
        none = self.get("sessions?state=attached")["matched"]
        TCPRuntime(self.net, C)
        self.net.advance(6)
        self.assertIsNone(self.node.sessions.get(C))
        self.act("undrain")
        TCPRuntime(self.net, C).open()

        self.assertIn(half, (4, 5, 6))
        self.assertEqual(0, none)
        self.assertEqual("up", self.get("node")["status"])

    def test_a_reload_answers_with_its_verdict(self) -> None:
        """
        The keys that changed, or the mistake.
        """
        facts: NodeFacts = self.net.operations.inspector.facts
        self.assertRefused(self.request("POST", "reload", {"reason": REASON}), 501, "nothing to reload")
        config = self.node.config

        def read() -> Any:
            raise ConfigError("node.toml: limits.sessions: expected a whole number, found 'x'")

        facts.reloading = Reloading(config, read, [], [], lambda act: act(), self.net.wall)
        self.assertRefused(self.request("POST", "reload", {"reason": REASON}), 409, "limits.sessions")
        self.assertEqual(["config"], [each["what"] for each in self.get("node")["troubles"]])
        facts.reloading = Reloading(config, lambda: config, [], [], lambda act: act(), self.net.wall)

        self.assertEqual("changed: no key", self.act("reload")["details"]["text"])
        self.assertEqual("changed: no key", self.audit()[-1]["result"])

    def test_the_level_of_a_namespace_is_changed_for_a_while(self) -> None:
        """
        A second change replaces the first one with its end; both are listed, and what is wrong is told.
        """
        levels = self.net.facts.log_levels = LogLevels("warn")
        for level, seconds in (("debug", 30), ("error", 90)):
            self.act("log-level", namespace="msgnode.links", level=level, seconds=seconds)
        self.net.advance(60)

        found = self.get("log-level")
        self.assertEqual("warn", found["level"])
        self.assertEqual(["error"], [row["level"] for row in found["namespaces"]])
        self.net.advance(60)
        self.assertEqual(([], "warn"), (self.get("log-level")["namespaces"], levels.of("msgnode.links")))
        for wrong in ({"level": "loud"}, {"seconds": 0}, {"seconds": 90_000}, {"namespace": "a\nb"}):
            body = {"namespace": "msgnode", "level": "info", "reason": REASON, **wrong}
            self.assertRefused(self.request("POST", "log-level", body), 400, next(iter(wrong)))

    def test_a_probe_says_what_would_become_of_a_message(self) -> None:
        """
        Nothing is sent.
        """
        for from_, to, outcome in (
            (f"{A}/x", f"{B}/y", "delivered"),
            (f"{A}/x", "comm://nobody", "no-route"),
            (f"{A}/x", "domain://msg-node.example.org/sm", "answered"),
            ("runtime://example.org/nobody", f"{B}/y", "refused"),
        ):
            answer = self.request("POST", "probe", {"from": from_, "to": to})
            self.assertEqual(outcome, answer.json()["outcome"], answer.body)
        self.browser.drop()
        answer = self.request("POST", "probe", {"from": f"{A}/x", "to": f"{B}/y"})
        self.assertEqual("waiting", answer.json()["outcome"])
        self.assertEqual(0, self.get(f"sessions/{url(B)}")["session"]["waiting"])


class BodyTests(AdminCase):
    """
    Bodies of actions.
    """

    def test_a_wrong_name_is_answered_with_those_that_there_are_in_its_place(self) -> None:
        """
        Those of a filter, if it is in the filter.
        """
        for body, part, known in (
            ({"zzz": 1}, "unknown field 'zzz'; known are reason, ", "filter"),
            ({"filter": {"zzz": 1}}, "unknown field 'zzz' in filter; known are ", "min_reconnects"),
        ):
            answer = self.request("POST", "sessions/kick", {"reason": REASON, **body})
            self.assertRefused(answer, 400, part)
            self.assertIn(known, answer.json()["description"])
        wrong = self.request("POST", "sessions/kick", {"reason": REASON, "filter": {"q": 1}})
        self.assertRefused(wrong, 400, "field filter.q: expected")


class DryRunTests(AdminCase):
    """
    Dry runs.
    """

    def test_what_would_be_refused_is_refused_in_a_dry_run_too(self) -> None:
        """
        A token of a role that there is not, one that is not known, a configuration with a mistake.
        """
        self.named("viewer")
        for name, roles, code in (("x", ["root"], 400), ("viewer", ["viewer"], 409), ("", ["viewer"], 400)):
            body = {"reason": REASON, "name": name, "roles": roles}
            self.assertEqual(code, self.request("POST", "tokens?dry_run=1", body).status, name)
        gone = self.request("DELETE", "tokens/zzz?dry_run=1", {"reason": REASON})
        self.assertRefused(gone, 404, "no token 'zzz'")

        def broken() -> Any:
            raise ConfigError("msgnode.toml: line 3 is broken")

        facts: NodeFacts = self.net.operations.inspector.facts
        facts.reloading = Reloading(self.node.config, broken, [], [], lambda act: act(), self.net.wall)
        refused = self.request("POST", "reload?dry_run=1", {"reason": REASON})
        self.assertRefused(refused, 409, "line 3 is broken")

    def test_a_dry_run_of_a_reload_says_what_it_would_change(self) -> None:
        """
        And changes nothing.
        """
        fresh = deepcopy(self.node.config)
        fresh.drain_seconds, fresh.node = 77.0, "other"
        facts: NodeFacts = self.net.operations.inspector.facts
        facts.reloading = Reloading(self.node.config, lambda: fresh, [], [], lambda act: act(), self.net.wall)

        found = self.act("reload?dry_run=1")

        self.assertEqual({"changed": ["drain_seconds"], "needs_restart": ["node"]}, found["details"])
        self.assertNotEqual(77.0, self.node.config.drain_seconds)
        self.assertIsNone(facts.reloading.last)


class AuditTests(AdminCase):
    """
    The audit log.
    """

    def test_each_action_has_its_reason_in_the_audit_log_and_a_dry_run_changes_nothing(self) -> None:
        """
        A dry run names the targets; then the action is done.
        """
        chat = "comm://example.org/chat/changes"
        manager = "domain://msg-node.example.org/sm"
        self.device.ask(type="subscribe", to=manager, body={"resources": [chat]})
        facts: NodeFacts = self.net.operations.inspector.facts
        config = self.node.config
        facts.reloading = Reloading(config, lambda: config, [], [], lambda act: act(), self.net.wall)
        facts.log_levels = LogLevels()
        limit = {"kind": "session", "value": A, "rate_messages": 5}
        ban = {"kind": "runtime", "value": C, "seconds": 60}
        acts: list[tuple[str, str, dict[str, Any]]] = [
            ("POST", f"sessions/{url(A)}/purge", {}),
            ("POST", f"sessions/{url(A)}/expire-token", {}),
            ("POST", f"addresses/{url(chat)}/unbind", {}),
            ("POST", "limits", limit),
            ("DELETE", f"limits/{id_of('session', A)}", {}),
            ("POST", "bans", ban),
            ("DELETE", f"bans/{id_of('runtime', C)}", {}),
            ("POST", "tokens", {"name": "x", "roles": ["viewer"]}),
            ("DELETE", "tokens/x", {}),
            ("POST", f"sessions/{url(A)}/kick", {}),
            ("POST", "drain", {"seconds": 0}),
            ("POST", "undrain", {}),
            ("POST", "reload", {}),
            ("POST", "traces", {"session": A}),
            ("POST", "log-level", {"namespace": "msgnode", "level": "warn"}),
        ]
        for number, (method, path, body) in enumerate(acts):
            reason = f"reason {number}"
            before = self.audit()
            answer = self.request(method, f"{path}?dry_run=1", {**body, "reason": reason})
            self.assertEqual((200, True), (answer.status, answer.json()["dry_run"]), (path, answer.body))
            self.assertEqual(before, self.audit(), path)
            answer = self.request(method, path, {**body, "reason": reason})
            self.assertEqual(200, answer.status, (path, answer.body))
            lines = self.audit()[len(before) :]
            self.assertEqual(
                [("intent", reason), ("result", reason)],
                [(line["phase"], line["reason"]) for line in lines],
                path,
            )
        self.assertEqual((2 * len(acts), []), mistakes(self.state / "audit"))

    def test_every_action_leaves_its_intent_and_its_result(self) -> None:
        """
        Who, from where, what, to whom, why; nothing of a dry run.
        """
        self.act(f"sessions/{url(A)}/kick?dry_run=1")
        found = self.act(f"sessions/{url(A)}/kick")

        intent, result = self.audit()
        self.assertEqual(("intent", "result"), (intent["phase"], result["phase"]))
        self.assertEqual((found["audit"], found["audit"]), (intent["id"], result["id"]))
        self.assertEqual(
            ("admin-token", "kick", [A], REASON),
            tuple(intent[key] for key in ("who", "action", "target", "reason")),
        )
        self.assertTrue(result["ok"])
        self.assertEqual([result, intent], self.get("audit")["entries"])

    def test_an_action_needs_a_reason(self) -> None:
        """
        3 to 200 characters.
        """
        for body in ({}, {"reason": "x"}, {"reason": "x" * 201}, {"reason": "a\nb\n"}):
            answer = self.request("POST", f"sessions/{url(A)}/kick", body)
            self.assertRefused(answer, 400, "reason")
        self.assertEqual([], self.audit())

    def test_two_operators_act_at_once(self) -> None:
        """
        Both orders are done, or the later one is told what changed; the audit log has each with its operator,
        in one chain.
        """
        ann, bob = self.named("operator", "viewer"), self.named("operator")

        def begin(token: str, path: str, **body: Any) -> HTTPClient:
            http = HTTPClient(self.net, "admin")
            sent = json.dumps({"reason": REASON, **body}).encode()
            http.start("POST", f"/api/v1/{path}", sent, Authorization=f"Bearer {token}")
            return http

        def codes(*both: HTTPClient) -> list[int]:
            self.net.pump()
            self.net.advance(1)
            found = [http.response for http in both]
            return [response.status for response in found if response is not None]

        kick = f"sessions/{url(A)}/kick"
        self.assertEqual([200, 200], codes(begin(ann, kick), begin(bob, kick, end=True)))
        everyone = {"filter": {"q": "runtime:"}}
        bulk = "sessions/kick?confirm=1"
        self.assertEqual([200, 200], codes(begin(ann, bulk, **everyone), begin(bob, bulk, **everyone)))
        ban = {"kind": "runtime", "value": C, "seconds": 60}
        self.assertEqual([200, 200], codes(begin(ann, "bans", **ban), begin(bob, "bans", **ban)))
        self.assertEqual([C], [each["value"] for each in self.get("bans")["bans"]])
        token = {"name": "same", "roles": ["viewer"]}
        made = codes(begin(self.token, "tokens", **token), begin(self.token, "tokens", **token))
        self.assertEqual([200, 409], sorted(made))

        lines = [line for line in self.audit() if line["action"] in ("kick", "ban")]
        done = [(line["who"], line["action"]) for line in lines if line["phase"] == "result"]
        expected = [(who, act) for act in ("kick", "kick", "ban") for who in ("operator-viewer", "operator")]
        self.assertEqual(sorted(expected), sorted(done))
        self.assertEqual([], mistakes(self.state / "audit")[1])

    def test_what_cannot_be_audited_is_not_done_unless_it_is_urgent(self) -> None:
        """
        503, and the token stays; a kick is done all the same, and the lines that failed are counted.
        """
        (self.state / "audit").write_text("a file in the place of the directory")

        answer = self.request("POST", f"sessions/{url(A)}/expire-token", {"reason": REASON})
        self.act(f"sessions/{url(A)}/kick")

        self.assertRefused(answer, 503, "nothing was done")
        self.assertTrue(self.node.sessions.get(A).token_hash)
        self.assertEqual("away", self.get(f"sessions/{url(A)}")["session"]["state"])
        self.assertEqual(3, self.net.operations.audit.failures)
        self.flushLoggedErrors()

    def test_what_is_done_without_the_audit_log_can_be_taken_back_without_it(self) -> None:
        """
        While the disk is full a drained node can be used again, a ban lifted, and the configuration reloaded.
        """
        made = self.act("bans", kind="runtime", value=C, seconds=60)["details"]["ban"]
        shutil.rmtree(self.state / "audit")
        (self.state / "audit").write_text("a file in the place of the directory")

        self.act("drain")
        self.act("undrain")
        self.act(f"bans/{made['id']}", method="DELETE")
        reload = self.request("POST", "reload", {"reason": REASON})

        self.assertEqual([], self.get("bans")["bans"])
        self.assertNotEqual(503, reload.status, reload.body)
        self.flushLoggedErrors()

    def test_a_changed_or_removed_line_breaks_the_chain(self) -> None:
        """
        And is named.
        """
        for _ in range(3):
            self.act("undrain")
        [path] = (self.state / "audit").glob("*.jsonl")
        text = path.read_text()
        lines = text.splitlines(keepends=True)
        self.assertEqual((6, []), mistakes(self.state / "audit"))

        path.write_text(text.replace(REASON, "another reason", 1))
        self.assertEqual([f"{path.name}, line 1: was changed"], mistakes(self.state / "audit")[1])
        path.write_text("".join(lines[:2] + lines[3:]))
        [found] = mistakes(self.state / "audit")[1]
        self.assertIn("line 3: a line before it was removed", found)
        path.write_text(text + "nonsense\n")
        self.assertIn("is no entry", mistakes(self.state / "audit")[1][0])

    def test_what_happens_without_the_api_is_noted_too(self) -> None:
        """
        Start, reload by signal, changed policies, traces, a token from elsewhere, and stop.
        """
        config = self.node.config
        facts: NodeFacts = self.net.operations.inspector.facts
        facts.reloading = Reloading(config, lambda: config, [], [], lambda act: act(), self.net.wall)
        trail = self.net.operations.trail
        named = self.named("operator")
        trail.startService()
        facts.reloading.reload()
        body = {"policies": [], "key": "x"}
        self.request("PUT", "policy/policies/x", body, **{"X-Reason": "first try"})
        self.request("POST", "traces", {"session": A, "reason": REASON})
        for peer in (None, ELSEWHERE, None, ELSEWHERE):
            self.request("GET", "node", token=named, peer=peer)
        trail.stopService()

        found = [(line["action"], line["who"]) for line in self.audit() if line["phase"] == "result"]
        self.assertEqual(
            [
                ("token add", "admin-token"),
                ("start", ""),
                ("reload", "signal"),
                ("policy addPolicy", "admin-token"),
                ("trace start", "admin-token"),
                ("token use", "operator"),
                ("stop", ""),
            ],
            found,
        )

    def test_an_action_goes_on_without_its_client(self) -> None:
        """
        Also one by DELETE: a revoked token must not be half revoked.
        """
        begun: Deferred[ActionResult] = Deferred()
        http = HTTPClient(self.net, "admin")
        api = self.net.listener("admin").resource.children[b"api"].children[b"v1"]
        api.endpoints.append(
            Endpoint("DELETE", "things/{id}", "admin", "", lambda call: begun, ActionResult, body=Reason)
        )
        body = dumps({"reason": REASON})
        http.start("DELETE", "/api/v1/things/1", body, Authorization=f"Bearer {self.token}")
        self.net.pump()
        http.transport.loseConnection()
        self.net.advance(1)

        self.assertFalse(begun.called)

    def test_a_reason_may_be_a_header_of_a_request_without_a_body(self) -> None:
        """
        For DELETE.
        """
        self.act("tokens", name="x", roles=["viewer"])

        answer = self.request("DELETE", "tokens/x", **{"X-Reason": REASON})

        self.assertEqual(200, answer.status)
        self.assertEqual(REASON, self.audit()[-1]["reason"])
