"""
What is owed lies in a file that is damaged while the node runs: the rest arrives, and who counts is told.
"""

import os
from pathlib import Path
from typing import Any

from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from msgnode.sessions.journal import RETRY_SECONDS
from msgnode.storage.spool import segment_of
from msgnode.storage.spool_compaction import SpoolCompactor
from msgnode.storage.spool_recovery import number_of, segments
from tests.support.durable import Counting, DurableNode
from tests.support.fakes import directory
from tests.support.http_client import HTTPClient
from tests.support.network import Network
from tests.support.runtimes import TCPRuntime, dumps
from tests.support.socketio_runtime import SocketPollRuntime

ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"


class DamageCase(SynchronousTestCase):
    """
    Ann sends to bob, and the disk loses the end of what is in its files.
    """

    def setUp(self) -> None:
        self.node: Any = DurableNode(directory(self), session={"unused_expiry_seconds": 3600})
        self.addCleanup(lambda: (self.node.spool.close(), self.node.store.shut()))
        self.said: list[str] = []
        globalLogPublisher.addObserver(self._heard)
        self.addCleanup(globalLogPublisher.removeObserver, self._heard)

    def _heard(self, event: dict[str, Any]) -> None:
        if event["log_namespace"] == "msgnode.sessions.mailbox":
            self.said.append(event["why"])

    def cut(self) -> None:
        """
        The file of the last message that bob is owed ends within it.
        """
        kept = self.node.sessions.get(BOB).mailbox.undelivered()[-1]
        self.path = next(p for p in self.files() if number_of(p) == segment_of(kept.place))
        os.truncate(self.path, (kept.place & (1 << 40) - 1) + kept.size - 1)

    def spoil(self, *places: int) -> None:
        """
        The disk cannot read these.
        """
        read, self.path = self.node.spool.read, self.files()[0]

        def reading(place: int, size: int) -> bytes:
            if place in places:
                raise OSError(5, "Input/output error", str(self.path))
            found: bytes = read(place, size)
            return found

        self.node.spool.read = reading

    def files(self) -> list[Path]:
        return segments(self.node.directory / "spool")

    def assertSaid(self) -> None:
        self.assertTrue(self.said)
        self.assertEqual([], [why for why in self.said if str(self.path) not in why])
        self.assertEqual([], self.flushLoggedErrors())


