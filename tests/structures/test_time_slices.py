"""
Long work is done in slices.
"""

from collections.abc import Iterator

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from msgnode.structures.time_slices import Slices
from tests.support.fakes import Turns


class SlicesTests(SynchronousTestCase):
    """
    What is worked off step by step.
    """

    def setUp(self) -> None:
        self.clock = Turns()
        self.slices = Slices(self.clock)
        self.log: list[str] = []

    def steps(self, name: str, number: int) -> Iterator[None]:
        for step in range(number):
            self.log.append(f"{name}{step}")
            yield

    def turn(self) -> list[str]:
        """
        One turn of the event loop; what was done in it.
        """
        self.log.clear()
        self.clock.turn()
        return list(self.log)

    def test_one_step_of_all_works_a_turn(self) -> None:
        """
        A turn of the event loop has one step, however many works there are, and each has its turn.
        """
        self.slices.work(self.steps("a", 3))
        self.slices.work(self.steps("b", 2))

        turns = [self.turn() for _ in range(7)]

        self.assertEqual([["a0"], ["b0"], ["a1"], ["b1"], ["a2"]], [turn for turn in turns if turn])
        self.assertEqual((5, 0), (self.slices.done, self.slices.at_work))

    def test_nothing_at_once(self) -> None:
        """
        The first step is not taken in the turn that asks for it; the end is told.
        """
        over = self.slices.work(self.steps("a", 1))

        self.assertEqual(([], 1), (self.log, self.slices.at_work))
        self.turn()
        self.turn()

        self.assertIsNone(self.successResultOf(over))

    def test_step_that_raises_ends_its_work_only(self) -> None:
        """
        What a step raises ends this work and no other.
        """

        def failing() -> Iterator[None]:
            yield
            raise KeyError("a")

        failed, other = self.slices.work(failing()), self.slices.work(self.steps("b", 3))

        for _ in range(9):
            self.turn()

        self.failureResultOf(failed, KeyError)
        self.assertIsNone(self.successResultOf(other))

    def test_step_with_a_deferred_is_waited_for(self) -> None:
        """
        A step that gives a Deferred is waited for, while others go on.
        """
        gate: Deferred[None] = Deferred()

        def waiting() -> Iterator[Deferred[None] | None]:
            yield gate
            self.log.append("through")

        over = self.slices.work(waiting())
        self.slices.work(self.steps("b", 2))

        before = [self.turn() for _ in range(4)]
        gate.callback(None)
        after = [self.turn() for _ in range(2)]

        self.assertNotIn(["through"], before)
        self.assertIn(["through"], after)
        self.assertIsNone(self.successResultOf(over))
