"""
The findings of the report: what is said, since when, and in which order.  No Spark is needed.
"""

from types import SimpleNamespace

from msgnode.mining.report import findings
from msgnode.mining.report.episodes import Episode, episode
from msgnode.mining.report.findings import Finding
from msgnode.mining.report.steps import HOUR, MINUTE, Steps
from msgnode.mining.report.units import count, duration, share

START = 1_785_456_000  # 2026-07-31T00:00Z
DAY = Steps(START, START + 24 * HOUR, HOUR)
END = START + 24 * HOUR


def hourly(**at: int) -> list[int]:
    """
    A day of hours: `h14=100` is 100 at 14:00.
    """
    return [at.get(f"h{hour}", 0) for hour in range(24)]


class TestUnits:
    """
    Figures as people say them.
    """

    def test_duration_has_the_two_largest_units(self):
        """
        A duration has its two largest units, and no unit is full.
        """
        said = {
            0.00004: "40 µs", 0.0123: "12.3 ms", 0.9996: "1 s", 1.5: "1.5 s",
            59.97: "1 min", 202: "3 min 22 s",
            3600: "1 h", 7500: "2 h 5 min",
            86_399: "24 h", 270_000: "3 d 3 h", -90: "-1 min 30 s",
        }  # fmt: skip

        assert said == {seconds: duration(seconds) for seconds in said}

    def test_share_that_is_not_zero_is_not_called_zero(self):
        """
        A small share is not rounded to zero, and one that is not all not to all.
        """
        assert ["0 %", "less than 0.1 %", "0.4 %", "31 %", "99.6 %", "99.97 %", "100 %"] == [
            share(part, 1000) for part in (0, 0.2, 4, 310, 996, 999.7, 1000)
        ]

    def test_one_of_a_thing_is_singular(self):
        """
        One is singular, and a thousand has a comma.
        """
        assert ["1 message", "20,076 messages"] == [count(1, "message"), count(20_076, "message")]


class TestSteps:
    """
    The time axis.
    """

    def test_axis_is_finer_for_a_short_log_and_coarser_for_a_year(self):
        """
        An hour is shown by minute, a week by hour, a year by day.
        """
        spans = (HOUR, 7 * 24 * HOUR, 365 * 24 * HOUR)

        assert ["minute", "hour", "day"] == [Steps(START, START + span).unit for span in spans]
        assert [60, 168, 365] == [Steps(START, START + span).number for span in spans]

    def test_labels_name_the_date_only_where_there_are_several(self):
        """
        Within one day a label is the time alone.
        """
        assert ["00:00", "00:01"] == Steps(START, START + 2 * MINUTE).labels()
        assert "2026-08-01 00:00" == Steps(START, START + 25 * HOUR).labels()[-1]


class TestEpisodes:
    """
    Since when, and still going on.
    """

    def test_errors_that_began_late_and_last_go_on_since_then(self):
        """
        What began at 14:00 and lasts until the end goes on since 14:00, whatever single errors were before.
        """
        counts = [1 if hour in (2, 7) else 100 if hour >= 14 else 0 for hour in range(24)]

        found = episode(counts)

        assert Episode(14, 24, True) == found
        assert "since 2026-07-31 14:00 (10 h), still going on" == found.words(DAY)

    def test_errors_that_ended_are_over(self):
        """
        What ended before the last hours is over, with its duration, though a single error came later.
        """
        found = episode(hourly(h9=500, h10=400, h22=2))

        assert "from 2026-07-31 09:00, over after 2 h" == found.words(DAY)

    def test_a_short_gap_does_not_divide_an_episode(self):
        """
        An hour without errors between hours with many is part of the episode.
        """
        assert Episode(9, 13, False) == episode(hourly(h9=50, h10=50, h12=50))

    def test_errors_all_day_have_no_beginning(self):
        """
        A few errors in most hours are said to be all through the log.
        """
        found = episode([2, 0, 1] * 8)

        assert found.throughout and "all through the log" == found.words(DAY)

    def test_nothing_is_no_episode(self):
        """
        Without an error there is no episode.
        """
        assert episode([0] * 24) is None


