"""
Requests that one member relays to another, and their responses.
"""

from collections.abc import Callable

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cluster.relay.relay import NotRelayed, Relay, RelayLimits
from msgnode.cluster.relay.wire import (
    POLL,
    Cancel,
    Part,
    Read,
    RelayedRequest,
    RelayedResponse,
    encode,
)
from tests.support.cluster_members import MemoryCluster

A, B = "mn://example.com/a", "mn://example.com/b"
MAX_PAYLOAD = 32 * 1024
LIMITS = RelayLimits(requests=3, body_bytes=1024 * 1024, window_bytes=128 * 1024)


def made(query: str = "wait=25") -> RelayedRequest:
    return RelayedRequest(0, POLL, "GET", query, b"", "192.0.2.7:1234", "")


class RelayCase(SynchronousTestCase):
    """
    Two members with a link between them. What A relays is in `served`, and B answers it when a test says so.
    """

    def setUp(self) -> None:
        self.restart()

    def restart(self, **options: int) -> None:
        self.cluster = MemoryCluster(max_payload=MAX_PAYLOAD, **options)
        self.gone: list[str] = []  # the queries of clients that B takes for gone
        self.served: list[tuple[str, RelayedRequest, Deferred[RelayedResponse]]] = []
        self.a, self.b = (self.start(name) for name in (A, B))
        self.b.serve = self.serve
        self.cluster.connect()
        self.cluster.run(0.1)

    def start(self, name: str) -> Relay:
        members = self.cluster.start(name)
        members.listener = relay = Relay(members, self.cluster.clock, LIMITS)
        return relay

    def serve(self, node: str, request: RelayedRequest) -> Deferred[RelayedResponse]:
        answered: Deferred[RelayedResponse] = Deferred(lambda cancelled: self.gone.append(request.query))
        self.served.append((node, request, answered))
        return answered

    def relay(self, body: bytes = b"", seconds: float = 35) -> Deferred[RelayedResponse]:
        asked = self.a.request(B, made(), body, seconds)
        self.cluster.run(0.2)
        return asked

    def answer(self, number: int = 0, data: bytes = b"here", status: int = 200) -> None:
        self.served[number][2].callback(RelayedResponse(0, status, [("Content-Type", "text/plain")], 0, data))
        self.cluster.run(0.5)

    def refused(self, asked: Deferred[RelayedResponse]) -> tuple[int, str]:
        why = self.failureResultOf(asked, NotRelayed).value
        return why.code, str(why)


class AnswerTests(RelayCase):
    """
    Requests that are answered.
    """

    def test_holder_gets_the_request_and_its_response_comes_back(self) -> None:
        """
        The holder gets the request with the member that relays it, and the response comes to the right one.
        """
        asked = [self.a.request(B, made(f"after={n}"), b"%d" % n, 35) for n in range(2)]
        self.cluster.run(0.1)

        self.answer(1, b"second")
        self.answer(0, b"first", 204)

        found = [self.successResultOf(each) for each in asked]
        self.assertEqual([(204, b"first"), (200, b"second")], [(each.status, each.data) for each in found])
        self.assertEqual([("Content-Type", "text/plain")], found[1].headers)
        self.assertEqual(
            [(A, "after=0", b"0", "192.0.2.7:1234"), (A, "after=1", b"1", "192.0.2.7:1234")],
            [(node, each.query, each.data, each.peer) for node, each, _ in self.served],
        )
        self.assertEqual((2, 2, 0), (self.a.counts.relayed, self.a.counts.answered, self.a.under_way))

    def test_long_bodies_come_in_parts(self) -> None:
        """
        A body that is longer than a payload and than the window arrives whole, in both directions.
        """
        body, data = b"up" * 200_000, b"down" * 100_000

        asked = self.relay(body)
        self.answer(data=data)

        self.assertEqual(body, self.served[0][1].data)
        self.assertEqual(data, self.successResultOf(asked).data)

    def test_long_body_delays_no_short_one(self) -> None:
        """
        A short request that follows a long one arrives before the long one has.
        """
        self.a.request(B, made(), b"x" * 1_000_000, 35)
        self.a.request(B, made(), b"short", 35)
        self.cluster.run(0.5)

        self.assertEqual([5, 1_000_000], [len(request.data) for _, request, _ in self.served])

    def test_no_more_than_the_window_is_on_its_way(self) -> None:
        """
        A member that reads nothing is sent no more than the window, and the rest once it reads again.
        """
        self.cluster.stop(B)
        self.a.request(B, made(), b"x" * 1_000_000, 35)
        self.cluster.run(0.1)

        wire = self.cluster.wires[A, B]
        self.assertLess(sum(map(len, wire.payloads)), LIMITS.window_bytes + MAX_PAYLOAD)
        self.cluster.resume(B)
        self.cluster.run(1)
        self.assertEqual(1_000_000, len(self.served[0][1].data))

    def test_full_link_is_waited_for(self) -> None:
        """
        Where the link has no room a body waits, and nothing of it is lost.
        """
        self.restart(capacity=2)

        asked = self.relay(b"y" * 300_000)
        self.cluster.run(1)
        self.answer(data=b"z" * 300_000)
        self.cluster.run(1)

        self.assertEqual(b"y" * 300_000, self.served[0][1].data)
        self.assertEqual(b"z" * 300_000, self.successResultOf(asked).data)


