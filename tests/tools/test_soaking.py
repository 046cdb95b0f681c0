"""
The judge of tools/soak: it must find what it looks for, and wait however slow the machine is.
"""

import asyncio
import random

import pytest
from soaking.cluster.load import ClusterMember
from soaking.load.flooded_client import FloodedClient
from soaking.load.legacy_client import TOPIC, LegacyClient
from soaking.load.publisher import MOST_UNANSWERED, MOST_UNHEARD, SM, Publisher
from soaking.load.resuming_client import ResumingClient
from soaking.progress import Stall, wait_until
from soaking.report.evidence import MAX_PRINTED, near, of_publisher, printed
from soaking.report.figures import PROMISES, broken, lines
from soaking.verdict import (
    Damage,
    Verdict,
    judge,
    misdelivered,
    ranges,
    unlogged,
    without_excused,
)


class TestVerdict:
    """
    The verdict on the numbers that a client wrote down.
    """

    def test_every_number_once_in_order(self):
        """
        Every number once, in order.
        """
        assert judge(3, [1, 2, 3]) == Verdict(0, 0, 0)

    def test_number_that_never_came_is_lost_wherever_it_stood(self):
        """
        A number that never came is lost, wherever it stood; unless the client was told.
        """
        assert judge(3, [1, 3]).lost == 1
        assert judge(3, [1, 2]).lost == 1
        assert judge(3, []).lost == 3
        assert judge(3, [3], missed=2).lost == 0
        assert judge(3, [3], missed=1).lost == 1

    def test_told_too_much(self):
        """
        A client that is told of more than it missed was told wrong.
        """
        assert judge(3, [1, 2, 3], missed=2).lost == 2
        assert judge(3, [1, 3], missed=2).lost == 1

    def test_doubled(self):
        """
        A number that came again is counted each time, and is not out of order beside.
        """
        assert judge(3, [1, 2, 2, 3, 1]) == Verdict(0, 2, 0)

    def test_disordered(self):
        """
        A number that came after a later one.
        """
        assert judge(3, [1, 3, 2]) == Verdict(0, 0, 1)

    def test_never_sent(self):
        """
        A number that nobody sent makes the record wrong.
        """
        assert judge(2, [1, 2, 7]).lost == 1

    def test_after_a_damage_what_was_sent_before_may_be_missing(self):
        """
        After a damage what was sent before may be missing or come again; nothing else is excused.
        """
        damages = [Damage(received=2, sent=4)]

        assert judge(6, [1, 2, 3, 5, 6], damages=damages) == Verdict()
        assert judge(6, [1, 2, 1, 4, 3, 5, 6, 4], damages=damages) == Verdict()
        assert judge(6, [1, 3, 4, 5, 6], damages=damages) == Verdict()
        assert judge(6, [1, 2, 3, 4, 6, 5, 5], damages=damages) == Verdict(0, 1, 1)
        assert judge(6, [1, 2, 3, 4, 5], damages=damages) == Verdict(1, 0, 0)
        assert judge(6, [2, 2, 3, 4, 5, 6], damages=damages).doubled == 1

    def test_soaked_legacy_client_gets_nothing_twice(self):
        """
        A client of today may lose, but get nothing twice and nothing out of order.
        """
        client = LegacyClient(0, _Ports(), lambda: 9, [])

        for number in (2, 5, 9):
            client.heard({"id": number, "type": "update", "to": TOPIC})
        assert client.verdict() == Verdict()

        for number in (5, 8):
            client.heard({"id": number, "type": "update", "to": TOPIC})
        assert client.verdict() == Verdict(0, 1, 1)

    def test_what_such_a_client_gets_while_the_disk_is_full_may(self):
        """
        What such a client gets while the disk is full may come once more after a kill, and only that.
        """
        times = [1.0, 2.0, 3.0, 4.0]

        assert without_excused([1, 2, 2, 1], times, [(1.5, 2.5)]) == [1, 2, 1]
        assert without_excused([1, 2, 2, 1], times, [(0.5, 2.5)]) == [2, 1]

    def test_what_such_a_client_gets_again_in_part_is_not_out_of_order(self):
        """
        What came while the disk was full may come again in part, because the rest is lost then, or the files
        of the node are damaged before it comes: that is not out of order.
        """
        times = [1.0, 2.0, 2.1, 2.2, 4.0, 4.1, 4.2]

        assert without_excused([1, 2, 3, 4, 2, 3, 5], times, [(1.5, 3.0)]) == [1, 2, 3, 5]
        assert without_excused([1, 2, 3, 4, 3, 2, 5], times, [(1.5, 3.0)]) == [1, 3, 2, 5]
        assert without_excused([1, 3, 2, 4, 5, 6, 7], times, [(1.5, 3.0)]) == [1, 3, 2, 4, 5, 6, 7]

    def test_misdelivered(self):
        """
        What was addressed to somebody else.
        """
        mine = {"comm://a"}

        assert misdelivered(["comm://a", "runtime://x/1", "runtime://x/1/echo"], mine, "runtime://x/1") == 0
        assert misdelivered(["comm://b", "runtime://x/10", "runtime://x/2"], mine, "runtime://x/1") == 3

    def test_unlogged_outside_of_a_kill(self):
        """
        A message may be missing in the log only if the node was killed after it was sent and soon after it
        was acknowledged.
        """
        acknowledged = [
            ("early", 1.0, 2.0),
            ("logged", 50.0, 51.0),
            ("known after the kill", 98.0, 104.0),
            ("after", 101.0, 105.0),
        ]

        assert unlogged(acknowledged, {"logged"}, kills=[100.0]) == ["early", "after"]

    def test_unlogged_before_a_logged_one(self):
        """
        However late the log is written, a kill does not cut off what is older than a line of the same life.
        """
        acknowledged = [("missing", 93.0, 94.0), ("logged", 94.0, 95.0), ("cut off", 95.0, 96.0)]

        assert unlogged(acknowledged, {"logged"}, kills=[100.0]) == ["missing"]


