"""
Delivery times: the quantiles of the messages since the last look.
"""

from math import isnan

from twisted.trial.unittest import SynchronousTestCase

from msgnode.admin.reads.delivery_times import DeliveryTimes
from tests.support.admin_case import A, AdminCase, B
from tests.support.runtimes import dumps


class QuantileTests(SynchronousTestCase):
    """
    Bins by the bit length of microseconds.
    """

    def test_quantiles_are_of_the_messages_since_the_last_look(self) -> None:
        """
        As the upper bound of their bin; without a message there is none.
        """
        times, bins = DeliveryTimes(), [0] * 65
        bins[7], bins[10] = 98, 2
        self.assertEqual([128e-6, 1024e-6], times.look(bins, 0.5, 0.99))

        bins[14] += 1

        self.assertEqual([16384e-6, 16384e-6], times.look(bins, 0.5, 0.99))
        self.assertTrue(all(map(isnan, times.look(bins, 0.5, 0.99))))


class HistoryTests(AdminCase):
    """
    The built-in history.
    """

    def test_delivery_times_are_kept(self) -> None:
        """
        Null while there is no message.
        """
        history = self.net.operations.history
        history.sample()
        self.device.send(dumps({"id": 1, "type": "update", "from": f"{A}/x", "to": f"{B}/y"}))
        self.net.advance(5)
        history.sample()

        [*_, last] = self.get("series?names=delivery_p99")["series"]["delivery_p99"]
        self.assertIsNotNone(last)
        self.net.advance(5)
        history.sample()
        [*_, last] = self.get("series?names=delivery_p99")["series"]["delivery_p99"]
        self.assertIsNone(last)

    def test_a_point_is_of_all_messages_since_the_point_before(self) -> None:
        """
        Also one of five minutes, if only its first seconds had a message.
        """
        history = self.net.operations.history
        history.sample()
        self.device.send(dumps({"id": 1, "type": "update", "from": f"{A}/x", "to": f"{B}/y"}))
        for _ in range(60):
            self.net.advance(5)
            history.sample()

        [*_, last] = self.get("series?names=delivery_p50&step=300")["series"]["delivery_p50"]
        self.assertIsNotNone(last)
