"""
One batch: the count of a message and all that it causes are on disk together, whatever turn it is handled in.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from msgnode.transport.cork import Cork, Outlet
from tests.support.durable import SM, DurableNode
from tests.support.fakes import Client

TOPIC = "comm://example.org/1/changes"


class Leaving(Client):
    """
    A client behind an outlet, as a connector has it; `watch` is called before bytes leave.
    """

    def __init__(self, node: DurableNode, cork: Cork) -> None:
        self.watch = lambda: None
        transport = StringTransport()
        transport.write = self._leave
        self.outlet = Outlet(transport, cork)
        super().__init__(node)

    def _leave(self, data: bytes) -> None:
        self.watch()
        self.raw.append(data)

    def send(self, data: bytes) -> None:
        self.outlet.write(data)


class OneBatchTests(SynchronousTestCase):
    """
    A sender and two that observe it; the node is killed when the first byte of a message leaves.
    """

    def setUp(self) -> None:
        place = TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.directory, self.snapshot = Path(place.name) / "state", Path(place.name) / "snapshot"
        self.node = DurableNode(self.directory)
        cork = Cork(self.node.settle)
        self.node.use_cork(cork)
        self.sender, *self.observers = (Leaving(self.node, cork) for _ in range(3))
        for number, client in enumerate((self.sender, *self.observers)):
            client.tell(self.open(number, resume=True))
        for number, client in enumerate(self.observers, 1):
            runtime = f"runtime://example.org/{number}"
            body = {"resources": [TOPIC]}
            client.tell({"id": 2, "type": "subscribe", "from": runtime, "to": SM, "body": body})
        self.node.clock.advance(1)
        self.opened = [client.got[0]["body"] for client in (self.sender, *self.observers)]

    def open(self, number: int, kind: str = "open", token: str = "", **body: Any) -> dict[str, Any]:
        from_ = f"runtime://example.org/{number}{token}"
        return {"id": 1, "type": kind, "from": from_, "to": "mn:/session", "body": body}

    def after_kill(self, number: int, received: int) -> list[dict[str, Any]]:
        """
        What this client is given by the node that started again.
        """
        known = self.opened[number]
        resume = {"epoch": known["resume"]["epoch"], "received": received}
        client = Client(self.restarted)
        client.tell(self.open(number, "re-open", f"/{known['runtimeToken']}", resume=resume))
        return client.got

    def test_message_that_waited_for_its_turn_is_on_disk_for_all_before_it_leaves(self) -> None:
        """
        A message waited behind another one of its sender. When its first byte leaves, it is on disk for every
        recipient, and only with that it counts as received: a node that is killed loses it for nobody.
        """
        for client in self.observers:
            client.watch = lambda: self.snapshot.exists() or shutil.copytree(self.directory, self.snapshot)
        work = self.node.input_order.hold(self.sender)
        update = {"id": 7, "type": "update", "from": "runtime://example.org/0", "to": TOPIC}
        self.sender.tell(update)
        self.assertFalse(self.snapshot.exists())

        self.node.input_order.release(work)
        self.node.clock.advance(0)
        self.restarted = DurableNode(self.snapshot)

        self.assertEqual(1, self.after_kill(0, 0)[0]["body"]["resume"]["received"])
        for number in (1, 2):
            given = self.after_kill(number, 1)
            self.assertEqual([7], [message["id"] for message in given[1:]])
