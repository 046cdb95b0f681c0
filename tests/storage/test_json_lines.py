"""
The files of the traffic log: batches, hours, torn lines, a full disk.
"""

import json
import os
import resource
from typing import Any

from twisted.internet.testing import EventLoggingObserver
from twisted.logger import LogLevel, globalLogPublisher

from msgnode.config.schema import ConfigError, StorageOptions
from msgnode.sessions.limits.disk_watermark import Watermark
from msgnode.storage.json_lines import HOUR_NANOSECONDS
from msgnode.storage.traffic_log import TrafficLog
from tests.storage.test_traffic_log import MORNING, NAME, TrafficTests

HOLE = 2**30  # bytes that the file begins with, so that no other file of this process meets its limit


class FileTests(TrafficTests):
    """
    Batches and files.
    """

    def test_batches(self) -> None:
        """
        Lines are collected, and written at the latest after a second.
        """
        self.write(1, 2)
        self.assertEqual([], list(self.directory.iterdir()))

        self.flush()

        self.assertEqual([1, 2], self.ids())

    def test_burst_of_lines_is_written_sooner(self) -> None:
        """
        A burst is written sooner.
        """
        self.write(*range(5000))

        self.assertEqual(5000, len(self.ids()))

    def test_line_goes_to_the_file_of_its_hour(self) -> None:
        """
        Each line goes to the file of its hour by UTC, also when a batch spans several.
        """
        self.write(1, 2)
        self.now += HOUR_NANOSECONDS - 1
        self.write(3)
        self.now += 1
        self.write(4)
        self.now += 15 * HOUR_NANOSECONDS
        self.write(5, 6)

        self.flush()

        self.assertEqual([1, 2, 3], self.ids())
        self.assertEqual([4], self.ids("traffic-test-20260101T10.jsonl"))
        self.assertEqual([5, 6], self.ids("traffic-test-20260102T01.jsonl"))

    def test_clock_jumps(self) -> None:
        """
        A wall clock that is set back loses nothing.
        """
        for id, hour in enumerate((0, 1, 0, 2, 1)):
            self.now = MORNING + hour * HOUR_NANOSECONDS
            self.write(id)

        self.flush()

        self.assertEqual([0, 2], self.ids())
        self.assertEqual([1, 4], self.ids("traffic-test-20260101T10.jsonl"))

    def test_continues(self) -> None:
        """
        A node that starts again within the hour continues the file.
        """
        self.write(1)
        self.stop()

        self.start()
        self.write(2)
        self.flush()

        self.assertEqual([1, 2], self.ids())

    def test_when_the_node_stops_everything_is_written(self) -> None:
        """
        When the node stops, everything is written and nothing ticks on.
        """
        self.write(1)

        self.stop()

        self.assertEqual(([1], []), (self.ids(), self.clock.getDelayedCalls()))

    def test_torn_line_is_closed_at_the_next_start(self) -> None:
        """
        A line that a killed node left torn is closed at the next start; nothing else is touched.
        """
        self.stop()
        path = self.directory / NAME
        for before, after in (
            (b'{"id":1}\n{"id":', b'{"id":1}\n{"id":\n'),
            (b'{"id":1}\n', b'{"id":1}\n'),
            (b"", b""),
        ):
            path.write_bytes(before)

            self.start()
            self.stop()

            self.assertEqual(after, path.read_bytes())

    def test_torn_before_the_clock_was_set_back(self) -> None:
        """
        Also in a file that is not the newest: a line begins on a line of its own.
        """
        self.stop()
        (self.directory / NAME).write_bytes(b'{"id":')
        (self.directory / "traffic-test-20260103T09.jsonl").write_bytes(b"")
        self.start()

        self.write(1)
        self.flush()

        self.assertEqual(b'{"id":', (self.directory / NAME).read_bytes().split(b"\n")[0])
        self.assertEqual(2, len((self.directory / NAME).read_bytes().splitlines()))

    def test_torn_of_another(self) -> None:
        """
        Another node's files in the same directory are its own, and the newest of ours is closed.
        """
        self.stop()
        names = ("traffic-other-20260101T09.jsonl", "traffic-test-20260101T08.jsonl", NAME)
        for name in names:
            (self.directory / name).write_bytes(b"torn")

        self.start()

        self.assertEqual(
            [b"torn", b"torn", b"torn\n"], [(self.directory / name).read_bytes() for name in names]
        )

    def test_nodes_name_is_in_the_file_name(self) -> None:
        """
        The node's name stands in the file's name, without what a file's name cannot bear.
        """
        self.stop()
        self.start("a/b c:1")
        self.write(1)
        self.flush()

        self.assertEqual([1], self.ids("traffic-a_b_c_1-20260101T09.jsonl"))
        self.assertEqual("a/b c:1", self.lines()[0]["node"])

    def test_unusable(self) -> None:
        """
        A directory that cannot be written in stops the start, with the place and the way out.
        """
        self.stop()
        place = self.directory / "file"
        place.write_text("")
        log = TrafficLog(str(place / "below"), "test", self.clock)

        why = self.assertRaises(ConfigError, log.startService)

        self.assertIn(f"traffic: cannot write in {place}/below", str(why))
        self.assertIn("none", str(why))


