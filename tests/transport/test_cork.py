"""
The cork and its outlets: when bytes leave, in what order, and by which way.
"""

import tracemalloc
from itertools import count

from twisted.internet import tcp
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Protocol
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from msgnode.transport.cork import CHUNK_BYTES, MAX_GATHERED, Cork, Outlet, Turn, corked
from tests.support.fastpath_wire import Socket, tcp_server, unix_server


class Producer:
    """
    A streaming producer that counts its pauses.
    """

    pauses = 0
    resumes = 0

    def pauseProducing(self) -> None:
        self.pauses += 1

    def resumeProducing(self) -> None:
        self.resumes += 1

    def stopProducing(self) -> None:
        pass


class Counting(Cork):
    """
    Counts the outlets that are added.
    """

    added = 0

    def add(self, outlet: Outlet) -> None:
        self.added += 1
        super().add(outlet)


class Loud:
    """
    An outlet whose flush raises.
    """

    def flush(self) -> None:
        raise ZeroDivisionError


class HoldingTests(SynchronousTestCase):
    """
    Any transport: what is held, and when it leaves.
    """

    def setUp(self) -> None:
        self.cork = Cork()
        self.transport = StringTransport()
        self.writes: list[bytes] = []
        self.transport.write = self.writes.append
        self.outlet = Outlet(self.transport, self.cork)

    def gather(self) -> list[str]:
        """
        Have the reads of one turn gathered; the calls of `settle`.
        """
        settled: list[str] = []
        self.cork.settle = lambda: settled.append("settle")
        self.cork.turn = self.turn = Turn()
        self.turn.is_open = True
        return settled

    def test_the_reads_of_a_turn_leave_together(self) -> None:
        """
        What one read gathers leaves with the output of the reads behind it, when the turn is over; a read of
        the next turn does not wait.
        """
        settled = self.gather()
        with self.cork:
            self.outlet.write(b"a")
            self.cork.gather()
        with self.cork:
            self.outlet.write(b"b")
        before = list(settled), list(self.writes)
        self.turn.end()
        with self.cork:
            self.outlet.write(b"c")
            self.cork.gather()

        self.assertEqual(([], []), before)
        self.assertEqual([b"ab", b"c"], self.writes)

    def test_only_so_many_reads_are_gathered(self) -> None:
        """
        A turn with very many reads is sent in parts, each after one call of `settle`.
        """
        settled = self.gather()
        for _ in range(2 * MAX_GATHERED + 2):
            with self.cork:
                self.outlet.write(b"a")
                self.cork.gather()
        in_the_turn = len(self.writes)
        self.turn.end()

        self.assertEqual(2, in_the_turn)
        self.assertEqual(b"a" * (2 * MAX_GATHERED + 2), b"".join(self.writes))
        self.assertFalse(self.cork.corked)
        self.assertLess(len(settled), 10)

    def test_nothing_is_gathered_outside_of_a_read(self) -> None:
        """
        Without a read under way, between two turns, and where turns are not known, output leaves at once.
        """
        self.gather()
        self.cork.gather()
        self.outlet.write(b"a")
        self.turn.end()
        for data in (b"b", b"c"):
            with self.cork:
                self.cork.gather()
                self.outlet.write(data)
            self.cork.turn = None

        self.assertEqual([b"a", b"b", b"c"], self.writes)

    def test_sends_at_once(self) -> None:
        """
        With the cork out, what is written leaves at once.
        """
        self.outlet.write(b"a")
        self.outlet.write(b"b")

        self.assertEqual([b"a", b"b"], self.writes)

    def test_corked_writes_leave_in_one_write(self) -> None:
        """
        With the cork in nothing leaves; when it comes out all leaves in one write, in order.
        """
        with self.cork:
            self.assertTrue(self.cork.corked)
            self.outlet.write(b"a")
            self.outlet.write(b"b")
            self.outlet.write(b"c")
            self.assertEqual([], self.writes)

        self.assertFalse(self.cork.corked)
        self.assertEqual([b"abc"], self.writes)

    def test_once_for_each(self) -> None:
        """
        Each connection is sent its own share, once, whoever else was written to between.
        """
        others: list[bytes] = []
        other = StringTransport()
        other.write = others.append
        second = Outlet(other, self.cork)

        with self.cork:
            for part in (b"1", b"2", b"3"):
                self.outlet.write(b"a" + part)
                second.write(b"b" + part)

        self.assertEqual(([b"a1a2a3"], [b"b1b2b3"]), (self.writes, others))

    def test_adds_once(self) -> None:
        """
        An outlet announces that it holds something once, however much that is.
        """
        cork = Counting()
        outlet = Outlet(self.transport, cork)

        with cork:
            outlet.write(b"a")
            outlet.write(b"b")
            outlet.write(b"c")

        self.assertEqual(1, cork.added)

    def test_nested_cork_sends_at_the_outermost(self) -> None:
        """
        A read within a read changes nothing: the outermost one sends.
        """
        with self.cork:
            with self.cork:
                self.outlet.write(b"a")
            self.assertTrue(self.cork.corked)
            self.assertEqual([], self.writes)
            self.outlet.write(b"b")

        self.assertEqual([b"ab"], self.writes)

    def test_held_bytes_leave_also_when_the_read_raises(self) -> None:
        """
        What is held leaves also when the work of the read raises, and the next read is as any other.
        """

        def work() -> None:
            with self.cork:
                self.outlet.write(b"a")
                raise ZeroDivisionError

        self.assertRaises(ZeroDivisionError, work)
        self.assertEqual([b"a"], self.writes)
        self.assertFalse(self.cork.corked)
        with self.cork:
            self.outlet.write(b"b")
        self.assertEqual([b"a", b"b"], self.writes)

    def test_flush_raises(self) -> None:
        """
        One outlet that cannot send does not keep the others unsent; that is logged, and not tried again.
        """
        with self.cork:
            self.cork.add(Loud())
            self.outlet.write(b"a")
            self.cork.add(Loud())
        with self.cork:
            pass

        self.assertEqual([b"a"], self.writes)
        self.assertFalse(self.cork.corked)
        self.assertEqual(2, len(self.flushLoggedErrors(ZeroDivisionError)))

    def test_flush_early(self) -> None:
        """
        A flush within a read sends what is held so far; what comes after waits, and is sent once.
        """
        with self.cork:
            self.outlet.write(b"a")
            self.outlet.flush()
            self.assertEqual([b"a"], self.writes)
            self.outlet.write(b"b")
            self.outlet.write(b"c")

        self.outlet.flush()

        self.assertEqual([b"a", b"bc"], self.writes)

    def test_written_while_sending(self) -> None:
        """
        What a flush makes others write does not overtake what they hold, and leaves, too.
        """
        written: list[bytes] = []
        other = StringTransport()
        second = Outlet(other, self.cork)

        def write(data: bytes) -> None:
            written.append(data)
            if len(written) == 1:
                second.write(b" paused")
                self.outlet.write(b"again")

        self.transport.write = write
        with self.cork:
            self.outlet.write(b"a")
            second.write(b"held")

        self.assertEqual(b"held paused", other.value())
        self.assertEqual([b"a", b"again"], written)

    def test_idle_outlet_holds_nothing(self) -> None:
        """
        An idle outlet is small and holds nothing of its own, also after it was used.
        """
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        outlets = [Outlet(self.transport, self.cork) for _ in range(1000)]
        with self.cork:
            for outlet in outlets:
                outlet.write(b"a" * 1000)
        self.writes.clear()

        kept, _ = tracemalloc.get_traced_memory()

        self.assertLess(kept, 1000 * 200)


