"""
Each question on a table of ten rows or so, with answers reckoned by hand.
"""

import pytest
from pyspark.sql import functions as F

from msgnode.mining.analyses import (
    anomalies,
    presence,
    refusals,
    retry_loops,
    subscription_graph,
    top_talkers,
    volume,
)
from msgnode.mining.analyses.analysis import asked, totals, totals_of_values
from msgnode.mining.analyses.catalogue import QUESTIONS
from msgnode.mining.execution.gathering import gathered
from msgnode.mining.pipeline.timeline import AddressTimeline, Conversation
from msgnode.mining.sql.expressions import destination, domain, is_multicast, kind
from tests.mining.rows import ANN, BOB, HOUR, START, event, log, message, own, table

SM = "domain://msg-node.a.example/sm"
ONE, TWO = "runtime://a.example/1", "runtime://b.example/2"
MINUTE = HOUR // 60
CHAT = "comm://a.example/chat/changes"


@pytest.fixture(scope="module")
def ten(spark):
    """
    Ten messages: three that fail, two hours, three domains.
    """
    return log(
        spark,
        message(1, bytes=60),
        message(2, bytes=200, recipients=3),
        message(3, BOB, ANN, type="READ", connector="line"),
        message(4, to="hyperty://none.example/x", outcome="no-route", recipients=0),
        message(5, outcome="refused", code=403, recipients=0, id="5"),
        message(6, outcome="refused", code=403, recipients=0, id="6"),
        message(7, to=SM, type="subscribe", outcome="answered", recipients=0, code=200),
        message(8, None, None, type="weird", outcome="refused", code=400, recipients=0, id=None),
        message(3601, to=CHAT, recipients=7, waiting=2),
        message(3602, to="mn:/session", type="open", outcome="answered", recipients=0, code=200),
    ).cache()


class TestColumns:
    """
    What a question groups by is one of a few.
    """

    def test_domains_and_destinations_of_all_shapes_of_addresses(self, spark):
        """
        Domains and destinations of all shapes of addresses.
        """
        addresses = [BOB, SM, "mn:/session", "global://registry", "no address", None, "comm://A.example/x?y"]
        named = [*((a, "Weird") for a in addresses), ("mn://A/b", "Update"), ("domain://registry.", "update")]
        rows = spark.createDataFrame(named, "to string, type string")

        found = table(rows.selectExpr(domain("to"), destination("to"), kind()))

        assert [
            ("b.example", "hyperty://b.example", "other"),
            ("a.example", "domain://msg-node.a.example", "other"),
            ("node", "mn:", "other"),
            ("registry", "global://registry", "other"),
            ("none", "none", "other"),
            ("none", "none", "other"),
            ("a.example", "comm://a.example", "other"),
            ("node", "mn://a", "update"),
            ("none", "domain://registry.", "update"),
        ] == found

    def test_published_addresses_are_those_of_the_node(self, spark):
        """
        What is published to is what the node takes for it.
        """
        from msgnode.protocol import address

        tried = [CHAT, BOB, f"{BOB}/children/x", f"{BOB}/changesx", f"{BOB}/status", f"{BOB}/registration"]
        rows = spark.createDataFrame([(a,) for a in tried], "to string")

        assert [address.is_multicast(a) for a in tried] == [
            row[0] for row in table(rows.selectExpr(is_multicast("to")))
        ]


