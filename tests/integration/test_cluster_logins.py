"""
Logins by the nodes of one domain, at a certified OpenID provider, of sessions that move between them.
"""

import json
import os
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any
from unittest import TestCase, skipUnless

from .browser import CHROMIUM, Browser
from .clustered import DOMAIN, Cluster, Member, until
from .process import Lines
from .test_logins import NODE, PROVIDER, Provider, allow_device

LAMP = f"runtime://{DOMAIN}/lamp"
IDM = f"domain://idm.{DOMAIN}"
ANN = f"user://{DOMAIN}/ann@example.org"
IDENTITY = """
[identity]
auth = "optional"
token_keys_file = "{keys}"
[[identity.providers]]
domain = "{domain}"
issuer = "http://localhost:{port}"
audiences = ["app"]
client_id = "app"
client_secret = "s3cret: of the node"
scopes = ["openid", "email", "offline_access"]
"""


class Lamp:
    """
    A thing without a browser, which may connect to another node.
    """

    def __init__(self, node: Member) -> None:
        self._client = Lines(node.lines, LAMP)

    def connect(self, node: Member) -> None:
        token = self._client.token
        self._client.close()
        self._client = Lines(node.lines)
        opened = self.ask("mn:/session", "re-open", from_=f"{LAMP}/{token}")
        assert opened["code"] == 200, opened
        self._client.token = opened.get("runtimeToken", token)

    def ask(self, to: str, type: str = "execute", from_: str = LAMP, **body: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._client.ask(
            {"id": 7, "type": type, "from": from_, "to": to, "body": body}
        )["body"]
        return found

    def identity(self, method: str, **params: Any) -> dict[str, Any]:
        return self.ask(IDM, method=method, params=params)

    def receive(self) -> dict[str, Any]:
        message = self._client.receive()
        assert message is not None
        return message["body"]

    def close(self) -> None:
        self._client.close()


def logins(node: Member) -> list[str]:
    """
    The users whose logins the node has on disk.
    """
    file = node.directory / "state/logins.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    last = dict(json.loads(line) for line in lines)
    return [value[1]["user"] for value in last.values() if value is not None]


@skipUnless(NODE and PROVIDER.exists() and CHROMIUM, "needs node, oidc-provider, Chromium")
class ClusterLoginTests(TestCase):
    """
    Two nodes, a provider, a thing, and its user with a browser.
    """

    def setUp(self) -> None:
        self.provider = Provider()
        self.addCleanup(self.provider.stop)
        self.browser = Browser()
        self.addCleanup(self.browser.stop)
        keys = Path(self.enterContext(tempfile.TemporaryDirectory()), "keys")
        keys.write_text(b64encode(os.urandom(32)).decode())
        self.provider.await_start()
        more = IDENTITY.format(keys=keys, domain=DOMAIN, port=self.provider.port)
        self.cluster = Cluster(2, more)
        self.addCleanup(self.cluster.stop)
        self.first, self.second = self.cluster.nodes
        self.lamp = Lamp(self.first)
        self.addCleanup(self.lamp.close)

    def log_in(self) -> dict[str, Any]:
        shown = self.lamp.identity("getAccessToken")
        self.assertEqual(100, shown["code"], shown)
        allow_device(self.browser, shown["value"])
        return self.lamp.receive()

    def test_session_that_moves(self) -> None:
        """
        A login stays at no node: the one that the session has left forgets it, the other one answers 401 and
        begins another, which ends with 410 when the session moves again. No refresh token is seen.
        """
        found = self.log_in()
        self.assertEqual((200, ANN), (found["code"], found["value"]["userURL"]))
        until(lambda: ([ANN], []) == (logins(self.first), logins(self.second)))
        self.assertEqual(200, self.lamp.identity("refreshAccessToken")["code"])

        self.lamp.connect(self.second)
        refused = self.lamp.identity("refreshAccessToken")
        self.assertEqual((401, "IdPLoginError"), (refused["code"], refused["description"]["name"]))
        self.assertEqual([], self.lamp.identity("getIdentities")["value"])
        until(lambda: not logins(self.first))
        self.assertEqual(100, self.lamp.identity("getAccessToken")["code"])

        self.lamp.connect(self.first)
        ended = self.lamp.receive()
        self.assertEqual(410, ended["code"])
        self.assertIn("another node", ended["desc"])
        self.assertEqual([], logins(self.second))
        self.assertGreater(len(self.provider.issued), 1)
        self.assert_unseen(found, refused, ended)

    def test_node_that_is_killed(self) -> None:
        """
        The session goes to the other node, and its login is not there; the node that had it forgets it when
        it is back, and a client that comes back there with the session gets nothing of it.
        """
        self.log_in()
        self.first.kill()
        self.lamp.connect(self.second)
        self.assertEqual(401, self.lamp.identity("refreshAccessToken")["code"])

        self.first.start()
        self.cluster.wait_for_links()
        self.lamp.connect(self.first)

        self.assertEqual(401, self.lamp.identity("refreshAccessToken")["code"])
        until(lambda: not logins(self.first))
        self.assertEqual([], logins(self.second))

    def assert_unseen(self, *answers: Any) -> None:
        """
        No refresh token is in these answers, in a file of a node, or in what it has printed.
        """
        for node in self.cluster.nodes:
            assert node.process is not None
            node.process.stop()
        files = [file for file in self.cluster.directory.rglob("*") if file.is_file()]
        self.assertIn("logins.jsonl", [file.name for file in files])
        everything = str([file.read_bytes().decode("latin-1") for file in files])
        everything += str([node.process.said for node in self.cluster.nodes if node.process]) + str(answers)
        for token in self.provider.issued:
            self.assertNotIn(token, everything)