class RefusalTests(RelayCase):
    """
    Requests that get no response of the session.
    """

    def test_member_that_is_not_reached(self) -> None:
        """
        A request to a member without a link is refused at once.
        """
        self.cluster.cut(A, B)

        self.assertEqual((503, f"{B}, which holds this session, is not reached"), self.refused(self.relay()))

    def test_holder_that_goes_away_while_a_request_waits(self) -> None:
        """
        The request is refused when the link ends, and the holder takes the client for gone.
        """
        asked = self.relay()

        self.cluster.cut(A, B)

        self.assertEqual((503, f"{B}, which holds this session, went away"), self.refused(asked))
        self.assertEqual(["wait=25"], self.gone)
        self.assertEqual((1, 0), (self.a.counts.unanswered, self.a.under_way))

    def test_slow_holder(self) -> None:
        """
        A holder that says nothing in time is not waited for; a response that comes later goes nowhere.
        """
        asked = self.relay(seconds=5)
        self.cluster.stop(B)
        self.cluster.run(6)

        self.assertEqual((503, f"{B}, which holds this session, did not answer in 5 s"), self.refused(asked))
        self.cluster.resume(B)
        self.cluster.run(1)
        self.assertEqual(["wait=25"], self.gone)

    def test_client_that_goes_away(self) -> None:
        """
        The holder hears that the client is gone, also while its body or the response is on its way.
        """
        waiting = self.relay()
        half = self.a.request(B, made(), b"x" * 900_000, 35)
        self.cluster.run(0.004)

        for asked in (waiting, half):
            asked.cancel()
            self.failureResultOf(asked, CancelledError)
        self.cluster.run(1)

        self.assertEqual(["wait=25"], self.gone)
        self.assertEqual((1, 2), (len(self.served), self.a.counts.cancelled))
        self.assertEqual(b"all", self.next_body(b"all"))

    def next_body(self, body: bytes) -> bytes:
        self.relay(body)
        found: bytes = self.served[-1][1].data
        return found

    def test_too_many_requests_of_one_member(self) -> None:
        """
        Beyond the limit a request is refused at this node; the others are answered.
        """
        asked = [self.relay() for _ in range(4)]

        self.assertEqual((503, f"3 requests wait for {B}, which holds this session"), self.refused(asked[3]))
        self.answer(1)
        self.assertEqual(b"here", self.successResultOf(asked[1]).data)
        self.assertEqual(1, self.a.counts.refused)

    def test_too_long_body(self) -> None:
        """
        A body beyond the limit is refused here with its limit.
        """
        asked = self.relay(b"x" * (LIMITS.body_bytes + 1))

        self.assertEqual((413, "a body for another node has at most 1048576 bytes"), self.refused(asked))

    def test_too_long_response(self) -> None:
        """
        A response beyond the limit is refused where it would arrive, and the link goes on.
        """
        asked = self.relay()
        self.answer(data=b"x" * (LIMITS.body_bytes + 1))

        code, text = self.refused(asked)
        self.assertEqual(503, code)
        self.assertIn(f"the response of {B} is too long here", text)
        again = self.relay()
        self.answer(1)
        self.assertEqual(b"here", self.successResultOf(again).data)

    def test_holder_that_fails(self) -> None:
        """
        A failure of the holder is a 500 to the client, and in the holder's log.
        """
        asked = self.relay()

        self.served[0][2].errback(ZeroDivisionError("a bug"))
        self.cluster.run(0.1)

        self.assertEqual(500, self.successResultOf(asked).status)
        self.assertEqual(1, len(self.flushLoggedErrors(ZeroDivisionError)))

    def test_node_without_listeners(self) -> None:
        """
        A node that serves no clients yet says so.
        """
        asked = self.b.request(A, made(), b"", 35)
        self.cluster.run(0.1)

        self.assertEqual(503, self.successResultOf(asked).status)

    def test_stopping(self) -> None:
        """
        A node that stops refuses what waits.
        """
        asked = self.relay()

        self.a.stop()

        self.assertEqual(503, self.refused(asked)[0])


MALFORMED: dict[str, Callable[[], list[bytes]]] = {
    "no MessagePack": lambda: [b"\xc1"],
    "an unknown tag": lambda: [b"\x92\xa7unknown\x01"],
    "more data than its size": lambda: [encode(RelayedResponse(1, 200, [], 2, b"long"))],
    "a part without its head": lambda: [encode(Part(9, False, b"x"))],
    "a part that is too long": lambda: [
        encode(RelayedRequest(1000, POLL, "GET", "", b"", "", "", 3)),
        encode(Part(1000, False, b"long")),
    ],
    "a response to nothing": lambda: [encode(RelayedResponse(77, 200, [], 1, b"x"))],
    "a cancel of nothing": lambda: [encode(Cancel(77))],
    "more read than was sent": lambda: [encode(Read(1 << 60))],
    "a body beyond the limit": lambda: [encode(RelayedRequest(1000, POLL, "GET", "", b"", "", "", 1 << 50))],
    "a second request of one number": lambda: [
        encode(RelayedRequest(1000, POLL, "GET", "", b"", "", "")) for _ in range(2)
    ],
}


@pytest.mark.parametrize("name", MALFORMED)
def test_nothing_that_a_member_sends_ends_the_relay(name: str) -> None:
    """
    Whatever a member sends, the next request is relayed and answered.
    """
    case = AnswerTests()
    case.setUp()
    logged: list[object] = []
    globalLogPublisher.addObserver(logged.append)

    for payload in MALFORMED[name]():
        case.cluster.nodes[A].send(B, payload)
    case.cluster.run(0.1)
    already = len(case.served)
    asked = case.relay()
    case.answer(already)
    globalLogPublisher.removeObserver(logged.append)

    assert case.successResultOf(asked).data == b"here"
    assert not [event for event in logged if "log_failure" in event]  # type: ignore[operator]
