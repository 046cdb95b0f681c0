"""
What may be asked of the node about identity, by messages.
"""

from typing import Any
from urllib.parse import parse_qs, urlsplit

from twisted.internet.error import ConnectionRefusedError
from twisted.trial.unittest import SynchronousTestCase

from tests.support.fakes import Client, MemoryNode
from tests.support.openid import OTHER_RSA, OpenID, provider
from tests.support.world import World

IDM = "domain://idm.example.org"
ANN = "user://example.org/ann@example.org"
ADDRESSES = (IDM, f"{IDM}/", "domain://msg-node.example.org/idm", "domain-idp://example.org")


class IdentityMessagesTests(SynchronousTestCase):
    """
    A client that opened its session without a token asks.
    """

    def setUp(self) -> None:
        options = provider(client_id="app", redirect_uri="https://app.example.org/done")
        self.node = MemoryNode(world=World, identity={"auth": "optional", "providers": [options]})
        self.openid = self.node.world.openid
        self.client = self.node.client("runtime://example.org/1")

    def ask(self, type: str, body: Any, to: str = IDM, client: Client | None = None) -> dict[str, Any]:
        client = client or self.client
        client.tell({"id": 7, "type": type, "from": f"{client.runtime}/idm", "to": to, "body": body})
        self.node.world.pump()
        reply = client.take()[-1]
        self.assertEqual((7, "response", to), (reply["id"], reply["type"], reply["from"]))
        return reply["body"]

    def validate(self, assertion: Any, **more: Any) -> dict[str, Any]:
        params = {"assertion": assertion, "origin": "https://app.example.org"}
        return self.ask("execute", {"method": "validateAssertion", "params": params}, **more)

    def test_validate(self) -> None:
        """
        A good assertion is told whose it is, at each of the addresses.
        """
        token = self.openid.token(nonce="public key")

        for to in ADDRESSES:
            value = self.validate(token, to=to)["value"]
            self.assertEqual("ann-1", value.pop("claims")["sub"])
            expected = {
                "identity": "ann@example.org",
                "contents": "public key",
                "userURL": ANN,
                "idp": {"domain": "example.org", "protocol": "OIDC"},
                "expires": int(self.openid.wall()) + 600,
            }
            self.assertEqual(expected, value)

    def test_validate_wrong(self) -> None:
        """
        A bad assertion is 401, one of a stranger 403, none at all 400; never 200.
        """
        for code, assertion in (
            (401, self.openid.token(OTHER_RSA)),
            (401, "nonsense"),
            (401, "mnd_" + "x" * 43),
            (403, OpenID("https://evil.example.net").token()),
            (400, ""),
            (400, 5),
            (400, None),
        ):
            self.assertEqual(code, self.validate(assertion)["code"], assertion)
        self.assertEqual(400, self.ask("execute", {"method": "validateAssertion"})["code"])

    def test_unreachable_provider_is_504(self) -> None:
        """
        When its provider cannot be reached nobody knows, and that is 504.
        """
        self.node.world.provider_wires.refuse = ConnectionRefusedError()

        self.assertEqual(504, self.validate(self.openid.token())["code"])

    def test_proves_nothing(self) -> None:
        """
        Asking whose an assertion is makes nobody's session his.
        """
        self.validate(self.openid.token())

        self.assertEqual("", self.client.session.identity)

    def test_profile(self) -> None:
        """
        A session may read who it is, and of nobody else.
        """
        self.assertEqual(404, self.ask("read", {"resource": f"/identity/{ANN}"})["code"])
        ann = Client(self.node)
        ann.bearer = self.openid.token(scope="chat")
        ann.tell({"id": 1, "type": "open", "from": "runtime://example.org/ann", "to": "mn:/session"})
        ann.runtime = "runtime://example.org/ann"
        self.node.world.pump()

        expected = {
            "userURL": ANN,
            "idp": "example.org",
            "preferred_username": "ann@example.org",
            "scopes": ["chat"],
            "expires": int(self.openid.wall()) + 600,
        }
        for resource in (f"/identity/{ANN}", "/identity", "/identity/"):
            self.assertEqual(expected, self.ask("read", {"resource": resource}, client=ann)["value"])
        self.assertEqual(403, self.ask("read", {"resource": "/identity/user://x/bob"}, client=ann)["code"])
        for resource in ("/identityx", "/quota", None, 5):
            self.assertEqual(400, self.ask("read", {"resource": resource}, client=ann)["code"])

    def test_where_to_log_in_is_the_provider_page_for_a_code(self) -> None:
        """
        Where to log in is the provider's page, for a code and with PKCE.
        """
        params = {"code_challenge": "abc", "state": "s&t", "nonce": "n", "client_id": "evil"}
        for method in ("getLoginEndpoint", "getAccessTokenAuthorisationEndpoint"):
            url = urlsplit(self.ask("execute", {"method": method, "params": params})["value"])
            self.assertEqual("https://id.example.org/login", f"{url.scheme}://{url.netloc}{url.path}")
            expected = {
                "response_type": ["code"],
                "client_id": ["app"],
                "redirect_uri": ["https://app.example.org/done"],
                "scope": ["openid email profile"],
                "code_challenge": ["abc"],
                "code_challenge_method": ["S256"],
                "state": ["s&t"],
                "nonce": ["n"],
            }
            self.assertEqual(expected, parse_qs(url.query))

    def test_login_wrong(self) -> None:
        """
        Without a challenge there is no login, nor at a stranger's, nor where the provider has no page.
        """
        for code, params in (
            (400, None),
            (400, {}),
            (400, ["https://resource"]),
            (400, {"code_challenge": 5}),
            (403, {"code_challenge": "a", "domain": "evil.example.net"}),
        ):
            self.assertEqual(
                code, self.ask("execute", {"method": "getLoginEndpoint", "params": params})["code"]
            )
        self.openid.metadata["authorization_endpoint"] = "javascript:alert(1)"
        params = {"code_challenge": "a"}
        self.assertEqual(502, self.ask("execute", {"method": "getLoginEndpoint", "params": params})["code"])

    def test_unknown_methods_and_types_are_501(self) -> None:
        """
        An unknown method is 501, and so is any other type.
        """
        for method in ("createIdentity", "x", 5, None):
            self.assertEqual(501, self.ask("execute", {"method": method})["code"])
        self.assertEqual(501, self.ask("create", {})["code"])

    def test_client_cannot_send_as_the_identity_responder(self) -> None:
        """
        A client can neither send as the identity responder nor hear what is sent to it.
        """
        for address in ADDRESSES:
            self.client.post("runtime://example.org/1", "x", **{"from": address})
            self.assertEqual(403, self.client.take()[-1]["body"]["code"], address)
            reply = self.client.ask(
                type="subscribe", to="domain://msg-node.example.org/sm", body={"resources": [address]}
            )
            self.assertEqual(403, reply["body"]["code"], address)
