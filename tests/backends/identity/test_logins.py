"""
Logins of sessions at their provider, by messages: access tokens, assertions, and their end.
"""

import json
from base64 import b64encode, urlsafe_b64decode
from pathlib import Path
from typing import Any

from twisted.internet.error import ConnectionRefusedError
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from msgnode.backends.identity.logins import FILE
from msgnode.protocol.close_codes import STOPPING
from msgnode.sessions.persistence import SessionMove
from tests.support.fakes import Client, MemoryNode, directory
from tests.support.openid import provider
from tests.support.world import World

IDM = "domain://idm.example.org"
ANN = "user://example.org/ann@example.org"
RUNTIME = "runtime://example.org/1"
DONE = "https://app.example.org/done"
KEYS = [b64encode(bytes([number]) * 32).decode() for number in (1, 2)]


class LoginCase(SynchronousTestCase):
    """
    A node with a provider, and a client that opened its session without a token.
    """

    identity: dict[str, Any] = {}

    def setUp(self) -> None:
        self.logged: list[Any] = []
        globalLogPublisher.addObserver(self.logged.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.logged.append)
        self.node = self.make_node()
        self.openid = self.node.world.openid
        self.client = self.node.client(RUNTIME)

    def make_node(self, **sections: Any) -> MemoryNode:
        options = provider(client_id="app", redirect_uri=DONE, scopes=["openid", "email", "offline_access"])
        options |= {"audiences": ["app", "msgnode"]}
        identity = {
            "auth": "optional",
            "providers": [options],
            **self.identity,
            **sections.pop("identity", {}),
        }
        return MemoryNode(world=World, identity=identity, **sections)

    def tell(self, method: str, params: Any = None, client: Client | None = None, id: int = 7) -> list[Any]:
        """
        The bodies of all that is answered.
        """
        client = client or self.client
        body = {"method": method, **({"params": params} if params is not None else {})}
        client.tell({"id": id, "type": "execute", "from": f"{client.runtime}/idm", "to": IDM, "body": body})
        self.node.world.pump()
        return [message["body"] for message in client.take()]

    def ask(self, method: str, params: Any = None, client: Client | None = None) -> dict[str, Any]:
        (body,) = self.tell(method, params, client)
        return body

    def wait(self, seconds: float, client: Client | None = None) -> list[Any]:
        """
        What is answered meanwhile.
        """
        self.node.clock.advance(seconds)
        self.node.world.pump()
        return [message["body"] for message in (client or self.client).take()]

    def log_in(self, client: Client | None = None) -> dict[str, Any]:
        """
        By the code of a login page.
        """
        self.openid.codes["c1"] = "verifier"
        params = {"login": f"{DONE}?code=c1&state=s", "code_verifier": "verifier"}
        body = self.ask("getAccessToken", params, client)
        self.assertEqual(200, body["code"], body)
        return body["value"]


