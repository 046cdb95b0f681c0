"""
A cache with a bound.
"""

from twisted.trial.unittest import SynchronousTestCase

from msgnode.structures.bounded_cache import BoundedCache


class BoundedCacheTests(SynchronousTestCase):
    """
    A cache of two.
    """

    def setUp(self) -> None:
        self.cache: BoundedCache[str, int] = BoundedCache(2)
        self.cache.put("a", 1)
        self.cache.put("b", 2)

    def test_longest_unused_gives_way(self) -> None:
        """
        The entry that was used longest ago gives way, by reading or by writing.
        """
        self.cache.get("a")
        self.cache.put("c", 3)

        self.assertEqual([("a", 1), ("c", 3)], list(self.cache.items()))

    def test_put_again(self) -> None:
        """
        An entry that is put again takes no other's place.
        """
        self.cache.put("a", 7)

        self.assertEqual((2, 7, 2), (len(self.cache), self.cache.get("a"), self.cache.get("b")))

    def test_pop_and_clear(self) -> None:
        """
        What is forgotten is not there.
        """
        self.assertEqual((1, None), (self.cache.pop("a"), self.cache.pop("a")))
        self.assertNotIn("a", self.cache)
        self.cache.clear()
        self.assertEqual((0, None), (len(self.cache), self.cache.get("b")))
