"""
A damaged spool that lacks the state of a session: what is left of it does not count for the next epoch.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from twisted.trial.unittest import SynchronousTestCase

from msgnode.storage.spool_recovery import repair
from tests.support.durable import SM, Counting, DurableNode

RUNTIME = "runtime://example.org/1"


class StateLostTests(SynchronousTestCase):
    """
    The record of a session's state is damaged; its acknowledgements, in later batches, are not.
    """

    def setUp(self) -> None:
        place = TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.directory = Path(place.name)
        self.node = DurableNode(self.directory)
        self.client = Counting(self.node, RUNTIME)
        self.client.connect()
        self.client.send(id=1, type="subscribe", to=SM, body={"resources": ["comm://example.org/1"]})
        self.sender = self.node.client("runtime://example.org/2")
        self.node.clock.advance(1)

    def send(self, *numbers: int) -> None:
        for number in numbers:
            update = {"id": number, "type": "update", "from": "runtime://example.org/2", "to": f"{RUNTIME}/x"}
            self.sender.tell(update)

    def damage(self) -> None:
        """
        The state of the client's session is lost, by a changed byte and a repair.
        """
        (segment,) = (self.directory / "spool").glob("*.seg")
        data = segment.read_bytes()
        at = data.index(b'"outbox":{')
        segment.write_bytes(data[:at] + b"?" + data[at + 1 :])
        self.assertEqual(1, len(repair(self.directory / "spool")))

    def restart(self) -> None:
        self.client.lose()
        self.node = self.client.node = self.node.killed()
        self.sender = self.node.client("runtime://example.org/2")

    def test_acknowledgements_of_the_epoch_before_do_not_count(self) -> None:
        """
        After the repair the client is told `missed: null` and begins a new epoch. A node that is killed then
        takes no acknowledgement of the epoch before for one of this one: nothing is lost, or told as missed.
        """
        self.send(*range(20))
        self.client.arrive()
        self.client.acknowledge()
        self.client.lose()
        self.damage()
        self.restart()
        self.client.connect()
        self.assertIsNone(self.client.told["missed"])
        self.send(101, 102, 103)
        self.client.arrive()

        self.restart()
        self.send(104)
        self.client.connect()
        self.client.arrive()

        self.assertEqual(0, self.client.missed)
        self.assertEqual([101, 102, 103, 104], [message["id"] for message in self.client.got[-4:]])

    def test_what_waited_is_kept(self) -> None:
        """
        What had been sent to the client, and not acknowledged, is sent in the new epoch, after a kill too.
        """
        self.send(1, 2)
        self.client.arrive()
        self.client.lose()
        self.damage()
        self.restart()
        self.restart()

        self.client.connect()
        self.client.arrive()

        self.assertEqual([1, 2], [message["id"] for message in self.client.got[-2:]])
        self.client.acknowledge()
        self.assertEqual(0, self.node.sessions.journal.bytes_in_memory)
