"""
Periods, comparisons, service levels, clocks and policies in words.  No Spark is needed.
"""

import pytest

from msgnode.mining.mined import policies
from msgnode.mining.mined.clock_skew import Skew, Way, skews
from msgnode.mining.mined.compare import Answers, answer_changes, count_change, text
from msgnode.mining.mined.conversation import arranged
from msgnode.mining.mined.period import SECOND, Period, parse_moment, parse_period
from msgnode.mining.mined.policies import Decisions
from msgnode.mining.mined.service_levels import Level, Window, prometheus
from msgnode.mining.mined.slo_file import SLO

START = 1_785_456_000 * SECOND  # 2026-07-31T00:00Z
HOUR = 3600 * SECOND
DAY = 86_400
ONE = Period(START, START + HOUR)
TWO = Period(START + HOUR, START + 3 * HOUR)


class TestPeriods:
    """
    FROM..TO@NODE.
    """

    def test_period_of_one_node(self):
        """
        A period has two times in UTC, to the second, and may have a node.
        """
        assert Period(START, START + 90 * 60 * SECOND, "mn1") == parse_period(
            "2026-07-31..2026-07-31T01:30@mn1"
        )
        assert START + 5 * SECOND == parse_moment("2026-07-31 00:00:05Z")
        assert "2026-07-31 00:00 to 2026-07-31 01:00" == str(ONE)

    @pytest.mark.parametrize(
        "given, said",
        [
            ("2026-07-31", "'2026-07-31' is not a period; expected FROM..TO or FROM..TO@NODE"),
            ("2026-07-31..yesterday", "'yesterday' is not a time in UTC; expected 2026-07-31"),
            ("2026-02-30..2026-03-01", "'2026-02-30' is not a time in UTC"),
            ("2026-07-31..2026-07-30", "ends before it begins"),
            ("2026-07-31..2026-07-31", "is empty: its end is not part of it"),
            ("2026-07-30..2026-07-31@", "names no node after '@'"),
        ],
    )
    def test_what_is_no_period_is_said(self, given, said):
        """
        What is not a period is said, with what was expected.
        """
        with pytest.raises(ValueError) as refused:
            parse_period(given)

        assert said in str(refused.value)


class TestComparison:
    """
    What changed most.
    """

    def test_counts_are_compared_as_rates(self):
        """
        Twice as many in twice the time is no change.
        """
        found = count_change("type", "read", 1000, 2000, (1.0, 2.0))

        assert (1000, 1000, 0.0) == (found.a, found.b, found.score)

    def test_a_difference_that_may_be_chance_does_not_count(self):
        """
        Twelve instead of eight may be chance, 1,200 instead of 800 is not.
        """
        assert 0 == count_change("type", "read", 8, 12, (1.0, 1.0)).score
        assert 0 < count_change("type", "read", 800, 1200, (1.0, 1.0)).score

    def test_new_errors_come_before_a_little_more_traffic(self):
        """
        A hundred errors of a new kind matter more than a third more messages.
        """
        error = count_change("error", "429 rate", 0, 100, (1.0, 1.0))
        traffic = count_change("type", "read", 30_000, 40_000, (1.0, 1.0))

        assert error.score > traffic.score > 0
        assert "errors 429 rate: new: 100 an hour" == error.words()
        assert "messages of type read: +33 %: 30,000 an hour before, 40,000 an hour now" == traffic.words()

    def test_latency_is_compared_where_there_are_enough_answers(self):
        """
        The p99 of five answers says nothing.
        """
        few, many, slow = Answers(5, 0, 100), Answers(500, 0, 20_000), Answers(500, 0, 400_000)

        assert [] == answer_changes("x", few, slow)
        [found] = answer_changes("hyperty://b.example of type read", many, slow)
        assert found.score > 0
        assert (
            "p99 of answers to hyperty://b.example of type read: 20 times: 20 ms before, 400 ms now"
            == found.words()
        )

    def test_unanswered_requests_are_compared_as_shares(self):
        """
        The same share of more requests is no change, a larger share is.
        """
        base = Answers(1000, 10, None)

        assert [0.0] == [each.score for each in answer_changes("x", base, Answers(3000, 30, None))]
        [found] = answer_changes("x", base, Answers(1000, 300, None))
        assert "unanswered requests to x: 30 times: 1.0 % before, 30 % now" == found.words()

    def test_text_has_sentences_then_tables(self):
        """
        The text has the periods, what changed most, and a table of each measure; what is cut is counted.
        """
        changes = [count_change("error", f"40{at}", 0, 100, (1.0, 2.0)) for at in range(4)]

        lines = text(changes, ONE, TWO, (ONE, TWO), most=2)

        assert "before: 2026-07-31 00:00 to 2026-07-31 01:00, 1 h" == lines[0]
        assert "  1. errors 400: new: 50 an hour" in lines and "     and 2 smaller changes" in lines
        assert "Errors" in lines and "  2 rows more, with smaller changes" in lines

    def test_no_change_is_said(self):
        """
        If nothing changed, the text says so.
        """
        assert "Nothing changed by more than chance would do." in text([], ONE, TWO, (ONE, TWO))


def level(period, hour, six_hours, days=30, seconds=30 * DAY, objective=0.99):
    windows = (Window(*each) for each in (period, hour, six_hours))
    return Level(SLO("reads", objective, 500, days=days), seconds, *windows)


