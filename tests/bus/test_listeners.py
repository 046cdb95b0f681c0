"""
Listeners by address, and addresses in order.
"""

from twisted.trial.unittest import SynchronousTestCase

from msgnode.bus.listeners import BLOCK, Listeners, Ordered
from tests.support.fakes import MemoryNode


class ListenersTests(SynchronousTestCase):
    """
    One, several and none.
    """

    def test_each_address_counts_once_whether_its_listeners(self) -> None:
        """
        Each address counts once, whether its listeners were looked up or not.
        """
        node, listeners = MemoryNode(), Listeners()
        one, two = (node.sessions.create(name) for name in ("one", "two"))
        for address in ("a", "b", "c"):
            listeners.add(address, one)
        listeners.add("a", two)
        listeners.add("b", two)

        self.assertEqual((one, two), listeners.get("a"))
        self.assertEqual((3, 1), (len(listeners), listeners.unmade))
        listeners.remove("a", one)
        listeners.remove("b", one)
        self.assertEqual((3, 0), (len(listeners), listeners.unmade))
        for address, session in (("a", two), ("b", two), ("c", one)):
            listeners.remove(address, session)

        self.assertEqual((0, 0), (len(listeners), listeners.unmade))
        self.assertIsNone(listeners.get("a"))

    def test_all_listeners_of_an_address_move_together(self) -> None:
        """
        All who hear an address go elsewhere together, and nobody stays.
        """
        node, here, there = MemoryNode(), Listeners(), Listeners()
        one, two = (node.sessions.create(name) for name in ("one", "two"))
        for address in ("a", "b"):
            here.add(address, one)
            here.add(address, two)
        here.add("c", one)
        here.get("a")

        for address in ("a", "b", "c", "d"):
            here.move(address, there)

        self.assertEqual((0, 0, 3), (len(here), here.unmade, len(there)))
        self.assertEqual(
            [(one, two), (one, two), (one,), None], [there.get(address) for address in ("a", "b", "c", "d")]
        )


class OrderedTests(SynchronousTestCase):
    """
    Thousands of strings, of which those that begin alike are found.
    """

    def test_however_they_come_and_go_they_stand_in_order(self) -> None:
        """
        However they come and go, they stand in order, and the first of a beginning is found.
        """
        ordered = Ordered()
        names = [f"{n * 7919 % 5000:04}" for n in range(5 * BLOCK)]

        for name in names:
            ordered.add(name)
        self.assertEqual(sorted(names), list(ordered))
        for name in names[::2]:
            ordered.remove(name)
        left = sorted(names[1::2])
        self.assertEqual((left, len(left)), (list(ordered), len(ordered)))

        for beginning in ("", "1", "12", "123", "9999", "x"):
            first = next((name for name in left if name.startswith(beginning)), None)
            self.assertEqual(first, ordered.first(beginning))
        for name in left:
            ordered.remove(name)
        self.assertEqual(([], None), (list(ordered), ordered.first("")))
