"""
Which hours are read, and which are read again.
"""

from datetime import datetime, timedelta
from functools import cache

import pytest

pytest.importorskip("pyspark")

from msgnode.mining.pipeline.checkpoint import Checkpoint, load
from msgnode.mining.pipeline.checkpoint_entries import Batch
from msgnode.mining.reading.log_files import LogFile, Unreadable
from tests.support.calls import calls_of


def file(hour, node="mn1", size=100, suffix=""):
    name = f"traffic-{node}-20260731T{hour:02}.jsonl{suffix}"
    return LogFile(name, f"/logs/{name}", size)


H = file(0).hour
HOURS = [datetime(2026, 7, 31) + timedelta(hours=hour) for hour in range(3000)]


def checkpoint(*batches):
    made = Checkpoint({})
    for number, (begin, end, files) in enumerate(batches, 1):
        made.add(Batch(number, H + begin, H + end, {file.name: file.size for file in files}))
    return made


def unpacked(file):
    """
    A file is a fifth as long when it is compressed.
    """
    return 5 * file.size


def planned(checkpoint, *files, whole=True):
    """
    The numbers of the batches taken back, the hours and number of files read, and what is read of grown ones.

    `whole`: what was read before ended with a whole line.
    """
    plan = checkpoint.plan(
        sorted(files, key=lambda file: (file.hour, file.stem)), unpacked, lambda tail: whole
    )
    found = [batch.number for batch in plan.gone], [(b - H, e - H, len(some)) for b, e, some in plan.fresh]
    return (*found, [(tail.file.stem, tail.begin) for tail in plan.tails]) if plan.tails else found


def test_newest_hour_is_a_batch_of_its_own():
    """
    The newest hour is a batch of its own: it may still be written to.
    """
    assert ([], []) == planned(checkpoint())
    assert ([], [(3, 4, 1)]) == planned(checkpoint(), file(3))
    assert ([], [(0, 3, 3), (3, 4, 2)]) == planned(
        checkpoint(), file(0), file(1), file(1, "mn2"), file(3), file(3, "mn2")
    )


def test_nothing_new():
    """
    Files that stayed as they were are not read again; nor those that were compressed or are gone.
    """
    known = checkpoint((0, 3, [file(0), file(1)]), (3, 4, [file(3)]))

    assert ([], []) == planned(known, file(0), file(1), file(3))
    assert ([], []) == planned(known, file(1, size=20, suffix=".gz"), file(3))
    assert ([], []) == planned(known)


def test_only_what_was_appended_to_the_newest_hour_is_read():
    """
    The newest hour grew: only what was appended is read, of another node's file all, and what is new with it.
    """
    known = checkpoint((0, 3, [file(0), file(1)]), (3, 4, [file(3)]))
    grown = file(3, size=150)

    assert ([], [], [(grown.stem, 100)]) == planned(known, file(0), file(1), grown)
    assert ([], [(4, 5, 1), (5, 6, 1)], [(grown.stem, 100)]) == planned(known, grown, file(4), file(5))
    assert ([], [], [(grown.stem, 100), (file(3, "mn2").stem, 0)]) == planned(known, grown, file(3, "mn2"))


def test_newest_hour_that_ended_within_a_line_is_read_again():
    """
    What was read of the newest hour ended within a line, or its file is shorter now: all of it is read again.
    """
    known = checkpoint((0, 3, [file(0), file(1)]), (3, 4, [file(3)]))

    assert ([2], [(3, 4, 1)]) == planned(known, file(3, size=150), whole=False)
    assert ([2], [(3, 4, 1)]) == planned(known, file(3, size=50))


def test_hours_before_those_that_are_kept_are_not_read():
    """
    A file of a day that was removed is not read, whether it was known or not.
    """
    known = checkpoint((0, 3, [file(0), file(1)]), (3, 4, [file(3)]))
    known.forget(H + 1)

    assert ([], []) == planned(known, file(0), file(0, "mn2"), file(1), file(3))
    assert [file(1).name] == list(known.batches[0].files) and H + 1 == known.batches[0].begin


def test_grown_and_compressed():
    """
    What grew before it was compressed is read again, whatever its hour; what was only compressed is not.
    """
    known = checkpoint((0, 3, [file(0), file(1)]), (3, 4, [file(3)]))

    assert ([], []) == planned(known, file(0), file(1), file(3, size=20, suffix=".gz"))
    assert ([2], [(3, 4, 1)]) == planned(known, file(0), file(1), file(3, size=30, suffix=".gz"))
    assert ([1, 2], [(0, 3, 2), (3, 4, 1)]) == planned(
        known, file(0), file(1, size=30, suffix=".gz"), file(3)
    )


