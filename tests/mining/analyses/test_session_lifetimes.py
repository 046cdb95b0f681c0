"""
The lives of sessions, on logs of a few events.
"""

import pytest

from msgnode.mining.analyses import sessions
from msgnode.mining.analyses.analysis import asked
from msgnode.mining.analyses.session_lifetimes import session_lifetimes
from tests.mining.rows import FIRST, SECOND, START, event, log, table

_COLUMNS = ("session", "ended", "length", "attached", "superseded", "aways", "away", "whole", "open")
ONE = "runtime://a.example/1"


@pytest.fixture
def lived(spark, engine):
    """
    The lives of sessions in some lines.
    """

    def lived(*lines):
        found = engine.lives(log(spark, *lines), None, FIRST + 1)
        return table(found.orderBy("session", "began"), *_COLUMNS)

    return lived


class TestLives:
    """
    From the first event to the last.
    """

    def test_life_from_opened_to_closed(self, lived):
        """
        A life from opened to closed, with an absence.
        """
        found = lived(
            event(1, "opened"),
            event(1, "attached"),
            event(10, "detached"),
            event(15, "attached"),
            event(20, "closed"),
        )

        assert [(ONE, "closed", 19 * SECOND, 2, 0, 1, 5 * SECOND, True, False)] == found

    def test_superseded_connection_is_no_absence(self, lived):
        """
        A connection that is superseded leaves the session attached: nobody is away.
        """
        found = lived(
            event(1, "opened"),
            event(1, "attached"),
            event(5, "attached"),
            event(5, "superseded"),
            event(9, "detached"),
            event(90, "expired"),
        )

        assert [(ONE, "expired", 89 * SECOND, 2, 1, 1, 81 * SECOND, True, False)] == found

    def test_life_without_an_end_is_counted_to_the_end(self, lived):
        """
        A life without an end is counted to the end of the log; one without a beginning is not whole.
        """
        found = lived(event(600, "attached"))

        assert [(ONE, None, 3000 * SECOND, 1, 0, 0, 0, False, True)] == found

    def test_session_that_is_opened_once_more_without_an_end(self, lived):
        """
        A session that is opened once more without an end was lost by its node.
        """
        found = lived(event(1, "opened"), event(2, "attached"), event(9, "opened"), event(10, "closed"))

        assert ["lost", "closed"] == [row[1] for row in found]
        assert [SECOND, SECOND] == [row[2] for row in found]

    def test_however_a_log_is_cut_at_the_hour_the_lives(self, spark, engine):
        """
        However a log is cut at the hour, the lives are those of one run.
        """
        two, three = "runtime://a.example/2", "runtime://a.example/3"
        lines = [
            event(10, "opened"), event(10, "attached"), event(3590, "detached"), event(3610, "attached"),
            event(3700, "detached"), event(3705, "attached"), event(3800, "closed"),
            event(20, "attached", two), event(30, "closed", two), event(4000, "opened", two),
            event(40, "opened", three), event(5000, "opened", three), event(5001, "superseded", three),
        ]  # fmt: skip
        first = [line for line in lines if line["hour"] == 0]
        second = [line for line in lines if line["hour"] == 1]

        before = engine.lives(log(spark, *first), None, FIRST + 1)
        after = engine.lives(log(spark, *second), before.where("open"), FIRST + 2)
        settled = before.where("not open").union(after)

        whole = engine.lives(log(spark, *lines), None, FIRST + 2)
        assert sorted(table(whole, *_COLUMNS), key=str) == sorted(table(settled, *_COLUMNS), key=str)


class TestSessions:
    """
    What is made of the lives.
    """

    def test_lives_are_counted_by_how_they_ended(self, spark):
        """
        How many ended how, with their reconnects and absences.
        """
        found = session_lifetimes(
            log(
                spark,
                event(1, "opened"),
                event(1, "attached"),
                event(10, "detached"),
                event(15, "attached"),
                event(20, "closed"),
                event(5, "attached", "runtime://a.example/2"),
            ),
            None,
            FIRST + 1,
        )

        answer = table(sessions.sessions_by_end(asked(sessions.sessions, found)))

        assert [("mn1", "closed", 1, 1, 0, 1, 5, 5), ("mn1", "goes on", 1, 1, 0, 0, 0, 0)] == answer

    def test_minute_with_twenty_connections_and_ten_times(self, spark):
        """
        A minute with twenty connections and ten times the usual is a storm.
        """
        calm = [event(60 * n, "attached", f"runtime://a.example/{n}") for n in range(9)]
        storm = [event(1800 + n, "attached", f"runtime://a.example/{n}") for n in range(25)]

        found = table(sessions.storms(asked(sessions.arrivals, log(spark, *calm, *storm))))

        assert [("mn1", START + 1800 * SECOND, 25, 0, 1.0)] == found