class Stalling(StringTransport):
    """
    A transport, such as that of TLS, which pauses its producer when it has `room` bytes.
    """

    room = 300_000

    def write(self, data: bytes) -> None:
        super().write(data)
        if len(self.value()) >= self.room:
            self.producer.pauseProducing()


class CorkedTests(SynchronousTestCase):
    """
    Work that waits for something: its callbacks are one batch.
    """

    def setUp(self) -> None:
        self.settled = 0
        self.cork = Cork(self.settle)
        self.transport = StringTransport()
        self.outlet = Outlet(self.transport, self.cork)

    def settle(self) -> None:
        self.settled += 1

    def test_nothing_leaves_before_all_callbacks_have_run(self) -> None:
        """
        What the callbacks write leaves after the last of them, when the journal has been written.
        """
        wait: Deferred[bytes] = Deferred()
        over = corked(self.cork, wait)
        over.addCallback(self.outlet.write)
        over.addCallback(lambda done: self.assertEqual((b"", 0), (self.transport.value(), self.settled)))

        wait.callback(b"abc")

        self.successResultOf(over)
        self.assertEqual(b"abc", self.transport.value())
        self.assertTrue(self.settled)

    def test_failure_is_passed_on(self) -> None:
        """
        A failure is a result like any other.
        """
        wait: Deferred[bytes] = Deferred()
        over = corked(self.cork, wait)

        wait.errback(ZeroDivisionError())

        self.failureResultOf(over, ZeroDivisionError)
        self.assertFalse(self.cork.corked)


