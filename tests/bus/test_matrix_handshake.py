"""
/stub/connect, where the Matrix stubs connect: in the query, or by a first frame.
"""

import json

from tests.support.runtimes import M1Runtime, M2Runtime
from tests.support.websocket_case import WebSocketCase


class MatrixTests(WebSocketCase):
    """
    Both kinds of them: M2 has its name in the query, M1 in a frame.
    """

    def m1(self, name: str = "a") -> M1Runtime:
        return M1Runtime(self.net, f"runtime://example.org/{name}")

    def m2(self, name: str = "a") -> M2Runtime:
        return M2Runtime(self.net, f"runtime://example.org/{name}")

    def test_m2_is_told_nothing(self) -> None:
        """
        With the runtimeURL in the query the upgrade is the handshake, and nothing is said after it.
        """
        runtime = self.m2()

        self.assertEqual([], runtime.take())
        self.assertEqual(
            [("opened", runtime.url), ("attached", runtime.url)], self.net.traffic_recorder.events
        )

    def test_m2_is_decoded_once(self) -> None:
        """
        The runtimeURL is decoded once; what looks encoded after it is part of the name.
        """
        for url in (
            "runtime://example.org/a%2Fb",
            "runtime://example.org/a+b c&d=e",
            "runtime://example.org/ż",
        ):
            M2Runtime(self.net, url)

            self.assertIsNotNone(self.net.node.sessions.get(url), url)

    def test_m2_without_a_name(self) -> None:
        """
        An empty runtimeURL is none; who does not name itself in time is closed.
        """
        runtime = M2Runtime(self.net, "")

        self.net.advance(11)

        self.assertEqual(4408, runtime.code)

    def test_m1_answer_is_first(self) -> None:
        """
        The answer to a connect frame is the first frame, and what waited comes after it.
        """
        runtime, other = self.m1().open(), self.m2("b")
        runtime.drop()
        other.send(self.update(runtime))

        runtime.connect()
        runtime.send({"cmd": "connect", "data": {"runtimeURL": runtime.url}})

        first, second = runtime.take()
        self.assertEqual(
            {"cmd": "connect", "response": 200}, {key: first[key] for key in ("cmd", "response")}
        )
        self.assertIsInstance(first["data"]["msg"], str)
        self.assertEqual(self.update(runtime), second)

    def test_disconnect_in_both_spellings(self) -> None:
        """
        `cmd: disconnect` ends the session, with the name under `body` or under `data`.
        """
        for key in ("body", "data"):
            runtime = self.m2()

            runtime.send({"cmd": "disconnect", key: {"runtimeURL": runtime.url}})

            self.assertEqual(1000, runtime.code)
            self.assertEqual(("closed", runtime.url), self.net.traffic_recorder.events[-1])

    def test_disconnect_of_another(self) -> None:
        """
        Nobody can disconnect anybody else.
        """
        runtime, other = self.m2(), self.m2("b")

        runtime.send({"cmd": "disconnect", "body": {"runtimeURL": other.url}})

        self.assertTrue(other.is_connected)
        self.assertIsNotNone(self.net.node.sessions.get(other.url))

    def test_before_connect(self) -> None:
        """
        Without a name a message is answered 401, as on /ws.
        """
        runtime = self.m1()

        reply = runtime.ask(to="x")

        self.assertEqual((401, "mn:/validator"), (reply["body"]["code"], reply["from"]))

    def test_never_connects(self) -> None:
        """
        Who sends no connect frame in time is closed 4408.
        """
        runtime = self.m1()

        self.net.advance(11)

        self.assertEqual(4408, runtime.code)

    def test_odd_commands(self) -> None:
        """
        A command that is none does no harm; one without a runtimeURL is told so.
        """
        deep = b'{"cmd":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        for frame in (
            b'{"cmd"',
            b'{"cmd":',
            b'{"cmd":3}',
            b'{"cmd":"connect"}',
            b'{"cmd":"connect","data":[]}',
            b'{"cmd":"connect","data":{"runtimeURL":3}}',
            b'{"cmd":"connect","data":"x","body":{}}',
            b'{"cmdx":"connect"}',
            b'{"cmd":["disconnect"]}',
            deep,
        ):
            runtime = self.m1()

            runtime.send(frame)

            self.assertIn([r["response"] for r in runtime.take()], ([], [400]), frame[:50])
            runtime.open()
            runtime.send(self.update(runtime))
            self.assertEqual([self.update(runtime)], runtime.take(), frame[:50])
            runtime.close()

    def test_spelling(self) -> None:
        """
        A connect is understood however its JSON is spelt.
        """
        for frame in (
            b'{ "cmd" : "connect", "data": {"runtimeURL": "%s"}}' % b"runtime://example.org/a",
            b'{"data":{"runtimeURL":"%s"},"cmd":"connect"}' % b"runtime://example.org/a",
        ):
            runtime = self.m1()

            runtime.send(frame)

            self.assertEqual([200], [message["response"] for message in runtime.take()])
            runtime.close()

    def test_stub_whose_name_cannot_be_borne_is_closed_and_never(self) -> None:
        """
        A stub whose name cannot be borne is closed, and never told that it is connected.
        """
        runtime = self.m1()

        runtime.send({"cmd": "connect", "data": {"runtimeURL": "mn:/x"}})

        self.assertEqual(([], 4403), (runtime.take(), runtime.code))

    def test_commands_elsewhere(self) -> None:
        """
        On /ws a command frame is no message.
        """
        runtime = self.client()

        runtime.send({"cmd": "connect", "data": {"runtimeURL": runtime.url}})

        self.assertEqual([], runtime.take())
        self.assertEqual(0, len(self.net.node.sessions))

    def test_session_is_spoken(self) -> None:
        """
        mn:/session is answered here too.
        """
        runtime = self.m1()

        reply = runtime.session("open", **{"from": runtime.url})

        self.assertEqual(200, reply["body"]["code"])

    def test_same_session_on_both_paths(self) -> None:
        """
        A runtime may go from one path to the other, and keeps what is bound.
        """
        runtime = self.client().open()
        runtime.drop()

        again = self.m2()

        self.assertEqual(1, len(self.net.node.sessions))
        again.send(json.dumps(self.update(again)).encode())
        self.assertEqual([self.update(again)], again.take())
