"""
Acknowledged resume against a model: clients that count, and a node that is killed.
"""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from msgnode.storage import spool
from msgnode.storage.spool_compaction import SpoolCompactor
from tests.support.durable import SM, Counting, DurableNode, Refusing
from tests.support.fuzz import TIMES

ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"
NEWS = "comm://example.org/news"


class ResumeMachine(RuleBasedStateMachine):
    """
    Ann publishes numbered messages and sends requests, bob has subscribed; both acknowledge.

    Whatever breaks, bob gets every number once and in order, and ann one
    answer to each request.
    """

    limits: dict[str, Any] = {}

    @initialize()
    def begin(self) -> None:
        self.directory = TemporaryDirectory()
        self.node: Any = DurableNode(Path(self.directory.name), session=self.limits)
        self.ann, self.bob = Counting(self.node, ANN), Counting(self.node, BOB)
        self.ann.connect()
        self.bob.connect()
        self.bob.send(id=0, type="subscribe", to=SM, body={"resources": [NEWS]})
        # A session that never bound anything would live for a minute only.
        self.ann.send(id=0, type="subscribe", to=SM, body={"resources": [f"{NEWS}/answers"]})
        self.node.clock.advance(1)
        for client in (self.ann, self.bob):
            client.arrive()
            client.got.clear()
        self.published = self.asked = 0

    def teardown(self) -> None:
        if hasattr(self, "node"):
            self.finish()
            self.node.spool.close()
            self.node.store.shut()
            self.directory.cleanup()

    # -- what clients do -----------------------------------------------------

    @rule(number=st.integers(1, 5))
    def publish(self, number: int) -> None:
        for _ in range(number):
            self.published += 1
            self.ann.send(id=self.published, type="update", to=NEWS)

    @rule()
    def ask(self) -> None:
        """
        The answer comes when it is on disk.
        """
        self.asked += 1
        self.ann.send(
            id=f"q{self.asked}", type="subscribe", to=SM, body={"resources": [f"{NEWS}/{self.asked}"]}
        )

    @rule()
    def babble(self) -> None:
        """
        What cannot be read counts too.
        """
        self.ann.sent += 1
        self.ann.kept.append(b"{nonsense")
        if self.ann.wire is not None:
            self.ann.put(b"{nonsense")

    @rule(who=st.sampled_from(["ann", "bob"]), most=st.integers(0, 9))
    def arrive(self, who: str, most: int) -> None:
        client = getattr(self, who)
        if client.wire is not None:
            client.arrive(most)

    @rule(who=st.sampled_from(["ann", "bob"]))
    def acknowledge(self, who: str) -> None:
        client = getattr(self, who)
        if client.wire is not None:
            client.acknowledge()

    # -- what goes wrong -------------------------------------------------------

    @rule(who=st.sampled_from(["ann", "bob"]), arrives=st.integers(0, 3))
    def lose(self, who: str, arrives: int) -> None:
        getattr(self, who).lose(arrives)

    @rule(who=st.sampled_from(["ann", "bob"]))
    def connect(self, who: str) -> None:
        """
        Also when the node has not noticed yet that the former connection is gone.
        """
        client = getattr(self, who)
        client.connect()

    @rule(seconds=st.sampled_from([0, 0.1, 0.5, 30]))
    def wait(self, seconds: float) -> None:
        self.node.clock.advance(seconds)

    @rule()
    def kill(self) -> None:
        self.node = self.node.killed()
        for client in (self.ann, self.bob):
            client.node, client.wire = self.node, None

    # -- what must hold --------------------------------------------------------

    @invariant()
    def in_order(self) -> None:
        if hasattr(self, "bob"):
            numbers = [message["id"] for message in self.bob.got]
            assert numbers == sorted(set(numbers)), numbers

    @precondition(lambda self: hasattr(self, "node"))
    @rule()
    def finish(self) -> None:
        """
        When nothing goes wrong any more, all has come.
        """
        for client in (self.ann, self.bob):
            client.connect()
        for _ in range(4):
            self.node.clock.advance(1)
            for client in (self.ann, self.bob):
                assert client.wire is not None
                if client.wire.lost is not None:  # it did not read while too much came
                    client.lose()
                    client.connect()
                client.arrive()
                client.acknowledge()
        self.check()

    def check(self) -> None:
        assert self.bob.missed == 0 and self.ann.missed == 0
        assert [message["id"] for message in self.bob.got] == list(range(1, self.published + 1))
        answers = [message["id"] for message in self.ann.got if message["type"] == "response"]
        assert sorted(answers) == sorted(f"q{n}" for n in range(1, self.asked + 1)), answers
        assert self.ann.kept == []


class NarrowMachine(ResumeMachine):
    """
    The same where little may wait: what is lost is told, exactly that many.
    """

    limits = {"queue_messages": 6}

    @rule()
    def publish_fleeting(self) -> None:
        """
        It ends when it has waited for too long.
        """
        self.published += 1
        self.ann.send(id=self.published, type="update", to=NEWS, ttl=20)

    @rule()
    def open_anew(self) -> None:
        self.bob.open_anew()

    def check(self) -> None:
        untold = self.node.sessions.get(BOB).mailbox.missed
        assert len(self.bob.got) + self.bob.missed + untold == self.published