class ResumeTests(DamageCase):
    """
    A client that acknowledges: it has two of five messages when it goes.
    """

    def setUp(self) -> None:
        super().setUp()
        self.ann, self.bob = (Counting(self.node, name) for name in (ANN, BOB))
        self.ann.connect()
        self.bob.connect()
        self.send(0, 1, 2, 3, 4)
        self.bob.lose(arrives=2)
        self.restart()

    def send(self, *numbers: int) -> None:
        for number in numbers:
            self.ann.send(id=number, type="update", to=BOB)

    def restart(self) -> None:
        self.node = self.node.killed()
        for client in (self.ann, self.bob):
            client.node, client.wire = self.node, None
        self.ann.connect()

    def ids(self) -> list[int]:
        self.bob.arrive()
        return [message["id"] for message in self.bob.got]

    def test_it_goes_on_in_its_epoch_without_the_one(self) -> None:
        """
        It goes on in its epoch without the one that is lost, and is told that one is missing.
        """
        self.cut()
        self.send(5)
        epoch = self.bob.epoch

        self.bob.connect()

        self.assertEqual([0, 1, 2, 3, 5], self.ids())
        self.assertEqual((1, epoch), (self.bob.missed, self.bob.epoch))
        self.assertSaid()

    def test_counts_on(self) -> None:
        """
        Both sides count alike from then on, over lost connections and a kill; whichever it was.
        """
        self.spoil(self.node.sessions.get(BOB).mailbox.undelivered()[3].place)
        self.bob.connect()
        self.bob.lose(arrives=1)
        self.send(5)
        self.restart()
        self.send(6)

        for _ in range(2):
            self.bob.connect()
            self.bob.acknowledge()
            self.bob.lose(arrives=1)
        self.bob.connect()

        self.assertEqual([0, 1, 2, 4, 5, 6], self.ids())
        self.assertEqual(1, self.bob.missed)
        self.bob.acknowledge()
        self.assertEqual([], self.node.sessions.get(BOB).mailbox.undelivered())

    def test_after_a_full_disk(self) -> None:
        """
        One that is lost after its client came, while nothing could be written, keeps nobody else waiting.
        """
        cleo = Counting(self.node, "runtime://example.org/cleo")
        cleo.connect()
        self.ann.send(id=5, type="update", to=cleo.runtime)
        cleo.lose()
        disk = self.node.disk
        disk.full = True
        self.send(6)
        self.bob.connect()
        cleo.connect()
        self.spoil(self.node.sessions.get(BOB).mailbox.undelivered()[1].place)

        disk.full = False
        self.node.clock.advance(2)
        self.node.settle()

        cleo.arrive()
        self.assertEqual([5], [message["id"] for message in cleo.got])
        self.assertEqual(1013, self.bob.wire.lost.code)
        self.bob.lose(arrives=5)
        self.bob.connect()
        self.assertEqual(([0, 1, 2, 4], 1), (self.ids()[:4], self.bob.missed))
        self.assertSaid()

    def test_delivered_before_the_damage_is_not_missing(self) -> None:
        """
        What it had before it went away is not missing.
        """
        self.bob.connect()
        self.bob.lose(arrives=3)
        self.cut()
        self.send(5)

        self.bob.connect()

        self.assertEqual([0, 1, 2, 3, 4, 5], self.ids())
        self.assertEqual((0, []), (self.bob.missed, self.said))

    def test_all_lost(self) -> None:
        """
        So it goes on if nothing can be read.
        """
        self.spoil(*(kept.place for kept in self.node.sessions.get(BOB).mailbox.undelivered()))

        self.bob.connect()
        self.send(5)

        self.assertEqual([0, 1, 5], self.ids())
        self.assertEqual(3, self.bob.missed)

    def test_open_says_how_many_were_damaged(self) -> None:
        """
        An `open` carries over what is left, and says how many are missing.
        """
        self.cut()
        self.bob.token = ""

        self.bob.connect()

        self.assertEqual([0, 1, 0, 1, 2, 3], self.ids())
        self.assertEqual(1, self.bob.missed)
        self.assertSaid()

    def test_opens_without(self) -> None:
        """
        So does one without `resume`, which is not told.
        """
        self.cut()

        self.assertEqual([0, 1, 2, 3], self.opened(BOB))

    def opened(self, runtime: str) -> list[int]:
        """
        What comes behind the answer to an `open` without `resume`.
        """
        client = self.node.client()
        client.tell({"id": 1, "type": "open", "from": runtime, "to": "mn:/session"})
        return [message["id"] for message in client.take()[1:]]

    def sweep(self) -> None:
        for _ in SpoolCompactor(self.node.spool, self.node.sessions, self.node.clock)._sweep(
            lambda place: True
        ):
            pass

    def test_compaction_passes_over_damage(self) -> None:
        """
        The broom does not stumble over it: the epoch ends, and the client hears that something may miss.
        """
        epoch = self.bob.epoch
        self.cut()

        self.sweep()
        self.restart()
        self.bob.connect()

        self.assertNotEqual(epoch, self.bob.epoch)
        self.assertEqual([0, 1, 0, 1, 2, 3], self.ids())

    def test_swept_while_connected(self) -> None:
        """
        A client that is there loses its connection for it.
        """
        self.bob.connect()
        epoch, wire = self.bob.epoch, self.bob.wire
        self.cut()

        self.sweep()
        self.bob.lose(arrives=3)
        self.bob.connect()

        self.assertEqual(1013, wire.lost.code)
        self.assertNotEqual(epoch, self.bob.epoch)
        self.assertEqual([0, 1, 2, 3, 4, 2, 3], self.ids())

    def test_swept_while_waiting(self) -> None:
        """
        What waits for one without `resume` goes the same way.
        """
        cleo = self.node.client("runtime://example.org/cleo")
        cleo.drop()
        for number in range(3):
            self.ann.send(id=number, type="update", to=cleo.runtime)
        session = self.node.sessions.get(cleo.runtime)
        for kept in session.mailbox.undelivered():
            self.node.sessions.journal.page_out(kept)
        self.spoil(session.mailbox.undelivered()[1].place)

        self.sweep()
        self.assertEqual([0, 2], self.opened(cleo.runtime))
        self.assertSaid()


