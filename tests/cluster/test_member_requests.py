"""
Requests between members: each has one answer, or a refusal that says why there is none.
"""

from typing import Any

import msgspec
import pytest
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cluster.member_requests import (
    ANSWER_SECONDS,
    MAX_ANSWERING,
    Answered,
    Asked,
    MemberRequests,
    NoAnswer,
)
from msgnode.protocol.errors import Rejected
from tests.support.cluster_members import MemoryCluster

A, B = "mn://example.com/a", "mn://example.com/b"


class RequestCase(SynchronousTestCase):
    """
    Two members with a link between them.
    """

    def setUp(self) -> None:
        self.cluster = MemoryCluster()
        self.members: dict[str, Any] = {}
        self.a, self.b = (self.start(name) for name in (A, B))
        self.cluster.connect()
        self.cluster.run(0.1)

    def start(self, name: str) -> MemberRequests:
        members = self.members[name] = self.cluster.start(name)
        requests = MemberRequests(members, self.cluster.clock)
        members.listener = requests
        return requests

    def refused(self, asked: Deferred[bytes]) -> tuple[int, str, str]:
        why = self.failureResultOf(asked, Rejected).value
        return why.code, why.reason, str(why)


class AnswerTests(RequestCase):
    """
    Requests that are answered.
    """

    def test_answer_is_that_of_the_handler(self) -> None:
        """
        A handler gets the member that asks and the content, and what it returns is the answer.
        """
        self.b.offer("echo", lambda node, body: node.encode() + body)

        asked = self.a.ask(B, "echo", b" hi")
        self.cluster.run(0.1)

        self.assertEqual(A.encode() + b" hi", self.successResultOf(asked))

    def test_answer_may_come_later(self) -> None:
        """
        A handler may take its time; answers come to the requests that they are for.
        """
        later: list[Deferred[bytes]] = []
        self.b.offer("later", lambda node, body: later.append(Deferred()) or later[-1])
        asked = [self.a.ask(B, "later") for _ in range(2)]
        self.cluster.run(0.1)

        later[1].callback(b"two")
        later[0].callback(b"one")
        self.cluster.run(0.1)

        self.assertEqual([b"one", b"two"], [self.successResultOf(each) for each in asked])

    def test_node_answers_itself(self) -> None:
        """
        A request to this node itself needs no link.
        """
        self.a.offer("echo", lambda node, body: node.encode() + body)

        self.assertEqual(A.encode() + b"!", self.successResultOf(self.a.ask(A, "echo", b"!")))

    def test_refusal_has_code_reason_and_text(self) -> None:
        """
        A handler that raises Rejected refuses; who asked gets its code, reason and text.
        """

        def refuse(node: str, body: bytes) -> bytes:
            raise Rejected("none is free", 503, "pool-empty")

        self.b.offer("lease", refuse)

        asked = self.a.ask(B, "lease")
        self.cluster.run(0.1)

        self.assertEqual((503, "pool-empty", "none is free"), self.refused(asked))

    def test_what_is_malformed_or_fails_is_refused(self) -> None:
        """
        A content that cannot be decoded is 400, an error of the handler 500, and an unknown subject 501.
        """
        self.b.offer("number", lambda node, body: msgspec.msgpack.encode(msgspec.msgpack.decode(body) + 1))

        asked = [self.a.ask(B, "number", each) for each in (b"\xc1", b"\xa1x")] + [self.a.ask(B, "what")]
        self.cluster.run(0.1)

        self.assertEqual([400, 500, 501], [self.refused(each)[0] for each in asked])
        self.assertEqual(1, len(self.flushLoggedErrors(TypeError)))

    def test_what_no_payload_has_room_for_is_refused(self) -> None:
        """
        A request or an answer that is too long is refused, and its size is said.
        """
        most = self.cluster.max_payload
        self.b.offer("echo", lambda node, body: bytes(most))

        asked = [self.a.ask(B, "echo", body) for body in (bytes(most), b"")]
        self.cluster.run(0.1)

        for each in asked:
            code, reason, text = self.refused(each)
            self.assertEqual((413, "too-long"), (code, reason))
            self.assertIn(f"at most {most} bytes", text)


