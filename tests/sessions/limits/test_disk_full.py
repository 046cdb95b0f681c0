"""
A disk that fills up and has room again at the worst moments.
"""

import json
from itertools import pairwise
from typing import Any

from twisted.internet.task import Cooperator
from twisted.trial.unittest import SynchronousTestCase

from msgnode.protocol.close_codes import OVER_CAPACITY
from msgnode.sessions.limits import overload
from msgnode.storage import spool
from msgnode.storage.spool_compaction import SpoolCompactor
from msgnode.storage.spool_recovery import segments
from msgnode.transport.cork import Cork, Outlet
from tests.support.durable import Counting, DurableNode, Refusing, Wire
from tests.support.fakes import directory
from tests.support.http_client import HTTPClient
from tests.support.network import Network

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

    def abort(self) -> None:
        self.outlet.forget()
        self.lose(OVER_CAPACITY)


class DiskCase(SynchronousTestCase):
    def make(self, **session: Any) -> None:
        self.node: Any = DurableNode(directory(self), session={"unused_expiry_seconds": 3600, **session})
        self.addCleanup(lambda: (self.node.spool.close(), self.node.store.shut()))
        self.disk = self.node.disk
        self.ann, self.bob, self.cleo = (Counting(self.node, name) for name in (ANN, BOB, CLEO))
        for client in (self.ann, self.bob, self.cleo):
            client.connect()

    def kill(self, disk: Refusing | None = None) -> None:
        self.node = self.node.killed(disk)
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

    def overrun(self, before: int = 0) -> None:
        self.make()
        self.patch(spool, "MAX_BUFFERED_BYTES", 10_000)
        self.sweep = SpoolCompactor(self.node.spool, self.node.sessions, self.node.clock)
        # One session in a turn, as where each has much to write.
        self.sweep._cooperator = Cooperator(
            lambda: lambda: True, lambda call: self.node.clock.callLater(0.02, call), started=False
        )
        self.sweep.startService()
        self.bob.lose()
        self.cleo.lose()
        for number in range(before):
            for to in (BOB, CLEO):
                self.ann.send(id=number, type="update", to=to, body={"v": "x" * 5000})
        for session in self.node.sessions:
            for kept in session.mailbox.undelivered():
                self.node.sessions.journal.page_out(kept)
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
        while not self.node.spool.rewriting:
            self.node.clock.advance(0.01)
        self.node.clock.advance(0.021)

    def test_killed_in_the_middle_of_it_the_node_has(self) -> None:
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

    def test_disk_that_fills_up_during_the_rewrite(self) -> None:
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

    def test_more_than_fits_in_memory(self) -> None:
        """
        What lies on disk and has no room in memory is written anew from there, and none of it is dropped.
        """
        self.overrun(before=100)
        journal = self.node.sessions.journal
        journal.most = 150_000  # less than a fifth of what is owed
        for _ in range(40):
            self.node.clock.advance(1)
        self.assertIsNone(self.node.spool.failing)
        self.assertEqual(1, len(segments(self.node.directory / "spool")))
        self.assertLess(journal.bytes_in_memory, 2 * journal.most)

        self.assertEqual([*range(100), *range(60)], self.ids(self.bob))
        self.assertEqual([*range(100), *range(60)], self.ids(self.cleo))
        self.assertEqual(0, self.bob.missed + self.cleo.missed)