class TestVolume:
    """
    How much there was.
    """

    def test_by_hour(self, ten):
        """
        Messages, bytes and copies of each hour and kind.
        """
        found = table(volume.volume_in_all(asked(volume.volume, ten)))

        assert ("2026-07-31", 0, "mn1", "none", "update", "delivered", 2, 260, 4) in found
        assert ("2026-07-31", 0, "mn1", "line", "read", "delivered", 1, 100, 1) in found
        assert ("2026-07-31", 0, "mn1", "none", "other", "refused", 1, 100, 0) in found
        assert ("2026-07-31", 1, "mn1", "none", "update", "delivered", 1, 100, 7) in found
        assert 10 == sum(row[6] for row in found)

    def test_domain_matrix_has_the_busiest_pair_first(self, ten):
        """
        Which domain sends how much to which; the busiest pair first.
        """
        found = table(volume.matrix_in_all(asked(volume.matrix, ten)))

        assert [
            ("a.example", "b.example", 4, 460, 2),
            ("a.example", "a.example", 2, 200, 0),
            ("a.example", "node", 1, 100, 0),
            ("a.example", "none.example", 1, 100, 1),
            ("b.example", "a.example", 1, 100, 0),
            ("none", "none", 1, 100, 1),
        ] == found

    def test_sizes_are_grouped_by_powers_of_two(self, ten):
        """
        Sizes by powers of two, from 64 bytes on.
        """
        found = table(volume.sizes_in_all(asked(volume.sizes, ten)))

        assert [("update", 64, 1, 60), ("update", 128, 4, 400), ("update", 256, 1, 200)] == [
            row for row in found if row[0] == "update"
        ]

    def test_handover(self, spark):
        """
        Percentiles of how long the node had a message.
        """
        rows = log(spark, *[message(n, micros=n) for n in range(1, 101)])

        [(_, _, number, p50, p90, p99, p999)] = table(
            volume.handover_percentiles(asked(volume.handover, rows))
        )

        assert 100 == number
        assert (50, 90, 99) <= (p50, p90, p99) <= (53, 95, 104)
        assert 100 <= p999 <= 105

    def test_handover_of_its_own(self, spark):
        """
        What the node publishes itself did not come in, so it was not handed on in no time.
        """
        rows = log(spark, message(1, micros=100, connector="line"), message(2, micros=0, connector="node"))

        [(_, _, number, p50, *_)] = table(volume.handover_percentiles(asked(volume.handover, rows)))

        assert (1, True) == (number, 100 <= p50 <= 105)


class TestTalkers:
    """
    Who talks, and what is heard.
    """

    def test_busiest_sender_first(self, ten):
        """
        The busiest sender first; what failed is counted.
        """
        found = table(
            top_talkers.top_talkers(top_talkers.talkers_in_all(asked(top_talkers.talkers, ten))),
            "address",
            "messages",
            "failed",
        )

        assert [(ANN, 8, 3), (BOB, 1, 0)] == found

    def test_what_is_published_with_the_copies_made(self, ten):
        """
        What is published, with the copies made of it.
        """
        assert [(CHAT, 1, 9, 100, 700, 9)] == table(
            top_talkers.top_objects(top_talkers.objects_in_all(asked(top_talkers.objects, ten)))
        )


