"""
One message to very many: what it takes of memory, and of one turn of the event loop.
"""

import json
import tracemalloc

from twisted.trial.unittest import SynchronousTestCase

from msgnode.connectors.cork import Cork
from msgnode.connectors.tcp import LineConnection, LineFactory
from msgnode.routes import SUBSCRIBED
from tests.fakes import MemoryNode
from tests.lane_wire import Socket, tcp_server

KIB = 1024
MIB = 1024 * KIB


class MemoryTests(SynchronousTestCase):
    """
    Lines over Twisted's own TCP transports, to clients that do not read.
    """

    def setUp(self) -> None:
        self.node = MemoryNode()
        self.cork = Cork(self.node.settle)
        self.factory = LineFactory(self.node, self.cork, self.node.clock)

    def connect(self, name: str, room: int = 10_000) -> LineConnection:
        line = self.factory.buildProtocol(None)
        line.makeConnection(tcp_server(Socket(room), line))
        self.tell(line, type="open", to="mn:/session", **{"from": f"runtime://example.org/{name}"})
        return line

    def tell(self, line: LineConnection, **message: object) -> None:
        line.dataReceived(json.dumps({"id": 1, **message}).encode() + b"\n")

    def peak(self, line: LineConnection, to: object, size: int) -> int:
        """
        The most memory that it takes to carry such a message.
        """
        data = {"type": "update", "to": to, "from": "runtime://example.org/s", "body": {"value": "x" * size}}
        tracemalloc.start()
        try:
            self.tell(line, **data)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def test_list(self) -> None:
        """
        A message to a list, each address of which the same clients listen to, makes one copy an address.
        """
        addresses = [f"hyperty://example.org/{number}" for number in range(200)]
        for number in range(20):
            self.connect(str(number))
            session = self.node.sessions.get(f"runtime://example.org/{number}")
            assert session is not None
            for address in addresses:
                self.node.routes.bind(address, session, SUBSCRIBED)
        sender = self.connect("s")

        self.assertLess(self.peak(sender, addresses, 61 * KIB), 200 * 2 * 61 * KIB + 20 * MIB)

    def test_long(self) -> None:
        """
        A long message to many who do not read it is in memory a few times, not once for each.
        """
        for number in range(50):
            self.connect(str(number))
            session = self.node.sessions.get(f"runtime://example.org/{number}")
            assert session is not None
            self.node.routes.bind("a:b", session, SUBSCRIBED)
        sender = self.connect("s")

        self.assertLess(self.peak(sender, "a:b", 4 * MIB), 10 * 4 * MIB)
