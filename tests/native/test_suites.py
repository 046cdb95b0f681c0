"""
What holds on every connector holds where the compiled data plane reads the sockets.
"""

from typing import Any

import pytest
from twisted.trial.unittest import SynchronousTestCase

native = pytest.importorskip("msgnode_native", reason="msgnode_native is not built")

from tests.connectors.test_connectors import StreamTests  # noqa: E402
from tests.support.plane_network import PlaneNetwork  # noqa: E402
from tests.support.runtimes import TCPRuntime, TLSRuntime, WebSocketRuntime  # noqa: E402
from tests.support.suite_bounds import DefaultLimit  # noqa: E402
from tests.support.suite_refusals import Malformed, NotUTF8, Refused  # noqa: E402


class OverPlane:
    """
    A suite whose node carries messages by the compiled data plane.
    """

    net: PlaneNetwork

    def restart(self: Any, **sections: Any) -> None:
        self.net = PlaneNetwork(native, **sections)
        self.addCleanup(self.net.end)


class WebSocketTests(OverPlane, StreamTests, DefaultLimit, SynchronousTestCase):
    connect = WebSocketRuntime
    closes = True


class WebSocketMalformedTests(OverPlane, Malformed, SynchronousTestCase):
    connect = WebSocketRuntime
    tells_unreadable = None


class WebSocketRefusedTests(OverPlane, Refused, SynchronousTestCase):
    connect = WebSocketRuntime


class TLSTests(OverPlane, StreamTests, SynchronousTestCase):
    connect = TLSRuntime
    closes = True


class TLSMalformedTests(WebSocketMalformedTests):
    connect = TLSRuntime


class TLSRefusedTests(OverPlane, Refused, SynchronousTestCase):
    connect = TLSRuntime


class LinesTests(OverPlane, StreamTests, DefaultLimit, SynchronousTestCase):
    connect = TCPRuntime


class LinesMalformedTests(OverPlane, NotUTF8, SynchronousTestCase):
    connect = TCPRuntime


class LinesRefusedTests(OverPlane, Refused, SynchronousTestCase):
    connect = TCPRuntime