class NoAnswerTests(RequestCase):
    """
    Requests that get no answer.
    """

    def test_silent_member(self) -> None:
        """
        Who does not answer in time is said to be silent, and what it says later is for nobody.
        """
        later: Deferred[bytes] = Deferred()
        self.b.offer("later", lambda node, body: later)

        asked = self.a.ask(B, "later")
        self.cluster.run(ANSWER_SECONDS + 0.1)

        self.assertEqual((503, "no-path", f"{B} did not answer in 2 s"), self.refused(asked))
        later.callback(b"")
        self.cluster.run(0.1)
        self.assertEqual((1, 1), (self.a.counts.asked, self.a.counts.unanswered))

    def test_member_that_is_away_or_goes(self) -> None:
        """
        A member without a link is away at once; one whose link goes is not waited for.
        """
        self.b.offer("later", lambda node, body: Deferred())
        asked = self.a.ask(B, "later")
        self.cluster.run(0.1)
        self.cluster.kill(B)
        self.cluster.run(0.1)

        self.assertEqual((503, "no-path", f"{B} went away before it answered"), self.refused(asked))
        self.assertEqual((503, "no-path", f"{B} is away"), self.refused(self.a.ask(B, "later")))

    def test_one_member_cannot_keep_this_node_busy(self) -> None:
        """
        Beyond so many requests of one member at a time the next are refused; answers make room.
        """
        later: list[Deferred[bytes]] = []
        self.b.offer("later", lambda node, body: later.append(Deferred()) or later[-1])
        asked = [self.a.ask(B, "later") for _ in range(MAX_ANSWERING + 1)]
        self.cluster.run(0.1)
        self.assertEqual((503, "limit"), self.refused(asked[-1])[:2])
        self.assertEqual(MAX_ANSWERING, len(later))

        later[0].callback(b"")
        self.cluster.run(0.1)
        self.a.ask(B, "later")
        self.cluster.run(0.1)

        self.assertEqual(MAX_ANSWERING + 1, len(later))

    def test_requests_that_wait_are_bounded(self) -> None:
        """
        A node waits for so many answers at a time; what it asks beyond that fails at once, and is counted.
        """
        self.b.offer("never", lambda node, body: Deferred())
        requests = MemberRequests(self.members[A], self.cluster.clock, most=2)
        asked = [requests.ask(B, "never") for _ in range(3)]

        self.assertEqual("limit", self.failureResultOf(asked[-1], NoAnswer).value.reason)
        self.assertEqual((3, 1), (requests.counts.asked, requests.counts.full))

    def test_what_is_no_request_is_counted(self) -> None:
        """
        Bytes that are no request change nothing.
        """
        long = msgspec.msgpack.encode(Asked(1, "x" * 65, b""))
        for payload in (b"", b"\xc1", b"\x92\xa5asked\x80", b"\x91\xa2\x00\x80", long):
            self.b.member_heard(A, payload)

        self.assertEqual(5, self.b.counts.malformed)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_answer_of_another_member_is_not_taken(number):
    """
    A member can answer only what it was asked itself.
    """
    cluster = MemoryCluster()
    requests = {}
    for name in (A, B, "mn://example.com/c"):
        members = cluster.start(name)
        members.listener = requests[name] = MemberRequests(members, cluster.clock)
    cluster.connect()
    cluster.run(0.1)
    requests[B].offer("later", lambda node, body: Deferred())
    got = []
    requests[A].ask(B, "later").addErrback(lambda why: got.append(str(why.value)))

    requests[A].member_heard("mn://example.com/c", msgspec.msgpack.encode(Answered(number, 200, b"mine")))
    cluster.run(ANSWER_SECONDS + 1)

    assert got == [f"{B} did not answer in 2 s"]
