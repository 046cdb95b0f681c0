"""
A disk that fills up and has room again at the worst moments.
"""

import json
from typing import Any

from twisted.internet.task import Cooperator
from twisted.trial.unittest import SynchronousTestCase

from msgnode import spool
from msgnode.closing import FULL
from msgnode.connectors.cork import Cork, Outlet
from msgnode.segment import segments
from msgnode.sweep import Sweep
from tests.durable import Counting, DurableNode, Refusing, Wire
from tests.fakes import directory

ANN, BOB, CLEO = ("runtime://example.org/" + name for name in ("ann", "bob", "cleo"))


class Transport:
    """
    What has left the process.
    """

    def __init__(self) -> None:
        self.out: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.out.append(data)


class Corked(Wire):
    """
    A connection as the connectors have it: what is sent is held until the cork comes out.
    """

    def __init__(self, node: Any, cork: Cork) -> None:
        self.transport = Transport()
        self.outlet = Outlet(self.transport, cork)
        super().__init__(node)

    def send(self, data: bytes) -> None:
        if self.lost is None:
            self.outlet.write(data)

    def drop(self) -> None:
        self.outlet.forget()
        self.lose(FULL)


class DiskCase(SynchronousTestCase):
    def make(self, **session: Any) -> None:
        self.node: Any = DurableNode(directory(self), session={"unused_expiry": 3600, **session})
        self.addCleanup(lambda: (self.node.spool.close(), self.node.store.shut()))
        self.disk = self.node.spool._write = Refusing()
        self.ann, self.bob, self.cleo = (Counting(self.node, name) for name in (ANN, BOB, CLEO))
        for client in (self.ann, self.bob, self.cleo):
            client.connect()

    def kill(self) -> None:
        self.node = self.node.killed()
        for client in (self.ann, self.bob, self.cleo):
            client.node, client.wire = self.node, None

    def ids(self, client: Counting) -> list[Any]:
        client.connect()
        client.arrive()
        return [message["id"] for message in client.got]


class AnewTests(DiskCase):
    """
    So much could not be written that it was given up: all is written anew, to a file that counts at its end.
    """

    def overrun(self) -> None:
        self.make()
        self.patch(spool, "MOST_HELD_BACK", 10_000)
        self.sweep = Sweep(self.node.spool, self.node.sessions, self.node.clock)
        # One session in a turn, as where each has much to write.
        self.sweep._cooperator = Cooperator(
            lambda: lambda: True, lambda call: self.node.clock.callLater(0.02, call), started=False
        )
        self.sweep.startService()
        self.bob.lose()
        self.cleo.lose()
        self.node.clock.advance(2)
        self.ann.arrive()
        self.disk.full = True
        for number in range(60):
            for to in (BOB, CLEO):
                self.ann.send(id=number, type="update", to=to, body={"v": "x" * 300})
            self.node.clock.advance(1)
        self.assertTrue(self.node.spool.overrun)
        self.disk.full = False

    def begin(self) -> None:
        while not self.node.spool.anew:
            self.node.clock.advance(0.01)
        self.node.clock.advance(0.021)

    def test_killed_meanwhile(self) -> None:
        """
        Killed in the middle of it, the node has acknowledged nothing that it forgot.
        """
        self.overrun()
        self.begin()
        self.ann.send(id="more", type="update", to="runtime://example.org/nobody")
        self.ann.arrive()
        self.assertEqual(121, len(self.ann.kept))

        self.kill()
        self.ann.connect()

        self.assertEqual(list(range(60)), self.ids(self.bob))
        self.assertEqual(list(range(60)), self.ids(self.cleo))

    def test_finished(self) -> None:
        """
        At its end it counts, what was before is void, and senders are told.
        """
        self.overrun()
        for _ in range(40):
            self.node.clock.advance(1)
        self.ann.arrive()
        self.assertEqual([], self.ann.kept)
        self.assertIsNone(self.node.spool.failing)
        self.assertEqual(1, len(segments(self.node.directory / "spool")))

        self.kill()

        self.assertEqual(list(range(60)), self.ids(self.bob))

    def test_stopped_meanwhile(self) -> None:
        """
        A node that stops then finishes it first.
        """
        self.overrun()
        self.begin()
        self.sweep.stopService()

        self.kill()

        self.assertEqual(list(range(60)), self.ids(self.bob))

    def test_full_again(self) -> None:
        """
        If the disk fills up in the middle of it once more, it begins once more.
        """
        self.overrun()
        self.begin()
        self.disk.full = True
        for number in range(60, 120):
            self.ann.send(id=number, type="update", to=BOB, body={"v": "x" * 300})
            self.node.clock.advance(1)
        self.disk.full = False
        for _ in range(40):
            self.node.clock.advance(1)

        self.kill()

        self.assertEqual(list(range(120)), self.ids(self.bob))


class LeavingTests(DiskCase):
    """
    Nothing leaves before it is written, whatever the disk does in between.
    """

    def test_room_for_one_batch(self) -> None:
        """
        What is sent because the disk took something stays here if it takes nothing more.
        """
        self.make()
        cork = Cork(self.node.settle)

        def tell(wire: Any, message: dict[str, Any]) -> None:
            with cork:
                self.node.receive(json.dumps(message).encode(), wire)

        self.disk.full = True
        tell(self.ann.wire, {"id": 10, "type": "update", "from": ANN, "to": BOB})
        wire = Corked(self.node, cork)
        resume = {"epoch": self.bob.epoch, "received": 0}
        re_open = {"id": 1, "type": "re-open", "from": f"{BOB}/{self.bob.token}", "to": "mn:/session"}
        tell(wire, {**re_open, "body": {"resume": resume}})
        tell(self.ann.wire, {"id": 11, "type": "update", "from": ANN, "to": BOB})
        wire.transport.out.clear()
        self.disk.full, self.disk.room = False, 1
        self.node.clock.rightNow += 2  # but no timer yet

        tell(self.ann.wire, {"id": 12, "type": "update", "from": ANN, "to": "runtime://example.org/nobody"})

        self.assertEqual([], wire.transport.out)
        self.assertIsNotNone(self.node.spool.failing)

    def test_stopped(self) -> None:
        """
        A node that stops tries the disk once more, however short ago it failed.
        """
        self.make()
        self.bob.lose()
        self.disk.full = True
        self.ann.send(id=5, type="update", to=BOB)
        self.disk.full = False

        self.node.sessions.ledger.settle(now=True)
        self.kill()

        self.assertEqual([5], self.ids(self.bob))

    def test_unreadable(self) -> None:
        """
        A message that cannot be read back is dropped and told as missed; those behind it come.
        """
        self.make()
        self.bob.lose()
        for number in range(5):
            self.ann.send(id=number, type="update", to=BOB)
        owed = self.node.sessions.get(BOB).owed()
        for kept in owed:
            self.node.sessions.ledger.page_out(kept)
        bad, read = owed[1].place, self.node.spool.read

        def reading(place: int, size: int) -> bytes:
            if place == bad:
                raise OSError(5, "Input/output error")
            found: bytes = read(place, size)
            return found

        self.node.spool.read = reading
        self.assertEqual([0, 2, 3, 4], self.ids(self.bob))
        self.bob.acknowledge()
        self.bob.lose()
        self.bob.connect()

        self.assertEqual(1, self.bob.missed)
