"""
The fast path for polls: nobody can tell the difference but by the clock.
"""

import json
import re
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msgnode.connectors.socketio import codec
from msgnode.connectors.socketio.polling_fastpath import is_usual
from tests.connectors.socketio.test_resource import OPEN, URL, SocketCase
from tests.support.http_client import HTTPClient
from tests.support.socketio_runtime import emitted

NAMES = (b"Host", b"Content-Length", b"Transfer-Encoding", b"Connection", b"Accept", b"X", b"")
MARKS = (b":", b": ", b":\t", b" :", b"\t:", b"", b":  ")
VALUES = (
    b"x", b"3", b"0", b"03", b"+3", b"3, 3", b"4", b"chunked", b"identity", b"close", b"keep-alive",
    b"", b"a\x00b", b"a\rb", b"a\nb", b"\xff", b"a\r\n b", b"\x7f", b"\x0b",
)  # fmt: skip


@st.composite
def requests(draw: Any) -> tuple[bytes, list[bytes]]:
    """
    GET or POST, and fields that stand behind the usual ones.
    """
    field = st.builds(
        lambda *parts: b"".join(parts), *(st.sampled_from(some) for some in (NAMES, MARKS, VALUES))
    )
    return draw(st.sampled_from((b"GET", b"POST"))), draw(st.lists(field, max_size=3))