class LeavingTests(DiskCase):
    """
    Nothing leaves before it is written, whatever the disk does in between.
    """

    def test_room_for_one_batch(self) -> None:
        """
        What is sent because the disk took something stays here if it takes nothing more.
        """
        self.make()
        cork = self.node.sessions.overload.together = Cork(self.node.settle)

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
        self.assertIsNone(self.node.spool.failing)
        self.node.clock.turn()

        self.assertEqual([], wire.transport.out)
        self.assertIsNotNone(self.node.spool.failing)

    def test_so_many_in_a_turn(self) -> None:
        """
        What waited for the disk leaves in several turns, each client's in order, and what comes then behind.
        """
        self.make(queue_messages=100)
        clients = [Counting(self.node, f"runtime://example.org/{number}") for number in range(40)]
        for client in clients:
            client.connect()
        names = [client.runtime for client in clients]
        self.disk.full = True
        for number in range(90):
            self.ann.send(id=number, type="update", to=names)
            if number == 0:
                for client in clients:  # the disk failed when that was about to leave
                    client.connect()
        self.disk.full = False
        self.node.clock.rightNow += 2  # but no timer yet
        sent = [self.node.counts.sent]

        self.node.sessions.journal.settle(now=True)
        for number in range(90, 95):
            self.node.clock.turn()
            sent.append(self.node.counts.sent)
            self.ann.send(id=number, type="update", to=names)
        self.node.clock.advance(1)

        turns = [after - before for before, after in pairwise(sent)]
        self.assertLess(max(turns), overload.MAX_RESUMED + 300)
        for client in clients:
            client.arrive()
            self.assertEqual(list(range(95)), [message["id"] for message in client.got])

    def test_node_that_stops_tries_the_disk_once_more_however(self) -> None:
        """
        A node that stops tries the disk once more, however short ago it failed.
        """
        self.make()
        self.bob.lose()
        self.disk.full = True
        self.ann.send(id=5, type="update", to=BOB)
        self.disk.full = False

        self.node.sessions.journal.settle(now=True)
        self.kill()

        self.assertEqual([5], self.ids(self.bob))

    def test_message_that_cannot_be_read_back_is_dropped(self) -> None:
        """
        A message that cannot be read back is dropped and told as missed; those behind it come.
        """
        self.make()
        self.bob.lose()
        for number in range(5):
            self.ann.send(id=number, type="update", to=BOB)
        owed = self.node.sessions.get(BOB).mailbox.undelivered()
        for kept in owed:
            self.node.sessions.journal.page_out(kept)
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


class ForgettingTests(DiskCase):
    """
    No number that lets a client forget is ahead of the disk.
    """

    def setUp(self) -> None:
        self.make()

    def back(self, client: Counting) -> None:
        """
        Its connection is lost, and it comes back.
        """
        client.lose()
        client.connect()

    def test_re_open_on_a_full_disk_tells_what_is_written(self) -> None:
        """
        Who comes back while the disk is full is told what is written down, and sends the rest again.
        """
        self.ann.send(id=0, type="update", to=BOB)
        self.disk.full = True
        for number in range(1, 11):
            self.ann.send(id=number, type="update", to=BOB)

        self.back(self.ann)

        self.assertEqual(10, len(self.ann.kept))
        self.kill()
        self.ann.connect()
        self.assertEqual(list(range(11)), self.ids(self.bob))

    def test_re_open_not_killed(self) -> None:
        """
        What it sends again is not taken twice, though the node had it in memory.
        """
        self.disk.full = True
        for number in range(5):
            self.ann.send(id=number, type="update", to=BOB)
        self.back(self.ann)
        self.disk.full = False
        for _ in range(3):
            self.node.clock.advance(1)
            self.node.settle()
        self.ann.arrive()

        self.bob.lose()
        self.assertEqual(([], list(range(5))), (self.ann.kept, self.ids(self.bob)))

    def test_in_one_read(self) -> None:
        """
        Nor is it told what the read that brought its `re-open` brought, too, and what may yet not be written.
        """
        resume = {"epoch": self.ann.epoch, "received": 0}
        re_open = {"id": 1, "type": "re-open", "from": f"{ANN}/{self.ann.token}", "to": "mn:/session"}
        wire = self.ann.wire
        assert wire is not None
        self.bob.lose()
        self.node.receive(json.dumps({"id": 1, "type": "update", "from": ANN, "to": BOB}).encode(), wire)

        self.disk.full = True
        self.node.receive(json.dumps({**re_open, "body": {"resume": resume}}).encode(), wire)

        self.assertEqual(0, json.loads(wire.on_its_way[-1])["body"]["resume"]["received"])

    def overflow(self) -> None:
        """
        Bob is away, and misses two.
        """
        self.node.config.session.queue_messages = 3
        self.bob.lose()
        for number in range(5):
            self.ann.send(id=number, type="update", to=BOB)

    def test_missed_waits(self) -> None:
        """
        How many it misses is told once; so not while that cannot be written down.
        """
        self.overflow()
        self.disk.full = True
        self.ann.send(id=5, type="update", to=CLEO)
        wire = Wire(self.node)
        resume = {"epoch": self.bob.epoch, "received": 0}
        re_open = {"id": 1, "type": "re-open", "from": f"{BOB}/{self.bob.token}", "to": "mn:/session"}

        self.node.receive(json.dumps({**re_open, "body": {"resume": resume}}).encode(), wire)

        self.assertEqual((1013, "disk", 2), wire.lost)
        self.disk.full = False
        self.node.clock.advance(2)
        self.assertEqual([2, 3, 4], self.ids(self.bob))
        self.assertEqual(2, self.bob.missed)
        self.kill()
        self.assertEqual(2, (self.bob.connect(), self.bob.missed)[1])

    def test_epoch_waits(self) -> None:
        """
        Nor is it told of a new epoch then, which a kill would end at once.
        """
        self.bob.lose()
        self.disk.full = True
        self.ann.send(id=0, type="update", to=CLEO)
        wire = Wire(self.node)
        resume = {"epoch": "another", "received": 0}
        re_open = {"id": 1, "type": "re-open", "from": f"{BOB}/{self.bob.token}", "to": "mn:/session"}

        self.node.receive(json.dumps({**re_open, "body": {"resume": resume}}).encode(), wire)

        self.assertEqual((1013, "disk", 2), wire.lost)

    def test_missed_does_not_leave(self) -> None:
        """
        If the disk fills up just then, the answer does not leave, and it is told later.
        """
        self.overflow()
        cork = Cork(self.node.settle)
        wire = Corked(self.node, cork)
        resume = {"epoch": self.bob.epoch, "received": 0}
        re_open = {"id": 1, "type": "re-open", "from": f"{BOB}/{self.bob.token}", "to": "mn:/session"}
        self.disk.full = True

        with cork:
            self.node.receive(json.dumps({**re_open, "body": {"resume": resume}}).encode(), wire)

        self.assertEqual([], wire.transport.out)
        self.kill()
        self.assertEqual(([2, 3, 4], 2), (self.ids(self.bob), self.bob.missed))