class FullTests(TrafficTests):
    """
    The disk is full: lines are lost, counted and told; messages never wait.
    """

    def setUp(self) -> None:
        super().setUp()
        self.events = EventLoggingObserver.createWithCleanup(self, globalLogPublisher)

    def told(self) -> list[Any]:
        return [
            event["log_level"]
            for event in self.events
            if event.get("log_namespace") == "msgnode.storage.traffic_log"
        ]

    def test_one_event_when_it_begins_one_when_it_is_over(self) -> None:
        """
        One event when it begins, one when it is over, and the count of what was lost.
        """
        (self.directory / NAME).symlink_to("/dev/full")
        for n in range(3):
            self.write(n, n)
            self.flush()
        self.assertEqual((6, [LogLevel.error]), (self.log.lost, self.told()))

        (self.directory / NAME).unlink()
        self.write(7)
        self.flush()

        self.assertEqual(([7], 6), (self.ids(), self.log.lost))
        self.assertEqual([LogLevel.error, LogLevel.info], self.told())
        self.assertEqual(6, self.events[-1]["lost"])

    def test_while_the_disk_is_low_nothing_is_written(self) -> None:
        """
        While the disk is low nothing is written, and what is lost is counted and told once.
        """
        free = [0]
        low = Watermark(self.directory, lambda: 1, lambda directory: (100, 0, free[0]))
        self.log.watermark = low
        low.look()
        for n in range(3):
            self.write(n)
            self.flush()
        self.assertEqual([], list(self.directory.iterdir()))
        self.assertEqual((3, [LogLevel.error]), (self.log.lost, self.told()))

        free[0] = 50
        low.look()
        self.write(7)
        self.flush()

        self.assertEqual(([7], 3), (self.ids(), self.log.lost))
        self.assertEqual([LogLevel.error, LogLevel.info], self.told())

    def test_bytes_per_hour(self) -> None:
        """
        A file takes no more than the operator allows for an hour; the next hour has its own.
        """
        self.stop()
        options = StorageOptions(max_traffic_bytes_per_hour=600)
        self.log = TrafficLog(str(self.directory), "test", self.clock, lambda: self.now, options=options)
        self.log.startService()
        for n in range(10):
            self.write(n)
            self.flush()
        self.now += HOUR_NANOSECONDS
        self.write(10)
        self.flush()

        self.assertEqual(10, len(self.ids()) + self.log.lost)
        self.assertLessEqual((self.directory / NAME).stat().st_size, 600)
        self.assertEqual([10], self.ids("traffic-test-20260101T10.jsonl"))
        self.assertEqual([LogLevel.error, LogLevel.info], self.told())

    def test_when_it_happens_again_it_is_told_again(self) -> None:
        """
        When it happens again it is told again.
        """
        for _ in range(2):
            (self.directory / NAME).symlink_to("/dev/full")
            self.write(1)
            self.flush()
            (self.directory / NAME).unlink()
            self.write(2)
            self.flush()
            (self.directory / NAME).unlink()
            self.log._files.close()  # as when the hour changes

        self.assertEqual((2, [LogLevel.error, LogLevel.info] * 2), (self.log.lost, self.told()))

    def test_half_written_line_is_closed_and_counted_lost(self) -> None:
        """
        A line of which only a part had room is closed when there is room again, and counted as lost.
        """
        path = self.directory / NAME
        path.touch()
        os.truncate(path, HOLE - 1)
        with path.open("ab") as file:
            file.write(b"\n")
        self.write(*range(10))
        self.flush()
        size = (path.stat().st_size - HOLE) // 10
        most = HOLE + 13 * size + size // 2
        self.write(*range(10, 20))

        limited(most, self.flush)
        self.write(98, 99)
        limited(most, self.flush)
        self.write(20)
        self.flush()

        with path.open("rb") as written:
            written.seek(HOLE)
            lines = written.read().splitlines()
        whole = [line for line in lines if line.endswith(b"}")]
        self.assertEqual(
            ([*range(13), 20], 1), ([json.loads(line)["id"] for line in whole], len(lines) - len(whole))
        )
        self.assertEqual((9, [LogLevel.error, LogLevel.info]), (self.log.lost, self.told()))

    def test_directory_gone(self) -> None:
        """
        When the directory is taken away it goes on as soon as there is one again.
        """
        self.directory.rename(self.directory.with_name("elsewhere"))
        self.write(1)
        self.flush()
        self.assertEqual((1, [LogLevel.error]), (self.log.lost, self.told()))

        self.directory.mkdir()
        self.write(2)
        self.flush()

        self.assertEqual(([2], 1), (self.ids(), self.log.lost))

    def test_messages_pass(self) -> None:
        """
        Messages are carried as ever.
        """
        (self.directory / NAME).symlink_to("/dev/full")
        a = self.node.client("runtime://example.org/a")
        for n in range(6000):
            a.post(a.runtime, id=n)

        self.assertEqual(list(range(6000)), [message["id"] for message in a.got])


def limited(size: int, act: Any) -> None:
    """
    Do it while no file may grow beyond `size` bytes.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        act()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
