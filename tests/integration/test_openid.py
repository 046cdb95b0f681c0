"""
A real login: another's OpenID provider, a real node, sockets between them.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from unittest import TestCase

from oidc_provider_mock import User, run_server_in_thread

from msgnode.sessions.access.device_tokens import line, make_token
from tests.integration.logins import CHALLENGE, log_in, open_with
from tests.integration.process import Lines, NodeProcess
from tests.sessions.access.test_identity_expiry import encoded
from tests.support.examples import blocks

CONFIG = """
domain = "localhost"

[identity]
auth = "optional"

[[identity.providers]]
domain = "localhost"
issuer = "http://localhost:{port}"
audiences = ["app"]
redirect_uri = "http://localhost/done"
"""
ANN = "user://localhost/ann@example.org"
PKCE = {"code_challenge": CHALLENGE, "state": "s"}


class LoginTests(TestCase):
    """
    Authorization code flow from the login page on, as an application does it.
    """

    def setUp(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.provider = ExitStack()
        self.addCleanup(lambda: self.provider.close())
        self.start_provider()
        where = tempfile.mkdtemp(prefix="msgnode-")
        config = Path(where, "node.toml")
        anywhere = '["tcp:0:interface=127.0.0.1"]'
        listen = f'web = {anywhere}\nlines = {anywhere}\nadmin.listen = "none"\n'
        config.write_text(listen + CONFIG.format(port=self.port))
        self.node = NodeProcess("--config", str(config), listeners=2)
        self.addCleanup(self.node.stop)

    def start_provider(self) -> None:
        """
        Each has a key of its own.
        """
        user = User(sub="ann", claims={"email": "ann@example.org", "email_verified": True})
        self.provider = ExitStack()
        self.provider.enter_context(run_server_in_thread(self.port, user_claims=[user]))

    def log_in(self) -> str:
        """
        Ask the node where, log in there, and fetch the ID token.
        """
        asking = Lines(self.node.ports["line"], "runtime://localhost/login")
        reply = asking.ask(
            {
                "id": 2,
                "type": "execute",
                "from": "runtime://localhost/login",
                "to": "domain://msg-node.localhost/idm",
                "body": {"method": "getLoginEndpoint", "params": PKCE},
            }
        )
        asking.close()
        page = reply["body"]["value"]
        return str(log_in(page, self.port)["id_token"])

    def open(self, token: str) -> tuple[int, str]:
        return open_with(token, self.node.ports["web"])

    def test_whoever_logs_in_at_the_provider_opens_a_session(self) -> None:
        """
        Whoever logs in at the provider opens a session as who it is; the token is in no log.
        """
        token = self.log_in()

        self.assertEqual((200, ANN), self.open(token))
        self.node.stop(signal.SIGTERM)
        for text in (self.node.said, json.dumps(self.node.log())):
            self.assertNotIn(token.split(".")[2], text)
            self.assertNotIn(encoded(token), text)

    def test_new_keys(self) -> None:
        """
        A provider that comes back with another key is believed, and its old tokens no longer; for a
        minute such a client may ask again, because the keys may not all be known yet.
        """
        old = self.log_in()
        self.assertEqual(200, self.open(old)[0])
        self.provider.close()
        self.start_provider()

        self.assertEqual((200, ANN), self.open(self.log_in()))
        code, reason = self.open(old)
        self.assertEqual((4401, "token"), (code, reason.partition(";")[0]))

    def test_known_users_come_and_go_while_the_provider_is_down(self) -> None:
        """
        While the provider is down who is known comes and goes; it takes no other server.
        """
        token = self.log_in()
        self.assertEqual(200, self.open(token)[0])
        self.provider.close()

        self.assertEqual((200, ANN), self.open(token))


class DeviceTests(TestCase):
    """
    A device with a token from a file.
    """

    def setUp(self) -> None:
        where = Path(tempfile.mkdtemp(prefix="msgnode-"))
        self.devices = where / "devices"
        self.secret, other = make_token(), make_token()
        self.others = line(other, "device://localhost/other")
        self.devices.write_text(f"{self.others}\n{line(self.secret, 'device://localhost/lamp')}\n")
        config = where / "node.toml"
        config.write_text(
            'web = []\nlines = ["tcp:0:interface=127.0.0.1"]\nadmin.listen = "none"\n'
            f'[identity]\nauth = "required"\ndevices = "{self.devices}"\n'
        )
        self.node = NodeProcess("--config", str(config), listeners=1)
        self.addCleanup(self.node.stop)

    def test_struck_out_device_is_closed_at_sighup(self) -> None:
        """
        It opens a session; when its line is struck out and SIGHUP comes, its connection is closed.
        """
        device = Lines(self.node.ports["line"])
        self.addCleanup(device.close)
        opened = device.ask(
            {
                "id": 1,
                "type": "open",
                "from": "runtime://localhost/lamp",
                "to": "mn:/session",
                "body": {"token": self.secret},
            }
        )
        self.assertEqual(200, opened["body"]["code"])
        self.devices.write_text(f"{self.others}\n")

        self.node.process.send_signal(signal.SIGHUP)

        self.assertEqual({"code": 4401, "reason": "token"}, device.receive()["body"])
        self.assertIsNone(device.receive())
        self.node.stop()
        self.assertNotIn(self.secret, self.node.said)

    def msgnode(self, *arguments: str, stdin: str = "", **environment: str) -> tuple[int, str]:
        """
        A verb's exit code, and all it printed.
        """
        done = subprocess.run(
            [Path(sys.executable).with_name("msgnode"), *arguments],
            env={**os.environ, "MSGNODE_URL": f"tcp://127.0.0.1:{self.node.ports['line']}", **environment},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stdout + done.stderr

    def test_a_verb_logs_in(self) -> None:
        """
        By an option, a file, stdin or the environment; its token is in nothing that it prints.
        """
        file = self.devices.with_name("token")
        file.write_text(f"{self.secret}\n")
        ask = [
            "request",
            "domain://msg-node.localhost/idm",
            '{"resource": "/identity/device://localhost/lamp"}',
        ]
        ways: list[tuple[list[str], dict[str, str]]] = [
            (["--login", self.secret], {}),
            (["--login", f"@{file}"], {}),
            (["--login", "-"], {"stdin": f"{self.secret}\n"}),
            ([], {"MSGNODE_LOGIN": f"@{file}"}),
        ]
        for options, how in ways:
            with self.subTest(options=options):
                code, said = self.msgnode(*ask, "--runtime", "runtime://localhost/lamp", *options, **how)

                self.assertEqual(0, code, said)
                self.assertIn('"userURL": "device://localhost/lamp"', said)
                self.assertNotIn(self.secret, said)

    def test_the_program_of_the_documentation_logs_in(self) -> None:
        """
        The device in docs/client.md opens its session with the token from its file.
        """
        file = self.devices.with_name("token")
        file.write_text(f"{self.secret}\n")
        code = next(b.text for b in blocks("docs/client.md") if "read_text" in b.text)
        code = code.replace("/etc/lamp/token", str(file)).replace("example.org", "localhost")
        code = code.replace("wss://mn.localhost/ws", f"tcp://127.0.0.1:{self.node.ports['line']}")

        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

        self.assertEqual(
            (0, "{'code': 200, 'state': 'on'}\n", ""), (done.returncode, done.stdout, done.stderr)
        )

    def test_a_verb_that_does_not_log_in_is_told_how(self) -> None:
        """
        And so is one whose token is no good, or cannot be read.
        """
        for options, code, text in (
            ([], 1, "pass one with --login or MSGNODE_LOGIN"),
            (["--login", "of my own making"], 1, "the token of --login is not valid here"),
            (["--login", "@/nowhere/token"], 2, "/nowhere/token cannot be read: No such file or directory"),
            (["--login", "-"], 2, "stdin is empty; expected a token"),
        ):
            with self.subTest(options=options):
                found, said = self.msgnode("send", "hyperty://localhost/x", "1", *options)

                self.assertEqual(code, found, said)
                self.assertIn(text, said)
