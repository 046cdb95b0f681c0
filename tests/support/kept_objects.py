"""
A node in memory that keeps objects, and runtimes that publish and observe them.
"""

from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.storage.objects.journal import ObjectJournal
from msgnode.storage.objects.segments import Segments
from tests.support.fakes import Client, MemoryNode, directory

OBJECT = "comm://example.org/rooms/1"
CHANGES, CHILDREN, HISTORY = f"{OBJECT}/changes", f"{OBJECT}/children/", f"{OBJECT}/history"
SM = "domain://msg-node.example.org/sm"


class KeptCase(SynchronousTestCase):
    """
    A node that keeps the rooms of example.org, with a reporter and an observer.
    """

    def setUp(self) -> None:
        self.directory = directory(self)
        self.start()

    def start(self, segments: Segments | None = None, **sections: Any) -> None:
        objects = {"keep": ["comm://example.org/rooms/*"], **sections.pop("objects", {})}
        self.node = MemoryNode(state=str(self.directory), objects=objects, **sections)
        self.journal = self.open(segments)
        self.addCleanup(self.journal.segments.close)
        self.node.objects.keep(self.journal)
        self.ann = self.node.client("runtime://example.org/ann")
        self.bob = self.node.client("runtime://example.org/bob")

    def open(self, segments: Segments | None = None) -> ObjectJournal:
        journal = ObjectJournal(
            Path(self.directory, "objects"),
            self.node.config.objects,
            wall=self.node.wall,
            segments=segments,
        )
        journal.open()
        return journal

    def publish(self, to: str = CHANGES, type: str = "update", **body: Any) -> None:
        self.ann.post(to, type, body=body)

    def read(self, reader: Client | None = None, to: str = HISTORY, **body: Any) -> dict[str, Any]:
        """
        Read the history; the body of the answer, when all its slices are done.
        """
        reader = reader or self.bob
        reader.tell({"id": 7, "type": "read", "from": f"{reader.runtime}/x", "to": to, "body": body})
        self.turns()
        return reader.take()[-1]["body"]

    def turns(self, number: int = 50) -> None:
        for _ in range(number):
            self.node.clock.turn()
            self.node.settle()

    def pass_seconds(self, seconds: int) -> None:
        """
        Let this time pass, with many turns in it.
        """
        for _ in range(50 * seconds):
            self.node.clock.advance(0.02)
            self.node.settle()

    def subscribe_since(self, since: Any, *addresses: str, by: Client | None = None) -> list[dict[str, Any]]:
        """
        Subscribe with `since`; all that came then.
        """
        client = by or self.bob
        body = {"resources": list(addresses or (CHANGES, CHILDREN)), "since": since}
        client.tell({"id": 5, "type": "subscribe", "from": f"{client.runtime}/sm", "to": SM, "body": body})
        self.turns()
        return client.take()
