"""
The verdict of tools/soak: it must be able to find what it looks for.
"""

from soaking.verdict import Verdict, judge, judge_legacy, misdelivered, remembered, unlogged


class TestVerdict:
    """
    What is made of the numbers a client wrote down.
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
        doubts = [(2, 4)]

        assert judge(6, [1, 2, 3, 5, 6], doubts=doubts) == Verdict()
        assert judge(6, [1, 2, 1, 4, 3, 5, 6, 4], doubts=doubts) == Verdict()
        assert judge(6, [1, 3, 4, 5, 6], doubts=doubts) == Verdict()
        assert judge(6, [1, 2, 3, 4, 6, 5, 5], doubts=doubts) == Verdict(0, 1, 1)
        assert judge(6, [1, 2, 3, 4, 5], doubts=doubts) == Verdict(1, 0, 0)
        assert judge(6, [2, 2, 3, 4, 5, 6], doubts=doubts).doubled == 1

    def test_legacy(self):
        """
        A client of today may lose, but get nothing twice and nothing out of order.
        """
        assert judge_legacy([2, 5, 9]) == Verdict()
        assert judge_legacy([2, 5, 2, 4]) == Verdict(0, 1, 1)

    def test_what_such_a_client_gets_while_the_disk_is_full_may(self):
        """
        What such a client gets while the disk is full may come once more after a kill, and only that.
        """
        times = [1.0, 2.0, 3.0, 4.0]

        assert remembered([1, 2, 2, 1], times, [(1.5, 2.5)]) == [1, 2, 1]
        assert remembered([1, 2, 2, 1], times, [(0.5, 2.5)]) == [2, 1]

    def test_misdelivered(self):
        """
        What was addressed to somebody else.
        """
        mine = {"comm://a"}

        assert misdelivered(["comm://a", "runtime://x/1", "runtime://x/1/echo"], mine, "runtime://x/1") == 0
        assert misdelivered(["comm://b", "runtime://x/10", "runtime://x/2"], mine, "runtime://x/1") == 3

    def test_unlogged(self):
        """
        Only the last moment before a kill may be missing in the log.
        """
        acknowledged = {
            "early": (1.0, 2.0),
            "late": (99.0, 99.5),
            "logged": (50.0, 51.0),
            "known after the kill": (98.0, 104.0),
            "after": (101.0, 102.0),
        }

        assert unlogged(acknowledged, {"logged"}, kills=[100.0]) == ["early", "after"]
