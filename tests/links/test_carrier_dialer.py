"""
Dialling peers on a clock: back-off, retry_after, rest, and where the DNS says a node is.
"""

import random
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.names import dns
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from msgnode.links.carrier.dialer import LAST_SECONDS, MAX_ASKED_SECONDS, STEADY_SECONDS, Dialer
from msgnode.links.carrier.link_table import DialListener
from msgnode.links.carrier.service_records import ServiceEndpoint
from tests.support.links_carrier import A, B
from tests.support.links_wires import TableNode


@implementer(IStreamClientEndpoint)
class ScriptedEndpoint:
    """
    An endpoint that refuses, or connects to a transport in memory. `times` has when it was asked.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.refuses = True
        self.times: list[float] = []
        self.protocols: list[Any] = []

    def connect(self, factory: Any) -> Deferred[Any]:
        self.times.append(self.clock.seconds())
        if self.refuses:
            return fail(ConnectionRefusedError())
        protocol = factory.buildProtocol(None)
        transport = StringTransport()
        transport.abortConnection = transport.loseConnection  # type: ignore[method-assign]
        protocol.makeConnection(transport)
        self.protocols.append(protocol)
        return succeed(protocol)

    def lose(self) -> None:
        self.protocols.pop().connectionLost(Failure(ConnectionDone()))


class Highest(random.Random):
    """
    Chance that waits as long as it may.
    """

    def random(self) -> float:
        return 1.0


class DialerTests(SynchronousTestCase):
    """
    a.example dials b.example.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.node = TableNode(self.clock, A)
        self.endpoint = ScriptedEndpoint(self.clock)
        self.dialer = self.make(Highest())

    def make(self, chance: random.Random) -> Dialer:
        url = "wss://b.example:9093/link"
        dialer = Dialer("b.example", url, self.node.table, self.endpoint, self.clock, chance)
        events = DialListener()
        events.up, events.ended = dialer.up, dialer.ended  # type: ignore[method-assign]
        self.node.table.dials = events
        return dialer

    def waits(self) -> list[float]:
        times = self.endpoint.times
        return [round(after - before, 1) for before, after in pairwise(times)]

    def run_for(self, seconds: float) -> None:
        for _ in range(round(seconds * 2)):
            self.clock.advance(0.5)

    def test_wait_doubles_up_to_a_minute(self) -> None:
        """
        While the peer is down the wait doubles, up to a minute.
        """
        self.dialer.startService()
        self.run_for(400)

        self.assertEqual([1, 2, 4, 8, 16, 32, 60, 60], self.waits()[:8])

    def test_jitter_is_full(self) -> None:
        """
        The wait is any time up to its limit, so that a thousand nodes do not come at once.
        """
        dialer = self.make(random.Random(3))
        dialer.startService()
        self.run_for(2000)

        late = self.waits()[8:]
        self.assertTrue(all(0 <= wait <= LAST_SECONDS + 1 for wait in late))
        self.assertLess(min(late), 15)
        self.assertGreater(max(late), 45)

    def test_connection_that_ends_at_once_is_a_failure(self) -> None:
        """
        A peer that accepts and closes is dialled at growing intervals, too.
        """
        self.endpoint.refuses = False
        self.dialer.startService()
        for _ in range(200):
            if self.endpoint.protocols:
                self.endpoint.lose()
            self.clock.advance(0.5)

        self.assertEqual([1, 2, 4, 8, 16, 32], self.waits()[:6])

    def test_connection_that_was_steady(self) -> None:
        """
        After a link that was up for long, the first wait is short again.
        """
        self.node.settings.federation.handshake_seconds = 1000  # no hello comes
        self.dialer.startService()
        self.run_for(100)
        self.endpoint.refuses = False
        while not self.endpoint.protocols:
            self.clock.advance(0.5)
        (connection,) = self.node.table.connections
        connection.peer = TableNode(self.clock, B).hello
        self.dialer.up(connection)
        self.run_for(STEADY_SECONDS)

        self.endpoint.lose()

        self.assertEqual(1, self.dialer.failures)

    def lose_with(self, retry_after: float, linked: bool = False) -> None:
        self.endpoint.refuses = False
        self.dialer.startService()
        (connection,) = self.node.table.connections
        connection.retry_after = retry_after
        if linked:
            self.dialer.ended(connection, True)
        self.endpoint.lose()
        self.endpoint.refuses = True

    def test_retry_after_is_honoured(self) -> None:
        """
        The node waits as long as the peer asked for.
        """
        self.lose_with(20.0)
        self.run_for(30)

        self.assertEqual(21.0, self.waits()[0])

    def test_retry_after_is_bounded(self) -> None:
        """
        A peer that asks for an hour or more, or for no number, is dialled again after an hour, or at once.
        """
        for asked, waits in (
            (1e300, MAX_ASKED_SECONDS),
            (float("inf"), MAX_ASKED_SECONDS),
            (float("nan"), 0),
        ):
            self.setUp()
            self.lose_with(asked)
            self.run_for(MAX_ASKED_SECONDS + 10)

            self.assertEqual(waits + 1.0, self.waits()[0])

    def test_retry_after_a_change_of_configuration(self) -> None:
        """
        With -1 the peer is not dialled again until this node's configuration has changed.
        """
        self.lose_with(-1.0)
        self.run_for(1000)
        self.assertEqual(1, len(self.endpoint.times))
        self.assertTrue(self.dialer.is_resting)

        self.dialer.go_on()

        self.assertEqual(2, len(self.endpoint.times))

    def test_rests_while_linked_by_the_other_side(self) -> None:
        """
        If another connection to the node stays, it is not dialled again before that one is lost.
        """
        self.lose_with(0.0, linked=True)
        self.run_for(1000)

        self.assertEqual(1, len(self.endpoint.times))

    def test_hello_of_the_peer_ends_the_wait(self) -> None:
        """
        When the peer shows itself, the node dials at once, and its waits begin short again.
        """
        self.dialer.startService()
        self.run_for(150)
        before = len(self.endpoint.times)

        self.dialer.wake()
        self.run_for(5)

        self.assertEqual(before + 3, len(self.endpoint.times))

    def test_stop(self) -> None:
        """
        A dialler that is stopped dials no more, and leaves no timer.
        """
        self.dialer.startService()
        self.run_for(10)
        self.successResultOf(self.dialer.stopService())

        self.assertEqual([], self.clock.getDelayedCalls())