class TestRefusals:
    """
    What fails, and why.
    """

    def test_causes_of_failure_with_the_most_messages_first(self, ten):
        """
        The most messages first, with words for the code and the last example.
        """
        found = table(
            refusals.refusals_by_cause(asked(refusals.refusals, ten)),
            "cause",
            "code",
            "number",
            "first.id",
            "last.id",
        )

        assert [
            ("not allowed", 403, 2, "5", "6"),
            ("malformed", 400, 1, None, None),
            ("no session is bound to the address", 0, 1, "1", "1"),
        ] == found

    def test_reasons(self, spark):
        """
        One code for several reasons is as many causes; what an older log or output has is of no reason.
        """
        rows = log(
            spark,
            message(3, outcome="refused", code=403, reason="policy"),
            message(2, outcome="refused", code=403, reason="reserved-address"),
            message(1, outcome="refused", code=403),
        )
        parts = asked(refusals.refusals, rows)

        found = table(refusals.refusals_by_cause(parts), "reason", "number")
        without = table(refusals.refusals_by_cause(parts.drop("reason")), "reason", "number")

        assert [("policy", 1), ("reserved-address", 1), (None, 1)] == found
        assert [(None, 3)] == without

    def test_ten_failures_in_an_hour_are_a_loop(self, spark):
        """
        Ten failures of one sender with one address in an hour are a loop, nine are none.
        """
        rows = log(spark, *[message(n, outcome="refused", code=403) for n in range(10)],
                   *[message(n, to=ANN, outcome="refused", code=403) for n in range(9)])  # fmt: skip

        found = table(
            retry_loops.worst_loops(retry_loops.all_loops(asked(retry_loops.failures, rows))),
            "address",
            "to",
            "failed",
            "unanswered",
            "again",
        )

        assert [(ANN, BOB, 10, 0, 0)] == found

    def test_each_row_of_a_loop_has_the_sums_of_all_its_hours(self, spark):
        """
        A row of a loop says in how many hours it was one, the first and the last of them, and how often it
        failed in these.
        """
        times = [*range(12), *range(3600, 3615), *range(7200, 7209)]  # nine in the last hour are none
        rows = log(spark, *[message(at, outcome="refused", code=403) for at in times])

        found = retry_loops.worst_loops(retry_loops.all_loops(asked(retry_loops.failures, rows)))

        sums = ("loop.hours", "loop.first", "loop.last", "loop.failed")
        of_all = (2, "2026-07-31 00:00", "2026-07-31 01:00", 27)
        assert [(15, *of_all), (12, *of_all)] == table(found, "failed", *sums)

    def test_repetitions(self, spark):
        """
        So are ten of the same request, and ten without an answer.
        """
        shape = (
            "asker string, asked string, type string, again boolean, expects boolean, answers long, time long"
        )
        rows = [(ANN, BOB, "read", n > 0, True, 0 if n < 8 else 1, START + n) for n in range(11)]
        made = spark.createDataFrame(rows, shape).withColumns({"date": F.lit("2026-07-31"), "hour": F.lit(0)})

        found = table(
            retry_loops.worst_loops(retry_loops.all_loops(asked(retry_loops.repetitions, made))),
            "address",
            "failed",
            "unanswered",
            "again",
        )

        assert [(ANN, 0, 8, 10)] == found


class TestGraph:
    """
    Who listens to whom.
    """

    @pytest.fixture
    def lines(self, spark):
        def bind(seconds, session, type, *resources, **more):
            return message(
                seconds,
                to=SM,
                type=type,
                outcome="answered",
                session=session,
                resources=list(resources),
                **more,
            )

        return log(
            spark,
            bind(1, ONE, "subscribe", CHAT, "comm://a.example/orphan/changes"),
            bind(2, TWO, "Subscribe", CHAT),
            bind(3, "runtime://c.example/3", "subscribe", CHAT),
            bind(4, "runtime://c.example/3", "unsubscribe", CHAT),
            bind(5, "runtime://d.example/4", "subscribe", CHAT),
            event(6, "expired", "runtime://d.example/4"),
            bind(7, "runtime://e.example/5", "subscribe", CHAT) | {"outcome": "refused"},
            bind(1, ONE, "subscribe", CHAT, node="mn2"),
            event(2, "closed", ONE, node="mn2"),
            message(8, "comm://a.example/chat", CHAT, session=TWO),
            message(9, "comm://a.example/b", "comm://a.example/b/changes", session=TWO, outcome="no-route",
                    recipients=0),
        )  # fmt: skip

    def test_standing_subscriptions_are_listed(self, lines):
        """
        Those that stand: not unsubscribed, not refused, and their session has not ended.
        """
        found = table(
            subscription_graph.subscriptions(asked(subscription_graph.bindings, lines)), "session", "address"
        )

        assert [(ONE, CHAT), (TWO, CHAT), (ONE, "comm://a.example/orphan/changes")] == found

    def test_unheard_and_orphans(self, lines):
        """
        What nobody hears, what is never published, and who hears whom.
        """
        standing = subscription_graph.subscriptions(asked(subscription_graph.bindings, lines))
        published = subscription_graph.publications_in_all(
            asked(subscription_graph.publications, lines.where("kind = 'message'"))
        )

        assert [("comm://a.example/b/changes", 1), (CHAT, 0)] == table(published, "address", "unheard")
        assert ["comm://a.example/orphan/changes"] == [
            row[0]
            for row in table(subscription_graph.orphans(subscription_graph.all_orphans(standing, published)))
        ]
        assert [(CHAT, TWO, 1, ONE)] == table(
            subscription_graph.edges(standing, published), "address", "publisher", "publications", "observer"
        )

    def test_nodes_own(self, spark):
        """
        What the node publishes itself is of no session; its sender is shown in that place.
        """
        rows = log(spark, message(1, "mn:/registry", CHAT, connector="node"))

        assert [("mn:/registry", 1)] == table(
            asked(subscription_graph.publications, rows), "publisher", "publications"
        )


