"""
Requests and their answers, on logs of a few lines.
"""

import pytest

from msgnode.mining.analyses import latency
from msgnode.mining.analyses.analysis import asked
from msgnode.mining.analyses.exchanges import TOLD, exchanges
from tests.mining.rows import ANN, BOB, FIRST, SECOND, log, message, table

_COLUMNS = ("id", "node", "answers", "first_micros", "micros", "again", "open")


def ask(seconds, id="1", **more):
    return message(seconds, type="read", id=id, **more)


def answer(seconds, id="1", **more):
    return message(seconds, BOB, ANN, type="response", id=id, **more)


@pytest.fixture
def paired(spark, engine):
    """
    The exchanges of some lines.
    """

    def paired(*lines):
        found = engine.exchanges(log(spark, *lines), None, FIRST + 1)
        return table(found.orderBy("time", "node", "id"), *_COLUMNS)

    return paired


class TestPairing:
    """
    Which answer belongs to which request.
    """

    def test_answer_has_the_id_of_its_request_and_its_addresses(self, paired):
        """
        An answer has the id of its request and its addresses turned round; case does not matter.
        """
        found = paired(ask(1), answer(1.25) | {"type": "RESPONSE"})

        assert [("1", "mn1", 1, 250_000, 250_000, False, False)] == found

    def test_pairing_needs_one_shuffle_and_two_sorts(self, spark, capsys):
        """
        Pairing shuffles the log once and sorts it twice, for more would cost most on a large log.
        """
        exchanges(log(spark, ask(1)), None, FIRST + 1).explain()
        plan = capsys.readouterr().out

        assert (1, 2) == (plan.count("REPARTITION_BY_COL"), plan.count("Sort ["))
        assert 1 == plan.count("ENSURE_REQUIREMENTS")  # of one number: the time of the last line

    def test_strangers(self, paired):
        """
        Another id, another asker and an answer before the request belong to nothing.
        """
        other = message(2, BOB, "hyperty://c.example/eve", type="response")

        found = paired(answer(0.5), ask(1), answer(2, "2"), other)

        assert [("1", "mn1", 0, None, None, False, False)] == found

    def test_request_may_get_several_answers(self, paired):
        """
        A request may get several answers; all but the last are provisional.
        """
        found = paired(ask(1), answer(2), answer(3), answer(4))

        assert [("1", "mn1", 3, 1_000_000, 3_000_000, False, False)] == found

    def test_id_again(self, paired):
        """
        An id that is used again begins a new exchange, and each answer belongs to the latest request.
        """
        found = paired(ask(1), answer(2), ask(3), answer(3.5), ask(500), answer(501))

        assert [
            ("1", "mn1", 1, 1_000_000, 1_000_000, False, False),
            ("1", "mn1", 1, 500_000, 500_000, True, False),
            ("1", "mn1", 1, 1_000_000, 1_000_000, False, False),
        ] == found

    def test_answer_of_another_transaction_pairs_with_nothing(self, paired):
        """
        An answer of another transaction belongs to nothing, one without a transaction as ever.
        """
        found = paired(
            ask(1, transaction="a"),
            ask(2, transaction="b"),
            answer(3, transaction="a"),
            answer(4, transaction="b"),
            ask(500, transaction="c"),
            answer(501),
            ask(1000),
            answer(1001, transaction="d"),
        )

        assert [(0, False), (1, False), (1, False), (1, False)] == [
            (answers, again) for _, _, answers, _, _, again, _ in found
        ]

    def test_transaction_again(self, paired):
        """
        The same id in the same transaction is the same request once more.
        """
        found = paired(ask(1, transaction="a"), ask(2, transaction="a"), answer(3, transaction="a"))

        assert [(0, False), (1, True)] == [(answers, again) for _, _, answers, _, _, again, _ in found]

    def test_answer_after_two_minutes_pairs_with_nothing(self, paired):
        """
        An answer after two minutes belongs to nothing.
        """
        assert [0] == [row[2] for row in paired(ask(1), answer(121.5))]
        assert [1] == [row[2] for row in paired(ask(1), answer(120.5))]

    def test_each_node_has_its_own_exchange(self, paired):
        """
        Each node's view of a request is one exchange; an answer that came only to another node counts.
        """
        seen = [ask(1), ask(1.1, node="mn2"), answer(1.5, node="mn2"), answer(1.6)]
        crossed = [ask(9, "2"), answer(9.5, "2", node="mn2")]

        found = paired(*seen, *crossed)

        assert [
            ("1", "mn1", 1, 600_000, 600_000, False, False),
            ("1", "mn2", 1, 400_000, 400_000, False, False),
            ("2", "mn1", 1, 500_000, 500_000, False, False),
        ] == found

    def test_not_expected(self, paired):
        """
        Refused requests, publications and updates expect nothing; an update that was answered counts.
        """
        found = paired(
            ask(1, outcome="refused"),
            message(2, to=f"{ANN}/changes", type="read", id="2"),
            message(3, id="3"),
            message(4, id="4"),
            answer(5, "4"),
        )

        assert [("4", "mn1", 1, 1_000_000, 1_000_000, False, False)] == found

    def test_one_shuffle(self, spark):
        """
        The log is shuffled once, and nothing is joined.
        """
        spark.conf.set("spark.sql.shuffle.partitions", "4")
        rows = log(spark, ask(1), answer(2)).repartition(3)
        try:
            found = exchanges(rows, None, FIRST + 1)
            plan = found._jdf.queryExecution().executedPlan().toString()
        finally:
            spark.conf.set("spark.sql.shuffle.partitions", "1")

        assert 1 == plan.count("Exchange hashpartitioning")
        assert "Join" not in plan

    def test_however_a_log_is_cut_at_the_hour_the_exchanges(self, spark, engine):
        """
        However a log is cut at the hour, the exchanges are those of one run.
        """
        lines = [
            ask(3599.5), answer(3600.25),
            ask(3598, "2"), answer(3599, "2"), answer(3601, "2"),
            ask(3500, "3"), ask(3601, "3"), answer(3602, "3"),
            ask(3400, "4"), answer(3600.5, "4"),
            ask(3599.9, "5"),
            ask(3599, "6"), answer(3601, "6", node="mn2"),
            message(3599, id="7"), answer(3601, "7"),
            message(3599, id="8"), message(3601, id="8"), answer(3602, "8"),
        ]  # fmt: skip
        first = [line for line in lines if line["hour"] == 0]
        second = [line for line in lines if line["hour"] == 1]

        before = engine.exchanges(log(spark, *first), None, FIRST + 1)
        after = engine.exchanges(log(spark, *second), before.where("open"), FIRST + 2)
        settled = before.where("not open").union(after).where(TOLD)

        columns = ("id", "time", "node", "answers", "micros", "again", "date", "hour")
        whole = engine.exchanges(log(spark, *lines), None, FIRST + 2)
        assert sorted(table(whole, *columns)) == sorted(table(settled, *columns))
        assert 7 == before.where("open").count()


