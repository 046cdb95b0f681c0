"""
Whatever comes: a client that sends nonsense harms nobody, and is told what it can be told.
"""

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import decode
from tests.support.fuzz import TIMES
from tests.support.http_client import HTTPClient
from tests.support.network import Network
from tests.support.poll_case import URL, PollCase
from tests.support.runtimes import TCPRuntime, WebSocketRuntime, dumps
from tests.support.socketio_runtime import emitted

ANN = "runtime://example.org/ann"

# JSON that is nearly a message.
_values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8), st.just(ANN)
)
_headers = st.dictionaries(
    st.sampled_from(["id", "type", "from", "to", "body", "priority", "ttl", "receipt", "token", "x"]),
    st.one_of(
        _values, st.lists(_values, max_size=3), st.dictionaries(st.text(max_size=4), _values, max_size=3)
    ),
)
_kinds = st.sampled_from(
    ["open", "re-open", "close", "ack", "create", "subscribe", "unsubscribe", "delete", "update", "response"]
)
_requests = st.fixed_dictionaries(
    {
        "id": st.one_of(st.integers(), st.text(max_size=4)),
        "type": _kinds,
        "from": st.sampled_from([ANN, f"{ANN}/x", "hyperty://example.org/1", "mn:/session", ""]),
        "to": st.sampled_from(
            [
                "mn:/session",
                "domain://msg-node.example.org/sm",
                "domain://msg-node.example.org/address-allocation",
                "comm://example.org/x",
                ANN,
                "mn:/nothing",
            ]
        ),
        "body": st.dictionaries(
            st.sampled_from(
                ["resume", "received", "resources", "resource", "value", "childrenResources", "via"]
            ),
            st.recursive(
                _values,
                lambda inner: (
                    st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
                ),
                max_leaves=4,
            ),
            max_size=3,
        ),
    }
)


def mutated(data: bytes, cuts: list[tuple[int, int]]) -> bytes:
    """
    The same with some bytes changed.
    """
    wrong = bytearray(data)
    for at, value in cuts:
        if wrong:
            wrong[at % len(wrong)] = value
    return bytes(wrong)


_cuts = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=3)


class HeaderTests(SynchronousTestCase):
    """
    The header of a message.
    """

    @settings(max_examples=80 * TIMES, deadline=None)
    @given(_headers, _cuts)
    def test_any_header_is_a_message_or_malformed(
        self, fields: dict[str, Any], cuts: list[tuple[int, int]]
    ) -> None:
        """
        A message or Malformed, in words; never anything else.
        """
        data = mutated(dumps(fields), cuts)
        try:
            data.decode()
            message = decode(data)
        except UnicodeDecodeError:
            return  # connectors do not let it through
        except Malformed as why:
            self.assertTrue(str(why))
            return

        again = json.loads(data)
        self.assertEqual((again["id"], again["to"]), (message.id, message.to))
        self.assertIs(type(again["id"]), type(message.id))


class LineTests(SynchronousTestCase):
    """
    Lines of all kinds, cut anywhere.
    """

    @settings(max_examples=20 * TIMES, deadline=None)
    @given(
        st.lists(
            st.one_of(
                st.binary(max_size=40),
                _headers.map(dumps),
                _requests.map(dumps),
                st.just(b"x" * 3000),
                st.just(b"[" * 2000),
            ),
            max_size=8,
        ),
        _cuts,
        st.integers(1, 200),
    )
    @example([b'{"id":1'], [], 1)
    def test_any_lines_leave_others_well(
        self, lines: list[bytes], cuts: list[tuple[int, int]], size: int
    ) -> None:
        """
        Others hear each other as before, and the node has nothing to log.
        """
        net = Network(limits={"message_bytes": 2000})
        ann, bob = TCPRuntime(net, ANN + "1").open(), TCPRuntime(net, ANN + "2").open()
        odd = TCPRuntime(net, ANN)
        stream = mutated(b"\n".join(lines) + b"\n", cuts)

        for at in range(0, len(stream), size):
            if odd.is_connected:
                odd.transport.write(stream[at : at + size])
                net.pump()

        message = {"id": 1, "type": "update", "from": ann.url, "to": bob.url}
        ann.send(message)
        self.assertIn(message, bob.take())
        self.assertEqual([], self.flushLoggedErrors())
        for line in odd.raw:
            json.loads(line)


