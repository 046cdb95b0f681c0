"""
Lines of text into rows: what is good, and what is kept aside with which reason.
"""

import hmac
import json

import pytest
from pyspark.sql import functions as F

from msgnode.mining.pipeline import pseudonyms
from msgnode.mining.reading.parse import parsed
from msgnode.mining.reading.schema import TRAFFIC
from tests.mining.rows import ANN, HOUR, START, event, log, message, table
from tests.support.examples import TOP, blocks

PATH = "file:/logs/traffic-mn1-20260731T00.jsonl"


def line(**more):
    good = {"v": 1, "kind": "message", "time": START + 5, "node": "mn1", "outcome": "delivered"}
    return json.dumps({key: value for key, value in (good | more).items() if value is not None})


def read(spark, *lines, path=PATH):
    return parsed(spark.createDataFrame([(text, path) for text in lines], "value string, path string"))


class TestParsed:
    """
    The contract, line by line.
    """

    def test_numbers_and_text_are_taken_as_ids_unknown_keys(self, spark):
        """
        Numbers and text are taken as ids, unknown keys are passed over, and the hour is that of the file.
        """
        big = 10**30
        found = read(
            spark,
            line(id=big, new={"a": [1]}),
            line(id="q1", resources=["a", "b"]),
            line(),
            path=PATH + ".gz",
        )

        assert [
            (str(big), None, "2026-07-31", 0, None, None),
            ("q1", ["a", "b"], "2026-07-31", 0, None, None),
            (None, None, "2026-07-31", 0, None, None),
        ] == table(found, "id", "resources", "date", "hour", "why", "text")

    @pytest.mark.parametrize(
        "text, why",
        [
            ('{"v":1,"kind":"mess', "not JSON of the log"),
            ("half of it\x00", "not JSON of the log"),
            (f"[{line()}]", "not JSON of the log"),
            ("17", "not JSON of the log"),
            (line(bytes="many"), "not JSON of the log"),
            ('{"level":"info"}', "no version"),
            (line(v=2), "version 2"),
            (line(v=0), "version 0"),
            (line(kind=None), "no kind"),
            (line(time=None), "without time or node"),
            (line(outcome=None), "a message without outcome"),
            (line(kind="session"), "an event without 'event' or 'session'"),
            (line(bytes=2**63 - 1), "bytes out of range"),
            (line(micros=-1), "micros out of range"),
            (line(bytes=2**63), "not JSON of the log"),
            (line(time=START + HOUR), "its time is not in the hour of its file"),
            (line(time=START - 1), "its time is not in the hour of its file"),
        ],
    )
    def test_bad_line_keeps_its_text_and_file(self, spark, text, why):
        """
        What is no line of the log says why, and keeps its text and its file.
        """
        assert [(why, text, PATH)] == table(read(spark, text), "why", "text", "path")

    def test_empty_lines_are_nothing(self, spark):
        """
        Empty lines are nothing.
        """
        assert [] == table(read(spark, "", "  "))

    def test_schema_is_the_documented_one(self):
        """
        The schema is the one that docs/traffic-log.md shows.
        """
        shown = next(block.text for block in blocks("docs/traffic-log.md") if "StructType" in block.text)
        names: dict = {}
        exec(shown.partition("spark =")[0], names)

        assert names["TRAFFIC"] == TRAFFIC


class TestPseudonyms:
    """
    Identifiers replaced.
    """

    KEY = b"a key of sixteen"

    def hidden(self, spark, *lines):
        rows = log(spark, *lines)
        return pseudonyms.pseudonymised(rows.withColumn("text", F.lit("text")), self.KEY)

    def test_spark_and_driver_make_the_same_hmac(self, spark):
        """
        Spark's own functions make the HMAC-SHA-256 of RFC 2104, and the driver's the same, for any address.
        """
        tried = [
            ANN,
            f"{ANN}/changes",
            "comm://A.example/x/children/y",
            "comm://a.example/x/children/",
            "mn:/session",
            "domain://msg-node.a.example/sm",
            "hyperty:x",
            "no address",
            "runtime://a.example",
            "",
            "ünï://cödé/ñ",
        ]
        rows = spark.createDataFrame([(address,) for address in tried], "to string")

        found = [row[0] for row in table(rows.select(pseudonyms.address(F.col("to"), self.KEY)))]

        assert [pseudonyms.hidden_address(address, self.KEY) for address in tried] == found
        whole = hmac.new(self.KEY, b"a.example", "sha256").hexdigest()[:16]
        assert found[0].startswith(f"hyperty://{whole}/")
        assert found[1] == f"{found[0]}/changes"
        assert "mn:/session" == found[4]
        assert f"domain://msg-node.{whole}/sm" == found[5]

    def test_nothing_is_left(self, spark):
        """
        No name, address, id, transaction or peer of the log is in what is written, nor a bad line's text.
        """
        secret = "runtime://secret.example/secret"
        found = self.hidden(
            spark,
            message(
                1, secret, f"{secret}/changes", id="secret", peer="192.0.2.7:51", session=secret,
                type="secret", resources=[secret], transaction="secret",
            ),
            event(2, "attached", secret, peer="192.0.2.7:52"),
        )  # fmt: skip

        written = [row[0] for row in found.select(F.to_json(F.struct("*"))).collect()]

        assert not any("secret" in text or "192.0.2" in text or '"text":"text"' in text for text in written)
        first, second = (json.loads(text) for text in written)
        assert first["session"] == second["session"] == first["resources"][0] == first["from"]
        assert first["to"] == first["from"] + "/changes"
        assert first["transaction"] == first["id"]
        assert first["peer"].rpartition(":")[0] == second["peer"].rpartition(":")[0]


def test_a_traffic_log_of_0_1_0_is_read(spark):
    """
    Every line that version 0.1.0 wrote is a message or an event, and none is set aside.
    """
    file = next((TOP / "tests/fixtures/0.1.0").glob("traffic-*.jsonl"))
    lines = file.read_text().splitlines()

    found = read(spark, *lines, path=f"file:{file}")

    assert [None] * len(lines) == [row.why for row in found.collect()]