class TestServiceLevels:
    """
    Error budgets and burn rates.
    """

    def test_half_of_the_bad_messages_that_are_allowed_leave_half_of_the_budget(self):
        """
        0.5 % bad of 1 % allowed leave half of the budget, at a burn rate of a half.
        """
        found = level((10_000, 50), (100, 0), (600, 3))

        assert found.budget_left == pytest.approx(0.5)
        assert "met" == found.state
        assert found.burn == pytest.approx({"1h": 0.0, "6h": 0.5})
        assert (
            "reads: met. 99.5 % of 10,000 requests answered within 500 ms, objective 99 %; "
            "50 % of the error budget left; burn rate 0 over 1 h, burn rate 0.5 over 6 h" == found.words()
        )

    @pytest.mark.parametrize(
        "windows, state",
        [
            (((10_000, 150), (100, 0), (600, 0)), "spent"),
            (((10_000, 50), (100, 15), (600, 15)), "burning"),
            (((10_000, 50), (100, 0), (600, 37)), "burning"),
            (((10_000, 50), (100, 14), (600, 20)), "met"),
            (((0, 0), (0, 0), (0, 0)), "no-data"),
        ],
    )
    def test_states(self, windows, state):
        """
        The budget is spent, burns too fast over an hour or over six, is met, or there is no data.
        """
        assert state == level(*windows).state

    def test_a_bad_first_day_has_not_spent_the_budget_of_a_month(self):
        """
        2 % bad on one day of thirty are 2/30 of the budget of 1 %, if the other days are good.
        """
        assert level((10_000, 200), (0, 0), (0, 0), seconds=DAY).budget_left == pytest.approx(1 - 2 / 30)

    def test_prometheus_text(self):
        """
        The metrics have the objective's name as a label, escaped; what has no data has no sample.
        """
        found = level((10_000, 50), (0, 0), (600, 3))
        named = Level(SLO('say "hi"\\', 0.9, not_refused=True), DAY, Window(0, 0), Window(0, 0), Window(0, 0))

        lines = prometheus([found, named], START).splitlines()

        assert 'msgnode_slo_burn_rate{slo="reads",window="6h"} 0.5' in lines
        assert not [line for line in lines if 'window="1h"' in line]
        assert 'msgnode_slo_objective{slo="say \\"hi\\"\\\\"} 0.9' in lines
        assert 'msgnode_slo_met{slo="reads"} 1' in lines
        assert "msgnode_slo_newest_line_timestamp_seconds 1785456000.000" in lines


class TestClocks:
    """
    The skew between nodes.
    """

    def test_skew_is_half_the_difference_of_both_directions(self):
        """
        12 ms there and -8 ms back: the other clock is 10 ms ahead, give or take 2 ms.
        """
        found = skews({("a", "b"): Way(40, 12_000_000), ("b", "a"): Way(30, -8_000_000)}, "a")

        assert {"b": Skew(10_000_000, 2_000_000, 70)} == found
        said = "the clock of b is 10 ms ahead of that of a (give or take 2 ms, from 70 messages)"
        assert said == found["b"].words("b", "a")

    def test_a_node_is_compared_by_way_of_another(self):
        """
        A node that has no link to the first one is compared by way of a third; the errors add up.
        """
        known = {
            ("a", "b"): Way(9, 12_000_000), ("b", "a"): Way(9, -8_000_000),
            ("b", "c"): Way(9, 3_000_000), ("c", "b"): Way(9, 1_000_000),
        }  # fmt: skip

        assert Skew(11_000_000, 4_000_000, 18) == skews(known, "a")["c"]

    def test_one_direction_gives_a_bound(self):
        """
        A message that arrived before it left shows that a clock is behind; one that did not shows nothing.
        """
        behind = skews({("a", "b"): Way(3, -50_000_000)}, "a")["b"]
        unknown = skews({("a", "b"): Way(3, 50_000_000)}, "a")["b"]

        assert "at least 50 ms behind that of a (3 messages, in one direction only)" in behind.words("b", "a")
        assert 0 == unknown.ahead and "cannot be compared" in unknown.words("b", "a")

    def test_lines_are_in_the_order_of_corrected_time(self):
        """
        An answer that seems to come before its request follows it, once the clocks are corrected.
        """
        ask = {"node": "a", "time": START, "hops": None, "type": "read", "id": "1", "from": "x", "to": "y",
               "outcome": "delivered", "code": None, "reason": None, "micros": 40}  # fmt: skip
        answer = ask | {"node": "b", "time": START - 8_000_000, "type": "response", "from": "y", "to": "x"}

        found = arranged([answer, ask], "a", {"b": Skew(-10_000_000, 1_000_000, 5)})

        assert ["read", "response"] == [line["type"] for line in found.lines]
        lines = found.text()
        assert "2 lines at 2 nodes, 2 ms, from 2026-07-31 00:00:00.000 UTC (clock of a)" == lines[0]
        assert "the clock of b is 10 ms behind that of a (give or take 1 ms, from 5 messages)" == lines[1]
        assert "+2 ms  b  response 1  y -> x  delivered, 40 µs in the node" == lines[-1].strip()


class TestPolicies:
    """
    Several policies on the same messages.
    """

    SAME, BLOCKED = ("as it was", "permit", "", ""), ("would be blocked", "deny", "partner/0", "")

    def test_policies_are_told_apart_where_they_differ(self):
        """
        Each policy is summed up, and the messages that two decide differently are counted.
        """
        found = [Decisions((self.SAME, self.SAME), 900), Decisions((self.SAME, self.BLOCKED), 100)]

        lines = policies.text(found, ["now.json", "new.json"])

        assert "1,000 messages" == lines[0]
        assert "  would be blocked: 100 (10 %)" in lines
        assert "now.json and new.json differ in 100 messages" in lines
        assert "  100: as it was by the default permit, but would be blocked by partner/0" in lines
