"""
Subscribing with `since`: what was missed, in order, then what comes now.
"""

from pathlib import Path
from typing import Any

from tests.support.kept_objects import CHANGES, CHILDREN, OBJECT, KeptCase


def versions(messages: list[dict[str, Any]]) -> list[int]:
    return [message["version"] for message in messages if "version" in message]


class CatchUpTests(KeptCase):
    """
    An observer that was away.
    """

    def test_what_was_missed_then_what_comes(self) -> None:
        """
        The answer has the last version of before; what was missed follows it, then what comes.
        """
        for number in range(1, 6):
            self.publish(value=number)

        answer, *missed = self.subscribe_since(2)
        self.publish(value=6)

        self.assertEqual({"code": 200, "version": 5}, answer["body"])
        self.assertEqual([3, 4, 5], versions(missed))
        self.assertEqual([3, 4, 5], [message["body"]["value"] for message in missed])
        self.assertEqual([6], versions(self.bob.take()))

    def test_nothing_was_missed(self) -> None:
        """
        Who has the last version, or asks before the first one, gets what comes, and nothing else.
        """
        before = self.subscribe_since(0)
        self.publish(value=1)
        self.bob.take()

        again = self.subscribe_since(1)

        self.assertEqual([{"code": 200, "version": 0}], [message["body"] for message in before])
        self.assertEqual([{"code": 200, "version": 1}], [message["body"] for message in again])

    def test_versions_that_were_left_out_were_not_missed(self) -> None:
        """
        After damage a million versions are left out, and a subscriber catches up with what there is.
        """
        self.publish(value=1)
        self.publish("comm://example.org/rooms/2/changes", value=2222)
        self.journal.close()
        (segment,) = Path(self.directory, "objects").glob("objects-*.seg")
        segment.write_bytes(segment.read_bytes().replace(b"2222", b"2223"))
        self.start()
        self.publish(value=3)

        answer, *missed = self.subscribe_since(1)

        self.assertEqual((200, "damaged"), (answer["body"]["code"], answer["body"]["missing"][0]["why"]))
        self.assertEqual([3], [message["body"]["value"] for message in missed])

    def test_publications_while_it_catches_up(self) -> None:
        """
        What is published while a subscriber catches up comes behind what it missed, once and in order.
        """
        for number in range(500):
            self.publish(value=number)
        body = {"resources": [CHANGES], "since": 100}
        self.bob.tell(
            {
                "id": 5,
                "type": "subscribe",
                "from": "runtime://example.org/bob/sm",
                "to": "domain://msg-node.example.org/sm",
                "body": body,
            }
        )
        for number in range(200):
            self.publish(value=number)
            self.node.clock.turn()
        self.turns()
        self.publish(value=0)

        self.assertEqual(list(range(101, 702)), versions(self.bob.take()))

    def test_only_subscribed_channels(self) -> None:
        """
        A subscriber gets what was published at the addresses that it names, and no more.
        """
        self.publish(value=1)
        self.publish(f"{CHILDREN}a", "create", value=2)
        self.publish(CHILDREN, "create", value=3)

        _, *missed = self.subscribe_since(0, CHILDREN)

        self.assertEqual([3], versions(missed))

    def test_other_subscribers_get_nothing_twice(self) -> None:
        """
        Others, which were there, get nothing again.
        """
        self.ann.subscribe(CHANGES)
        self.publish(value=1)
        self.ann.take()

        self.subscribe_since(0)

        self.assertEqual([], self.ann.take())

    def test_a_slow_subscriber(self) -> None:
        """
        A subscriber whose connection takes no more is waited for.
        """
        for number in range(300):
            self.publish(value=number)
        self.subscribe_since(300)
        self.node.clock.advance(1)
        self.bob.session.pause()
        self.bob.write_paused = True

        self.assertEqual([], versions(self.subscribe_since(0)))
        self.bob.write_paused = False
        self.bob.session.flush()
        for _ in range(20):
            self.node.clock.advance(0.05)
        self.turns()

        self.assertEqual(list(range(1, 301)), versions(self.bob.take()))

    def test_bad_requests(self) -> None:
        """
        A request that makes no sense is refused, and subscribes nothing.
        """
        self.publish(value=1)
        for since, addresses, code, text in (
            (-1, (CHANGES,), 400, "'since' is the version"),
            (True, (CHANGES,), 400, "'since' is the version"),
            ("1", (CHANGES,), 400, "'since' is the version"),
            (0, (OBJECT,), 400, "of one object"),
            (0, (CHANGES, "comm://example.org/rooms/2/changes"), 400, "of one object"),
            (7, (CHANGES,), 404, "has versions up to 1, not 7"),
        ):
            (answer,) = self.subscribe_since(since, *addresses)

            self.assertEqual(code, answer["body"]["code"], text)
            self.assertIn(text, answer["body"]["desc"])
            self.assertNotIn(CHANGES, self.bob.session.bindings)
        self.assertEqual(0, len(self.node.objects.catch_ups))

    def test_too_much_was_missed(self) -> None:
        """
        Who has missed more than the limit is told from which version on it can catch up.
        """
        self.start(objects={"max_replay": 10})
        for number in range(20):
            self.publish(value=number)

        (answer,) = self.subscribe_since(5)

        self.assertEqual(413, answer["body"]["code"])
        self.assertIn("subscribe since 10 or later", answer["body"]["desc"])
        self.assertEqual(list(range(11, 21)), versions(self.subscribe_since(10)))

    def test_lost_subscriber(self) -> None:
        """
        A subscriber that goes away while it catches up ends that.
        """
        for number in range(500):
            self.publish(value=number)
        body = {"resources": [CHANGES], "since": 0}
        self.bob.tell(
            {
                "id": 5,
                "type": "subscribe",
                "from": "runtime://example.org/bob/sm",
                "to": "domain://msg-node.example.org/sm",
                "body": body,
            }
        )
        self.bob.drop()
        self.turns()

        self.assertEqual(0, len(self.node.objects.catch_ups))
        self.assertEqual(1, self.node.objects.catch_ups.counts.ended)

    def test_objects_that_nobody_keeps(self) -> None:
        """
        An object without a history has nothing to catch up with: the subscription is refused.
        """
        other = "comm://example.org/other/changes"

        (answer,) = self.subscribe_since(0, other)

        self.assertEqual(404, answer["body"]["code"])
        self.assertNotIn(other, self.bob.session.bindings)
