"""
The audit log: its months.
"""

import resource
import signal

from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.protocol.errors import Rejected
from msgnode.storage.audit_log import MAX_RECENT, TAIL_BYTES, AuditLog, last_hash, mistakes, read_entries
from tests.support.fakes import directory

DAY = 86400.0


class AuditLogTests(SynchronousTestCase):
    """
    An audit log on disk.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.state = directory(self)
        self.log = AuditLog(self.state, self.clock.seconds, maybeDeferred, lambda: 40)

    def test_months_that_ended_long_ago_are_deleted_and_the_chain_still_holds(self) -> None:
        """
        With 40 days, a line of 14 March 1970 deletes January's, and leaves February's.
        """
        for day in (0, 35, 72):
            self.clock.advance(day * DAY - self.clock.seconds())
            self.successResultOf(self.log.write(action="undrain"))

        names = [path.name for path in sorted((self.state / "audit").iterdir())]
        self.assertEqual(["audit-197002.jsonl", "audit-197003.jsonl"], names)
        self.assertEqual((2, []), mistakes(self.state / "audit"))
        (self.state / "audit" / names[0]).unlink()
        self.assertEqual(
            (1, ["audit-197003.jsonl, line 1: lines or files before it were removed"]),
            mistakes(self.state / "audit"),
        )

    def test_the_newest_entries_of_before_the_start_are_known(self) -> None:
        """
        Of all months, in their order, and no more than are kept of a node that runs long.
        """
        for day, number in ((0, 5), (35, MAX_RECENT - 1)):
            self.clock.advance(day * DAY)
            for index in range(number):
                self.successResultOf(self.log.write(action="undrain", target=f"{day}-{index}"))
        [*_, path] = sorted((self.state / "audit").iterdir())
        with path.open("ab") as file:
            file.write(b'{"time": 0.0, "act')

        again = AuditLog(self.state, self.clock.seconds, maybeDeferred)
        self.successResultOf(again.restore())
        self.successResultOf(again.write(action="start"))

        self.assertEqual(MAX_RECENT, len(again.recent))
        self.assertEqual("35-0", again.recent[0]["target"])
        self.assertEqual([f"35-{MAX_RECENT - 2}", None], [each.get("target") for each in again.recent][-2:])

    def test_lines_removed_from_the_beginning_are_found(self) -> None:
        """
        The oldest file begins with the first line that the node ever wrote.
        """
        for action in ("undrain", "kick", "drain"):
            self.successResultOf(self.log.write(action=action))
        [path] = (self.state / "audit").iterdir()
        path.write_text("".join(path.read_text().splitlines(keepends=True)[2:]))

        self.assertEqual(
            (1, [f"{path.name}, line 1: lines or files before it were removed"]),
            mistakes(self.state / "audit"),
        )

    def test_a_long_line_breaks_no_chain(self) -> None:
        """
        Texts and lists are cut; and a node that starts finds the last line however long it is.
        """
        targets = ["x" * 2000] * 200
        self.successResultOf(self.log.write(action="kick", target=targets, before={"value": "y" * 200_000}))
        [(_, _, entry)] = read_entries(self.state / "audit")
        assert entry is not None
        self.assertEqual((100, "x" * 1000 + "..."), (len(entry["target"]), entry["target"][0]))
        self.assertLess(len(str(entry["before"])), 1100)
        [path] = (self.state / "audit").iterdir()
        self.assertGreater(path.stat().st_size, TAIL_BYTES)
        self.assertEqual(entry["hash"], last_hash(self.state / "audit"))

        again = AuditLog(self.state, self.clock.seconds, maybeDeferred, lambda: 40)
        self.successResultOf(again.write(action="undrain"))

        self.assertEqual((2, []), mistakes(self.state / "audit"))

    def test_a_clock_that_is_set_back_breaks_no_chain(self) -> None:
        """
        Lines of January go on in February's file, where the chain is.
        """
        now = [40 * DAY]
        log = AuditLog(self.state, lambda: now[0], maybeDeferred, lambda: 40)
        for day in (40, 10, 11, 80):
            now[0] = day * DAY
            self.successResultOf(log.write(action="undrain"))

        self.assertEqual((4, []), mistakes(self.state / "audit"))

    def test_a_clock_that_jumps_years_deletes_nothing(self) -> None:
        """
        It may be wrong; a month later it is believed.
        """
        now = [0.0]
        log = AuditLog(self.state, lambda: now[0], maybeDeferred, lambda: 40)
        for day in (0, 35, 5000, 5001):
            now[0] = day * DAY
            self.successResultOf(log.write(action="undrain"))
        self.assertEqual((4, []), mistakes(self.state / "audit"))

        now[0] = 5040 * DAY
        self.successResultOf(log.write(action="undrain"))

        self.assertEqual(3, mistakes(self.state / "audit")[0])

    def test_a_line_after_half_a_line_can_be_read(self) -> None:
        """
        A node that was killed, or a full disk, left the half: what an operator did then is not lost in it.
        """
        self.successResultOf(self.log.write(action="undrain"))
        [path] = (self.state / "audit").iterdir()
        with path.open("ab") as file:
            file.write(b'{"time": 0.0, "act')

        self.successResultOf(self.log.write(action="kick"))

        entries = [entry for _, _, entry in read_entries(self.state / "audit")]
        self.assertEqual(["undrain", None, "kick"], [entry and entry["action"] for entry in entries])
        lines, found = mistakes(self.state / "audit")
        self.assertEqual((3, 1), (lines, len(found)))

    def test_a_line_that_cannot_be_written_leaves_nothing_behind(self) -> None:
        """
        Its disk is full after a part of it: the log is as it was, and the chain holds.
        """
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGXFSZ, before)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, limit)
        self.successResultOf(self.log.write(action="undrain"))
        [path] = (self.state / "audit").iterdir()
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, limit[1]))
        self.failureResultOf(self.log.write(action="kick"), Rejected)
        self.flushLoggedErrors(OSError)
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        self.successResultOf(self.log.write(action="drain"))

        self.assertEqual((2, []), mistakes(self.state / "audit"))