class PollTests(DamageCase):
    """
    Clients that poll, which are answered what can be read.
    """

    def setUp(self) -> None:
        super().setUp()
        self.net = Network(node=self.node)
        self.ann = TCPRuntime(self.net, ANN).open()
        self.token = ""

    def send(self) -> None:
        self.ann.send(*({"id": n, "type": "update", "from": ANN, "to": BOB} for n in (1, 2, 3)))
        self.net.pump()

    def spoil_one(self) -> None:
        """
        Of the three messages that bob is owed the second cannot be read back.
        """
        owed = self.node.sessions.get(BOB).mailbox.undelivered()
        for kept in owed:
            self.node.sessions.journal.page_out(kept)
        self.spoil(owed[-2].place)

    def ask(self, method: str, query: str = "", message: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        body = b"" if message is None else dumps(message)
        response = HTTPClient(self.net).request(method, f"/poll{query}", body, **headers)
        return response.json() if response.status == 200 else response.status

    def open(self, **body: Any) -> None:
        opening = {"id": 1, "type": "open", "from": BOB, "to": "mn:/session", "body": body}
        (reply,) = self.ask("POST", "", opening)["messages"]
        self.token = reply["body"]["runtimeToken"]
        self.epoch = reply["body"].get("resume", {}).get("epoch")

    def ids(self, answer: Any) -> tuple[int, list[int]]:
        return answer["cursor"], [message["id"] for message in answer["messages"]]

    def test_whose_answer_was_lost_is_answered_with_what_is_left(self) -> None:
        """
        Whose answer was lost is answered with what is left; the cursor counts what is lost, too.
        """
        self.open()
        self.send()
        self.assertEqual((3, [1, 2, 3]), self.ids(self.ask("GET", "?wait=0&after=0")))
        self.spoil_one()

        self.assertEqual((3, [1, 3]), self.ids(self.ask("GET", "?wait=0&after=0")))
        self.assertEqual(204, self.ask("GET", "?wait=0&after=3"))
        self.assertSaid()

    def test_while_the_disk_fails_what_is_left_of_a_lost_answer_waits(self) -> None:
        """
        What is left has other numbers, which must be on disk before it is sent.
        """
        self.open()
        self.send()
        self.ask("GET", "?wait=0&after=0")
        self.spoil_one()
        self.node.disk.full = True

        self.assertEqual(503, self.ask("GET", "?wait=0&after=0"))
        self.node.disk.full = False
        self.net.clock.advance(RETRY_SECONDS)
        self.assertEqual((3, [1, 3]), self.ids(self.ask("GET", "?wait=0&after=0")))
        self.assertSaid()

    def test_more_that_cannot_be_read_leaves_the_others_for_the_next_poll(self) -> None:
        """
        A disk that fails while the rest is read costs no answer, and nothing of the rest.
        """
        self.open()
        self.send()
        self.ask("GET", "?wait=0&after=0")
        self.spoil_one()
        read, asked = self.node.spool.read, []

        def reading(place: int, size: int) -> bytes:
            asked.append(place)
            if len(asked) == 6:  # the first of the rest, after each was tried
                raise OSError(5, "Input/output error", str(self.path))
            found: bytes = read(place, size)
            return found

        self.node.spool.read = reading

        self.assertEqual(204, self.ask("GET", "?wait=0&after=0"))
        self.assertEqual((3, [1, 3]), self.ids(self.ask("GET", "?wait=0&after=0")))
        self.assertSaid()

    def test_poll_with_resume(self) -> None:
        """
        Who said `resume` is told when it says `re-open`, whether its cursor is past it or not.
        """
        for past in (True, False):
            self.token = ""
            self.open(resume=True)
            self.send()
            self.ask("GET", "?wait=0&after=0")
            self.spoil_one()
            self.assertEqual((3, [1, 3]), self.ids(self.ask("GET", "?wait=0&after=0")))
            received = 0
            if past:
                self.ask("GET", "?wait=0&after=3")
                received = 3
            re_open = {"id": 1, "type": "re-open", "from": f"{BOB}/{self.token}", "to": "mn:/session"}
            self.token, token = "", self.token

            wish = {"epoch": self.epoch, "received": received}
            answer = self.ask("POST", "", {**re_open, "body": {"resume": wish}})["messages"][0]

            self.assertEqual(1, answer["body"]["resume"]["missed"])
            self.token = token
            if not past:
                self.assertEqual([1, 3], self.ids(self.ask("GET", "?wait=0"))[1])
                self.ask("GET", "?wait=0&after=3")
            self.assertEqual([], self.node.sessions.get(BOB).mailbox.undelivered())

    def come_back(self, **body: Any) -> Any:
        """
        The body of the one answer to `re-open`.
        """
        re_open = {"id": 1, "type": "re-open", "from": f"{BOB}/{self.token}", "to": "mn:/session"}
        self.token, token = "", self.token
        (answer,) = self.ask("POST", "", {**re_open, "body": body})["messages"]
        self.token = token
        return answer["body"]

    def test_polled_re_open_without_resume_is_a_bare_200(self) -> None:
        """
        Who says `re-open` without `resume` is answered 200, and nothing else, before anything is read back.
        """
        self.open()
        self.send()
        self.ask("GET", "?wait=0&after=0")
        self.spoil_one()

        self.assertEqual({"code": 200}, self.come_back())
        self.assertEqual((3, [1, 3]), self.ids(self.ask("GET", "?wait=0")))

    def test_one_that_was_given_up_is_told_once_though_the_node(self) -> None:
        """
        One that was given up is told once, though the node is killed before the client says `re-open`.
        """
        for received in (0, 3):
            self.token = ""
            self.open(resume=True)
            self.send()
            self.ask("GET", "?wait=0&after=0")
            self.spoil_one()
            self.ask("GET", "?wait=0&after=0")
            self.node = self.node.killed()
            self.net = Network(node=self.node)

            answer = self.come_back(resume={"epoch": self.epoch, "received": received})

            self.assertEqual((1, self.epoch), (answer["resume"]["missed"], answer["resume"]["epoch"]))
            self.assertEqual([1, 3][: 2 if received == 0 else 0], self.left())
            self.ann = TCPRuntime(self.net, ANN).open()

    def left(self) -> list[int]:
        answer = self.ask("GET", "?wait=0")
        left = self.ids(answer)[1] if answer != 204 else []
        if left:
            self.ask("GET", f"?wait=0&after={answer['cursor']}")
        return left

    def test_socket_io(self) -> None:
        """
        A client of Socket.IO whose answer was lost gets what is left when it has opened its session again.
        """
        bob = SocketPollRuntime(self.net, BOB).open()
        bob.stop_reading()
        self.send()
        self.spoil_one()
        bob.drop()
        self.net.pump()

        bob = SocketPollRuntime(self.net, BOB).open()

        self.assertEqual([1, 3], [message["id"] for message in bob.take()])
        self.assertSaid()
