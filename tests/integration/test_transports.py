"""
The transports that need more than a plain socket: long-polling by treq, TLS with client certificates.
"""

import json
import signal
import socket
import ssl
import tempfile
import urllib.request
from pathlib import Path

import treq
from twisted.internet.defer import inlineCallbacks
from twisted.trial.unittest import TestCase as TrialTestCase

from tests.integration.process import Lines, NodeProcess
from tests.support.authority import Authority


class LongPollingTests(TrialTestCase):
    """
    A legacy client that has nothing but HTTP, here treq.
    """

    timeout = 30

    def setUp(self):
        self.node = NodeProcess()
        self.addCleanup(self.node.stop)
        self.url = f"http://127.0.0.1:{self.node.ports['web']}/poll"

    @inlineCallbacks
    def post(self, message, token=None):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        response = yield treq.post(self.url, json=message, headers=headers, persistent=False)
        body = yield response.json()
        return response.code, body

    @inlineCallbacks
    def test_request_and_answer(self):
        """
        A poller opens a session, allocates an address and finds the answer with its next GET.
        """
        opened = {"id": 1, "type": "open", "from": "runtime://localhost/p", "to": "mn:/session"}
        allocate = {
            "id": 2,
            "type": "create",
            "from": "runtime://localhost/p/address-allocation",
            "to": "domain://msg-node.localhost/address-allocation",
            "body": {"scheme": "hyperty", "value": {"number": 1}},
        }

        _, greeting = yield self.post(opened)
        token = greeting["messages"][0]["body"]["runtimeToken"]
        code, accepted = yield self.post(allocate, token)
        bearer = {"Authorization": f"Bearer {token}"}
        response = yield treq.get(self.url, params={"wait": 5}, headers=bearer, persistent=False)
        waiting = yield response.json()

        self.assertEqual((202, {"accepted": 1}), (code, accepted))
        self.assertEqual(1, waiting["cursor"])
        self.assertEqual(200, waiting["messages"][0]["body"]["code"])

    @inlineCallbacks
    def test_a_held_get_is_answered_when_a_message_comes(self):
        """
        A GET that waits is answered as soon as something comes, from whatever transport.
        """
        opened = {"id": 1, "type": "open", "from": "runtime://localhost/p", "to": "mn:/session"}
        _, greeting = yield self.post(opened)
        token = greeting["messages"][0]["body"]["runtimeToken"]
        bearer = {"Authorization": f"Bearer {token}"}
        message = {"id": 3, "type": "ping", "from": "x", "to": "runtime://localhost/p/here"}

        held = treq.get(self.url, params={"wait": 20}, headers=bearer, persistent=False)
        device = Lines(self.node.ports["line"], "runtime://localhost/device")
        device.send(message)
        response = yield held
        body = yield response.json()

        self.assertEqual({"cursor": 1, "messages": [message]}, body)
        device.close()


