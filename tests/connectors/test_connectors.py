"""
One suite of behaviours, run over every connector.

The behaviours are in suite_*.py: how sessions are attached and end, how they
are opened at mn:/session, how messages find their way, what is refused and
how, what bounds hold, and what policies forbid.
"""

from twisted.trial.unittest import SynchronousTestCase

from tests.support.poll_runtime import PollRuntime
from tests.support.runtimes import (
    CRLFRuntime,
    M1Runtime,
    M2Runtime,
    PlainRuntime,
    TCPRuntime,
    TLSRuntime,
    WebSocketRuntime,
)
from tests.support.socketio_runtime import (
    NewSocketPollRuntime,
    NewSocketWebSocketRuntime,
    PagePollRuntime,
    SocketPollRuntime,
    SocketWebSocketRuntime,
    UpgradedRuntime,
)
from tests.support.suite_bounds import Deaf, DefaultLimit, Limits, Slow
from tests.support.suite_handshake import OneConnection, Opening
from tests.support.suite_policy import Enforced
from tests.support.suite_refusals import Malformed, NotUTF8, Refused
from tests.support.suite_routing import Delivery, Feeds, Secrets
from tests.support.suite_sessions import Attachment, Ends


class ConnectorTests(Attachment, Ends, Delivery, Feeds, Secrets, Limits, Slow, Enforced):
    """
    What holds on every connector.
    """


class StreamTests(Opening, OneConnection, Deaf, ConnectorTests):
    """
    What holds where one connection carries everything, and mn:/session is spoken.
    """


# Malformed and Refused start with two clients, and so are classes of their own.


class WebSocketTests(StreamTests, DefaultLimit, SynchronousTestCase):
    connect = WebSocketRuntime
    closes = True


class WebSocketMalformedTests(Malformed, SynchronousTestCase):
    connect = WebSocketRuntime
    tells_unreadable = None


class WebSocketRefusedTests(Refused, SynchronousTestCase):
    connect = WebSocketRuntime


class PlainTests(StreamTests, DefaultLimit, SynchronousTestCase):
    connect = PlainRuntime
    closes = True


class PlainMalformedTests(WebSocketMalformedTests):
    connect = PlainRuntime


class PlainRefusedTests(Refused, SynchronousTestCase):
    connect = PlainRuntime


class TLSTests(StreamTests, SynchronousTestCase):
    connect = TLSRuntime
    closes = True


class TLSMalformedTests(WebSocketMalformedTests):
    connect = TLSRuntime


class TLSRefusedTests(Refused, SynchronousTestCase):
    connect = TLSRuntime


class M2Tests(ConnectorTests, SynchronousTestCase):
    connect = M2Runtime
    closes = True


class M2MalformedTests(WebSocketMalformedTests):
    connect = M2Runtime


class M2RefusedTests(Refused, SynchronousTestCase):
    connect = M2Runtime


class M1Tests(ConnectorTests, SynchronousTestCase):
    connect = M1Runtime
    closes = True


class M1MalformedTests(WebSocketMalformedTests):
    connect = M1Runtime


class M1RefusedTests(Refused, SynchronousTestCase):
    connect = M1Runtime


class TCPTests(StreamTests, DefaultLimit, SynchronousTestCase):
    connect = TCPRuntime


class TCPMalformedTests(NotUTF8, SynchronousTestCase):
    connect = TCPRuntime


class TCPRefusedTests(Refused, SynchronousTestCase):
    connect = TCPRuntime


class CRLFTests(StreamTests, SynchronousTestCase):
    connect = CRLFRuntime


class CRLFMalformedTests(NotUTF8, SynchronousTestCase):
    connect = CRLFRuntime


class CRLFRefusedTests(Refused, SynchronousTestCase):
    connect = CRLFRuntime


class PollTests(ConnectorTests, Opening, DefaultLimit, SynchronousTestCase):
    connect = PollRuntime

    def assertTold(self, deaf: PollRuntime) -> None:
        # No request waits that could be told; the next one finds the newest messages.
        self.assertEqual(list(range(80, 100)), [message["id"] for message in deaf.take()][-20:])
        self.assertIsNotNone(self.net.node.sessions.get(deaf.url).connection)


class PollMalformedTests(NotUTF8, SynchronousTestCase):
    connect = PollRuntime
    reads_ahead = True


class PollRefusedTests(Refused, SynchronousTestCase):
    connect = PollRuntime


class SocketPollTests(ConnectorTests, Opening, OneConnection, DefaultLimit, SynchronousTestCase):
    connect = SocketPollRuntime
    closes = True

    def test_message_arrives_as_it_was_written(self) -> None:
        """
        A message arrives as it was written, but that what is not ASCII is escaped (engineio.py says why).
        """
        receiver, sender = self.client(), self.client("b")
        data = r'{"id":18446744073709551617,"type":"t","to":"TO","from":"ż😀\u0041","body":{"a": {},"b":"é"}}'
        data = data.replace("TO", receiver.url)

        sender.send(data.encode())
        self.net.pump()

        escaped = data.replace("ż😀", r"\u017c\ud83d\ude00").replace("é", r"\u00e9")
        self.assertEqual([escaped.encode()], receiver.raw)


class PagePollTests(SocketPollTests):
    connect = PagePollRuntime


class SocketPollMalformedTests(WebSocketMalformedTests):
    connect = SocketPollRuntime


class SocketPollRefusedTests(Refused, SynchronousTestCase):
    connect = SocketPollRuntime


class NewSocketPollTests(ConnectorTests, Opening, OneConnection, SynchronousTestCase):
    connect = NewSocketPollRuntime
    closes = True


class SocketWebSocketTests(StreamTests, DefaultLimit, SynchronousTestCase):
    connect = SocketWebSocketRuntime
    closes = True


class SocketWebSocketMalformedTests(WebSocketMalformedTests):
    connect = SocketWebSocketRuntime


class SocketWebSocketRefusedTests(Refused, SynchronousTestCase):
    connect = SocketWebSocketRuntime


class NewSocketWebSocketTests(StreamTests, SynchronousTestCase):
    connect = NewSocketWebSocketRuntime
    closes = True


class UpgradedTests(StreamTests, SynchronousTestCase):
    connect = UpgradedRuntime
    closes = True