class CodeTests(LoginCase):
    """
    Access tokens by the code of a login page, and by refresh.
    """

    def test_code_of_the_login_page_becomes_an_access_token(self) -> None:
        """
        The URL to which the login page has redirected is exchanged for an access token and an assertion; the
        refresh token stays in the node.
        """
        value = self.log_in()

        self.assertTrue(value.pop("accessToken").startswith("at-"))
        self.assertEqual("ann-1", json.loads(_payload(value.pop("assertion")))["sub"])
        self.assertEqual(
            {
                "domain": "example.org",
                "resources": ["openid", "email", "offline_access"],
                "input": {"resources": ["openid", "email", "offline_access"]},
                "expires": int(self.openid.wall()) + 300,
                "refreshable": True,
                "userURL": ANN,
            },
            value,
        )
        form = self.openid.token_forms[-1]
        self.assertEqual(
            ("app", DONE, "verifier"), (form["client_id"], form["redirect_uri"], form["code_verifier"])
        )

    def test_wrong_verifier_is_401_and_leaves_nothing(self) -> None:
        """
        A code with another verifier is 401, and no login is left.
        """
        self.openid.codes["c1"] = "verifier"

        self.assertEqual(401, self.ask("getAccessToken", {"code": "c1", "code_verifier": "other"})["code"])
        self.assertEqual(0, len(self.node.logins.access.grants))

    def test_bad_parameters_are_named(self) -> None:
        """
        A bad parameter is named in the answer, and the provider is not asked.
        """
        for params, name in (
            ({"login": DONE, "code_verifier": "v"}, "params.login"),
            ({"login": 5, "code_verifier": "v"}, "params.login"),
            ({"login": "http://[", "code_verifier": "v"}, "params.login"),
            ({"login": f"{DONE}?code=c"}, "params.code_verifier"),
            ({"code": ["c"]}, "params.code"),
            ({"code": "c" * 9000, "code_verifier": "v"}, "params.code"),
            ({"resources": "openid"}, "params.resources"),
            ({"resources": [5]}, "params.resources"),
            ("openid", "params"),
        ):
            body = self.ask("getAccessToken", params)
            self.assertEqual(400, body["code"], params)
            self.assertIn(f"'{name}'", body["desc"])
        self.assertEqual(403, self.ask("getAccessToken", {"resources": ["admin"]})["code"])
        refused = self.ask("getAccessToken", {"login": f"{DONE}?error=access_denied", "code_verifier": "v"})
        self.assertEqual((401, "the login failed: access_denied"), (refused["code"], refused["desc"]))
        self.assertEqual([], self.openid.token_forms)

    def test_refresh_uses_each_refresh_token_once(self) -> None:
        """
        A session that has logged in gets new access tokens without a login; each refresh token is used once.
        """
        first = self.log_in()["accessToken"]

        values = [self.ask("getAccessToken")["value"], self.ask("refreshAccessToken")["value"]]

        self.assertEqual(3, len({first, *(value["accessToken"] for value in values)}))
        used = [form["refresh_token"] for form in self.openid.token_forms if "refresh_token" in form]
        self.assertEqual(2, len(set(used)))

    def test_concurrent_refreshes_share_one(self) -> None:
        """
        Two requests at once use the refresh token once, and both are answered.
        """
        self.log_in()
        for id in (1, 2):
            body = {"method": "refreshAccessToken"}
            self.client.tell({"id": id, "type": "execute", "from": f"{RUNTIME}/idm", "to": IDM, "body": body})
        self.node.world.pump()

        self.assertEqual([200, 200], [message["body"]["code"] for message in self.client.take()])
        self.assertEqual(1, sum(form["grant_type"] == "refresh_token" for form in self.openid.token_forms))

    def test_login_that_the_provider_has_ended_is_401_and_forgotten(self) -> None:
        """
        When the provider knows the refresh token no longer, the answer is 401, and the next request begins
        anew.
        """
        self.log_in()
        self.openid.refreshing.clear()

        self.assertEqual(401, self.ask("refreshAccessToken")["code"])
        self.assertEqual(0, len(self.node.logins.access.grants))
        self.assertEqual(100, self.ask("getAccessToken")["code"])

    def test_lost_answer_is_not_repeated(self) -> None:
        """
        A request to the token endpoint that broke is not sent again: the refresh token may be used up.
        """
        self.log_in()
        self.node.world.provider_wires.refuse = ConnectionRefusedError()
        self.node.world.provider_wires.cut()

        self.assertEqual(504, self.ask("refreshAccessToken")["code"])

    def test_provider_errors_are_told_in_words_without_its_text(self) -> None:
        """
        What the provider refuses has a code of its own, and never the provider's text.
        """
        self.log_in()
        for status, error, code in (
            (400, "invalid_scope", 400),
            (400, "unauthorized_client", 501),
            (400, "unsupported_grant_type", 501),
            (403, "access_denied", 403),
            (401, "invalid_client", 503),
            (500, "server_error", 502),
            (400, "what", 503),
        ):
            self.openid.error = (status, error)
            body = self.ask("refreshAccessToken")
            self.assertEqual(code, body["code"], error)
            self.assertNotIn("rt-secret", body["desc"])
            self.assertIn("https://id.example.org", body["desc"])

    def test_refresh_token_is_in_no_message_log_or_report(self) -> None:
        """
        The refresh token is in nothing that the node sends, logs, or writes.
        """
        self.log_in()
        self.ask("getIdentities")
        self.ask("refreshAssertion")
        self.openid.error = (400, "invalid_grant")
        self.ask("refreshAssertion")

        said = repr(self.logged) + repr(self.node.traffic_recorder.messages)
        self.assertNotIn("rt-secret", said)
        self.assertNotIn("rt-secret", repr(vars(self.node.logins.access.grants)))

    def test_no_more_than_configured(self) -> None:
        """
        Beyond identity.max_refresh_tokens a login is refused before it begins; ended sessions make room.
        """
        self.node.config.identity.max_refresh_tokens = 1
        self.log_in()
        bob = self.node.client("runtime://example.org/bob")

        self.assertEqual(503, self.ask("getAccessToken", {"code": "c", "code_verifier": "v"}, bob)["code"])
        self.node.sessions.end(self.client.session, "closed")
        self.log_in(bob)