class Time:
    """
    A clock that only sleeping moves.
    """

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.now += seconds


class TestProgress:
    """
    Waits end by progress.
    """

    def test_slow_is_waited_for(self):
        """
        What moves once in a while is waited for, however long it takes.
        """
        time = Time()
        stall = Stall(lambda: time.now // 50, patience=60, now=time)

        done = asyncio.run(wait_until(lambda: time.now > 5000, stall, sleep=time.sleep))

        assert done and time.now > 5000

    def test_standstill_ends_the_wait(self):
        """
        When nothing has moved for a minute, the wait is in vain.
        """
        time = Time()
        stall = Stall(lambda: min(time.now, 100), patience=60, now=time)

        done = asyncio.run(wait_until(lambda: False, stall, sleep=time.sleep))

        assert not done and time.now == pytest.approx(160, abs=2)

    def test_time_in_which_the_tool_itself_stood_still_does_not_count(self):
        """
        Between two looks one second counts at most: if the tool was not scheduled, neither was the node.
        """
        time = Time()
        stall = Stall(lambda: 0, patience=60, now=time)
        for _ in range(30):
            time.now += 100
            assert not stall.over()


class _Ports:
    web_port = line_port = 0


def _publishers(count):
    found = []
    found += [Publisher(number, found, count, _Ports()) for number in range(count)]
    return found


class TestFlow:
    """
    The load stays below what may wait, so that no client misses a message for want of room.
    """

    @pytest.fixture
    def publishers(self):
        return _publishers(4)

    def test_publisher_waits_for_those_who_observe_it(self, publishers):
        """
        A publisher is no more than so many messages ahead of any of its observers.
        """
        first = publishers[0]
        for _ in range(MOST_UNHEARD + 5):
            first.publish()
        assert first.published == MOST_UNHEARD

        for one in publishers[1:3]:
            one.client.heard(
                {"id": 7, "type": "update", "from": first.runtime, "to": "comm://soak/0/changes"}
            )
        first.publish()
        assert first.published == MOST_UNHEARD
        publishers[3].client.heard(
            {"id": 7, "type": "update", "from": first.runtime, "to": "comm://soak/0/changes"}
        )
        for _ in range(20):
            first.publish()

        assert first.published == MOST_UNHEARD + 7

    def test_asker_waits_for_answers(self, publishers):
        """
        So it is with requests, until they are answered.
        """
        first = publishers[0]
        for _ in range(MOST_UNANSWERED):
            first.ask()
        assert first.asked == MOST_UNANSWERED // 4

        first.client.heard({"id": "q1", "type": "response", "from": "x", "to": first.runtime})
        first.ask()

        assert first.asked == MOST_UNANSWERED // 4 + 1

    def test_what_a_damage_may_have_lost_is_not_waited_for(self, publishers):
        """
        After a damage, what was sent before may never come, and a publisher goes on without it.
        """
        for _ in range(MOST_UNHEARD):
            publishers[0].publish()

        for one in publishers:
            one.damaged()
        publishers[0].publish()

        assert publishers[0].published == MOST_UNHEARD + 1


class TestFlooded:
    """
    The client that is flooded.
    """

    @pytest.fixture
    def flooded(self):
        sender = ResumingClient("runtime://soak/flooder", lambda: None, lambda message: None)
        return FloodedClient(_Ports(), sender)

    def receive(self, flooded, *numbers):
        for number in numbers:
            flooded.client.heard({"id": number, "type": "update", "from": "x", "to": f"{flooded.runtime}/x"})

    def answer(self, flooded, number):
        flooded.client.heard({"id": number, "type": "response", "from": SM, "to": flooded.runtime})

    def test_what_comes_again_after_each_damage_is_not_doubled(self, flooded):
        """
        What was sent before a damage may come again after it, however many damages follow.
        """
        for _ in range(3):
            flooded.flood(2)
            self.receive(flooded, flooded.sent - 1, flooded.sent)
            flooded.damaged()
            self.receive(flooded, flooded.sent - 1, flooded.sent)

        assert flooded.verdict() == Verdict()

    def test_missed_null_covers_what_was_sent_before_it(self, flooded):
        """
        Of a flood that began before it was told `missed: null`, any number may be gone; of a later one, none.
        """
        flooded.flood(5)
        flooded.client.told_null()
        self.receive(flooded, 4, 5)
        self.answer(flooded, 1)
        assert flooded.verdict() == Verdict()

        flooded.flood(2)
        self.receive(flooded, 7)
        assert flooded.verdict().lost == 1

    def test_what_reaches_the_node_after_missed_null_may_be_told_as_missed(self, flooded):
        """
        A flood that is under way when it is told `missed: null` may overflow after that: then it is told how
        many it misses, and never more than it does not have.
        """
        flooded.flood(5)
        flooded.client.told_null()
        self.answer(flooded, 1)
        flooded.client.missed = 3
        assert flooded.verdict() == Verdict()

        self.receive(flooded, 3, 4, 5)
        assert flooded.verdict() == Verdict(lost=1)

        flooded.damaged()
        flooded.client.missed = 4
        assert flooded.verdict() == Verdict(lost=2)

    def test_what_it_misses_it_must_be_told(self, flooded):
        """
        It is told exactly how many it misses, before a damage and after it.
        """
        flooded.flood(3)
        self.receive(flooded, 1)
        flooded.client.missed = 2
        flooded.damaged()
        flooded.flood(2)
        self.receive(flooded, 5)
        assert flooded.verdict() == Verdict(lost=1)

        flooded.client.missed = 3

        assert flooded.verdict() == Verdict()

    def test_answer_that_waits_behind_a_flood_may_be_missed(self, flooded):
        """
        Where the node is slow, the answer to a request of its own waits with the flood: then it is one of the
        messages that the client must be told it missed, and no other may be.
        """
        flooded.subscribe()
        flooded.flood(3)
        self.receive(flooded, 2, 3)
        flooded.client.missed = 2
        assert flooded.verdict() == Verdict()
        assert flooded.evidence() == []

        self.answer(flooded, 1)

        assert flooded.verdict() == Verdict(lost=1)
        assert "was told that it missed 2; did not get 1 and the answers none" in flooded.evidence()[0]

    def test_answer_that_never_comes_is_lost(self, flooded):
        """
        An answer that neither comes nor is counted as missed is lost like any other message.
        """
        flooded.subscribe()

        assert flooded.verdict() == Verdict(lost=1)


class TestFigures:
    """
    The report.
    """

    @pytest.mark.parametrize("name", PROMISES)
    def test_each_promise_can_be_broken(self, name):
        """
        Each promise that has a figure is broken by it, and the report says so.
        """
        kept = dict.fromkeys(PROMISES, 0) | {"log lines torn": 1, "kills": 1}
        assert broken(kept) == []

        figures = kept | {name: 1}
        figures["broken promises"] = broken(figures)

        assert figures["broken promises"] == [name]
        assert list(lines(figures))[-1] == f"Broken: {name}."

    def test_a_kill_may_tear_one_line(self):
        """
        Each kill may cut off one line of the traffic log, and nothing else may.
        """
        figures = dict.fromkeys(PROMISES, 0) | {"log lines torn": 2, "kills": 1}

        assert broken(figures) == ["log lines torn"]


class TestEvidence:
    """
    The evidence for a broken promise.
    """

    HISTORY = (("flood", 10.0, 12.0), ("kill -9", 20.0, 23.0))

    def test_time_is_told_by_the_last_fault(self):
        """
        A time is told by the fault that had begun last, and by its end if that is over.
        """
        assert near(5.0, self.HISTORY) == "before the first fault"
        assert near(11.5, self.HISTORY) == "1.50 s after 'flood' (fault 1) began"
        assert near(25.0, self.HISTORY) == "5.00 s after 'kill -9' (fault 2) began, 2.00 s after it ended"

    def test_ranges(self):
        """
        Numbers in a row are one range.
        """
        assert ranges([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"
        assert ranges([]) == "none"

    def test_what_was_wrong_with_a_message_is_told(self):
        """
        Of a message that was lost or doubled: its number, its sender and receiver, and near which fault.
        """
        publishers = _publishers(5)
        first, second = publishers[0], publishers[4]
        for _ in range(3):
            first.publish()
        for number in (1, 1, 3):
            second.client.heard(
                {"id": number, "type": "update", "from": first.runtime, "to": "comm://soak/0/changes"}
            )
        second.ask()
        history = [("kill -9", 0.0, 1.0)]

        found = of_publisher(second, publishers, history)

        assert [line.partition(", sent")[0] for line in found][:2] == [
            "lost: 2 from runtime://soak/0 to runtime://soak/4",
            "doubled: 1 from runtime://soak/0 to runtime://soak/4",
        ]
        assert "it never came" in found[0] and "it came" in found[1]
        assert found[2].startswith("lost: the answer to request q1 from runtime://soak/4 to runtime://soak/")
        assert "the request never came" in found[2]

    def test_only_the_first_lines_are_printed(self):
        """
        Many broken promises are counted, not printed.
        """
        found = list(printed([f"line {number}" for number in range(MAX_PRINTED + 5)]))

        assert len(found) == MAX_PRINTED + 1 and found[-1] == "and 5 more"


class TestClusterMember:
    """
    The judgement of what came to a client of a cluster.
    """

    def disordered(self, sent: float) -> list[int]:
        """
        What is out of order if the second of three publications, sent at that time, came last. Its subscriber
        began anew at 12, because a node did not run from 10 to 20, and had subscribed at 14.
        """
        everyone: list[ClusterMember] = []
        made = [
            ClusterMember(number, lambda: None, everyone, random.Random(1), set(), lambda: [(10.0, 20.0)])
            for number in range(2)
        ]
        everyone += made
        ann, bob = made
        ann.sent["", "publication"] = 3
        ann.sent_at = {"publication 1 ": 9.0, "publication 2 ": sent, "publication 3 ": 18.0}
        key = ann.runtime, "publication"
        bob.heard[key], bob.heard_when[key] = [1, 3, 2], [9.0, 18.0, 21.0]
        bob.began_anew, bob.subscribed_anew = [12.0], [14.0]
        return bob.wrong_from(ann)["publication"].disordered

    def test_publication_of_before_the_subscription_is_late(self):
        """
        A publication that was sent before its subscriber had subscribed at another node is late; one that was
        sent after that is out of order.
        """
        assert [[], [2]] == [self.disordered(13.0), self.disordered(16.0)]