class PaceTests(SynchronousTestCase):
    """
    A client that can wait.
    """

    def setUp(self) -> None:
        self.cork = Cork(most=1000)
        self.transport = Stalling()
        self.outlet = Outlet(self.transport, self.cork)
        self.client = Producer()
        self.outlet.pace(self.client)

    def test_who_is_written_more_than_the_bound_in_one_read_has(self) -> None:
        """
        Who is written more than the bound in one read has to wait until that has left.
        """
        with self.cork:
            self.outlet.write(bytes(600))
            self.outlet.write(bytes(400))
            self.assertEqual(0, self.client.pauses)
            self.outlet.write(b"x")
            self.outlet.write(b"y")
            self.assertEqual((1, 0), (self.client.pauses, self.client.resumes))

        self.assertEqual((1, 1), (self.client.pauses, self.client.resumes))
        self.assertEqual(1, self.cork.counts.held_back)
        self.assertEqual(1002, len(self.transport.value()))

    def test_stalled_transport_is_not_pushed(self) -> None:
        """
        What the transport takes no more stays here, in order, until it takes it; then the client goes on.
        """
        parts = [bytes([number]) * 200_000 for number in range(4)]
        with self.cork:
            for part in parts:
                self.outlet.write(part)
        self.assertLess(len(self.transport.value()), Stalling.room + CHUNK_BYTES)
        self.outlet.write(b"last")
        self.assertEqual(0, self.client.resumes)

        sent = b""
        while not self.client.resumes:
            sent += self.transport.value()
            self.transport.clear()
            self.outlet.resumeProducing()

        sent += self.transport.value()
        self.assertEqual(b"".join(parts) + b"last", sent)

    def test_push_goes_after_all_that_is_held(self) -> None:
        """
        What goes past the outlet, as a Close does, goes after all that is held.
        """
        with self.cork:
            self.outlet.write(bytes(500_000))
            self.outlet.write(bytes(500_000))
        self.outlet.push()

        self.assertEqual(1_000_000, len(self.transport.value()))

    def test_long_message_to_many_who_do_not_read_is_in_memory(self) -> None:
        """
        A long message to many who do not read is in memory once, by TCP and by TLS.
        """
        payload = bytes(4_000_000)
        for make in (lambda: tcp_server(Socket(room=1000)), Stalling):
            outlets = [Outlet(make(), self.cork) for _ in range(20)]
            for outlet in outlets:
                outlet.pace(Producer())

            tracemalloc.start()
            try:
                with self.cork:
                    for outlet in outlets:
                        outlet.write(payload)
                held, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()

            self.assertLess(held, 20 * (Stalling.room + 2 * CHUNK_BYTES))