class OwnerTests(LoginCase):
    """
    Whose login it is.
    """

    def test_session_that_another_takes_over_has_no_login(self) -> None:
        """
        Who opens a session that another has logged in under gets none of its tokens.
        """
        self.log_in()
        self.client.drop()
        thief = self.node.client(RUNTIME)

        self.assertEqual(401, self.ask("refreshAccessToken", client=thief)["code"])
        self.assertEqual([], self.ask("getIdentities", client=thief)["value"])

    def test_who_takes_the_session_over_during_a_login_gets_nothing(self) -> None:
        """
        Who opens the session while its provider answers gets neither the access token nor the login: 410, and
        the login is revoked.
        """
        self.openid.codes["c1"] = "verifier"

        thief = self.take_over_during("getAccessToken", {"code": "c1", "code_verifier": "verifier"})

        self.assertEqual([410], thief)
        self.assertEqual(set(), self.openid.refreshing)
        self.assertEqual(0, len(self.node.logins.access.grants))

    def test_who_takes_the_session_over_during_a_refresh_gets_nothing(self) -> None:
        """
        Who opens the session while its login is refreshed, or its assertion made, gets none of these.
        """
        for method in ("refreshAccessToken", "refreshAssertion", "generateAssertion"):
            self.log_in()

            self.assertIn(self.take_over_during(method), ([401], [410]), method)

    def test_who_takes_the_session_over_while_a_device_login_begins_gets_nothing(self) -> None:
        """
        Who opens the session before the provider has given a code for its device has no part in that login.
        """
        self.assertEqual([410], self.take_over_during("getAccessToken"))
        self.openid.device = "ann"
        self.wait(30)

        self.assertEqual((0, 0), (len(self.node.logins.devices), len(self.node.logins.access.grants)))

    def test_client_without_a_session_token_logs_in(self) -> None:
        """
        A client that knows no session tokens gets its access token while it is connected.
        """
        self.node.sessions.void_token(self.client.session)

        self.log_in()

    def take_over_during(self, method: str, params: Any = None) -> list[int]:
        """
        The client loses its connection while the provider answers; the codes that the next one gets, which
        has its session then.
        """
        body = {"method": method, **({"params": params} if params is not None else {})}
        self.client.tell({"id": 7, "type": "execute", "from": f"{RUNTIME}/idm", "to": IDM, "body": body})
        self.client.drop()
        self.client = self.node.client(RUNTIME)
        self.node.world.pump()
        return [message["body"]["code"] for message in self.client.take()]

    def test_end_of_the_session_ends_the_login(self) -> None:
        """
        When a session ends, its refresh token is forgotten.
        """
        self.log_in()

        self.node.sessions.end(self.client.session, "expired")

        self.assertEqual(0, len(self.node.logins.access.grants))

    def test_get_identities_lists_the_sessions_of_the_user_only(self) -> None:
        """
        A user sees the identities of all sessions that are his, and of nobody else's.
        """
        token = self.openid.token(scope="chat")
        mine = [self.open(f"runtime://example.org/{name}", token) for name in ("a", "b")]
        self.log_in(mine[1])
        self.log_in()  # of another session, which is not authenticated

        found = self.ask("getIdentities", client=mine[0])["value"]

        self.assertEqual(
            [
                ("runtime://example.org/a", False),
                ("runtime://example.org/b", False),
                ("runtime://example.org/b", True),
            ],
            sorted((one["session"], one["refreshable"]) for one in found),
        )
        self.assertEqual({ANN}, {one["userURL"] for one in found})
        self.assertEqual([RUNTIME], [one["session"] for one in self.ask("getIdentities")["value"]])

    def open(self, runtime: str, token: str) -> Client:
        client = Client(self.node)
        client.bearer, client.runtime = token, runtime
        client.tell({"id": 1, "type": "open", "from": runtime, "to": "mn:/session"})
        self.node.world.pump()
        client.take()
        return client


