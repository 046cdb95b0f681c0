"""
Logins by the node at a certified OpenID provider, with its pages in Chromium.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from base64 import b64encode
from pathlib import Path
from typing import Any
from unittest import TestCase, skipUnless
from urllib.parse import urlsplit

from tests.integration.browser import CHROMIUM, Browser, Page
from tests.integration.logins import CHALLENGE, VERIFIER
from tests.integration.process import PATIENCE, Lines, NodeProcess

HERE = Path(__file__).parent
MODULES = Path(os.environ.get("MSGNODE_NODE", HERE.parent.parent / ".node")) / "node_modules"
PROVIDER = MODULES / "oidc-provider/lib/index.js"
NODE = shutil.which("node")
IDM = "domain://msg-node.localhost/idm"
ANN = "user://localhost/ann@example.org"
CONFIG = """
domain = "localhost"
web = ["tcp:0:interface=127.0.0.1"]
lines = ["tcp:0:interface=127.0.0.1"]
admin.listen = "none"

[identity]
auth = "optional"
token_keys_file = "{keys}"

[[identity.providers]]
domain = "localhost"
issuer = "http://localhost:{port}"
audiences = ["app"]
client_id = "app"
client_secret_file = "{secret}"
scopes = ["openid", "email", "offline_access"]
"""


def submit_login(page: Page) -> None:
    """
    As ann, and let the application have what it asks for.
    """
    page.until("!!document.querySelector('input[name=login]')")
    page.run("document.querySelector('input[name=login]').value = 'ann'")
    page.run("document.querySelector('input[name=password]').value = 'any'")
    page.run("document.querySelector('form').submit()")
    page.until("!!document.querySelector('input[name=prompt][value=consent]')")
    page.run("document.querySelector('form').submit()")


def allow_device(browser: Browser, shown: dict[str, Any]) -> None:
    """
    What the user of a device does with what it shows.
    """
    page = browser.page(shown["verification_uri_complete"], apart=True)
    page.until("!!document.querySelector('button[type=submit]')")
    assert shown["user_code"] in page.run("document.body.innerText")
    page.run("document.querySelector('button[type=submit]').click()")
    submit_login(page)


class Provider:
    """
    The provider in a process of its own. `issued` are the refresh tokens that it has given out.
    """

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        assert NODE is not None
        self._said = Path(tempfile.mkdtemp(prefix="msgnode-"), "said")
        command = [NODE, str(HERE / "oidc_provider.mjs"), str(PROVIDER), str(self.port)]
        with self._said.open("w") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def await_start(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while "listening" not in self._said.read_text():
            assert time.monotonic() < deadline, self._said.read_text()
            time.sleep(0.05)

    @property
    def issued(self) -> list[str]:
        return re.findall(r"^refresh (\S+)$", self._said.read_text(), re.MULTILINE)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)


@skipUnless(NODE and PROVIDER.exists() and CHROMIUM, "needs node, oidc-provider and Chromium")
class LoginTests(TestCase):
    """
    A provider, a node, a thing on a plain socket, and a browser.
    """

    provider: Provider
    browser: Browser

    @classmethod
    def setUpClass(cls) -> None:
        cls.provider = Provider()
        cls.addClassCleanup(cls.provider.stop)
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.stop)
        cls.provider.await_start()

    def setUp(self) -> None:
        self.where = Path(tempfile.mkdtemp(prefix="msgnode-"))
        self.addCleanup(shutil.rmtree, self.where)
        (self.where / "keys").write_text(b64encode(os.urandom(32)).decode())
        (self.where / "secret").write_text("s3cret: of the node")
        self.start()

    def page(self, url: str) -> Page:
        return self.browser.page(url, apart=True)

    def start(self) -> None:
        config = self.where / "node.toml"
        keys, secret = self.where / "keys", self.where / "secret"
        text = CONFIG.format(port=self.provider.port, keys=keys, secret=secret)
        config.write_text(text)
        state = str(self.where / "state")
        self.node = NodeProcess("--config", str(config), state=state, listeners=2)
        self.addCleanup(self.node.stop)
        self.thing = Lines(self.node.ports["line"])
        self.addCleanup(self.thing.close)

    def open(self, token: str = "") -> None:
        runtime = "runtime://localhost/lamp"
        kind, runtime = ("re-open", f"{runtime}/{token}") if token else ("open", runtime)
        answer = self.thing.ask({"id": 1, "type": kind, "from": runtime, "to": "mn:/session"})
        self.assertEqual(200, answer["body"]["code"], answer)
        self.token = answer["body"].get("runtimeToken", token)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        body = {"method": method, "params": params}
        message = {"id": 7, "type": "execute", "from": "runtime://localhost/lamp", "to": IDM, "body": body}
        return self.thing.ask(message)["body"]

    def device_login(self) -> dict[str, Any]:
        self.open()
        shown = self.ask("getAccessToken")
        self.assertEqual(100, shown["code"], shown)
        allow_device(self.browser, shown["value"])
        answer = self.thing.receive()
        assert answer is not None
        return answer["body"]

    def test_thing_without_a_browser(self) -> None:
        """
        A thing shows a code, its user logs in with a browser, and it has a token; after a crash of the node
        it gets another, and an assertion of its key, until the login is revoked. No refresh token is seen.
        """
        found = self.device_login()
        self.assertEqual((200, ANN), (found["code"], found["value"]["userURL"]))
        self.assertTrue(found["value"]["refreshable"])
        self.node.stop(signal.SIGKILL)
        said, logged = self.node.said, str(self.node.log())
        self.start()
        self.open(self.token)

        again = self.ask("getAccessToken")
        self.assertNotEqual(found["value"]["accessToken"], again["value"]["accessToken"])
        made = self.ask("generateAssertion", contents="her key", origin="localhost")
        self.assertEqual(200, made["code"], made)
        told = self.ask("validateAssertion", assertion=made["value"]["assertion"])["value"]
        self.assertEqual(("her key", ANN), (told["contents"], told["userURL"]))
        assertion = self.ask("refreshAssertion", identity=ANN)["value"]
        self.assertEqual(ANN, assertion["userProfile"]["userURL"])
        self.assertEqual([ANN], [one["userURL"] for one in self.ask("getIdentities")["value"]])
        self.assertEqual({"code": 200, "value": True}, self.ask("revokeAccessToken"))
        self.assertEqual(401, self.ask("refreshAccessToken")["code"])
        self.node.stop()

        self.assertGreater(len(self.provider.issued), 2)
        files = [file for file in (self.where / "state").rglob("*") if file.is_file()]
        self.assertIn("logins.jsonl", [file.name for file in files])
        everything = [said, logged, self.node.said, str(self.node.log()), found, again, made, assertion]
        everything += [file.read_bytes().decode("latin-1") for file in files]
        for token in self.provider.issued:
            self.assertNotIn(token, str(everything))

    def test_login_page_in_a_browser(self) -> None:
        """
        The login page redirects the browser back with a code, which the node exchanges once.
        """
        self.open()
        back = f"http://127.0.0.1:{self.node.ports['web']}/live"
        login = {"code_challenge": CHALLENGE, "state": "s", "prompt": "consent", "redirect_uri": back}
        page = self.page(self.ask("getLoginEndpoint", **login)["value"])
        submit_login(page)
        url = page.until(f"location.href.startsWith('{back}') && location.href")
        self.assertIn("code=", urlsplit(url).query)

        params = {"login": url, "code_verifier": VERIFIER, "redirect_uri": back}
        found = self.ask("getAccessToken", **params)
        self.assertEqual((200, ANN), (found["code"], found["value"]["userURL"]), found)
        self.assertEqual(401, self.ask("getAccessToken", **params)["code"])