class UrgentMachine(ResumeMachine):
    """
    With priorities the order is kept within each of them, and still nothing is lost unless it is told.
    """

    limits = {"queue_messages": 6}

    @initialize()
    def begin(self) -> None:
        self.priorities: dict[int, int] = {}
        super().begin()

    @rule(number=st.integers(1, 5), priority=st.sampled_from([0, 5, 9]))
    def publish(self, number: int, priority: int = 5) -> None:
        for _ in range(number):
            self.published += 1
            self.priorities[self.published] = priority
            self.ann.send(id=self.published, type="update", to=NEWS, priority=priority)

    @invariant()
    def in_order(self) -> None:
        if hasattr(self, "bob"):
            for priority in (0, 5, 9):
                numbers = [m["id"] for m in self.bob.got if self.priorities[m["id"]] == priority]
                assert numbers == sorted(set(numbers)), (priority, numbers)

    def check(self) -> None:
        assert len(self.bob.got) + self.bob.missed == self.published


class DiskMachine(ResumeMachine):
    """
    A disk that fills up and has room again, and messages that go to their listeners one in a turn.

    So little is held back for the disk that now and then all is written anew.
    """

    @initialize()
    def begin(self) -> None:
        self.held_back, spool.MAX_BUFFERED_BYTES = spool.MAX_BUFFERED_BYTES, 1000
        self.disk = Refusing()
        super().begin()
        self.node.sections["limits"] = {"recipients_at_once": 1}
        self.others = [Counting(self.node, f"runtime://example.org/{number}") for number in range(3)]
        self.kill()
        for client in self.others:
            client.connect()
            client.send(id=0, type="subscribe", to=SM, body={"resources": [NEWS]})
        self.node.clock.advance(1)
        for client in self.others:
            client.arrive()
            client.got.clear()
        for client in (self.ann, self.bob):
            self.come(client)

    def teardown(self) -> None:
        super().teardown()
        spool.MAX_BUFFERED_BYTES = self.held_back

    def clients(self) -> list[Counting]:
        return [self.ann, self.bob, *self.others]

    @rule(room=st.sampled_from([None, 0, 1, 2, 5]))
    def fill(self, room: int | None) -> None:
        """
        There is room for so many batches more, or for all.
        """
        self.disk.room = room

    @rule()
    def turn(self) -> None:
        self.node.clock.turn()

    @rule(number=st.integers(1, 20))
    def publish_much(self, number: int) -> None:
        for _ in range(number):
            self.published += 1
            self.ann.send(id=self.published, type="update", to=NEWS, body={"value": "x" * 200})

    @rule(number=st.integers(5, 20), room=st.sampled_from([None, 1, 2, 3, 5]))
    def run_over(self, number: int, room: int | None) -> None:
        """
        More is held back than may be; and then there is room for a little.
        """
        self.fill(0)
        if self.ann.wire is None:
            self.come(self.ann)
        self.publish_much(number)
        self.wait(2)
        self.wait(2)
        self.fill(room)
        self.wait(2)

    @rule(who=st.sampled_from(["ann", "bob"]))
    def connect(self, who: str) -> None:
        self.come(getattr(self, who))

    def come(self, client: Counting) -> None:
        """
        It may be told to come later, while the disk takes nothing.
        """
        client.lose()
        with suppress(IndexError):
            client.connect()
            return
        client.lose()

    @rule()
    def kill(self) -> None:
        self.node = self.node.killed(self.disk)
        SpoolCompactor(self.node.spool, self.node.sessions, self.node.clock, slack=4000).startService()
        for client in self.clients():
            client.node, client.wire = self.node, None

    @precondition(lambda self: hasattr(self, "others"))
    @rule()
    def finish(self) -> None:
        self.disk.room = None
        for _ in range(10):
            self.node.clock.advance(1)
        for _ in range(4):
            for client in self.clients():
                if client.wire is None or client.wire.lost is not None:
                    self.come(client)
            for _ in range(50):
                self.node.clock.advance(0.1)
            for client in self.clients():
                client.arrive()
                client.acknowledge()
        self.check()
        assert self.node.spool.failing is None
        for client in self.others:
            assert [message["id"] for message in client.got] == list(range(1, self.published + 1))


ResumeMachine.TestCase.settings = settings(max_examples=8 * TIMES, stateful_step_count=40, deadline=None)
NarrowMachine.TestCase.settings = settings(max_examples=8 * TIMES, stateful_step_count=40, deadline=None)
DiskMachine.TestCase.settings = settings(max_examples=8 * TIMES, stateful_step_count=40, deadline=None)
UrgentMachine.TestCase.settings = settings(max_examples=8 * TIMES, stateful_step_count=40, deadline=None)
ResumeTests = ResumeMachine.TestCase
NarrowTests = NarrowMachine.TestCase
DiskTests = DiskMachine.TestCase
UrgentTests = UrgentMachine.TestCase