class AssertionTests(LoginCase):
    """
    Assertions by refresh and by token exchange, and revocation.
    """

    def test_refresh_assertion(self) -> None:
        """
        A new ID token of the user, as runtimes have it.
        """
        self.log_in()

        value = self.ask("refreshAssertion", {"identity": ANN})["value"]

        self.assertEqual({"domain": "example.org", "protocol": "OIDC"}, value["idp"])
        self.assertEqual({"userURL": ANN, "email": "ann@example.org"}, value["userProfile"])
        self.assertEqual(200, self.ask("validateAssertion", {"assertion": value["assertion"]})["code"])

    def test_provider_without_id_tokens_by_refresh_is_501(self) -> None:
        """
        A provider that gives no ID token by refresh is 501, with its name.
        """
        self.log_in()
        self.openid.gives_id_tokens = False

        body = self.ask("refreshAssertion")
        self.assertEqual(501, body["code"])
        self.assertIn("https://id.example.org", body["desc"])

    def test_generated_assertion_vouches_for_the_contents(self) -> None:
        """
        A generated assertion has the user's key as nonce, by token exchange.
        """
        self.log_in()

        value = self.ask("generateAssertion", {"contents": "her key", "origin": "x"})["value"]

        told = self.ask("validateAssertion", {"assertion": value["assertion"]})["value"]
        self.assertEqual(("her key", ANN), (told["contents"], told["userURL"]))

    def test_assertion_that_does_not_vouch_for_the_contents_is_not_given(self) -> None:
        """
        A provider that exchanges tokens without the nonce is 501: the assertion would vouch for any key.
        """
        self.log_in()
        self.openid.signs_nonce = False

        self.assertEqual(501, self.ask("generateAssertion", {"contents": "her key"})["code"])
        self.assertEqual(200, self.ask("generateAssertion")["code"])

    def test_without_a_login_runtimes_are_told_where(self) -> None:
        """
        Without a login the answer is 401 in the shape that runtimes expect, with the login page.
        """
        body = self.ask("generateAssertion", {"contents": "k", "code_challenge": "c"})

        self.assertEqual((401, "IdPLoginError"), (body["code"], body["description"]["name"]))
        self.assertIn("https://id.example.org/login?", body["description"]["loginUrl"])
        self.assertEqual("", self.ask("refreshAssertion")["description"]["loginUrl"])

    def test_revoke_ends_the_login_at_the_provider(self) -> None:
        """
        Revoked without a token, the session's refresh token is revoked at the provider, and forgotten here.
        """
        self.log_in()
        (kept,) = self.openid.refreshing

        self.assertEqual({"code": 200, "value": True}, self.ask("revokeAccessToken"))
        self.assertEqual([kept], self.openid.revoked)
        self.assertEqual(401, self.ask("revokeAccessToken")["code"])

    def test_revoke_of_an_access_token_leaves_the_login(self) -> None:
        """
        An access token is revoked alone, in each form in which runtimes name it.
        """
        token = self.log_in()["accessToken"]

        for params in ({"token": {"accessToken": token}}, {"accessToken": token}, {"token": token}):
            self.assertEqual(200, self.ask("revokeAccessToken", params)["code"])
        self.assertEqual([token] * 3, self.openid.revoked)
        self.assertEqual(200, self.ask("refreshAccessToken")["code"])
        self.assertEqual(400, self.ask("revokeAccessToken", {"token": 5})["code"])

    def test_what_a_provider_does_not_offer_is_501_with_its_name(self) -> None:
        """
        What a provider does not offer is 501 with its name.
        """
        self.log_in()
        del self.openid.metadata["revocation_endpoint"], self.openid.metadata["device_authorization_endpoint"]
        self.openid.metadata["grant_types_supported"] = ["authorization_code"]
        self.node.clock.advance(90_000)

        for method, params in (
            ("getAccessToken", {"device": True}),
            ("generateAssertion", {}),
            ("revokeAccessToken", {}),
        ):
            body = self.ask(method, params)
            self.assertEqual(501, body["code"], method)
            self.assertIn("https://id.example.org does not offer", body["desc"])


