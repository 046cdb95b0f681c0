"""
What only TCP lines have: their ends, and how a client is told why it is closed.
"""

import json
from typing import Any

from twisted.internet.address import IPv6Address, UNIXAddress
from twisted.protocols.haproxy._wrapper import HAProxyWrappingFactory
from twisted.trial.unittest import SynchronousTestCase

from tests.support.fakes import refused_codes
from tests.support.network import Network
from tests.support.runtimes import TCPRuntime, dumps
from tests.support.suite_bounds import LIMIT, of_size


class LineTests(SynchronousTestCase):
    """
    A device `a` and another client `b`, with a limit of 20,000 bytes.
    """

    def setUp(self) -> None:
        self.net = Network(limits={"message_bytes": LIMIT})
        self.device, self.other = self.client("a").open(), self.client("b").open()
        self.message = {"id": 1, "type": "ping", "from": self.device.url, "to": self.other.url}

    def client(self, name: str, peer: Any = None) -> TCPRuntime:
        client = TCPRuntime.__new__(TCPRuntime)
        client.peer = peer
        client.__init__(self.net, f"runtime://example.org/{name}")
        return client

    def write(self, data: bytes) -> None:
        """
        The device sends these bytes, whatever they are.
        """
        self.device.transport.write(data)
        self.net.pump()

    def written(self, client: TCPRuntime) -> list[bytes]:
        """
        Hold what the node writes to a client, and give it as lines.
        """
        self.net.pump()
        return b"".join(client.link.serverIO.stream).splitlines(keepends=True)

    def test_proxy_protocol(self) -> None:
        """
        Behind a proxy that speaks the PROXY protocol the client's own address is known with its first line.
        """
        self.net.listeners["line"] = HAProxyWrappingFactory(self.net.listener("line"))
        device = self.client("c")

        device.transport.write(b"PROXY TCP4 203.0.113.5 192.0.2.1 51234 9091\r\n")
        device.open()

        session = self.net.node.sessions.get(device.url)
        self.assertEqual("203.0.113.5:51234", session.connection.peer)

    def test_both_ends(self) -> None:
        """
        LF and CRLF may stand at the ends of lines, mixed; the node's own lines end with LF.
        """
        line = dumps(self.message)
        self.other.stop_reading()

        self.write(line + b"\r\n" + line + b"\n" + line + b"\r\n")

        self.assertEqual([line + b"\n"] * 3, self.written(self.other))

    def test_empty_lines(self) -> None:
        """
        Empty lines are ignored.
        """
        self.write(b"\n\r\n\n\r\n" + dumps(self.message) + b"\n\n\n")

        self.assertEqual([self.message], self.other.take())
        self.assertEqual([], self.device.take())
        self.assertEqual(0, self.net.node.counts.unreadable)

    def test_line_whose_bytes_come_one_by_one_is_a_line(self) -> None:
        """
        A line whose bytes come one by one is a line.
        """
        data = dumps({**self.message, "body": {"value": "żółć"}}) + b"\r\n"

        for at in range(len(data)):
            self.write(data[at : at + 1])

        self.assertEqual([{**self.message, "body": {"value": "żółć"}}], self.other.take())

    def test_it_does_not_matter_where_the_reads_cut_a_stream(self) -> None:
        """
        It does not matter where the reads cut a stream of lines.
        """
        line = dumps(self.message)
        data = line + b"\r\n\n" + line + b"\n"

        for cut in range(len(data)):
            self.write(data[:cut])
            self.write(data[cut:])

            self.assertEqual([self.message] * 2, self.other.take(), cut)

    def test_overlong_line(self) -> None:
        """
        A line that is too long is thrown away to its end and answered one 413; the next line is heard.
        """
        self.write(b"x" * 5 * LIMIT)
        self.write(b"y" * 5 * LIMIT + b"\n" + dumps(self.message) + b"\n")

        (refusal,) = self.device.take()
        text = f"a line has at most {LIMIT} bytes"
        body = {"code": 413, "desc": text, "description": text}
        header = {"id": None, "type": "response", "from": "mn:/validator", "to": self.device.url}
        self.assertEqual({**header, "body": body}, refusal)
        self.assertEqual([self.message], self.other.take())
        self.assertEqual(1, refused_codes(self.net.node.counts)[413])

    def test_overlong_line_without_an_end(self) -> None:
        """
        Who is sending a line that is too long is told before its end, and nothing of it is kept.
        """
        for _ in range(100):
            self.write(b"x" * LIMIT)

        self.assertEqual([413], [refusal["body"]["code"] for refusal in self.device.take()])
        self.assertEqual(0, len(self.net.node.partial_input))

    def test_limit_without_terminator(self) -> None:
        """
        The limit is the line's without its terminator, wherever the reads cut.
        """
        data = of_size(LIMIT, self.other.url)
        for end in (b"\n", b"\r\n"):
            for cut in (LIMIT - 1, LIMIT, LIMIT + len(end) - 1):
                self.write((data + end)[:cut])
                self.write((data + end)[cut:])

                self.assertEqual(1, len(self.other.take()), (end, cut))
        self.write(data[:-1] + b" }\n" + data[:-1] + b" }\r\n")
        self.assertEqual([413, 413], [refusal["body"]["code"] for refusal in self.device.take()])
        self.assertEqual([], self.other.take())

    def test_answer_to_a_line_that_is_not_utf_8_says(self) -> None:
        """
        The answer to a line that is not UTF-8 says where.
        """
        self.write(b'{"id":1,"x":"\xff"}\n')

        (refusal,) = self.device.take()
        self.assertEqual("not UTF-8 at byte 13", refusal["body"]["desc"])

    def test_bad_line_before_open_is_answered_to_nobody(self) -> None:
        """
        A bad line before `open` is answered to nobody in particular.
        """
        stranger = self.client("c")

        reply = stranger.attempt(b"hello")

        self.assertEqual((None, None, 400), (reply["id"], reply["to"], reply["body"]["code"]))

    def test_told_why_it_is_closed(self) -> None:
        """
        A line says why the node closes; it is the last one.
        """
        stranger = self.client("c")
        stranger.stop_reading()

        stranger.send({"id": 1, "type": "open", "from": "mn:/x", "to": "mn:/session"}, self.message)

        (line,) = self.written(stranger)
        body = {"code": 4403, "reason": "refused"}
        expected = {"type": "close", "from": "mn:/session", "body": body}
        self.assertEqual(expected, json.loads(line))

    def test_answers_before_the_last_word(self) -> None:
        """
        What was answered in the same read stands before the closing line.
        """
        self.device.stop_reading()

        self.write(
            b"nonsense\n"
            + dumps({"id": 1, "type": "close", "from": self.device.url, "to": "mn:/session"})
            + b"\n"
        )

        types = [json.loads(line)["type"] for line in self.written(self.device)]
        self.assertEqual(["response", "close"], types)

    def test_nonsense_without_end(self) -> None:
        """
        A client that sends lines which are none, and reads no answer, is cut off; little is held for it.
        """
        self.device.stop_reading()

        for _ in range(50):
            self.write(b"x\n" * 500)
            self.assertLess(self.device.link.serverIO.size, 1_000_000)
        self.net.advance(6)

        self.assertTrue(self.device.link.over)
        self.assertEqual([], self.other.take())

    def test_names_of_unix_and_ipv6_peers(self) -> None:
        """
        A peer on a UNIX socket is called `unix`, one on IPv6 stands in brackets.
        """
        for address, name in (
            (UNIXAddress(None), "unix"),
            (UNIXAddress("/run/x"), "unix"),
            (IPv6Address("TCP", "2001:db8::1", 7), "[2001:db8::1]:7"),
        ):
            before = set(self.net.node.sessions.connections)

            self.client("c", peer=address).open()

            (connection,) = set(self.net.node.sessions.connections) - before
            self.assertEqual(name, connection.peer)

    def test_socket_options(self) -> None:
        """
        Nagle's algorithm is off and TCP keeps the connection alive.
        """
        self.assertEqual(["no delay", "keep alive"], self.device.link.serverIO.options)

    def test_dropped_behind_whole_lines(self) -> None:
        """
        Lines that came whole before the connection was lost are carried, the one that was begun is not.
        """
        line = dumps(self.message)
        self.device.transport.write(line + b"\n" + line + b"\n" + line)
        self.device.transport.loseConnection()
        self.net.pump()

        self.assertEqual([self.message] * 2, self.other.take())
        self.assertEqual(("detached", self.device.url), self.net.traffic_recorder.events[-1])
