"""
The ring of servers: URLs, the order of attempts, pauses, and the servers that INFO names.
"""

import pytest
from twisted.trial.unittest import SynchronousTestCase

from msgnode.nats.options import Options
from msgnode.nats.servers import LAME_SECONDS, MAX_DISCOVERED, STEADY_SECONDS, Server, Servers, parse_url
from msgnode.nats.wire.commands import ServerInfo
from msgnode.nats.wire.credentials import Token, UserPassword


@pytest.mark.parametrize(
    "url, server",
    [
        ("nats://a:1", Server("a", 1, name="a")),
        ("a", Server("a", 4222, name="a")),
        ("10.0.0.1:1", Server("10.0.0.1", 1, name="10.0.0.1")),
        ("tls://a/", Server("a", 4222, tls=True, name="a")),
        ("nats://[::1]:1", Server("::1", 1, name="::1")),
        ("nats://u:p%40@a", Server("a", 4222, credentials=UserPassword("u", "p@"), name="a")),
        ("nats://t@a", Server("a", 4222, credentials=Token("t"), name="a")),
    ],
)
def test_urls(url: str, server: Server) -> None:
    """
    A URL has the host, the port, TLS and credentials.
    """
    assert parse_url(url) == server


@pytest.mark.parametrize(
    "url", ["", "ws://a", "nats://", "nats://a:x", "nats://a:0", "nats://a:99999", "nats://a/b"]
)
def test_wrong_urls(url: str) -> None:
    """
    A URL that is none is refused.
    """
    with pytest.raises(ValueError, match="expected nats://"):
        parse_url(url)


def test_password_is_not_shown() -> None:
    """
    The error about a URL does not have its password.
    """
    with pytest.raises(ValueError, match="expected nats://") as found:
        parse_url("ws://user:secret@a")

    assert "secret" not in str(found.value)


class ServersTests(SynchronousTestCase):
    """
    A ring of three servers with a clock and chance of the test.
    """

    def setUp(self) -> None:
        self.now, self.number = 0.0, 0.5
        self.servers = self.make("a:1", "b:1", "c:1")

    def make(self, *urls: str, shuffle: bool = False) -> Servers:
        options = Options(shuffle=shuffle, first_retry_seconds=1.0, last_retry_seconds=8.0)
        return Servers(urls, options, lambda: self.number, lambda: self.now)

    def taken(self, number: int) -> str:
        return "".join(self.servers.take().host for _ in range(number))

    def hosts(self) -> str:
        return "".join(server.host for server in self.servers)

    def test_order(self) -> None:
        """
        Each attempt takes the next server.
        """
        self.assertEqual("abcab", self.taken(5))

    def test_shuffled(self) -> None:
        """
        The order is random if it may be, and a server that is named twice is there once.
        """
        numbers = iter([0.9, 0.1, 0.5])
        options = Options()
        servers = Servers(["a:1", "b:1", "a:1", "c:1"], options, lambda: next(numbers), lambda: 0.0)

        self.assertEqual(["b", "c", "a"], [server.host for server in servers])

    def test_none(self) -> None:
        """
        A client needs a server.
        """
        self.assertRaises(ValueError, self.make)

    def test_pauses(self) -> None:
        """
        There is a pause before each round but the first; its limit doubles up to the last.
        """
        self.number = 1.0
        pauses = []
        for _ in range(18):
            self.servers.ended()
            pauses.append(self.servers.pause())

        self.assertEqual(
            [0.1, 0.1, 1, 0.1, 0.1, 2, 0.1, 0.1, 4, 0.1, 0.1, 8, 0.1, 0.1, 8, 0.1, 0.1, 8], pauses
        )

    def test_random_pauses(self) -> None:
        """
        A pause is random below its limit.
        """
        servers = self.make("a:1")
        servers.ended()
        self.number = 0.25

        self.assertEqual(0.25, servers.pause())

    def test_success(self) -> None:
        """
        After a connection that lasted, attempts are not counted on; one that ended soon is a failure.
        """
        for seconds, failures in ((0.0, 1), (STEADY_SECONDS - 1, 2), (STEADY_SECONDS, 0)):
            self.servers.established()
            self.now += seconds
            self.servers.ended()
            self.assertEqual(failures, self.servers.failures)

    def test_lame_duck(self) -> None:
        """
        A server in lame duck mode is avoided for a while, unless there is no other.
        """
        first = self.servers.take()
        self.servers.avoid(first)
        self.assertEqual("bcbc", self.taken(4))
        for server in self.servers:
            self.servers.avoid(server)
        self.assertFalse(self.servers.has_other(first))
        self.assertEqual(3, len({*self.taken(3)}))
        self.now += LAME_SECONDS
        self.assertTrue(self.servers.has_other(first))

    def test_discovered(self) -> None:
        """
        Servers of INFO are added once, and forgotten when a later INFO does not have them; those of the
        options stay.
        """
        current = self.servers.take()
        self.servers.discovered(ServerInfo(connect_urls=("d:1", "a:1", "[::1]:2", "no:port", "")), current)
        self.assertEqual(
            ["a", "b", "c", "d", "::1"], sorted((each.host for each in self.servers), key="abcd::1".find)
        )
        self.servers.discovered(ServerInfo(), current)
        self.assertEqual(5, len(self.servers))
        self.servers.discovered(ServerInfo(connect_urls=("e:1",)), current)

        self.assertEqual({*"abce"}, {*self.hosts()})

    def test_current_stays(self) -> None:
        """
        The server of the connection is not forgotten when INFO no longer names it.
        """
        servers = self.make("a:1")
        servers.discovered(ServerInfo(connect_urls=("d:1",)), servers.take())
        current = next(server for server in servers if server.host == "d")
        servers.discovered(ServerInfo(connect_urls=("e:1",)), current)

        self.assertEqual(["a", "d", "e"], sorted(server.host for server in servers))

    def test_many_discovered(self) -> None:
        """
        INFO may name only so many servers.
        """
        many = tuple(f"10.0.{number // 250}.{number % 250}:4222" for number in range(MAX_DISCOVERED + 500))
        self.servers.discovered(ServerInfo(connect_urls=many), self.servers.take())

        self.assertEqual(MAX_DISCOVERED + 3, len(self.servers))

    def test_discovered_by_address(self) -> None:
        """
        A server with only an address has the name, the credentials and TLS of the one that named it.
        """
        servers = self.make("tls://u:p@nats.example:1")
        servers.discovered(ServerInfo(connect_urls=("10.0.0.1:2", "other.example:3")), servers.take())
        names = {server.host: server.name for server in servers}

        self.assertEqual("nats.example", names["10.0.0.1"])
        self.assertEqual("other.example", names["other.example"])
        self.assertEqual({(True, UserPassword("u", "p"))}, {(each.tls, each.credentials) for each in servers})