class StartTests(DiskCase):
    """
    A node that is started on a full disk.
    """

    def test_node_starts_on_a_full_disk(self) -> None:
        """
        It says so, takes nothing for certain, and goes on where it was when there is room.
        """
        self.make()
        self.bob.lose()
        self.ann.send(id=1, type="update", to=BOB)
        disk = Refusing()
        disk.full = True

        self.kill(disk)
        self.assertIn("No space left on device", self.node.disk_failure())
        self.ann.connect()
        self.bob.connect()
        self.ann.send(id=2, type="update", to=BOB)
        self.bob.arrive()
        self.assertEqual(([], 1), (self.bob.got, len(self.ann.kept)))
        disk.full = False
        for _ in range(3):
            self.node.clock.advance(1)
            self.node.settle()
        self.ann.arrive()
        self.bob.arrive()

        self.assertEqual("", self.node.disk_failure())
        self.assertEqual(([1, 2], []), ([message["id"] for message in self.bob.got], self.ann.kept))

    def test_room_with_the_first_batch(self) -> None:
        """
        Who came back before the disk was asked again is sent what it is owed as soon as it takes something.
        """
        self.make()
        self.bob.lose()
        self.ann.send(id=1, type="update", to=BOB)
        disk = Refusing()
        disk.full = True
        self.kill(disk)
        disk.full = False

        self.assertEqual([1], self.ids(self.bob))

    def test_killed_again(self) -> None:
        """
        Killed there as well it has forgotten nothing that anybody was told.
        """
        self.make()
        self.bob.lose()
        self.ann.send(id=1, type="update", to=BOB)
        for number in (2, 3):
            disk = Refusing()
            disk.full = True
            self.kill(disk)
            self.ann.connect()
            self.bob.connect()
            self.ann.send(id=number, type="update", to=BOB)

        self.kill()
        self.ann.connect()

        self.assertEqual([1, 2, 3], self.ids(self.bob))

    def test_nothing_there(self) -> None:
        """
        So does one that was never there before.
        """
        disk = Refusing()
        disk.full = True
        spool_directory = directory(self)
        spool_ = spool.Spool(spool_directory, write=disk)

        self.assertEqual({}, spool_.open())
        self.addCleanup(spool_.close)
        self.assertIsNotNone(spool_.failing)
        self.assertIsNone(spool_.oldest())
        spool_.state(1, b"{}")
        self.assertFalse(spool_.flush())
        disk.full = False

        self.assertTrue(spool_.flush())
        self.assertEqual(["spool-00000001.seg"], [path.name for path in segments(spool_directory)])