class TLSTests(TrialTestCase):
    """
    Listeners of the configuration file that speak TLS.
    """

    def setUp(self):
        directory = Path(tempfile.mkdtemp(prefix="msgnode-tls-"))
        self.authority = Authority(directory)
        self.ca = self.authority.path
        server = self.authority.issue("localhost")
        self.config = config = directory / "msgnode.toml"
        config.write_text(
            'web = ["tcp:0:interface=127.0.0.1"]\nadmin.listen = "none"\n'
            f'[[listen]]\nkind = "line"\nendpoint = "tcp:0:interface=127.0.0.1"\ncert = "{server}"\n'
            f'client_ca = "{self.ca}"\n'
        )
        self.node = NodeProcess("--config", str(config), listeners=2)
        self.addCleanup(self.node.stop)

    def test_client_with_a_certificate(self):
        """
        A network server with a certificate of the right authority opens a session over TLS 1.2 or later.
        """
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.authority.issue("server.example.org"))

        client = Lines(self.node.ports["line"], "runtime://localhost/server", context)

        self.assertTrue(client.token.startswith("mns_"))
        self.assertIn(client.socket.version(), ("TLSv1.2", "TLSv1.3"))
        client.close()

    def test_client_without_a_certificate(self):
        """
        Where a client certificate is asked for, one who has none gets nowhere.
        """
        context = ssl.create_default_context(cafile=self.ca)

        with self.assertRaises((ssl.SSLError, ConnectionError, AssertionError)):
            Lines(self.node.ports["line"], "runtime://localhost/server", context)

    def test_wrong_key_file(self):
        """
        A certificate that cannot be read stops the start with the file's name.
        """
        config = Path(tempfile.mkdtemp()) / "msgnode.toml"
        config.write_text('[[listen]]\nkind = "line"\nendpoint = "tcp:0"\ncert = "/nowhere/cert.pem"\n')

        node = NodeProcess("--config", str(config))

        self.assertNotEqual(0, node.wait())
        self.assertIn("/nowhere/cert.pem: cannot be read: No such file or directory", node.said)

    def test_key_of_another_certificate(self):
        """
        A key that does not fit its certificate stops the start with both files' names.
        """
        cert, key = self.authority.issue("one.example.org"), self.authority.issue("two.example.org")
        config = Path(tempfile.mkdtemp()) / "msgnode.toml"
        config.write_text(f'[[listen]]\nkind = "web"\nendpoint = "tcp:0"\ncert = "{cert}"\nkey = "{key}"\n')

        node = NodeProcess("--config", str(config))

        self.assertNotEqual(0, node.wait())
        self.assertIn(
            f"msgnode: {config}: web: {cert}: expected a certificate for the key in {key}", node.said
        )

    def test_identity_and_renewal(self):
        """
        On SIGHUP new connections are shown the renewed certificate, and those that are open stay.
        """
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.authority.issue("server.example.org"))
        before = Lines(self.node.ports["line"], "runtime://localhost/before", context)
        self.authority.issue("localhost")

        self.node.process.send_signal(signal.SIGHUP)
        self.node.read_until("reloaded the configuration")
        after = Lines(self.node.ports["line"], "runtime://localhost/after", context)

        self.assertNotEqual(
            before.socket.getpeercert()["serialNumber"], after.socket.getpeercert()["serialNumber"]
        )
        message = {"id": 3, "type": "update", "from": "x", "to": "runtime://localhost/before/x"}
        after.send(message)
        self.assertEqual(message, before.receive())
        before.close()
        after.close()

    def test_session_that_is_resumed(self):
        """
        A client with a certificate that offers an earlier TLS session gets on.
        """
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.authority.issue("server.example.org"))
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context.maximum_version = version
            first = Lines(self.node.ports["line"], "runtime://localhost/first", context)
            raw = socket.create_connection(("127.0.0.1", self.node.ports["line"]), 20)
            again = context.wrap_socket(raw, server_hostname="localhost", session=first.socket.session)
            again.sendall(b'{"id":1,"type":"open","from":"runtime://localhost/again","to":"mn:/session"}\n')

            self.assertIn(b"runtimeToken", again.recv(1000))
            again.close()
            first.close()

    def test_reload_refused(self):
        """
        On SIGHUP a bad file is refused with one line, and what was stays.
        """
        good = self.config.read_text()
        self.config.write_text(good + "[limits]\nsessions = 0\n")

        self.node.process.send_signal(signal.SIGHUP)
        self.node.read_until("limits.sessions: expected a whole number >= 1, found 0")
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.authority.issue("server.example.org"))
        client = Lines(self.node.ports["line"], "runtime://localhost/server", context)

        self.assertTrue(client.token)
        client.close()


class SharedPortTests(TrialTestCase):
    """
    Two nodes on one port, as on a machine with several cores.
    """

    timeout = 60
    ROUNDS = 64  # that one of two nodes gets all of them by chance is less likely than a broken disk

    def start(self, port, shared=True):
        """
        A node whose web listener is on this port.
        """
        directory = Path(tempfile.mkdtemp())
        file = directory / "node.toml"
        file.write_text(
            f'domain = "example.org"\nnode = "n{port}"\nlines = []\n[admin]\nlisten = "none"\n'
            f'[[listen]]\nkind = "web"\nendpoint = "tcp:{port}:interface=127.0.0.1"\n'
            f"reuse_port = {str(shared).lower()}\n"
        )
        node = NodeProcess("--config", str(file), listeners=1)
        self.addCleanup(node.stop)
        return node

    def open_sessions(self, port):
        """
        Open a session with each of many connections.
        """
        for number in range(self.ROUNDS):
            body = {"type": "open", "id": 1, "from": f"runtime://example.org/{number}", "to": "mn:/session"}
            request = urllib.request.Request(f"http://127.0.0.1:{port}/poll", json.dumps(body).encode())
            request.add_header("Content-Type", "application/json")
            with urllib.request.urlopen(request, timeout=10) as response:
                self.assertEqual(200, response.status)

    def test_connections_are_shared_by_both_nodes(self):
        """
        Each gets some of them, and when one has stopped the other gets all.
        """
        first = self.start(0)
        second = self.start(first.ports["web"])

        self.open_sessions(first.ports["web"])
        first.stop()
        opened = self.opened(first)
        self.open_sessions(second.ports["web"])
        second.stop()

        self.assertTrue(0 < opened < self.ROUNDS, opened)
        self.assertEqual(2 * self.ROUNDS - opened, self.opened(second))

    def opened(self, node):
        """
        The number of sessions that the node's traffic log says were opened.
        """
        logs = "".join(each.read_text() for each in node.traffic.glob("*.jsonl"))
        return logs.count('"type":"open"')

    def test_port_of_a_node_that_does_not_share_it(self):
        """
        The second node says that the port is taken.
        """
        first = self.start(0, shared=False)

        second = self.start(first.ports["web"])

        self.assertNotEqual(0, second.wait())
        self.assertIn("Address already in use", second.said)
