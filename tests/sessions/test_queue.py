"""
What waits for a session that is away.
"""

from itertools import count

from twisted.trial.unittest import SynchronousTestCase

from msgnode.sessions.queue import FOREVER, MessageQueue, QueuedMessage, default_ttl

_keys = count(1)


class PatienceTests(SynchronousTestCase):
    """
    How long a message is worth waiting for.
    """

    def test_sender_of_a_request_gives_up_after_15_s_however(self) -> None:
        """
        The sender of a request gives up after 15 s, however it writes the type.
        """
        for type in ("create", "READ", "Subscribe", "unsubscribe", "execute"):
            self.assertEqual(15, default_ttl(type, "hyperty://d/1"))

    def test_what_is_for_the_children_of_an_object_is_data(self) -> None:
        """
        What is for the children of an object is data, and keeps its worth.
        """
        for to in ("comm://d/1/children/", "comm://d/1/children/x"):
            self.assertEqual(FOREVER, default_ttl("create", to))
        self.assertEqual(15, default_ttl("create", "comm://d/1/children"))

    def test_response_is_worth_a_minute(self) -> None:
        """
        A response is worth a minute, also from and to children.
        """
        self.assertEqual(60, default_ttl("response", "hyperty://d/1"))
        self.assertEqual(60, default_ttl("RESPONSE", "comm://d/1/children/"))

    def test_everything_else_waits_as_long_as_the_session_lives(self) -> None:
        """
        Everything else waits as long as the session lives.
        """
        for type in ("update", "delete", "ping", "", "creates"):
            self.assertEqual(FOREVER, default_ttl(type, "hyperty://d/1"))


def kept(*texts: str, until: float = FOREVER, priority: int = 5) -> list[QueuedMessage]:
    """
    Messages of these texts, in their order.
    """
    return [QueuedMessage(next(_keys), text.encode(), len(text), until, priority) for text in texts]


def drained(waiting: MessageQueue) -> list[bytes | None]:
    """
    Everything that waits, in the order in which it leaves.
    """
    return [taken.data for taken in iter(waiting.pop, None)]


class WaitingTests(SynchronousTestCase):
    """
    A queue by priority, bounded in messages and bytes.
    """

    def put(self, waiting: MessageQueue, messages: list[QueuedMessage]) -> list[list[bytes | None]]:
        """
        Put them one by one; what had to go for each.
        """
        return [[gone.data for gone in waiting.put(message)] for message in messages]

    def test_what_came_first_leaves_first(self) -> None:
        """
        What came first leaves first.
        """
        waiting = MessageQueue(10, 100)
        self.put(waiting, kept("a", "b", "c"))

        self.assertEqual([b"a", b"b", b"c"], drained(waiting))
        self.assertEqual((0, 0), (len(waiting), waiting.bytes))

    def test_higher_priority_leaves_first(self) -> None:
        """
        What has a higher priority leaves first; within one the order is kept.
        """
        waiting = MessageQueue(10, 100)
        self.put(waiting, kept("a") + kept("x", priority=0) + kept("b") + kept("u", "v", priority=9))

        self.assertEqual([b"u", b"v", b"a", b"b", b"x"], drained(waiting))

    def test_oldest_of_the_queue_leaves_after_nine(self) -> None:
        """
        After nine that overtook it the oldest leaves, however little urgent it is.
        """
        waiting = MessageQueue(100, 1000)
        self.put(waiting, kept("x", priority=0) + kept(*"abcdefghijkl", priority=9))

        self.assertEqual(b"abcdefghixjkl", b"".join(drained(waiting)))

    def test_what_is_stale_is_found_also_behind(self) -> None:
        """
        What is stale is found, also behind what is not; the rest stays in order.
        """
        waiting = MessageQueue(10, 100)
        self.put(waiting, kept("a", until=5) + kept("b", until=7) + kept("c", until=5) + kept("d"))

        self.assertEqual([b"a", b"c"], [gone.data for gone in waiting.stale(5)])
        self.assertEqual((2, 2), (len(waiting), waiting.bytes))
        self.assertEqual([b"b", b"d"], drained(waiting))

    def test_beyond_so_many_messages_the_oldest_goes(self) -> None:
        """
        Beyond so many messages the oldest goes.
        """
        waiting = MessageQueue(2, 100)

        self.assertEqual([[], [], [b"a"], [b"b"]], self.put(waiting, kept("a", "b", "c", "d")))

        self.assertEqual([b"c", b"d"], drained(waiting))

    def test_least_urgent_goes(self) -> None:
        """
        The oldest of the lowest priority goes, were it the one that came last.
        """
        waiting = MessageQueue(2, 100)
        self.put(waiting, kept("a", "b"))

        self.assertEqual([[b"x"]], self.put(waiting, kept("x", priority=1)))
        self.assertEqual([[b"a"]], self.put(waiting, kept("u", priority=9)))

    def test_beyond_so_many_bytes_as_many_of_the_oldest_go(self) -> None:
        """
        Beyond so many bytes as many of the oldest go as it takes; exactly so many fit.
        """
        waiting = MessageQueue(100, 10)
        self.assertEqual([[], [], []], self.put(waiting, kept("aaa", "bbb", "cccc")))

        self.assertEqual([[b"aaa", b"bbb"]], self.put(waiting, kept("dddd")))

        self.assertEqual((2, 8), (len(waiting), waiting.bytes))
        self.assertEqual([b"cccc", b"dddd"], drained(waiting))

    def test_single_message_always_fits_whatever_its_size(self) -> None:
        """
        A single message always fits, whatever its size.
        """
        waiting = MessageQueue(1, 1)

        self.assertEqual([[], [b"long"]], self.put(waiting, kept("long", "longer")))
        self.assertEqual([b"longer"], drained(waiting))
