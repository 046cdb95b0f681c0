"""
The audit log: its months.
"""

from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.storage.audit_log import AuditLog, mistakes
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
