"""
A node that did not run, or heard nobody, reads no client until it knows which sessions it still holds.
"""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cluster.moves.read_gate import HeldInput, ReadGate
from msgnode.protocol.close_codes import SUPERSEDED
from msgnode.protocol.message import decode
from msgnode.transport.cork import Cork
from tests.support.cluster_directory import A, B, directories
from tests.support.cluster_moves import World
from tests.support.fakes import Client, MemoryNode

S = "hyperty-runtime://example.com/s"


class Gated:
    """
    A gate with comparisons that end when the test says so.
    """

    def __init__(self):
        self.clock = Clock()
        self.events: list[str] = []
        self.comparisons: list[Deferred] = []
        self.gate = ReadGate(
            self.clock,
            self.compare,
            lambda: self.events.append("closed"),
            lambda: self.events.append("opened"),
        )
        self.gate.start()

    def compare(self):
        self.comparisons.append(Deferred())
        return self.comparisons[-1]


def test_gate_is_open_while_the_clock_goes_on():
    """
    A node whose event loop is busy for less than five seconds goes on.
    """
    gated = Gated()

    for seconds in (1, 1, 4, 1, 5):
        gated.clock.advance(seconds)
        assert gated.gate.check()

    assert gated.events == []


def test_leap_of_the_clock_closes_the_gate_until_sessions_are_compared():
    """
    After five seconds without a turn no client is read before the comparison has ended.
    """
    gated = Gated()
    gated.clock.advance(1)

    gated.clock.rightNow += 61  # no timer has run yet when the first socket is read
    first = gated.gate.check()
    gated.clock.advance(0)

    assert not first
    assert gated.events == ["closed"]
    assert len(gated.comparisons) == 1
    gated.comparisons[0].callback(None)
    assert gated.gate.check()
    assert gated.events == ["closed", "opened"]


def test_gate_that_is_closed_again_waits_for_the_later_comparison():
    """
    A comparison that began before a second stop opens nothing.
    """
    gated = Gated()
    gated.clock.advance(10)
    gated.gate.close("again")

    gated.comparisons[0].callback(None)
    assert not gated.gate.check()
    gated.comparisons[1].errback(RuntimeError("stopped"))

    assert gated.gate.check()


def test_comparison_follows_all_changes_of_the_members():
    """
    When a comparison ends this node knows all that the members held when it began.
    """
    cluster, a, b = directories(A, B, capacity=2, max_payload=2000)
    many = [f"comm://example.com/{number}" for number in range(500)]
    b.bind(*many)
    done = a.directory.compare()

    while not done.called:
        cluster.clock.advance(0.001)

    assert {a.directory.holders(address) for address in many} == {(B,)}


def test_comparison_ends_without_an_answer():
    """
    A member that is stopped, lost or absent holds the comparison up for two seconds at most.
    """
    cluster, a, _ = directories(A, B)
    cluster.stop(B)
    stopped = a.directory.compare()
    cluster.run(1.9)
    assert not stopped.called
    cluster.run(0.2)
    assert stopped.called

    lost = a.directory.compare()
    cluster.cut(A, B)
    assert lost.called
    assert a.directory.compare().called


def test_member_after_silence_is_noticed():
    """
    A node that heard no member for ten seconds learns when it hears one again, and not at its start.
    """
    cluster, a, _ = directories(A, B)
    heard = []
    a.directory.heard_again = lambda: heard.append(cluster.clock.seconds())
    cluster.run(30)
    assert heard == []

    cluster.cut(A, B)
    cluster.run(12)
    cluster.restore(A, B)
    cluster.run(0.1)

    assert len(heard) == 1


def test_stopped_holder_has_let_go_when_the_comparison_ends():
    """
    A holder that was stopped while its session moved holds it no more when its gate opens.
    """
    world = World()
    client = world.client(S)
    client.connect(A)
    node = world.nodes[A]
    opened = []
    gate = ReadGate(node.clock, node.directory.compare, lambda: None, lambda: opened.append(True))
    gate.start()
    world.run(1)
    world.stop(A)
    client.connect(B)
    world.run(60)
    world.resume(A)
    world.run(0.002)
    assert not gate.is_open

    while not opened:
        world.run(0.002)

    assert world.holders(S) == [B]


