"""
Opaque access tokens: a real login, a provider of another's making that is asked, a real node.
"""

import json
import signal
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any
from unittest import TestCase
from urllib.parse import urlencode

import flask
from authlib.oauth2.rfc7662 import IntrospectionEndpoint
from oidc_provider_mock import User, app
from oidc_provider_mock._storage import Client, ClientAllowAny
from werkzeug.serving import make_server

from tests.integration.logins import CHALLENGE, log_in, open_with
from tests.integration.process import NodeProcess
from tests.sessions.access.test_identity_expiry import encoded

NODE, SECRET = "node: one", "a+b/c:%d&é"
CONFIG = """
domain = "localhost"
web = ["tcp:0:interface=127.0.0.1"]
lines = []
admin.listen = "none"

[identity]
auth = "required"

[[identity.providers]]
domain = "localhost"
issuer = "http://localhost:{port}"
audiences = ["app"]

[identity.providers.introspection]
client_id = "{node}"
client_secret_file = "{secret}"
url = "http://localhost:{port}/oauth2/introspect"
"""


class Introspection(IntrospectionEndpoint):
    """
    Authlib's endpoint, over the tokens of the provider.
    """

    def check_permission(self, token: Any, client: Any, request: Any) -> bool:
        return client.id == NODE

    def query_token(self, token: str, hint: str) -> Any:
        flask.current_app.config["asked"].append(hint)
        return flask.g.oidc_provider_mock_storage.get_access_token(token)

    def introspect_token(self, token: Any) -> dict[str, Any]:
        user = token.get_user()
        return {
            "client_id": "app",
            "sub": user.sub,
            "scope": token.get_scope(),
            "exp": int(token.expires_at.timestamp()),
            **user.claims,
        }


def with_introspection(user: User) -> flask.Flask:
    """
    The provider, and what it lacks; it knows the node by name and secret.
    """
    provider = app(user_claims=[user])
    provider.config["asked"] = []

    @provider.post("/oauth2/introspect")
    def introspect() -> Any:
        node = Client(
            id=NODE,
            secret=SECRET,
            redirect_uris=ClientAllowAny(),
            allowed_scopes=Client.SCOPES_SUPPORTED,
            token_endpoint_auth_method="client_secret_basic",
        )
        flask.g.oidc_provider_mock_storage.store_client(node)
        server = flask.g._authlib_authorization_server
        if Introspection.ENDPOINT_NAME not in server._endpoints:
            server.register_endpoint(Introspection)
        return server.create_endpoint_response(Introspection.ENDPOINT_NAME)

    return provider


class OpaqueTests(TestCase):
    """
    Authorization code flow; the access token is shown.
    """

    def setUp(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        user = User(sub="ann", claims={"email": "ann@example.org", "email_verified": True})
        self.app = with_introspection(user)
        self.provider = ExitStack()
        self.addCleanup(lambda: self.provider.close())
        server = make_server("localhost", self.port, self.app, threaded=True)
        thread = Thread(target=server.serve_forever, args=(0.1,))
        thread.start()
        for last in (server.server_close, thread.join, server.shutdown):
            self.provider.callback(last)
        where = Path(tempfile.mkdtemp(prefix="msgnode-"))
        secret, config = where / "secret", where / "node.toml"
        secret.write_text(SECRET + "\n", "utf-8")
        config.write_text(CONFIG.format(port=self.port, node=NODE, secret=secret))
        self.node = NodeProcess("--config", str(config), listeners=1)
        self.addCleanup(self.node.stop)

    def log_in(self) -> str:
        """
        Log in at the provider as an application does, and fetch the access token.
        """
        base, done = f"http://localhost:{self.port}/oauth2", "http://localhost/done"
        asked = {
            "response_type": "code",
            "client_id": "app",
            "redirect_uri": done,
            "scope": "openid email",
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
        }
        return str(log_in(f"{base}/authorize?{urlencode(asked)}", self.port)["access_token"])

    def open(self, token: str) -> tuple[int, str]:
        return open_with(token, self.node.ports["web"])

    def test_whoever_logs_in_opens_a_session_with_the_access(self) -> None:
        """
        Whoever logs in opens a session with the access token, again and again for one question, also while
        the provider is down; neither token nor secret is in any log.
        """
        token = self.log_in()
        self.assertNotIn(".", token)

        for _ in range(3):
            self.assertEqual((200, "user://localhost/ann@example.org"), self.open(token))
        self.assertEqual(["access_token"], self.app.config["asked"])
        self.provider.close()
        self.assertEqual(200, self.open(token)[0])
        self.node.stop(signal.SIGTERM)
        for text in (self.node.said, json.dumps(self.node.log())):
            for hidden in (token, encoded(token), SECRET):
                self.assertNotIn(hidden, text)

    def test_token_that_the_provider_does_not_know_opens_nothing(self) -> None:
        """
        A token that the provider does not know opens nothing.
        """
        self.assertEqual((4401, "token"), self.open("of-her-own-making"))
        self.assertEqual(["access_token"], self.app.config["asked"])
