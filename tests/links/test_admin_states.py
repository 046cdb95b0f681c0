"""
The administrative states of domains.
"""

import errno
import json
import os

from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.schema import ConfigError
from msgnode.links.admin_states import FILE, MAX_DOMAINS, AdminStates
from msgnode.protocol.errors import Rejected
from tests.support.fakes import directory


class AdminStatesTests(SynchronousTestCase):
    """
    A table with its file.
    """

    def setUp(self) -> None:
        self.where = directory(self)

    def test_orders_stay_in_force_over_restarts(self) -> None:
        """
        A domain that is enabled again is not in the file.
        """
        states = AdminStates(self.where)
        for domain, state in (("b.example", "banned"), ("c.example", "paused"), ("c.example", "enabled")):
            states.set(domain, state)

        again = AdminStates(self.where)

        self.assertEqual(["b.example"], list(again))
        self.assertEqual(
            ["banned", "enabled", "enabled"], [again.of(f"{name}.example") for name in ("b", "c", "x")]
        )
        self.assertEqual(0o600, (self.where / FILE).stat().st_mode & 0o777)

    def test_without_a_state_directory_orders_end_with_the_process(self) -> None:
        """
        In memory they hold.
        """
        states = AdminStates(None)
        states.set("b.example", "draining")

        self.assertEqual("draining", states.of("b.example"))
        self.assertEqual("enabled", AdminStates(None).of("b.example"))

    def test_a_damaged_file_stops_the_start(self) -> None:
        """
        A banned domain must not come in because of it.
        """
        for text in (
            '{"b.example": "ban',
            "[]",
            '{"b.example": "bannd"}',
            '{"b.example": ["banned"]}',
            "\xff",
            "null",
        ):
            (self.where / FILE).write_text(text, "latin-1")
            with self.assertRaisesRegex(ConfigError, "links.json is damaged"):
                AdminStates(self.where)

    def test_an_order_that_cannot_be_written_is_refused_and_changes_nothing(self) -> None:
        """
        The operator is answered 503; a half-written file is never read.
        """
        states = AdminStates(self.where)
        states.set("b.example", "paused")
        (self.where / f"{FILE}.new").mkdir()

        with self.assertRaises(Rejected) as refused:
            states.set("b.example", "enabled")

        self.assertEqual((503, "disk"), (refused.exception.code, refused.exception.reason))
        self.assertIn(os.strerror(errno.EISDIR), str(refused.exception))
        self.assertEqual("paused", states.of("b.example"))
        self.assertEqual("paused", AdminStates(self.where).of("b.example"))

    def test_orders_are_bounded(self) -> None:
        """
        Of those that are there, each may still be changed.
        """
        most = {f"d{number}.example": "banned" for number in range(MAX_DOMAINS)}
        (self.where / FILE).write_text(json.dumps(most))
        states = AdminStates(self.where)

        with self.assertRaisesRegex(Rejected, "orders about 10000 domains"):
            states.set("one.more.example", "banned")
        states.set("d7.example", "enabled")
        states.set("one.more.example", "banned")

        self.assertEqual(MAX_DOMAINS, len(list(states)))