class TestAnomalies:
    """
    Hours unlike those of other days.
    """

    def found(self, spark, rows, *columns, **names):
        """
        The anomalies of rows of day, hour, messages, failed; of all nodes, or in other scopes too.
        """
        zero = {name: 0 for name in anomalies.MEASURES}
        whole = [
            {"date": f"2026-08-{day:02}", "hour": hour, "node": "mn1", "domain": "a.example", "code": None}
            | zero | {"messages": number, "failed": failed, "first": 0, "last": 3599} | names
            for day, hour, number, failed in rows
        ]  # fmt: skip
        shape = "date string, hour int, node string, domain string, code int, " + ", ".join(
            f"{name} long" for name in anomalies.MEASURES
        )
        made = spark.createDataFrame([tuple(row.values()) for row in whole], f"{shape}, first int, last int")
        return table(anomalies.anomalies(made).where("scope = 'all'"), *columns)

    def test_same_hour(self, spark):
        """
        An hour stands out against the same hour of other days, not against other hours.
        """
        calm = [(day, hour, 1000 if hour else 10, 0) for day in range(1, 6) for hour in (0, 1)]
        rows = [*calm, (6, 0, 1000, 0), (6, 1, 1000, 0)]

        found = self.found(spark, rows, "date", "hour", "measure", "value", "usual", "compared", "others")

        assert [("2026-08-06", 0, "messages", 1000, 10.0, "hour", 5)] == found

    def test_few_days(self, spark):
        """
        With too few other days, all other hours are the measure.
        """
        rows = [(1, hour, 100, 90 if hour == 3 else 0) for hour in range(8)]

        assert [(3, "failed", 0.0, "all")] == self.found(spark, rows, "hour", "measure", "usual", "compared")

    def test_hour_is_compared_with_the_same_weekday(self, spark):
        """
        Where there are enough weeks, Sundays are compared with Sundays: a quiet one is usual, a busy one not.
        """
        weeks = [(day, 9, 10 if day % 7 == 2 else 1000, 0) for day in range(1, 30)]

        assert [] == self.found(spark, weeks, "date")
        assert [("2026-08-30", "weekday", 4)] == self.found(
            spark, [*weeks, (30, 9, 1000, 0), (31, 9, 1000, 0)], "date", "compared", "others"
        )

    def test_hours_without_lines_count_as_zero(self, spark):
        """
        An hour in which no node wrote a line has zero messages, and stands out.
        """
        rows = [(day, hour, 1000, 0) for day in range(1, 6) for hour in range(3) if (day, hour) != (3, 1)]

        assert [("2026-08-03", 1, 0, 1000.0)] == self.found(spark, rows, "date", "hour", "value", "usual")

    def test_newest_hour_that_is_not_over_is_not_taken_for_a_whole_one(self, spark):
        """
        The newest hour has fewer lines because it is not over; only too many would be reported.
        """
        rows = [(day, 0, 1000, 0) for day in range(1, 6)]

        assert [] == self.found(spark, [*rows, (6, 0, 100, 0)], "value", last=1800)
        assert [(100,)] == self.found(spark, [*rows, (6, 0, 100, 0)], "value")
        assert [(9000,)] == self.found(spark, [*rows, (6, 0, 9000, 0)], "value", last=1800)

    def test_node_domain_and_code_stand_out_though_the_sum_does_not(self, spark):
        """
        A node, a domain or a code stands out, also when the sum of all hides it.
        """
        rows = log(
            spark,
            *[message(hour * 3600 + n * 35) for hour in range(5) for n in range(100)],
            *[
                message(
                    hour * 3600 + n * 170, BOB, node="mn2", outcome="refused", code=429 if hour == 3 else 403
                )
                for hour in range(5)
                for n in range(21)
            ],
        )

        found = table(
            anomalies.anomalies(asked(anomalies.hours, rows)), "scope", "name", "measure", "hour", "value"
        )

        assert [("code", "429", "failed", 3, 21)] == found

    def test_what_is_watched_in_each_hour(self, spark):
        """
        What is watched in each hour, by node, domain of the sender, and code.
        """
        rows = log(
            spark,
            message(1),
            message(2, outcome="refused", code=403),
            message(3, micros=200_000),
            event(4, "attached"),
            event(5, "expired"),
        )

        found = {row[2:5]: row[5:] for row in table(asked(anomalies.hours, rows))}

        assert {
            ("mn1", "a.example", None): (2, 200, 0, 1, 0, 0, 1, 3),
            ("mn1", "a.example", 403): (1, 100, 1, 0, 0, 0, 2, 2),
            ("mn1", None, None): (0, 0, 0, 0, 1, 1, 4, 5),
        } == found