class FastPathTests(SocketCase):
    """
    What it takes, what it leaves, and what stands around that on a connection.
    """

    def setUp(self) -> None:
        super().setUp()
        self.open()
        self.taken: list[bool] = []
        site = self.net.listener("web")
        fast_path = site.fast_path
        self.addCleanup(setattr, site, "fast_path", fast_path)
        site.fast_path = self
        self._fast_path = fast_path

    def try_handle(self, data: bytes, channel: Any) -> bool:
        self.taken.append(self._fast_path.try_handle(data, channel))
        return self.taken[-1]

    def raw(self, *parts: bytes) -> bytes:
        """
        What comes back on a new connection, in which these parts are read one by one.
        """
        client = HTTPClient(self.net)
        for part in parts:
            client.transport.write(part)
            self.net.pump()
        return client.came

    def get(self, query: str = "", head: str = "Host: x\r\n") -> bytes:
        return f"GET /socket.io/{query or self.query} HTTP/1.1\r\n{head}\r\n".encode()

    def posted(self, body: bytes, head: str = "Host: x\r\n") -> bytes:
        length = f"Content-Length: {len(body)}\r\n"
        return f"POST /socket.io/{self.query} HTTP/1.1\r\n{head}{length}\r\n".encode() + body

    def test_same_answer(self) -> None:
        """
        Both ways give the same answers, but for the server's name.
        """
        answers = []
        for head in ("Host: x\r\n", "Host: x\r\nExpect: nothing\r\n"):
            self.send(1)
            for request in (self.posted(b"1:2", head), self.get(head=head)):
                status, *fields = self.raw(request).split(b"\r\n")
                kept = [f for f in fields if not f.lower().startswith((b"server:", b"date:"))]
                answers.append((status, sorted(f.lower() for f in kept[: kept.index(b"")]), fields[-1]))

        posts, polls = answers[::2], answers[1::2]
        self.assertEqual([True, True, False, False], self.taken)
        self.assertEqual((posts[0][0], posts[0][2]), (posts[1][0], posts[1][2]))
        self.assertEqual(polls[0], polls[1])

    def test_unusual_requests_are_left_to_the_web_server(self) -> None:
        """
        The web server gets whatever is unusual, and all that is refused.
        """
        sid = self.query.partition("&sid=")[2]
        for request in (
            self.get(head="Host: x\r\nOrigin: https://a.example\r\n"),
            self.get(head="Host: x\r\nConnection: close\r\n"),
            self.get(head=""),
            self.get(head="Host: x\r\nContent-Length: 0\r\n"),
            self.get(f"?EIO=3&transport=polling&sid={sid}&j=1"),
            self.get(f"?EIO=4&transport=polling&sid={sid}"),
            self.get(f"?EIO=3&transport=polling&sid=%{ord(sid[0]):x}{sid[1:]}"),
            self.get("?EIO=3&transport=polling"),
            self.get("?EIO=3&transport=polling&sid=unknown"),
            self.get().replace(b"HTTP/1.1", b"HTTP/1.0"),
            self.posted(b"x"),
            self.posted(b"1:2", "Host: x\r\nContent-Length: 3\r\n"),
            b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n",
        ):
            self.raw(request)
            self.assertEqual([False], self.taken, request)
            self.open()
            self.taken.clear()

    def test_whole_requests_only(self) -> None:
        """
        A request that comes in parts, or with another behind it, is the web server's, to its end.
        """
        packet = emitted(json.dumps(self.update(1)).encode())
        request = self.posted(b"%d:%s" % (len(packet), packet))

        for parts in ((request[:20], request[20:]), (request[:-5], request[-5:])):
            self.assertTrue(self.raw(*parts).endswith(b"ok"))
            self.assertNotIn(True, self.taken)
        answers = self.raw(request + self.get()).split(b"HTTP/1.1 200 OK\r\n")[1:]

        self.assertEqual([False, True], self.taken[-2:])
        self.assertTrue(answers[0].endswith(b"ok"))
        self.assertEqual([1, 1, 1], self.ids(codec.split(answers[1].partition(b"\r\n\r\n")[2], 3)))

    def test_behind_a_poll(self) -> None:
        """
        What comes on the same connection behind a poll that waits is answered after it.
        """
        client = HTTPClient(self.net)
        for part in (self.get(), self.posted(b"1:2")[:30], self.posted(b"1:2")[30:]):
            client.transport.write(part)
            self.net.pump()
        self.assertEqual(b"", client.came)

        self.send(5)
        self.net.pump()

        answers = client.came.split(b"HTTP/1.1 200 OK\r\n")[1:]
        self.assertEqual([5], self.ids(codec.split(answers[0].partition(b"\r\n\r\n")[2], 3)))
        self.assertTrue(answers[1].endswith(b"ok"))
        self.assertEqual([b"3"], self.poll())

    def test_too_much_behind_a_poll(self) -> None:
        """
        Not without end.
        """
        self.restart(limits={"message_bytes": 1000})
        self.open()
        client = HTTPClient(self.net)
        client.transport.write(self.get())
        self.net.pump()

        client.transport.write(b"x" * 2001)
        self.net.pump()

        self.assertFalse(client.is_connected)
        self.assertIsNone(self.net.node.sessions.get(URL).connection)

    def test_idle_connections_close(self) -> None:
        """
        A connection on which nothing follows is closed after a minute; one whose poll waits is not.
        """
        client = HTTPClient(self.net)
        client.transport.write(self.posted(b"1:2"))
        self.net.pump()
        self.poll()
        waiting = HTTPClient(self.net)
        waiting.transport.write(self.get())
        self.net.advance(62)

        self.assertFalse(client.is_connected)
        self.assertTrue(waiting.is_connected)
        self.send(1)
        self.net.advance(62)
        self.assertFalse(waiting.is_connected)

    def test_open_counts(self) -> None:
        """
        The fast path carries what a POST says: a session is opened by it.
        """
        self.connect()
        self.taken.clear()

        answer = self.post(emitted(json.dumps(OPEN).encode()))

        self.assertEqual(([True], b"ok"), (self.taken, answer.body))

    # -- beside the web server ---------------------------------------------------

    def outcome(self, fast_path: Any, *parts: bytes) -> tuple[list[bytes], bool]:
        """
        The status of each answer, and whether the connection is left open.
        """
        self.net.listener("web").fast_path = self if fast_path else None
        primer = HTTPClient(self.net)  # so that a poll has something to be answered
        primer.request("POST", f"/socket.io/{self.query}", b"1:2")
        primer.hang_up()
        client = HTTPClient(self.net)
        for part in parts:
            if client.is_connected:
                client.transport.write(part)
                self.net.pump()
        came, connected = client.came, client.is_connected
        client.hang_up()
        return re.findall(rb"HTTP/1\.1 (\d+)", came), connected

    def assertSame(self, *parts: bytes) -> None:
        with_fast_path, without = self.outcome(True, *parts), self.outcome(False, *parts)
        self.assertEqual(without, with_fast_path, parts)

    def test_a_request_that_the_web_server_refuses_is_refused_in_the_fast_path(self) -> None:
        """
        What RFC 9112 does not allow is never taken, so that nobody sends a second request in a body.
        """
        body = self.posted(b"1:2")
        smuggled = f"{len(body)}\r\n".encode()
        for field in (
            b"Transfer-Encoding : chunked\r\n",
            b"Transfer-Encoding\t: chunked\r\n",
            b"Transfer-Encoding\x00: chunked\r\n",
            b"Content-Length : " + smuggled,
            b"Content-Length\t: " + smuggled,
            b"Content-Length: 0\r\nContent-Length : " + smuggled,
            b"Content-Length: " + smuggled + b"Content-Length: 0\r\n",
            b"X: a\rContent-Length: " + smuggled,
            b"X: a\nContent-Length: " + smuggled,
            b"X: \x00\r\n",
            b"X\r\n",
            b": x\r\n",
            b" folded: x\r\n",
            b"X: a\r\n\tContent-Length: " + smuggled,
            b"Host: y\r\n",
            b"Te: trailers\r\n",
        ):
            head = self.get().replace(b"Host: x\r\n", b"Host: x\r\n" + field)
            with self.subTest(field=field):
                self.taken.clear()
                self.assertSame(head, body)
                self.assertNotIn(True, self.taken[1:2])  # the first is the priming POST

    @settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(requests(), st.booleans())
    def test_any_head_is_answered_as_the_web_server_answers_it(self, parts: Any, behind: bool) -> None:
        """
        Whatever stands in a head, the fast path and the web server agree on the answers and on what follows.
        """
        template, fields = parts
        request = self.posted(b"1:2") if template == b"POST" else self.get()
        head, _, body = request.partition(b"\r\n\r\n")
        line, *own = head.split(b"\r\n")
        lines = [line, *own, *fields]
        whole = b"\r\n".join(lines) + b"\r\n\r\n" + body

        self.assertSame(whole, *([self.posted(b"1:2")] if behind else []))


def test_content_length_must_be_there_once_and_right():
    """
    The length must be there once, and be that of what came.
    """
    for fields, body, usual in (
        (b"Content-Length: 3\r\n", b"1:2", True),
        (b"content-length:3\r\n", b"1:2", True),
        (b"Content-Length: 03\r\n", b"1:2", False),
        (b"Content-Length: 4\r\n", b"1:2", False),
        (b"Content-Length: 2\r\n", b"1:2", False),
        (b"Content-Length: +3\r\n", b"1:2", False),
        (b"", b"1:2", False),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", b"1:2", False),
        (b"X: a\r\n b\r\nContent-Length: 3\r\n", b"1:2", False),
        (b"X: a\nContent-Length: 3\r\n", b"1:2", False),
        (b"Connection: Keep-Alive\r\nContent-Length: 3\r\n", b"1:2", True),
    ):
        head = b"POST / HTTP/1.1\r\nHost: x\r\n" + fields
        assert usual == is_usual(head + b"\r\n" + body, len(head) - 2, True), fields