class ServiceEndpointTests(SynchronousTestCase):
    """
    A peer without a URL is where its SRV records say.
    """

    def connected(self, answer: Deferred[Any]) -> list[int]:
        """
        The port that is connected to; the reactor in memory resolves each name to itself.
        """
        reactor = MemoryReactorClock()
        asked: list[str] = []

        def lookup(name: str) -> Deferred[Any]:
            asked.append(name)
            return answer

        endpoint = ServiceEndpoint(
            "_msgnode._tcp.b.example", ("192.0.2.9", 9093), reactor, random.Random(1), lookup
        )
        endpoint.connect(SimpleNamespace(noisy=False))
        self.assertEqual(["_msgnode._tcp.b.example"], asked)
        return [client[1] for client in reactor.tcpClients]

    def test_best_record_is_used(self) -> None:
        """
        Of several records, one of the lowest priority is used.
        """
        records = [
            dns.RRHeader(type=dns.SRV, payload=dns.Record_SRV(priority, 0, port, name))
            for priority, port, name in ((20, 1, "192.0.2.1"), (10, 2, "192.0.2.2"))
        ]

        self.assertEqual([2], self.connected(succeed((records, [], []))))

    def test_default(self) -> None:
        """
        Without records, or without an answer, the default is used.
        """
        self.assertEqual([9093], self.connected(succeed(([], [], []))))
        self.assertEqual([9093], self.connected(fail(dns.DomainError())))
