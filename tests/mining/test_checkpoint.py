"""
Which hours are read, and which are read again.
"""

import json
import time
from datetime import datetime, timedelta

import pytest

pytest.importorskip("pyspark")

from msgnode.mining.pipeline.checkpoint import Batch, Checkpoint, load
from msgnode.mining.pipeline.log_files import LogFile, Unreadable


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


def planned(checkpoint, *files):
    """
    The numbers of the batches taken back, and the hours and names of what is read.
    """
    gone, fresh = checkpoint.plan(sorted(files, key=lambda file: (file.hour, file.stem)), unpacked)
    return [batch.number for batch in gone], [(b - H, e - H, len(some)) for b, e, some in fresh]


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


def test_grown():
    """
    The newest hour grew: it is read again, and what is new with it.
    """
    known = checkpoint((0, 3, [file(0), file(1)]), (3, 4, [file(3)]))

    assert ([2], [(3, 4, 1)]) == planned(known, file(0), file(1), file(3, size=150))
    assert ([2], [(3, 5, 2), (5, 6, 1)]) == planned(known, file(3, size=150), file(4), file(5))


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
        assert ([], []) == known.plan(files, lambda file: looked.append(file) or 100)

    assert files[:1] == looked


def test_late():
    """
    A file that came late takes its hours back, and all after them.
    """
    known = checkpoint((0, 2, [file(0), file(1)]), (2, 3, [file(2)]), (3, 4, [file(3)]))

    found = planned(known, file(0), file(1), file(2), file(2, "mn2"), file(3))

    assert ([2, 3], [(2, 3, 2), (3, 4, 1)]) == found


def test_late_by_months():
    """
    A file that came late by thousands of hours is planned for at once.
    """
    hours = [
        [LogFile(f"traffic-{node}-{hour:%Y%m%dT%H}.jsonl", "", 1) for node in ("mn1", "mn2")]
        for hour in HOURS
    ]
    known = Checkpoint({})
    for number, (file, _) in enumerate(hours, 1):
        known.add(Batch(number, file.hour, file.hour + 1, {file.name: 1}))
    begun = time.process_time()

    gone, fresh = known.plan([hours[0][0], hours[0][1], *[file for file, _ in hours[1:]]], unpacked)

    assert known.batches == gone
    assert [len(hours), 1] == [len(files) for _, _, files in fresh]
    assert 5 > time.process_time() - begun


def test_late_but_gone():
    """
    If files that must be read again are gone, it says which, and what to do.
    """
    known = checkpoint((0, 1, [file(0)]), (1, 2, [file(1)]))

    with pytest.raises(Unreadable, match=r"traffic-mn1-20260731T01.jsonl and 0 more are gone.*--overwrite"):
        planned(known, file(0), file(0, "mn2"))


def test_checkpoint_is_read_as_it_was_written_and_so_is_one():
    """
    A checkpoint is read as it was written, and so is one from before there were parts.
    """
    known = checkpoint((0, 1, [file(0)]))
    old = json.loads(known.text()) | {"format": 1}
    del old["parts"]

    assert known == load(known.text()) == load(json.dumps(old))


def hourly(runs, known=None):
    known = known or Checkpoint({})
    for _ in range(runs):
        begin = known.parts[-1].end if known.parts else H
        known.add(Batch(known.next, begin, begin + 1, {}))
        while crowd := known.crowd():
            known.merge(crowd)
    return known


def test_merged():
    """
    A year of hourly runs is about a hundred parts, without a gap; the last day's stay apart.
    """
    known = hourly(365 * 24)

    assert 365 * 24 == len(known.batches) and 110 > len(known.parts)
    assert [H, *[part.end for part in known.parts]] == [part.begin for part in known.parts] + [H + 365 * 24]
    assert {1} == {part.end - part.begin for part in known.parts[-24:]}
    assert len(known.parts) == len({part.number for part in known.parts})
    for part in known.parts[:-24]:
        assert part.end - part.begin < 1.1 * (known.parts[-1].end - part.end)


def test_torn():
    """
    What comes late in the middle of a part leaves those before it, and says which hours to sum up again.
    """
    known = hourly(365 * 24)
    part = known.parts[20]

    left, torn = known.before(part.begin + 3)

    assert known.parts[:20] == left.parts and torn == part
    assert part.begin + 3 == left.batches[-1].end
    assert (known.parts[:20], None) == (known.before(part.begin)[0].parts, known.before(part.begin)[1])