class ConfusionTests(LoginCase):
    """
    Providers that answer with tokens of others, and requests that cross each other.
    """

    def make_node(self, **sections: Any) -> MemoryNode:
        first = provider(client_id="app", redirect_uri=DONE, scopes=["openid", "email"])
        first["audiences"] = ["app", "msgnode"]
        second = {**first, "domain": "two.example", "issuer": "https://two.example"}
        second["jwks_uri"] = "https://id.example.org/keys"
        return MemoryNode(world=World, identity={"auth": "optional", "providers": [first, second]})

    def send(self, method: str, **params: Any) -> None:
        """
        Send a request; the provider has not answered yet.
        """
        body = {"method": method, "params": params}
        self.client.tell({"id": 7, "type": "execute", "from": f"{RUNTIME}/idm", "to": IDM, "body": body})

    def pump(self) -> list[int]:
        """
        Let the provider answer; the codes of the answers.
        """
        self.node.world.pump()
        return [message["body"]["code"] for message in self.client.take()]

    def test_token_of_another_provider_proves_nothing(self) -> None:
        """
        A provider that answers with a valid ID token of another trusted one is 502, and no login is kept.
        """
        token = self.openid.token
        self.openid.token = lambda **claims: token(iss="https://two.example", **claims)
        self.openid.codes["c1"] = "verifier"

        body = self.ask("getAccessToken", {"code": "c1", "code_verifier": "verifier"})

        self.assertEqual(502, body["code"])
        self.assertIn("of another provider", body["desc"])
        self.assertEqual(0, len(self.node.logins.access.grants))

    def test_refresh_gives_no_assertion_of_another_user(self) -> None:
        """
        An ID token of another user than the one who logged in is 502.
        """
        self.log_in()
        token = self.openid.token
        self.openid.token = lambda **claims: token(sub="eve-1", email="eve@example.org", **claims)

        for method in ("refreshAssertion", "refreshAccessToken", "generateAssertion"):
            self.assertEqual(502, self.ask(method)["code"], method)

    def test_each_refresh_token_is_used_once(self) -> None:
        """
        Requests for different scopes at the same time use one refresh token after the other.
        """
        self.log_in()
        for scope in ("openid", "email"):
            self.send("refreshAccessToken", resources=[scope])

        self.assertEqual([200, 200], self.pump())
        used = [form["refresh_token"] for form in self.openid.token_forms if "refresh_token" in form]
        self.assertEqual(2, len(set(used)))
        self.assertEqual(200, self.ask("refreshAccessToken")["code"])

    def test_revoked_while_a_refresh_is_under_way(self) -> None:
        """
        A login that is revoked while it is refreshed gives no token any more, and what the provider has
        issued meanwhile is revoked, too.
        """
        self.log_in()
        self.send("refreshAccessToken")
        self.send("revokeAccessToken")

        self.assertEqual([200, 401], sorted(self.pump()))
        self.assertEqual(set(), self.openid.refreshing)
        self.assertEqual(0, len(self.node.logins.access.grants))

    def test_one_user_keeps_a_tenth_of_all_logins(self) -> None:
        """
        A user who logs in with very many sessions has refresh tokens for a tenth of max_refresh_tokens.
        """
        self.node.config.identity.max_refresh_tokens = 20
        clients = [self.node.client(f"runtime://example.org/c{number}") for number in range(4)]

        kept = [self.log_in(client)["refreshable"] for client in clients]
        self.ask("revokeAccessToken", client=clients[0])

        self.assertEqual([True, True, False, False], kept)
        self.assertTrue(self.log_in(clients[3])["refreshable"])

    def release(self) -> None:
        """
        The client's session goes to another node.
        """
        self.client.session.move = SessionMove(to="mn://example.org/n2")
        self.node.sessions.release(self.client.session, STOPPING)

    def test_moved_session_logs_in_again(self) -> None:
        """
        A session that moves to another node of the domain leaves no login behind, and a device login that is
        not over ends: the provider is asked no more.
        """
        self.log_in()
        self.ask("getAccessToken", {"device": True})
        self.release()
        before = len(self.openid.token_forms)
        self.wait(30)

        self.assertEqual((0, 0), (len(self.node.logins.access.grants), len(self.node.logins.devices)))
        self.assertEqual(before, len(self.openid.token_forms))

    def test_session_that_moves_during_a_login(self) -> None:
        """
        A session that moves while its provider answers leaves no login behind either: what the provider has
        issued is revoked.
        """
        self.openid.codes["c1"] = "verifier"
        self.send("getAccessToken", code="c1", code_verifier="verifier")
        self.release()
        self.node.world.pump()

        self.assertEqual(set(), self.openid.refreshing)
        self.assertEqual(0, len(self.node.logins.access.grants))