class TestPresence:
    """
    When nodes wrote lines, and when they were silent.
    """

    def silences(self, spark, *lines):
        rows = presence.silences(asked(presence.presence, log(spark, *lines)))
        return [
            (node, (since - START) // MINUTE, None if until is None else (until - START) // MINUTE, why)
            for node, since, until, _, why in table(rows)
        ]

    def test_node_that_falls_silent_is_named(self, spark):
        """
        A node without any line for more than three minutes is named, in an hour and across hours.
        """
        alive = [
            own(minute * 60, "alive")
            for minute in range(200)
            if minute not in (*range(20, 24), *range(58, 130))
        ]

        assert [("mn1", 57, 130, "outage"), ("mn1", 19, 24, "outage")] == self.silences(spark, *alive)

    def test_silence_that_goes_on_has_no_end(self, spark):
        """
        A node whose lines end before those of the others is silent until now. That comes before longer ones.
        """
        lines = [own(minute * 60, "alive") for minute in range(50)]
        others = [own(minute * 60, "alive", node="mn2") for minute in (*range(10), *range(30, 60))]

        assert [("mn1", 49, None, "outage"), ("mn2", 9, 30, "outage")] == self.silences(
            spark, *lines, *others
        )

    def test_outage_from_the_first_minute_of_an_hour_is_one(self, spark):
        """
        A node that dies before its first line about itself in an hour had an outage: it wrote some before.
        """
        lines = [own(minute * 60 + 30, "alive") for minute in (*range(60), *range(100, 110))]

        assert [("mn1", 60, 100, "outage")] == self.silences(spark, *lines, message(3605))

    def test_node_that_stopped_had_no_outage(self, spark):
        """
        A node that said that it stops was stopped; messages, too, show that a node is there.
        """
        lines = [own(0, "started"), message(120), own(240, "stopped"), own(3000, "started"), message(3100)]

        assert [("mn1", 4, 50, "stopped")] == self.silences(spark, *lines)

    def test_node_that_writes_no_such_lines_has_no_outage(self, spark):
        """
        Of a node that does not write lines about itself only hours are reported, as hours without lines.
        """
        lines = [message(0), message(1200), message(3 * 3600)]

        assert [("mn1", 20, 180, "no lines")] == self.silences(spark, *lines)

    def test_nodes_with_version_and_what_they_did_not_log(self, spark):
        """
        Each node with its newest version, and what its runs did not log, added up.
        """
        lines = [
            own(60, "alive", lost=3, unlogged=1),
            own(120, "stopped", lost=5, unlogged=1),
            own(180, "started", started=START + 1, version="2.0"),
            own(3700, "alive", started=START + 1, version="2.0", lost=2),
            message(3800, node="old"),
        ]

        found = table(
            presence.nodes(asked(presence.presence, log(spark, *lines))),
            "node",
            "alive",
            "starts",
            "version",
            "unlogged",
            "lost",
        )

        assert [("mn1", 4, 1, "2.0", 1, 7), ("old", 0, None, None, None, None)] == found


def test_totals_are_of_all_rows_not_only_of_those_shown(spark):
    """
    The totals of a table that is cut for show are of all its rows.
    """
    shown = top_talkers.MAX_ROWS
    parts = spark.range(shown + 100).selectExpr(
        "'2026-07-31' as date", "cast(id as string) as address", "'read' as type", "3L as requests",
        "2L as unanswered", "struct(id as time) as last",
    )  # fmt: skip
    [question] = [question for question in QUESTIONS if question.name == "unanswered"]

    assert shown == question.result(parts).count()
    assert [("unanswered", "unanswered", 2 * (shown + 100), shown + 100)] == table(totals(question, parts))


class TestStories:
    """
    Line by line.
    """

    def test_story_of_a_runtime_in_order(self, spark):
        """
        All that a runtime did and that was done to it, in order.
        """
        rows = log(
            spark,
            message(3, BOB, f"{ONE}/sm", id="3"),
            event(1, "opened", ONE),
            message(2, ANN, BOB, session=ONE, id="2"),
            message(4, BOB, f"{ONE}0", id="4"),
        )

        assert [(None, "opened"), ("2", None), ("3", None)] == table(
            asked(AddressTimeline(ONE), rows), "id", "event"
        )

    def test_message_and_its_answer_on_their_way_across_nodes(self, spark):
        """
        A message and its answer on their way across nodes.
        """
        rows = log(
            spark,
            message(3, BOB, ANN, node="mn2", type="response", id="9"),
            message(1, id="9"),
            message(2, id="9", node="mn2"),
            message(4, BOB, ANN, type="response", id="9"),
            message(5, BOB, "hyperty://c.example/x", id="9"),
        )

        assert ["mn1", "mn2", "mn2", "mn1"] == [
            row[0] for row in table(asked(Conversation("9", (ANN, BOB)), rows), "node")
        ]


@pytest.mark.parametrize("question", [q for q in QUESTIONS if q.of in ("messages", "events", "lines")])
def test_adds_up(spark, ten, question):
    """
    Every question gives the same answer for the log cut at the hour as for the whole, folded or not.
    """
    lines = ten.union(log(spark, event(1, "opened"), event(2, "attached"), event(3700, "closed")))
    sides = [lines.where("hour = 0"), lines.where("hour = 1")]

    whole = question.result(question.summarise(lines))
    parts = question.summarise(sides[0]).union(question.summarise(sides[1]))
    fold = next(other.fold for other in QUESTIONS if other.name == question.kept) or (lambda parts: parts)

    # In one execution, for there are many questions.
    at_once, added, folded = gathered(whole, question.result(parts), question.result(fold(parts)))
    assert at_once == added == folded
    assert sorted(parts.dtypes) == sorted(fold(parts).dtypes)


@pytest.mark.parametrize("question", [q for q in QUESTIONS if q.cut is not None and q.of == "messages"])
def test_totals_of_a_table_that_is_not_cut_are_the_sums_of_its_rows(ten, question):
    """
    The totals from the rows of a table that was not cut are those that Spark computes from the sums.
    """
    parts = question.summarise(ten)

    rows, expected = gathered(question.result(parts), totals(question, parts))

    found = totals_of_values(question, [row.asDict() for row in rows])
    assert [row.asDict() for row in expected] == found
