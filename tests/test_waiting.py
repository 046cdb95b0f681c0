"""
What waits for a session that is away.
"""

from twisted.trial.unittest import SynchronousTestCase

from msgnode.waiting import FOREVER, Waiting, patience


class PatienceTests(SynchronousTestCase):
    """
    How long a message is worth waiting for.
    """

    def test_requests(self) -> None:
        """
        The sender of a request gives up after 15 s, however it writes the type.
        """
        for type in ("create", "READ", "Subscribe", "unsubscribe", "execute"):
            self.assertEqual(15, patience(type, "hyperty://d/1"))

    def test_children(self) -> None:
        """
        What is for the children of an object is data, and keeps its worth.
        """
        for to in ("comm://d/1/children/", "comm://d/1/children/x"):
            self.assertEqual(FOREVER, patience("create", to))
        self.assertEqual(15, patience("create", "comm://d/1/children"))

    def test_responses(self) -> None:
        """
        A response is worth a minute, also from and to children.
        """
        self.assertEqual(60, patience("response", "hyperty://d/1"))
        self.assertEqual(60, patience("RESPONSE", "comm://d/1/children/"))

    def test_rest(self) -> None:
        """
        Everything else waits as long as the session lives.
        """
        for type in ("update", "delete", "ping", "", "creates"):
            self.assertEqual(FOREVER, patience(type, "hyperty://d/1"))


class WaitingTests(SynchronousTestCase):
    """
    A queue bounded in messages and bytes.
    """

    def test_order(self) -> None:
        """
        What came first leaves first.
        """
        waiting = Waiting(10, 100)
        for data in (b"a", b"b", b"c"):
            waiting.put(data, FOREVER)

        self.assertEqual([(b"a", 0), (b"b", 0), (b"c", 0), (None, 0)], [waiting.take(0) for _ in range(4)])

    def test_stale(self) -> None:
        """
        What is stale is dropped and counted, also behind what is not.
        """
        waiting = Waiting(10, 100)
        for data, until in ((b"a", 5), (b"b", 7), (b"c", 5), (b"d", 5)):
            waiting.put(data, until)

        self.assertEqual((b"b", 1), waiting.take(5))
        self.assertEqual((None, 2), waiting.take(5))
        self.assertEqual((0, 0), (len(waiting), waiting.bytes))

    def test_messages(self) -> None:
        """
        Beyond so many messages the oldest goes.
        """
        waiting = Waiting(2, 100)

        self.assertEqual([0, 0, 1, 1], [waiting.put(data, FOREVER) for data in (b"a", b"b", b"c", b"d")])

        self.assertEqual((b"c", 0), waiting.take(0))
        self.assertEqual((1, 1), (len(waiting), waiting.bytes))

    def test_bytes(self) -> None:
        """
        Beyond so many bytes as many of the oldest go as it takes; exactly so many fit.
        """
        waiting = Waiting(100, 10)
        for data in (b"aaa", b"bbb", b"cccc"):
            self.assertEqual(0, waiting.put(data, FOREVER))

        self.assertEqual(2, waiting.put(b"dddd", FOREVER))

        self.assertEqual((2, 8), (len(waiting), waiting.bytes))
        self.assertEqual((b"cccc", 0), waiting.take(0))

    def test_one(self) -> None:
        """
        A single message always fits, whatever its size.
        """
        waiting = Waiting(1, 1)

        self.assertEqual(0, waiting.put(b"long", FOREVER))
        self.assertEqual(1, waiting.put(b"longer", FOREVER))
        self.assertEqual((b"longer", 0), waiting.take(0))