class DeviceTests(LoginCase):
    """
    A thing without a browser.
    """

    def test_one_host_awaits_a_tenth_of_all_logins(self) -> None:
        """
        A host that begins very many logins is refused (429) beyond a tenth of max_device_logins; others are
        not.
        """
        self.node.config.identity.max_device_logins = 20
        clients = [self.node.client(f"runtime://example.org/c{number}") for number in range(4)]
        for client, host in zip(clients, (1, 1, 1, 2), strict=True):
            client.peer = f"192.0.2.{host}:5"

        codes = [self.ask("getAccessToken", client=client)["code"] for client in clients]

        self.assertEqual([100, 100, 429, 100], codes)
        self.assertEqual(100, self.tell("getAccessToken", client=clients[0])[-1]["code"])

    def test_device_shows_a_code_and_gets_its_token_when_somebody_has_logged_in(self) -> None:
        """
        The first answer has what the device shows, the second the token, when somebody has logged in
        elsewhere.
        """
        shown = self.ask("getAccessToken")
        self.assertEqual(
            {
                "domain": "example.org",
                "user_code": "WDJB-MJHT",
                "verification_uri": "https://id.example.org/device",
                "verification_uri_complete": "https://id.example.org/device?user_code=WDJB-MJHT",
                "expires": int(self.openid.wall()) + 600,
            },
            shown["value"],
        )
        self.assertEqual([], self.wait(6))
        self.openid.device = "ann"

        (body,) = self.wait(5)

        self.assertEqual((200, ANN), (body["code"], body["value"]["userURL"]))
        self.assertEqual(200, self.ask("refreshAccessToken")["code"])

    def test_polls_at_the_interval_and_slower_when_told(self) -> None:
        """
        The provider is asked every five seconds, and five seconds later each time that it says slow_down.
        """
        self.ask("getAccessToken")
        polls = []
        for second in range(40):
            if second == 10:
                self.openid.device = "slow_down"
            before = len(self.openid.token_forms)
            self.wait(1)
            if len(self.openid.token_forms) > before:
                polls.append(second + 1)

        self.assertEqual([5, 10, 15, 25, 40], polls)

    def test_outcomes(self) -> None:
        """
        A login that is refused, or has expired, is told so; one that nobody made ends with its time.
        """
        for error, code in (("access_denied", 403), ("expired_token", 408), ("invalid_grant", 401)):
            self.openid.device = "authorization_pending"
            self.ask("getAccessToken")
            self.openid.device = error
            self.assertEqual([code], [body["code"] for body in self.wait(5)])
        self.openid.device = "authorization_pending"
        self.ask("getAccessToken")
        for _ in range(130):
            answers = self.wait(5)
            if answers:
                break
        self.assertEqual([408], [body["code"] for body in answers])
        self.assertEqual(0, len(self.node.logins.devices))

    def test_provider_that_is_down_is_asked_less_often(self) -> None:
        """
        While the provider is down the login goes on, and it is asked half as often each time.
        """
        self.ask("getAccessToken")
        self.node.world.provider_wires.refuse = ConnectionRefusedError()
        self.node.world.provider_wires.cut()
        for _ in range(20):
            self.assertEqual([], self.wait(1))
        self.node.world.provider_wires.refuse = None
        self.openid.device = "ann"

        self.assertEqual([200], [body["code"] for _ in range(70) for body in self.wait(1)])

    def test_newer_login_replaces_the_earlier(self) -> None:
        """
        A second request answers the first with 409, and is the one that counts.
        """
        self.tell("getAccessToken", id=1)
        codes = [body["code"] for body in self.tell("getAccessToken", id=2)]

        self.assertEqual([409, 100], codes)
        self.assertEqual(1, len(self.node.logins.devices))

    def test_no_more_than_configured(self) -> None:
        """
        Beyond identity.max_device_logins a login is refused.
        """
        self.node.config.identity.max_device_logins = 1
        self.ask("getAccessToken")

        bob = self.node.client("runtime://example.org/bob")
        self.assertEqual(503, self.ask("getAccessToken", client=bob)["code"])

    def test_end_of_the_session_ends_the_polling(self) -> None:
        """
        When the session ends, the provider is asked no more.
        """
        self.ask("getAccessToken")
        self.node.sessions.end(self.client.session, "closed")
        before = len(self.openid.token_forms)
        self.wait(30)

        self.assertEqual(before, len(self.openid.token_forms))

    def test_session_of_another_owner_gets_no_token(self) -> None:
        """
        Who takes the session over while somebody logs in gets no token.
        """
        self.ask("getAccessToken")
        self.client.drop()
        thief = self.node.client(RUNTIME)
        self.openid.device = "ann"

        self.assertEqual([410], [body["code"] for body in self.wait(5, thief)])
        self.assertEqual(set(), self.openid.refreshing)
        self.assertEqual(0, len(self.node.logins.access.grants))

    def test_stop_without_keys_answers(self) -> None:
        """
        A node that keeps no logins answers them when it stops.
        """
        self.ask("getAccessToken")
        self.node.logins.startService()
        self.node.logins.stopService()

        self.assertEqual([503], [message["body"]["code"] for message in self.client.take()])