class HalfWrittenTests(DiskCase):
    """
    A session that the spool knows, and the database does not.
    """

    def setUp(self) -> None:
        self.make()
        self.node.clock.advance(1)
        self.node.sessions.end(self.node.sessions.get(CLEO), "closed")
        self.cleo.token = ""
        self.cleo.connect()  # the database does not know of it yet, nor that the one before ended
        self.cleo.lose()
        self.ann.send(id=1, type="update", to=CLEO)

    def test_newer_session_of_a_runtime_is_resumed_with_what_it_was_owed(self) -> None:
        """
        A session that only the spool knows is restored, though the database still has the one before it.
        """
        self.kill()
        self.cleo.node = self.node

        self.cleo.connect()

        self.assertEqual([1], self.ids(self.cleo))
        self.assertEqual((0, 0), (self.cleo.missed, self.cleo.told["missed"]))

    def test_what_was_owed_reaches_no_later_session(self) -> None:
        """
        What it was owed reaches nobody who opens later, over any number of restarts.
        """
        owed = self.node.spool.live
        self.kill()
        dora = Counting(self.node, "runtime://example.org/dora")

        dora.connect()
        self.node.clock.advance(1)
        self.assertEqual((True, owed), (owed > 0, self.node.spool.live))
        self.node.sessions.end(self.node.sessions.get(CLEO), "closed")
        self.node.sessions.journal.settle(now=True)
        self.node.clock.advance(1)
        self.kill()
        dora.node, dora.wire = self.node, None

        self.assertEqual(([], 0), (self.ids(dora), self.node.spool.live))


class PollTests(SynchronousTestCase):
    """
    A client that polls, and counts with `seq`.
    """

    def setUp(self) -> None:
        self.node: Any = DurableNode(directory(self), session={"unused_expiry_seconds": 3600})
        self.addCleanup(lambda: (self.node.spool.close(), self.node.store.shut()))
        self.serve()
        self.token = ""
        self.epoch = ""

    def serve(self) -> None:
        self.disk = self.node.disk
        self.net = Network(node=self.node)

    def ask(self, query: str, message: Any, token: bool = True) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"} if token else {}
        return HTTPClient(self.net).request("POST", f"/poll{query}", json.dumps(message).encode(), **headers)

    def open(self, kind: str, from_: str, resume: Any) -> dict[str, Any]:
        """
        What the answer says of `resume`.
        """
        message = {"id": 1, "type": kind, "from": from_, "to": "mn:/session", "body": {"resume": resume}}
        (answer,) = self.ask("", message, token=False).json()["messages"]
        body: dict[str, Any] = answer["body"]
        self.token = body.get("runtimeToken", self.token)
        self.epoch = body["resume"]["epoch"]
        return body["resume"]

    def update(self, number: int) -> dict[str, Any]:
        return {"id": number, "type": "update", "from": ANN, "to": BOB}

    def test_seq_never_goes_back(self) -> None:
        """
        Who goes on where `received` says is never refused, whatever a kill made the node forget.
        """
        self.open("open", ANN, True)
        self.assertEqual({"accepted": 1, "received": 1}, self.ask("?seq=1", self.update(1)).json())
        self.disk.full = True
        self.assertEqual(503, self.ask("?seq=2", [self.update(2), self.update(3)]).status)

        told = self.open("re-open", f"{ANN}/{self.token}", {"epoch": self.epoch, "received": 0})
        self.node = self.node.killed()
        self.serve()

        self.assertEqual(1, told["received"])
        answer = self.ask("?seq=2", [self.update(2), self.update(3)])
        self.assertEqual({"accepted": 2, "received": 3}, answer.json())

    def test_open_is_on_disk(self) -> None:
        """
        The answer to a POST that opens leaves when the session is written down.
        """
        told = self.open("open", ANN, True)
        self.node = self.node.killed()
        self.serve()

        again = self.open("re-open", f"{ANN}/{self.token}", {"epoch": told["epoch"], "received": 0})

        self.assertEqual((told["epoch"], 0), (again["epoch"], again["missed"]))
