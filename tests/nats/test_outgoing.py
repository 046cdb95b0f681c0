"""
The buffer of what is to be sent: its bound, its order, and what is left of it when the connection is lost.
"""

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from msgnode.nats.outgoing import BLOCK_BYTES, Outgoing


class Narrow(StringTransport):
    """
    A transport that holds back its producer after each write, as one whose peer does not read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[int] = []

    def write(self, data: bytes) -> None:
        super().write(data)
        self.writes.append(len(data))
        if self.producer is not None:
            self.producer.pauseProducing()


class OutgoingTests(SynchronousTestCase):
    """
    A buffer of a hundred bytes, and what it calls.
    """

    def setUp(self) -> None:
        self.clock, self.said = Clock(), []
        self.outgoing = self.make(100)
        self.transport = StringTransport()

    def make(self, max_bytes: int) -> Outgoing:
        return Outgoing(
            self.clock, max_bytes, lambda: self.said.append("full"), lambda: self.said.append("room")
        )

    def test_one_write_for_a_turn(self) -> None:
        """
        What one turn of the event loop made leaves in one write at its end.
        """
        transport = Narrow()
        self.outgoing.attach(transport, b"")
        for each in (b"PUB a", b"PUB b"):
            self.assertTrue(self.outgoing.put(each))
        self.assertEqual(b"", transport.value())
        self.clock.advance(0)

        self.assertEqual((b"PUB aPUB b", [10]), (transport.value(), transport.writes))
        self.assertEqual(0, self.outgoing.bytes)

    def test_held(self) -> None:
        """
        What is published while a read is handled leaves in one write after it, without a timer.
        """
        transport = Narrow()
        self.outgoing.attach(transport, b"")
        self.outgoing.hold()
        for each in (b"PUB a", b"PUB b"):
            self.outgoing.put(each)
        self.assertEqual([], self.clock.getDelayedCalls())
        self.outgoing.flush()
        self.assertEqual([10], transport.writes)
        self.outgoing.resumeProducing()
        self.outgoing.put(b"PUB c")

        self.assertEqual(1, len(self.clock.getDelayedCalls()))

    def test_full(self) -> None:
        """
        Without room a publication is refused, which is said once; then it is said when half is free.
        """
        self.assertTrue(self.outgoing.put(b"PUB " + b"x" * 96))
        self.assertFalse(self.outgoing.put(b"PUB "))
        self.assertFalse(self.outgoing.put(b"PUB "))
        self.assertEqual(["full"], self.said)
        self.outgoing.attach(self.transport, b"")

        self.assertEqual(["full", "room"], self.said)
        self.assertTrue(self.outgoing.put(b"PUB "))

    def test_room_at_half(self) -> None:
        """
        It is not said that there is room before half of the bytes are free.
        """
        outgoing, transport, left = self.make(4 * BLOCK_BYTES), Narrow(), []
        while outgoing.put(b"PUB " + b"x" * 996):
            pass
        outgoing.attach(transport, b"")
        while "room" not in self.said:
            left.append(outgoing.bytes)
            outgoing.resumeProducing()

        self.assertGreater(left[-1], outgoing.max_bytes // 2)
        self.assertLessEqual(outgoing.bytes, outgoing.max_bytes // 2)

    def test_room_within_the_callback(self) -> None:
        """
        A callback for room may fill the buffer again.
        """
        refused = []

        def fill() -> None:
            while outgoing.put(b"PUB " + b"y" * 16):
                pass
            refused.append(1)

        outgoing = Outgoing(self.clock, 100, lambda: None, lambda: fill() if len(refused) < 5 else None)
        fill()
        outgoing.attach(self.transport, b"")
        self.clock.advance(0)
        self.clock.advance(0)

        self.assertEqual(0, len(self.transport.value()) % 20)
        self.assertLessEqual(outgoing.bytes, 100)

    def test_transport_that_holds_back(self) -> None:
        """
        While the transport takes no more, nothing is written; then blocks, each of whole commands.
        """
        outgoing, transport = self.make(10 * BLOCK_BYTES), Narrow()
        command = b"PUB " + b"x" * 996
        for _ in range(200):
            outgoing.put(command)
        outgoing.attach(transport, b"")
        self.assertEqual(1, len(transport.writes))
        while outgoing.bytes:
            outgoing.resumeProducing()

        self.assertEqual(command * 200, transport.value())
        self.assertTrue(all(size % 1000 == 0 and size < BLOCK_BYTES + 1000 for size in transport.writes))
        self.assertGreater(len(transport.writes), 2)

    def test_lost_connection(self) -> None:
        """
        Publications wait for the next connection, behind what it begins with; other commands do not.
        """
        self.outgoing.attach(self.transport, b"")
        self.outgoing.pauseProducing()
        for each in (b"PUB a", b"HPUB b"):
            self.outgoing.put(each)
        for each in (b"SUB c 1", b"PING"):
            self.outgoing.put_control(each)
        self.outgoing.detach()
        self.assertEqual(11, self.outgoing.bytes)
        after = StringTransport()
        self.outgoing.attach(after, b"SUB c 1")

        self.assertEqual(b"SUB c 1PUB aHPUB b", after.value())
        self.assertIsNone(self.transport.producer)

    def test_pongs(self) -> None:
        """
        A pong overtakes what waits; while the transport takes nothing, one answers all pings.
        """
        self.outgoing.attach(self.transport, b"")
        self.outgoing.put(b"PUB a")
        self.outgoing.pong()
        self.outgoing.flush()
        self.outgoing.pauseProducing()
        for _ in range(1000):
            self.outgoing.pong()
        self.outgoing.resumeProducing()

        self.assertEqual(b"PONG\r\nPUB aPONG\r\n", self.transport.value())

    def test_nothing_left(self) -> None:
        """
        A buffer that is cleared has no timer and no bytes.
        """
        self.outgoing.attach(self.transport, b"")
        self.outgoing.put(b"PUB a")
        self.outgoing.detach()
        self.outgoing.clear()

        self.assertEqual(([], 0), (self.clock.getDelayedCalls(), self.outgoing.bytes))
