"""
mn:/session: who is not let in.
"""

from msgnode.protocol.close_codes import OVER_CAPACITY, REFUSED, SLOW
from tests.bus.test_handshake import RUNTIME, HandshakeTests
from tests.support.fakes import refused_codes


class RefusedTests(HandshakeTests):
    """
    Names that cannot be borne, and a node that is full: the connection is closed, nothing is answered.
    """

    names = (
        "mn:/session",
        "mn:/x",
        "global://registry/x",
        "domain://example.org/x",
        "domain://msg-node.example.org/sm",
        "domain://registry.example.org/x",
        "runtime://",
        "runtime://example.org",
        "runtime://example.org/",
        "hyperty:",
        "hyperty:/",
        "domain:",
        "runtime://example.org/" + "x" * 2048,
    )

    def test_impossible_names_are_closed_4403(self) -> None:
        """
        A node address, a host without a path and a bare scheme are closed 4403, and not to come back.
        """
        for type in ("open", "re-open"):
            for name in self.names:
                self.restart()

                self.client.tell({"id": 1, "type": type, "from": name, "to": "mn:/session"})

                self.assertEqual(([], REFUSED), (self.client.got, self.client.lost), name)
                self.assertEqual((4403, "refused"), (self.client.lost.code, self.client.lost.reason))
                self.assertEqual((type, "", name, "refused", 403), self.logged())
                self.assertEqual({403: 1}, refused_codes(self.node.counts))
                self.assertEqual((0, []), (len(self.node.sessions), self.node.traffic_recorder.events))

    def test_everybody_else(self) -> None:
        """
        Whoever tries to open a scheme gets none of what lies below it.
        """
        other = self.node.client(RUNTIME)
        for name in ("domain:", "domain:/", "runtime:", "runtime:/", "hyperty:"):
            self.node.client().tell({"id": 1, "type": "open", "from": name, "to": "mn:/session"})

        reply = other.ask(
            type="subscribe", to="domain://msg-node.example.org/sm", body={"resources": ["hyperty://d/1"]}
        )

        self.assertEqual({"code": 200}, reply["body"])

    def test_has_session(self) -> None:
        """
        Who has a session and asks for a refused name is closed too; the session stays, away.
        """
        self.client.open(RUNTIME)

        self.client.tell({"id": 1, "type": "open", "from": "mn:/x", "to": "mn:/session"})

        self.assertEqual(REFUSED, self.client.lost)
        self.assertEqual(
            [("opened", RUNTIME), ("attached", RUNTIME), ("detached", RUNTIME)],
            self.node.traffic_recorder.events,
        )

    def test_beyond_the_most_sessions_a_new_one_is_closed_1013(self) -> None:
        """
        Beyond the most sessions a new one is closed 1013, to come back later; known ones come in.
        """
        self.restart(limits={"sessions": 2})
        self.client.open(RUNTIME)
        self.node.client("runtime://example.org/2").drop()
        for from_ in ({"from": "runtime://example.org/3"}, {}):
            late = self.node.client()

            late.tell({"id": 1, "type": "open", **from_, "to": "mn:/session"})
            self.node.clock.advance(5)

            self.assertEqual(
                ([], OVER_CAPACITY, "full; retry_after=30"), (late.got, late.lost, late.lost.reason)
            )
            self.assertEqual(("open", "", from_.get("from", ""), "refused", 503), self.logged())
        self.assertEqual({503: 2}, refused_codes(self.node.counts))
        self.node.client("runtime://example.org/2")
        self.client.close()
        self.node.client("runtime://example.org/3")

    def test_client_that_opens_without_reading_is_closed_4413(self) -> None:
        """
        Who opens again and again and does not read the answers is closed 4413; the session stays.
        """
        self.client.open(RUNTIME)
        self.node.sessions.connections.write_paused(self.client)

        self.client.tell({"id": 2, "type": "open", "from": RUNTIME, "to": "mn:/session"})

        self.assertEqual(([], SLOW), (self.client.got, self.client.lost))
        self.assertEqual(("refused", 429), self.logged()[3:])
        self.assertEqual({429: 1}, refused_codes(self.node.counts))
        self.assertIsNone(self.node.sessions.get(RUNTIME).connection)

    def test_any_other_type_is_answered_400_and_the_connection(self) -> None:
        """
        Any other type is answered 400, and the connection lives.
        """
        for type in ("pong", "delete", "", "opens"):
            answer = self.greet(type, RUNTIME)

            self.assertEqual(("mn:/session", 400), (answer["from"], answer["body"]["code"]))
            self.assertEqual((type, "", RUNTIME, "refused", 400), self.logged())
        self.assertIsNone(self.client.lost)

    def test_ping_is_no_reason_to_refuse(self) -> None:
        """
        A ping is no reason to refuse: it is answered, also before a session is open.
        """
        answer = self.greet("ping", RUNTIME)

        self.assertEqual(
            ("mn:/session", RUNTIME, {"code": 200}), (answer["from"], answer["to"], answer["body"])
        )
        self.assertEqual(("ping", "", RUNTIME, "answered", 200), self.logged())

    def test_response_which_answers_nothing_of_ours_is_dropped(self) -> None:
        """
        A response, which answers nothing of ours, is dropped.
        """
        self.client.open(RUNTIME)

        self.client.post("mn:/session", "response")

        self.assertEqual(([], None), (self.client.got, self.client.lost))
        self.assertEqual(("response", RUNTIME, RUNTIME, "dropped", 0), self.logged())