class InputTests(SynchronousTestCase):
    """
    The input of a node's clients while its gate is closed.
    """

    def setUp(self):
        self.node = MemoryNode()
        self.cork = Cork()
        self.node.use_cork(self.cork)
        self.held = HeldInput(
            self.node.sessions.connections,
            self.node.sessions,
            self.node.input_order,
            self.node.slices,
            lambda session: session.flush(),
        )
        self.ann, self.bob = Client(self.node), Client(self.node)
        self.ann.open("runtime://example.org/ann")
        self.bob.open("runtime://example.org/bob")

    def tell(self, n):
        self.ann.tell(
            {"id": n, "type": "update", "from": self.ann.runtime, "to": self.bob.runtime, "body": {}}
        )

    def ids(self):
        return [message["id"] for message in self.bob.take()]

    def test_input_waits_in_order_while_the_gate_is_closed(self):
        """
        What clients send while the gate is closed is routed when it opens, in order, and once.
        """
        self.held.hold()
        self.tell(1)
        self.held.hold()
        self.tell(2)
        self.assertEqual([], self.ids())
        ready = self.held.ready()

        self.held.release()
        self.node.clock.advance(0)
        self.tell(3)

        self.assertEqual([1, 2, 3], self.ids())
        self.successResultOf(ready)
        self.assertIsNone(self.held.ready())

    def test_client_whose_open_waits_is_not_too_late(self):
        """
        A client that has sent `open` while the gate was closed is not closed for being late.
        """
        carl = Client(self.node)
        self.held.hold()
        carl.tell({"id": 1, "type": "open", "from": "runtime://example.org/carl", "to": "mn:/session"})
        self.node.clock.advance(15)
        self.assertIsNone(carl.lost)

        self.held.release()
        self.node.clock.advance(0)

        self.assertIsNotNone(self.node.sessions.get("runtime://example.org/carl"))

    def test_messages_for_clients_wait_while_the_gate_is_closed(self):
        """
        What members send to a client is queued while the gate is closed, for its session may have moved.
        """
        carl = Client(self.node)
        carl.open("runtime://example.org/carl")
        session = self.node.sessions.get(self.bob.runtime)
        self.held.hold()
        message = decode(b'{"id":5,"type":"update","from":"runtime://a/b","to":"runtime://c/d"}', carl)

        session.deliver(message)
        self.assertEqual([], self.ids())
        self.held.release()
        self.node.clock.advance(0)

        self.assertEqual([5], self.ids())
        self.assertIsNotNone(session.ready)

    def test_connection_that_is_closed_meanwhile_loses_its_input(self):
        """
        What the client of a session that has moved sent to this node is not routed.
        """
        self.held.hold()
        self.tell(1)
        session = self.node.sessions.get(self.ann.runtime)

        self.node.sessions.suspend(session, SUPERSEDED)
        self.held.release()
        self.node.clock.advance(0)

        self.assertEqual([], self.ids())
        self.assertEqual(0, len(self.node.input_order))

    def test_gate_closes_before_the_first_read_after_a_standstill(self):
        """
        The read of a socket that comes before any timer closes the gate, and its messages wait.
        """
        gate = ReadGate(self.node.clock, Deferred, self.held.hold, self.held.release)
        gate.start()
        self.node.call_before_reads(gate.check)
        with self.cork:
            self.tell(1)
        self.assertEqual([1], self.ids())

        self.node.clock.rightNow += 7
        with self.cork:
            self.tell(2)

        self.assertFalse(gate.is_open)
        self.assertEqual([], self.ids())

    def test_listeners_may_be_there_before_the_gate_or_after_it(self):
        """
        The gate is asked before each read, whether a node's listeners or its cluster were put together first.
        """
        asked: list[int] = []
        for is_gate_first in (True, False):
            node, cork = MemoryNode(), Cork()
            if is_gate_first:
                node.call_before_reads(lambda: asked.append(1))
            node.use_cork(cork)
            if not is_gate_first:
                node.call_before_reads(lambda: asked.append(1))

            with cork:
                pass

        self.assertEqual([1, 1], asked)