class RestartTests(LoginCase):
    """
    A node with a state directory and keys stops, and another goes on.
    """

    def setUp(self) -> None:
        self.state = directory(self)
        self.keys = self.state / "keys"
        self.keys.write_text(KEYS[0])
        self.identity = {"token_keys_file": str(self.keys)}
        super().setUp()

    def make_node(self, **sections: Any) -> MemoryNode:
        node = super().make_node(state=str(self.state), **sections)
        node.logins.startService()
        return node

    def restart(self) -> None:
        """
        The session is restored as the database has it: with its name and the hash of its token.
        """
        token_hash = self.client.session.token_hash
        self.node.logins.stopService()
        refreshing = self.openid.refreshing
        self.node = super().make_node(state=str(self.state))
        self.openid = self.node.world.openid
        self.openid.refreshing = refreshing
        self.client = self.node.client(RUNTIME)
        self.client.session.token_hash = token_hash
        self.node.logins.startService()

    def file(self) -> str:
        return Path(self.state, FILE).read_text()

    def test_login_outlives_a_restart_sealed(self) -> None:
        """
        The session refreshes its token after a restart; no token is readable in the file, which only the node
        can open.
        """
        self.log_in()
        self.assertNotIn("rt-secret", self.file())
        self.assertEqual(0o600, Path(self.state, FILE).stat().st_mode & 0o777)

        self.restart()

        self.assertEqual(200, self.ask("refreshAccessToken")["code"])

    def test_device_login_goes_on_after_a_restart(self) -> None:
        """
        A device login is answered after the restart, to the request that began it.
        """
        self.ask("getAccessToken")
        self.assertNotIn("dc-secret", self.file())
        self.restart()
        self.openid.device = "ann"
        self.node.clock.advance(5)
        self.node.world.pump()

        (message,) = self.client.take()
        self.assertEqual((7, IDM, 200), (message["id"], message["from"], message["body"]["code"]))

    def test_old_keys_open_and_are_replaced(self) -> None:
        """
        After a change of keys the old one still opens, and what it sealed is sealed with the new.
        """
        self.log_in()
        self.keys.write_text(f"# new\n{KEYS[1]}\n{KEYS[0]}\n")
        self.restart()
        self.keys.write_text(KEYS[1])
        self.restart()

        self.assertEqual(200, self.ask("refreshAccessToken")["code"])

    def test_other_keys_lose_the_login_in_words(self) -> None:
        """
        With other keys the login is lost, and the log says how many.
        """
        self.log_in()
        self.keys.write_text(KEYS[1])
        self.restart()

        self.assertEqual(401, self.ask("refreshAccessToken")["code"])
        self.assertIn(1, [event.get("number") for event in self.logged if "users log in" in str(event)])

    def test_reload_seals_with_new_keys(self) -> None:
        """
        At SIGHUP the keys are read again, and an unreadable file leaves the earlier keys.
        """
        self.log_in()
        before = self.file()
        self.keys.write_text(f"{KEYS[1]}\n{KEYS[0]}")
        self.node.logins.apply()
        self.assertNotEqual(before, self.file())
        self.keys.write_text("nonsense")
        self.node.logins.apply()

        self.assertEqual(200, self.ask("refreshAccessToken")["code"])

    def test_changed_line_is_not_accepted(self) -> None:
        """
        A grant that somebody changed on disk, to another session token, opens no more.
        """
        self.log_in()
        text = self.file().replace(self.client.session.token_hash.hex(), "00" * 32)
        Path(self.state, FILE).write_text(text)
        self.client.session.token_hash = bytes(32)
        self.restart()

        self.assertEqual(401, self.ask("refreshAccessToken")["code"])


def _payload(token: str) -> bytes:
    part = token.split(".")[1]
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))