def made(spark, *rows):
    """
    Exchanges of a moment, with their answers and the microseconds until the last.
    """
    shape = (
        "id string, asker string, asked string, node string, time long, type string, expects boolean, "
        "answers long, first_micros long, micros long, date string, hour int"
    )
    whole = [
        (id, ANN, asked, "mn1", n * SECOND, "read", True, answers, micros, micros, "2026-07-31", 0)
        for n, (id, asked, answers, micros) in enumerate(rows)
    ]
    return spark.createDataFrame(whole, shape)


class TestLatency:
    """
    What is made of the exchanges.
    """

    def test_percentiles(self, spark):
        """
        A percentile is the upper edge of its bin: the true value, and at most 4.5 % more.
        """
        rows = made(spark, *[(str(n), BOB, 1, n) for n in range(1, 1001)])

        [(type, to, number, p50, p90, p99, p999)] = table(
            latency.latency_percentiles(asked(latency.latency, rows))
        )

        assert ("read", "hyperty://b.example", 1000) == (type, to, number)
        for found, true in ((p50, 500), (p90, 900), (p99, 990), (p999, 999)):
            assert true <= found <= true * 1.045 + 1

    def test_unanswered(self, spark):
        """
        Who leaves most unanswered comes first, with the last example.
        """
        rows = made(spark, ("1", BOB, 0, None), ("2", BOB, 1, 5), ("3", ANN, 0, None), ("4", BOB, 0, None))

        found = table(
            latency.most_unanswered(latency.unanswered_in_all(asked(latency.unanswered, rows))),
            "address",
            "requests",
            "unanswered",
            "last.id",
        )

        assert [(BOB, 3, 2, "4"), (ANN, 1, 1, "3")] == found

    def test_requests_are_counted_by_number_of_answers(self, spark):
        """
        How many requests got how many answers.
        """
        rows = made(spark, ("1", BOB, 0, None), ("2", BOB, 3, 8), ("3", BOB, 3, 8), ("4", BOB, 99, 8))

        found = table(latency.chains_by_length(asked(latency.chains, rows)), "answers", "number")

        assert [(0, 1), (3, 2), (20, 1)] == found