def test_compressed_is_known():
    """
    A compressed file is looked into once.
    """
    known = checkpoint((0, 1, [file(0)]), (1, 2, [file(1)]))
    looked = []
    files = [file(0, size=20, suffix=".gz"), file(1)]

    for _ in range(2):
        assert known.plan(files, lambda file: looked.append(file) or 100).is_empty

    assert files[:1] == looked


def test_late_file_takes_its_hours_back():
    """
    A file that came late takes its hours back, and all after them.
    """
    known = checkpoint((0, 2, [file(0), file(1)]), (2, 3, [file(2)]), (3, 4, [file(3)]))

    found = planned(known, file(0), file(1), file(2), file(2, "mn2"), file(3))

    assert ([2, 3], [(2, 3, 2), (3, 4, 1)]) == found


def test_late_by_months():
    """
    A file that came late by thousands of hours is planned for with work for each hour, not for each pair.
    """
    hours = [
        [LogFile(f"traffic-{node}-{hour:%Y%m%dT%H}.jsonl", "", 1) for node in ("mn1", "mn2")]
        for hour in HOURS
    ]
    known = Checkpoint({})
    for number, (file, _) in enumerate(hours, 1):
        known.add(Batch(number, file.hour, file.hour + 1, {file.name: 1}))
    plans = []

    number = calls_of(
        lambda: plans.append(
            known.plan([hours[0][0], hours[0][1], *[file for file, _ in hours[1:]]], unpacked)
        )
    )

    [plan] = plans

    assert known.batches == plan.gone
    assert [len(hours), 1] == [len(files) for _, _, files in plan.fresh]
    assert 500 * len(hours) > number


def test_late_but_gone():
    """
    If files that must be read again are gone, it says which, and what to do.
    """
    known = checkpoint((0, 1, [file(0)]), (1, 2, [file(1)]))

    with pytest.raises(Unreadable, match=r"traffic-mn1-20260731T01.jsonl and 0 more are gone.*--overwrite"):
        planned(known, file(0), file(0, "mn2"))


def test_checkpoint_is_read_as_it_was_written():
    """
    A checkpoint is read as it was written.
    """
    known = checkpoint((0, 1, [file(0)]), (1, 2, [file(1)]))
    known.sum_up(known.batches[:1])

    assert known == load(known.text())


@cache
def hourly(runs, size=1):
    """
    The checkpoint after so many hourly runs, each with a file of so many bytes.
    """
    known = Checkpoint({})
    for hour in range(H, H + runs):
        known.add(Batch(known.next, hour, hour + 1, {str(hour): size}))
        if batches := known.batches_to_sum_up():
            known.sum_up(batches)
        while batches := known.batches_to_merge():
            known.replace_batches(batches, Batch(known.next, batches[0].begin, batches[-1].end, {}))
        while parts := known.parts_to_merge():
            known.merge(parts)
    return known


def test_year_of_hourly_runs_is_few_batches_and_parts():
    """
    A year of hourly runs is at most two batches for each day and a hundred parts, without a gap.
    """
    known = hourly(365 * 24)

    assert 2 * 365 + 50 > len(known.batches) and 110 > len(known.parts)
    assert [batch.begin for batch in known.batches[1:]] == [batch.end for batch in known.batches[:-1]]
    assert [part.begin for part in known.parts] == [H, *[part.end for part in known.parts[:-1]]]
    assert 1 <= len(known.tail) <= 12
    numbers = [one.number for one in (*known.batches, *known.parts)]
    assert len(numbers) == len(set(numbers))


def test_large_hours_are_summed_up_at_once():
    """
    Hours with much traffic are summed up when they are over; only the newest is summarised by each run.
    """
    known = hourly(100, size=10**9)

    assert [known.batches[-1]] == known.tail


def test_part_begins_and_ends_with_a_batch():
    """
    Each part begins and ends where a batch does, so that a late file can take it apart.
    """
    known = hourly(100 * 24)

    ends = {batch.end for batch in known.batches}
    assert {part.end for part in known.parts} < ends


def test_late_file_within_a_part_tears_it():
    """
    What comes late in the middle of a part leaves those before it, and says which hours to sum up again.
    """
    known = hourly(365 * 24)
    part = max(known.parts, key=lambda part: part.end - part.begin)
    inside = next(batch.begin for batch in known.batches if batch.begin > part.begin)

    left, torn = known.before(inside)

    assert known.parts[: known.parts.index(part)] == left.parts and torn == part
    assert inside == left.batches[-1].end
    assert None is known.before(part.begin)[1]