class StraightTests(SynchronousTestCase):
    """
    TCP: straight to the socket where that is safe.
    """

    server = staticmethod(tcp_server)

    def setUp(self) -> None:
        self.socket = Socket()
        self.transport = self.server(self.socket)
        self.reactor = self.transport.reactor
        self.outlet = Outlet(self.transport, Cork())

    def test_straight(self) -> None:
        """
        Nothing is queued: the bytes are in the socket at once, and the reactor has nothing to do.
        """
        self.outlet.write(b"abc")

        self.assertEqual(b"abc", self.socket.sent)
        self.assertNotIn(self.transport, self.reactor.getWriters())

    def aborted(self, after: int) -> tuple[Cork, Outlet]:
        """
        An outlet whose connection the journal aborts when it is asked to write for the `after`th time.
        """
        times = count(1)

        def settle() -> None:
            if next(times) == after:
                outlet.forget()
                self.transport.abortConnection()

        cork = Cork(settle)
        outlet = Outlet(self.transport, cork)
        return cork, outlet

    def test_output_that_could_not_be_journaled_never_leaves(self) -> None:
        """
        If the journal cannot write the record of a message, it aborts the connection, and the message never
        leaves, though the transport has its socket until the next turn: a client would count it, and after a
        restart the node would not.
        """
        _, outlet = self.aborted(after=1)
        outlet.write(b"abc")
        outlet.write(b"def")

        self.assertEqual(b"", self.socket.sent)

    def test_corked_output_that_could_not_be_journaled_never_leaves(self) -> None:
        """
        The same when the cork is released: the journal is asked once for all outlets, and then for each.
        """
        for after in (1, 2):
            self.setUp()
            cork, outlet = self.aborted(after)
            with cork:
                outlet.write(b"abc")
                outlet.write(b"def")

            self.assertEqual(b"", self.socket.sent)

    def test_pushed_output_that_could_not_be_journaled_never_leaves(self) -> None:
        """
        The same before output that bypasses the outlet.
        """
        cork, outlet = self.aborted(after=1)
        with cork:
            outlet.write(b"abc")
            outlet.push()

        self.assertEqual(b"", self.socket.sent)

    def test_in_part(self) -> None:
        """
        The socket takes a part: the rest follows by the reactor, in order with what comes after.
        """
        self.socket.room = 2
        self.outlet.write(b"abc")
        self.outlet.write(b"def")
        self.assertEqual(b"ab", self.socket.sent)
        self.assertIn(self.transport, self.reactor.getWriters())

        self.socket.room = 2
        self.transport.doWrite()
        self.outlet.write(b"ghi")
        self.assertEqual(b"abcd", self.socket.sent)
        self.socket.room = 100
        self.transport.doWrite()
        self.transport.doWrite()
        self.outlet.write(b"jkl")

        self.assertEqual(b"abcdefghijkl", self.socket.sent)
        self.assertNotIn(self.transport, self.reactor.getWriters())

    def test_blocked(self) -> None:
        """
        The socket takes nothing: all of it waits in the transport.
        """
        self.socket.room = 0
        self.outlet.write(b"abc")
        self.socket.room = 100
        self.transport.doWrite()

        self.assertEqual(b"abc", self.socket.sent)

    def test_bytes_queued_by_the_transport_are_not_overtaken(self) -> None:
        """
        What the transport has queued is not overtaken, whether or not a write has been tried.
        """
        self.transport.write(b"abc")
        self.outlet.write(b"def")
        self.assertEqual(b"", self.socket.sent)
        self.socket.room = 1
        self.transport.doWrite()
        self.socket.room = 100
        self.outlet.write(b"ghi")
        self.assertEqual(b"a", self.socket.sent)

        self.transport.doWrite()
        self.transport.doWrite()

        self.assertEqual(b"abcdefghi", self.socket.sent)

    def test_very_long(self) -> None:
        """
        More than Twisted sends at a time goes in part straight, in part by the reactor.
        """
        data = bytes(300_000)
        self.outlet.write(data)
        self.assertEqual(self.transport.SEND_LIMIT, len(self.socket.sent))

        while self.transport in self.reactor.getWriters():
            self.transport.doWrite()

        self.assertEqual(data, self.socket.sent)

    def test_pauses_producer(self) -> None:
        """
        A streaming producer is paused when much is left over, and not when all was sent.
        """
        producer = Producer()
        self.transport.registerProducer(producer, True)

        self.outlet.write(bytes(100_000))
        self.assertEqual(0, producer.pauses)
        self.socket.room = 1000
        self.outlet.write(bytes(100_000))

        self.assertEqual(1, producer.pauses)

    def test_disconnecting(self) -> None:
        """
        After the transport was told to close nothing is put straight into the socket.
        """
        self.transport.loseConnection()
        self.outlet.write(b"abc")

        self.assertEqual(0, self.socket.sends)

    def test_writing_to_a_lost_connection_is_nothing(self) -> None:
        """
        Writing to a connection that is lost is nothing.
        """
        self.transport.connectionLost(Failure(ConnectionDone()))

        self.outlet.write(b"abc")

        self.assertEqual(0, self.socket.sends)

    def test_dead_socket_is_found_by_the_reactor(self) -> None:
        """
        A dead socket is found by the reactor when it writes, and nothing is raised here.
        """
        self.socket.dead = True
        self.outlet.write(b"abc")
        self.assertIn(self.transport, self.reactor.getWriters())

        self.assertIsInstance(self.transport.doWrite(), Exception)

    def test_after_start_tls(self) -> None:
        """
        Once TLS was started on it, a TCP transport gets nothing past TLS.
        """
        encrypted = StringTransport()
        self.transport.TLS = True  # as startTLS leaves it
        self.transport.protocol = encrypted

        self.outlet.write(b"secret")

        self.assertEqual((0, b"secret"), (self.socket.sends, encrypted.value()))


class UNIXStraightTests(StraightTests):
    """
    UNIX sockets do the same.
    """

    server = staticmethod(unix_server)


class ByClassTests(SynchronousTestCase):
    """
    What goes straight is decided by the class alone.
    """

    def test_subclass(self) -> None:
        """
        A transport that is not exactly Twisted's own is written to by its own write.
        """

        class Encrypting(tcp.Server):
            pass

        socket = Socket()
        transport = Encrypting(socket, Protocol(), ("192.0.2.1", 4711), None, 1, MemoryReactorClock())
        Outlet(transport, Cork()).write(b"abc")

        self.assertEqual(0, socket.sends)
        transport.doWrite()
        self.assertEqual(b"abc", socket.sent)
