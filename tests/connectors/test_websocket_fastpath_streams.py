"""
Random conversations look the same by the fast path and by Autobahn alone.
"""

from hypothesis import HealthCheck, given, settings
from twisted.trial.unittest import SynchronousTestCase

from tests.support.fastpath_pair import compare
from tests.support.fastpath_streams import options, reactions, scripts
from tests.support.fuzz import TIMES


class StreamTests(SynchronousTestCase):
    """
    Any stream, cut anyhow.
    """

    @settings(max_examples=40 * TIMES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(scripts(), options, reactions)
    def test_whatever_a_client_sends_and_whatever_the_server(
        self, script: list[tuple], options: dict, reactions: dict
    ) -> None:
        """
        Whatever a client sends and whatever the server does, after every read all is the same.
        """
        compare(script, options=options, reactions=reactions)
