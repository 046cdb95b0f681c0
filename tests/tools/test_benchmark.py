"""
What in tools/bench is pure: frames, figures, tables.  The rest needs sockets and time.
"""

import json
from typing import Any

import pytest
from benchmark.load import frames
from benchmark.load.delays import Delays, InFlight
from benchmark.report import plane_table, statistics, tables
from benchmark.scenarios.catalogue import SCENARIOS, Entrant, Scenario, Target, churn
from benchmark.scenarios.planes import COMPILED, NATS, PLANES, PYTHON

OURS, THEIRS = Entrant("msgnode", "msgnode"), Entrant("nats", "nats")


def scenario(*targets: Target, entrants: tuple[Entrant, ...] = (OURS, THEIRS)) -> Scenario:
    return Scenario("some", "some load", "messages/s", "pairs", {}, entrants, targets)


def measured(*values: float | None, **more: object) -> dict[str, object]:
    return statistics.summary([{"figure": value, **more} for value in values])


def results(*values: float, target: Target) -> dict[str, object]:
    entrants = {"msgnode": measured(values[0]), "nats": measured(values[1])}
    shown = {"name": "some", "title": "some load", "unit": "messages/s", "ours": "msgnode"}
    compared = statistics.compared(scenario(target), entrants)
    return {
        "when": "today",
        "machine": {"cores": "2"},
        "versions": {"twisted": "26"},
        "options": {"rounds": 5, "seconds": 3.0, "warmup": 1.0, "burst": False},
        "scenarios": [{**shown, "entrants": entrants, "compared": compared}],
    }


def unmasked(frame: bytes, start: int) -> bytes:
    key, payload = frame[start : start + 4], frame[start + 4 :]
    return bytes(byte ^ key[index % 4] for index, byte in enumerate(payload))


@pytest.mark.parametrize("size", [100, 1000, 10_000])
def test_message_has_the_size_its_name_says(size: int) -> None:
    """
    100 B means a text of 100 bytes in body.value, and one mark in the whole message.
    """
    data = frames.message(7, "hyperty://localhost/a", "hyperty://localhost/b", size)

    assert size == len(json.loads(data)["body"]["value"])
    assert data.count(frames.MARK) == 1
    assert list(json.loads(data)) == ["id", "type", "from", "to", "body"]


def test_message_with_spaces() -> None:
    """
    With spaces it is the same message, as Python's json writes it.
    """
    tight = frames.message(7, "hyperty://localhost/a", "hyperty://localhost/b", 100)
    wide = frames.message(7, "hyperty://localhost/a", "hyperty://localhost/b", 100, spaces=True)

    assert json.loads(tight) == json.loads(wide)
    assert (tight.count(b" "), wide.count(b" ")) == (0, 10)


@pytest.mark.parametrize(("size", "head"), [(0, 2), (1, 2), (125, 2), (126, 4), (65535, 4), (65536, 10)])
def test_frame_is_masked_and_says_its_length(size: int, head: int) -> None:
    """
    A frame of each of the three length forms unmasks to the payload it was built from.
    """
    payload = bytes(index % 251 for index in range(size))

    frame = frames.masked(payload, frames.BINARY)

    assert frame[0] == 0x82
    assert frame[1] & 0x80 == 0x80
    assert head + 4 + size == len(frame)
    assert payload == unmasked(frame, head)


def test_every_peer_gets_the_same_message() -> None:
    """
    NATS and WAMP wrap the message and do not change it.
    """
    to = "hyperty://localhost/run-3"
    data = frames.message(1, "hyperty://localhost/run-1", to, 100)

    assert b"PUB bench.run-3 %d\r\n%s\r\n" % (len(data), data) == frames.nats_publish(to, data)
    assert [16, 1, {}, "bench.run-3", [json.loads(data)]] == json.loads(frames.wamp_publish(to, data))