class PollTests(PollCase):
    """
    Bodies, cursors and numbers of all kinds.
    """

    @settings(max_examples=12 * TIMES, deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.one_of(
                    st.binary(max_size=60), _requests.map(dumps), st.lists(_requests, max_size=3).map(dumps)
                ),
                st.one_of(
                    st.just(""),
                    st.integers(-2, 6).map("?seq={}".format),
                    st.text("=&%seq1", max_size=8).map("?{}".format),
                ),
            ),
            max_size=6,
        ),
        st.lists(st.one_of(st.integers(-2, 12).map(str), st.text("0123456789x-+ ", max_size=4)), max_size=4),
    )
    def test_every_request_has_one_of_the_documented_answers(
        self, posts: list[tuple[bytes, str]], cursors: list[str]
    ) -> None:
        """
        Every request has one of the documented answers; the session and the others are well.
        """
        self.restart()
        for body, query in posts:
            response = self.post(body, query)
            self.assertIn(response.status, (202, 400, 401, 413), response)
            response.json()
            if response.status == 401:  # its own `close`
                self.restart()
        last = -1
        for cursor in cursors:
            client = self.get(f"?wait=0&after={cursor.replace(' ', '+')}")
            self.net.advance(1)
            self.assertIn(client.response.status, (200, 204, 400, 401))
            if client.response.status == 200:
                told = client.response.json()
                self.assertGreaterEqual(told["cursor"], last)
                last = told["cursor"]
        self.assertEqual([], self.flushLoggedErrors())
        self.assertEqual(200, HTTPClient(self.net).request("GET", "/live").status)
        self.assertIsNotNone(self.net.node.sessions.get(URL) or True)


_packets = st.one_of(
    st.sampled_from(
        [b"2", b"3", b"5", b"6", b"1", b"40", b"41", b"40/x", b"43[]", b"45-[]", b"2probe", b"9"]
    ),
    st.binary(max_size=20),
    _requests.map(dumps).map(emitted),
    _headers.map(dumps).map(lambda data: b"42[" + data + b"]"),
    _requests.map(dumps).map(lambda data: b'4207["message",' + data + b"]"),
)
_moves = st.one_of(
    st.tuples(st.just("post"), st.lists(_packets, min_size=1, max_size=4)),
    st.tuples(st.just("body"), st.binary(max_size=40)),
    st.tuples(st.just("poll"), st.none()),
    st.tuples(st.just("probe"), st.lists(_packets, max_size=3)),
    st.tuples(st.just("wait"), st.sampled_from([0.2, 1, 11, 90])),
    st.tuples(st.just("hang up"), st.none()),
)


class SocketTests(SynchronousTestCase):
    """
    Packets, bodies, polls and probes in any order.
    """

    @settings(max_examples=12 * TIMES, deadline=None)
    @given(st.lists(_moves, max_size=10), st.sampled_from([3, 4]), _cuts)
    def test_any_socketio_requests_leave_others_well(
        self, moves: list[tuple[str, Any]], version: int, cuts: list[tuple[int, int]]
    ) -> None:
        """
        Every request has one of the documented answers; others hear each other, and nothing is left.
        """
        net = Network(limits={"message_bytes": 2000})
        ann, bob = TCPRuntime(net, ANN + "1").open(), TCPRuntime(net, ANN + "2").open()
        path = f"/socket.io/?EIO={version}&transport="
        first = HTTPClient(net).request("GET", path + "polling").body.decode()
        sid = json.loads(first[first.index("{") :])["sid"]
        polls: list[HTTPClient] = []

        for kind, what in moves:
            if kind in ("post", "body"):
                body = mutated(_body(what, version), cuts) if kind == "post" else what
                response = HTTPClient(net).request("POST", f"{path}polling&sid={sid}", body)
                self.assertIn(response.status, (200, 400, 413))
            elif kind == "poll":
                polls.append(HTTPClient(net))
                polls[-1].start("GET", f"{path}polling&sid={sid}")
            elif kind == "probe":
                probe = WebSocketRuntime(net, path=f"{path}websocket&sid={sid}")
                for packet in what:
                    if probe.stub.state == probe.stub.STATE_OPEN:
                        probe.stub.sendMessage(packet)
            elif kind == "wait":
                net.advance(what)
            elif polls:
                polls.pop().hang_up()
            net.pump()

        message = {"id": 1, "type": "update", "from": ann.url, "to": bob.url}
        ann.send(message)
        self.assertIn(message, bob.take())
        net.advance(200)
        self.assertEqual([], self.flushLoggedErrors())
        for poll in polls:
            self.assertIn(poll.response.status, (200, 400))
        self.assertEqual({"line"}, {c.connector for c in net.node.sessions.connections})


def _body(packets: list[bytes], version: int) -> bytes:
    """
    What a client posts; in version 3 with the lengths of what is encoded once more.
    """
    if version == 4:
        return b"\x1e".join(packets)
    return b"".join(b"%d:%s" % (len(packet), packet.decode("latin-1").encode()) for packet in packets)
