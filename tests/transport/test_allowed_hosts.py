"""
The names that the admin listener and the registries go by.
"""

from typing import Any

from twisted.internet.address import UNIXAddress
from twisted.trial.unittest import SynchronousTestCase

from msgnode.transport.allowed_hosts import Hosts
from tests.support.http_client import HTTPClient
from tests.support.network import Network


class AdminHostTests(SynchronousTestCase):
    """
    The admin listener of node `test` of example.org.
    """

    def setUp(self) -> None:
        self.restart()

    def restart(self, **sections: Any) -> None:
        self.net = Network(**sections)

    def status(self, host: str, path: str = "/live", **headers: str) -> int:
        return HTTPClient(self.net, "admin").request("GET", path, Host=host, **headers).status

    def test_the_admin_listener_answers_for_its_own_names(self) -> None:
        """
        Addresses, localhost, node, domain, the host of public_url and admin.hosts, with any port.
        """
        self.restart(public_url="https://public.example:444/x", admin={"hosts": ["ops.example"]})

        for host in (
            "127.0.0.1", "127.0.0.1:9092", "[::1]", "[::1]:9092", "192.0.2.7:1", "localhost:9092",
            "LOCALHOST.", "test", "example.org:80", "public.example", "ops.example:9092",
        ):  # fmt: skip
            with self.subTest(host=host):
                self.assertEqual(200, self.status(host))

    def test_the_admin_listener_refuses_a_page_that_rebound_its_name(self) -> None:
        """
        Any other host is 421, at every path and whatever is forwarded, and the answer names the key.
        """
        for path in ("/", "/live/x", "/metrics", "/api/v1/node", "/policy/policies", "/nothing"):
            for host in (
                "evil.example",
                "evil.example:9092",
                "localhost.evil.example",
                "127.0.0.1.evil.example",
                "x@localhost",
            ):
                with self.subTest(path=path, host=host):
                    self.assertEqual(421, self.status(host, path, X_Forwarded_Host="localhost"))
        answer = HTTPClient(self.net, "admin").request("GET", "/metrics", Host="evil.example")
        self.assertIn(
            "'evil.example' is not allowed here; to allow it, add it to admin.hosts", answer.json()["desc"]
        )

    def test_the_web_listener_answers_for_any_host(self) -> None:
        """
        Pages are served there, by whatever name.
        """
        answer = HTTPClient(self.net).request("GET", "/live", Host="anything.example")

        self.assertEqual(200, answer.status)

    def test_a_client_of_http_1_0_names_no_host(self) -> None:
        """
        HTTP/1.0 knows no Host; a later version must name one.
        """
        found = []
        for version in (b"1.0", b"1.1"):
            client = HTTPClient(self.net, "admin")
            client.transport.write(b"GET /live HTTP/%s\r\n\r\n" % version)
            self.net.pump()
            found.append(client.came.split(b" ")[1])

        self.assertEqual([b"200", b"400"], found)

    def test_a_reload_changes_the_names(self) -> None:
        """
        SIGHUP takes a name in and out.
        """
        site = self.net.listener("admin")
        self.net.node.config.admin.hosts = ["ops.example"]
        site.apply()

        self.assertEqual(200, self.status("ops.example"))


class _Request:
    """
    What of a request Hosts looks at.
    """

    def __init__(self, where: Any) -> None:
        self._where = where

    def getHost(self) -> Any:
        return self._where


class UnixHostTests(SynchronousTestCase):
    """
    A UNIX socket.
    """

    def test_a_unix_socket_answers_for_any_host(self) -> None:
        """
        No page reaches one, and it has no name.
        """
        hosts = Hosts((), "admin.hosts")

        self.assertIsNone(hosts.refusal(_Request(UNIXAddress("/run/msgnode.sock"))))  # type: ignore
