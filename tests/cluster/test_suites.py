"""
What holds on every connector holds where the two clients are at two nodes of one domain.
"""

from twisted.trial.unittest import SynchronousTestCase

from tests.connectors.test_connectors import ConnectorTests, StreamTests
from tests.support.network_pair import OverTwoNodes
from tests.support.poll_runtime import PollRuntime
from tests.support.runtimes import M1Runtime, M2Runtime, TCPRuntime, TLSRuntime, WebSocketRuntime
from tests.support.socketio_runtime import NewSocketPollRuntime, SocketPollRuntime, SocketWebSocketRuntime
from tests.support.suite_bounds import DefaultLimit
from tests.support.suite_handshake import OneConnection, Opening
from tests.support.suite_refusals import Malformed, NotUTF8, Refused


class WebSocketTests(OverTwoNodes, StreamTests, DefaultLimit, SynchronousTestCase):
    connect = WebSocketRuntime
    closes = True


class WebSocketMalformedTests(OverTwoNodes, Malformed, SynchronousTestCase):
    connect = WebSocketRuntime
    tells_unreadable = None


class WebSocketRefusedTests(OverTwoNodes, Refused, SynchronousTestCase):
    connect = WebSocketRuntime


class TLSTests(OverTwoNodes, StreamTests, SynchronousTestCase):
    connect = TLSRuntime
    closes = True


class M2Tests(OverTwoNodes, ConnectorTests, SynchronousTestCase):
    connect = M2Runtime
    closes = True


class M2RefusedTests(OverTwoNodes, Refused, SynchronousTestCase):
    connect = M2Runtime


class M1Tests(OverTwoNodes, ConnectorTests, SynchronousTestCase):
    connect = M1Runtime
    closes = True


class LinesTests(OverTwoNodes, StreamTests, DefaultLimit, SynchronousTestCase):
    connect = TCPRuntime


class LinesMalformedTests(OverTwoNodes, NotUTF8, SynchronousTestCase):
    connect = TCPRuntime


class LinesRefusedTests(OverTwoNodes, Refused, SynchronousTestCase):
    connect = TCPRuntime


class PollTests(OverTwoNodes, ConnectorTests, Opening, DefaultLimit, SynchronousTestCase):
    connect = PollRuntime

    def assertTold(self, deaf: PollRuntime) -> None:
        self.assertEqual(list(range(80, 100)), [message["id"] for message in deaf.take()][-20:])


class PollRefusedTests(OverTwoNodes, Refused, SynchronousTestCase):
    connect = PollRuntime


class SocketPollTests(
    OverTwoNodes, ConnectorTests, Opening, OneConnection, DefaultLimit, SynchronousTestCase
):
    connect = SocketPollRuntime
    closes = True


class NewSocketPollTests(OverTwoNodes, ConnectorTests, Opening, OneConnection, SynchronousTestCase):
    connect = NewSocketPollRuntime
    closes = True


class SocketWebSocketTests(OverTwoNodes, StreamTests, DefaultLimit, SynchronousTestCase):
    connect = SocketWebSocketRuntime
    closes = True


class SocketWebSocketRefusedTests(OverTwoNodes, Refused, SynchronousTestCase):
    connect = SocketWebSocketRuntime