class TestSentences:
    """
    What each finding says.
    """

    def test_errors_say_how_many_with_what_from_whom_and_since_when(self):
        """
        An error has number, code, reason in words, share, sender and time, and leads to its section.
        """
        error = ("refused", 429, "rate")
        [found] = findings.errors(
            {error: hourly(h20=10, h21=50, h22=60, h23=40)}, DAY, 1000, {error: "all from x"}, {}, END
        )

        assert "160 messages" == found.word
        assert (
            "were refused with 429 rate (too many or too much), 16 % of all, all from x; "
            "since 2026-07-31 20:00 (4 h), still going on." == found.text
        )
        assert ("errors", True) == (found.section, found.goes_on)

    def test_errors_outside_the_episode_are_not_said_to_be_in_it(self):
        """
        If a few errors came at other times, the time is said of the many.
        """
        error = ("refused", 403, "")

        [found] = findings.errors({error: hourly(h2=3, h9=160, h20=8)}, DAY, 1000, {}, {}, END)

        assert found.text.endswith("; 160 of them from 2026-07-31 09:00, over after 1 h.")

    def test_messages_that_do_not_fit_their_record_lead_to_the_chapter_of_records(self):
        """
        They are not called malformed.
        """
        error = ("refused", 400, "record")

        [found] = findings.errors({error: hourly(h23=40)}, DAY, 1000, {}, {}, END)

        assert "400 record (the body does not fit the record)" in found.text
        assert "records" == found.section

    def test_messages_that_only_their_sender_would_get_are_no_finding(self):
        """
        Dropped messages are a finding only if there was no room for them.
        """
        series = {("dropped", 0, ""): hourly(h3=5), ("dropped", 507, "disk"): hourly(h3=5)}

        assert ["were dropped with 507 disk (no room)"] == [
            each.text.partition(",")[0] for each in findings.errors(series, DAY, 10, {}, {}, END)
        ]

    def test_unanswered_requests_are_a_share_of_those_to_the_same_destination(self):
        """
        Unanswered requests are given as a share of the requests of that type to that destination.
        """
        lost = {("read", "hyperty://b.example"): (hourly(h5=300, h6=100), hourly(h6=100))}

        [found] = findings.unanswered(lost, DAY, {}, END)

        assert "100 read requests" == found.word
        assert found.text.startswith(
            "to hyperty://b.example got no answer, 25 % of them; from 2026-07-31 06:00"
        )

    def test_unanswered_requests_whose_last_was_hours_ago_are_over(self):
        """
        A step of a year is a day: what was unanswered in the morning of the last day does not go on.
        """
        end = START + 365 * 24 * HOUR
        lost = {("read", "x"): ([10] * 365, [0] * 364 + [5])}

        [still] = findings.unanswered(lost, Steps(START, end), {("read", "x"): end - 60}, end)
        [over] = findings.unanswered(lost, Steps(START, end), {("read", "x"): end - 7200}, end)

        assert (True, False) == (still.goes_on, over.goes_on)
        assert "over after 22 h" in over.text

    def test_errors_whose_last_was_long_ago_are_over(self):
        """
        Errors of the last minutes are over, if the newest message is several minutes younger.
        """
        hour = Steps(START, START + HOUR)
        error = ("refused", 429, "rate")
        counts = {error: [0] * 58 + [40, 0]}

        [found] = findings.errors(counts, hour, 1000, {}, {error: START + 3510}, START + 3640)

        assert not found.goes_on and "from 2026-07-31 00:58, over after 1 min" in found.text

    def test_no_time_is_after_the_end_of_the_log(self):
        """
        A last day of six hours ends with the log, in what lasts, what is over, and what was all through it.
        """
        end = START + 60 * 24 * HOUR + 6 * HOUR
        counts = {"a": [0] * 60 + [9], "b": [9, 0, 0] * 20 + [9], "c": [0] * 60 + [9]}
        last = {("refused", 0, "b"): end - 2 * HOUR, ("refused", 0, "c"): end - 4 * HOUR}

        found = findings.errors(
            {("refused", 0, name): each for name, each in counts.items()},
            Steps(START, end),
            999,
            {},
            last,
            end,
        )

        assert [
            "since 2026-09-29 00:00 (6 h), also on the last day.",
            "all through the log, until 2026-09-29 04:00.",
            "from 2026-09-29 00:00, over after 2 h.",
        ] == [each.text.partition("; ")[2] for each in found]

    def test_a_slow_node_is_compared_with_itself(self):
        """
        A node whose slowest hundredth takes many times its usual is named, the steady one beside it is not.
        """
        fast, slow = [200_000] * 24, [20_000] * 18 + [3_000_000] * 6
        bands = {"mn1": {"p99": fast}, "mn2": {"p99": slow}}

        [found] = findings.slow_nodes(bands, {"mn1": [50] * 24, "mn2": [50] * 24}, DAY)

        assert "mn2" == found.word
        assert "took 3 s or longer, usual is 20 ms; since 2026-07-31 18:00" in found.text

    def test_a_sender_in_a_loop_is_one_finding_over_all_hours(self):
        """
        A sender that loops for three hours is one finding, with the sum of all, also if a row was cut.
        """
        loop = _Row({"hours": 3, "first": "2026-07-31 03:00", "last": "2026-07-31 05:00", "failed": 120})
        rows = [_Row({"address": "a", "to": "b", "type": "read", "loop": loop})] * 2

        [found] = findings.loops(rows, "failed", lambda n, row: f"failed {n} times at {row.to}")

        assert "failed 120 times at b in 3 hours, 2026-07-31 03:00 to 2026-07-31 05:00." == found.text

    def test_the_heaviest_comes_first_and_the_rest_is_counted(self):
        """
        Findings are in the order of their weight; those that are not shown are counted.
        """
        shown, more = findings.ranked([Finding(w, str(w), "", "errors") for w in (1.0, 30.0, 5.0)], 2)

        assert (["30.0", "5.0"], 1) == ([each.word for each in shown], more)

    def test_what_goes_on_weighs_more_than_what_is_over(self):
        """
        Of two equal errors the one that goes on comes first.
        """
        series = {("refused", 403, "a"): hourly(h3=90), ("refused", 403, "b"): hourly(h23=90)}

        [first, _], _ = findings.ranked(findings.errors(series, DAY, 1000, {}, {}, END))

        assert "403 b" in first.text and first.goes_on


class _Row(SimpleNamespace):
    """
    A row as Spark gives it: by attribute and by name.
    """

    def __init__(self, values):
        super().__init__(**values)

    def __getitem__(self, name):
        return getattr(self, name)