def test_post_carries_token_and_length() -> None:
    """
    A POST says how long its body is and who asks; without a token it names nobody.
    """
    post = frames.http_post("/poll", "mns_x", b"[]")

    assert post.startswith(b"POST /poll HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer mns_x\r\n" in post
    assert b"\r\nContent-Length: 2\r\n" in post
    assert post.endswith(b"\r\n\r\n[]")
    assert b"Authorization" not in frames.http_get("/poll", "")


def test_median_ignores_what_failed() -> None:
    """
    A run without a figure counts as an error, not as zero.
    """
    runs = [
        {"figure": 10.0},
        {"figure": None, "errors": ["gone"]},
        {"figure": 30.0},
        {"figure": 11.0, "lost": 2},
    ]

    summary = statistics.summary(runs)

    assert summary["median"] == 11.0
    assert summary["errors"] == ["gone"]
    assert summary["lost"] == 2


def test_besides_are_medians_and_stand_below_the_table() -> None:
    """
    What a run tells besides its figure is kept by name, without the runs that had none.
    """
    values = (1.0, None, 9.0, 3.0)
    runs: list[dict[str, Any]] = [{"figure": 1.0, "besides": {"p50 in ms": value}} for value in values]
    summary = statistics.summary(runs)
    shown = results(9.0, 10.0, target=Target("nats", 1.0))
    shown["scenarios"][0]["entrants"]["msgnode"] |= {"besides": summary["besides"]}  # type: ignore[index]

    assert summary["besides"] == {"p50 in ms": 3.0}
    assert "some, msgnode: p50 in ms 3" in tables.text(shown)


def test_nothing_measured_is_no_figure() -> None:
    """
    With no run that worked there is neither a median nor a ratio.
    """
    assert None is measured(None)["median"]
    assert None is statistics.ratio(5.0, None)
    assert None is statistics.ratio(None, 5.0)
    assert None is statistics.ratio(5.0, 0.0)


def test_spread_is_a_part_of_the_median() -> None:
    """
    Runs of 80, 100 and 120 spread over 40 %; a single run has no spread.
    """
    assert pytest.approx(statistics.spread([80.0, 120.0, 100.0])) == 0.4
    assert None is statistics.spread([80.0])


@pytest.mark.parametrize(("ours", "met"), [(100.0, True), (70.0, True), (69.0, False)])
def test_target_is_a_ratio_of_medians(ours: float, met: bool) -> None:
    """
    A target of 0.7 is met at 0.7 and missed below.
    """
    entrants = {"msgnode": measured(ours), "nats": measured(100.0)}

    [row] = statistics.compared(scenario(Target("nats", 0.7)), entrants)

    assert ("nats", ours / 100, met) == (row["against"], row["value"], row["met"])


def test_target_may_be_a_figure() -> None:
    """
    Memory is judged by itself, at most so much, and still shown beside the peer.
    """
    wanted = scenario(Target(None, 12.0, at_most=True))

    alone, beside = statistics.compared(wanted, {"msgnode": measured(9.0), "nats": measured(45.0)})

    assert (alone["against"], alone["value"], alone["met"]) == (None, 9.0, True)
    assert (beside["against"], beside["met"]) == ("nats", None)


@pytest.mark.parametrize("wrong", [{"lost": 1}, {"errors": ["refused"]}])
@pytest.mark.parametrize("whose", ["msgnode", "nats"])
def test_loss_misses_the_target(wrong: dict[str, object], whose: str) -> None:
    """
    However fast, a comparison in which either side lost something meets nothing.
    """
    entrants = {"msgnode": measured(200.0), "nats": measured(100.0)}
    entrants[whose] = measured(entrants[whose]["median"], **wrong)  # type: ignore[arg-type]

    [row] = statistics.compared(scenario(Target("nats", 1.0)), entrants)

    assert row["met"] is False


def test_doubts_name_a_busy_generator_and_unsteady_runs() -> None:
    """
    A figure that the generator may have limited, or that varied widely, says so.
    """
    assert statistics.doubts(measured(100.0, 101.0, generator_cores=0.4)) == []
    assert statistics.doubts(measured(100.0, generator_cores=0.9)) == [
        "the generator used 0.90 of a core and may be the limit"
    ]
    assert statistics.doubts(measured(50.0, 100.0, 150.0)) == ["the runs differ widely, 50 to 150"]


def test_table_shows_figures_ratio_and_target() -> None:
    """
    One line a comparison, with what was wanted and whether it was met.
    """
    [row] = tables.rows(results(123456.0, 100000.0, target=Target("nats", 1.0)))

    assert row[:8] == ("some load", "messages/s", "123,456", "nats", "100,000", "1.23", "at least 1", "met")
    assert "missed" in tables.text(results(9.0, 10.0, target=Target("nats", 1.0)))


def test_markdown_rows_have_one_width() -> None:
    """
    Every row of the Markdown table has as many cells as its head.
    """
    lines = tables.markdown(results(9.0, 10.0, target=Target("nats", 1.0))).splitlines()
    widths = {line.count("|") for line in lines if line.startswith("|")}

    assert {len(tables.HEAD) + 1} == widths


def test_markdown_goes_between_the_marks(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """
    What people wrote around the table stays, however often it is made.
    """
    page = tmp_path / "page.md"
    page.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n")

    tables.put(page, "new")
    tables.put(page, "newer")

    assert f"before\n{tables.BEGIN}\nnewer\n{tables.END}\nafter\n" == page.read_text()


def test_scenarios_have_names_of_their_own_and_targets_somebody_runs() -> None:
    """
    A name picks one scenario, and a target compares with an entrant of it.
    """
    everything = [*SCENARIOS, *PLANES, churn(10)]
    names = [one.name for one in everything]

    assert len(names) == len(set(names))
    for one in everything:
        labels = {entrant.label for entrant in one.entrants} | {None}
        assert {target.against for target in one.targets} <= labels


def test_short_churn_is_not_judged() -> None:
    """
    Three minutes would be compared with themselves, so they meet no target.
    """
    assert churn(3).targets == ()
    assert len(churn(10).targets) == 1


def test_compressed_message() -> None:
    """
    What is compressed for a frame is the same message after inflating, whatever came before it.
    """
    data = frames.message(7, "hyperty://localhost/a", "hyperty://localhost/b", 1000)

    assert frames.inflated(frames.deflated(data)) == data
    assert len(frames.deflated(data)) < len(data) / 2


@pytest.mark.parametrize(("size", "head"), [(0, 2), (125, 2), (126, 4), (65536, 10)])
def test_frame_of_a_server(size: int, head: int) -> None:
    """
    Where a frame that is not masked ends is known once all of it is there.
    """
    length = {
        2: bytes([size % 256]),
        4: b"\x7e" + size.to_bytes(3, "big")[1:],
        10: b"\x7f" + size.to_bytes(8, "big"),
    }
    frame = b"\x81" + length[head] + b"x" * size

    assert frames.frame_end(b"before" + frame, 6) == (6 + head, 6 + head + size)
    assert frames.frame_end(frame[:-1], 0) is None


def test_delays_of_messages_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Messages arrive in their order, in other portions than they were sent; each has its own delay.
    """
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    delays = Delays()
    pair = InFlight(delays)
    for seconds, happens, count in (
        (0.0, pair.sent, 2),
        (1.0, pair.sent, 2),
        (2.0, pair.arrived, 3),  # two after 2 s, one after 1 s
        (6.0, pair.arrived, 1),  # after 5 s
    ):
        now[0] = seconds
        happens(count)

    assert delays.percentiles() == {"p50": 2000.0, "p99": 5000.0}
    delays.clear()
    assert delays.percentiles() == {}


def plane_results(**entrants: dict[str, Any]) -> dict[str, Any]:
    """
    Results of one row: what each server's run told, by its label.
    """
    labels = {"compiled": COMPILED, "python": PYTHON, "nats": NATS}
    summaries = {labels[name]: statistics.summary([run]) for name, run in entrants.items()}
    row = Scenario(
        "some",
        "some load",
        "messages/s",
        "pairs",
        {},
        tuple(Entrant(label, "msgnode") for label in summaries),
        (Target(NATS, 1.2),),
    )
    shown = {
        "name": "some",
        "title": "some load",
        "unit": "messages/s",
        "ours": COMPILED,
        "load_average": 1.5,
    }
    return results(1.0, 1.0, target=Target("nats", 1.0)) | {
        "scenarios": [{**shown, "entrants": summaries, "compared": statistics.compared(row, summaries)}]
    }


def test_each_server_has_a_line_in_the_table_of_the_planes() -> None:
    """
    Rate, delays, CPU time, the share by flow, and ratios to nats-server and to Python alone.
    """
    shown = plane_results(
        compiled={"figure": 240.0, "p50": 1.0, "p99": 2.5, "cpu": 2.0, "by_flow": 0.991, "plane": "native"},
        python={"figure": 60.0, "p50": 4.0, "p99": 9.0, "cpu": 8.0, "by_flow": 0.0, "plane": "python"},
        nats={"figure": 200.0, "p50": 2.0, "p99": 3.0, "cpu": 4.0},
    )

    compiled, python, nats = plane_table.rows(shown)

    assert compiled[1:4] == ("compiled", "240", "")
    assert compiled[4:] == ("1", "2.5", "2", "99%", "1.20", "4.00", "0.25", "1.2 to nats-server: met")
    assert python[4:] == ("4", "9", "8", "", "0.30", "", "", "")
    assert nats[4:] == ("2", "3", "4", "", "", "3.33", "0.50", "")
    assert "Load average 1.5 to 1.5" in plane_table.markdown(shown)


def test_a_row_that_lost_messages_misses_its_target() -> None:
    """
    However fast, a run that lost something meets nothing, and a line below the table says so.
    """
    shown = plane_results(compiled={"figure": 300.0, "lost": 2}, nats={"figure": 100.0})

    assert plane_table.rows(shown)[0][-1] == "1.2 to nats-server: missed"
    assert "some, compiled: 2 messages lost" in plane_table.text(shown)


def test_paired_runs_give_a_ratio_with_an_interval() -> None:
    """
    Of eleven ratios, the second and the tenth bound the median with at least 95 %.
    """
    ours, theirs = [10.0 + n / 10 for n in range(11)], [10.0] * 11

    assert (1.05, 1.01, 1.09) == pytest.approx(statistics.paired(ours, theirs))


def test_what_is_counted_is_told_at_the_end_of_a_read() -> None:
    """
    Also if something else than a payload ends it, such as a ping.
    """
    transports = pytest.importorskip("benchmark.load.transports", reason="needs picows")
    told: list[int] = []
    inbox = transports.Inbox(whole=True)
    inbox.receipt = told.append

    inbox.take(frames.MARK, False)
    inbox.end()
    inbox.end()

    assert told == [1]
