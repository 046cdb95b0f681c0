"""
The copies of stubs on disk and in memory: whose they are, and how many.
"""

from twisted.trial.unittest import SynchronousTestCase

from msgnode.foreign.fetch.code_store import MAX_DOMAINS, CodeStore
from msgnode.foreign.fetch.stub_code import StubCode
from tests.support.fakes import directory
from tests.support.foreign_case import B, stub_code


class CodeStoreTests(SynchronousTestCase):
    """
    A store in a directory.
    """

    def setUp(self) -> None:
        self.directory = directory(self)

    def test_a_domain_that_copies_a_stub_does_not_replace_the_copy_of_the_other(self) -> None:
        """
        Each has its own, with its own domain.
        """
        store = CodeStore(self.directory)
        mine = stub_code()
        theirs = StubCode("evil.example", "https://evil.example/x.ps.js", mine.code, mine.descriptor)
        store.put(mine, 1.0)
        store.put(theirs, 2.0)

        found = CodeStore(self.directory).find(store.entry(B).key)

        self.assertIsNotNone(found)
        self.assertEqual(B, found.domain if found else "")

    def test_stubs_of_domains_that_are_not_listed_are_bounded(self) -> None:
        """
        On disk and in memory; a listed one stays.
        """
        for where in (self.directory, None):
            store = CodeStore(where, lambda domain: domain == B)
            store.put(stub_code(), 0.0)
            for number in range(MAX_DOMAINS + 20):
                store.put(stub_code(f"d{number}.example"), float(number))

            self.assertIsNotNone(store.find(store.entry(B).key))
            self.assertIsNone(store.find(stub_code("d0.example").key))
            self.assertIsNotNone(store.find(stub_code(f"d{MAX_DOMAINS}.example").key))
        self.assertEqual(MAX_DOMAINS + 1, len(list(self.directory.glob("*.stub"))))
        self.assertEqual(MAX_DOMAINS + 1, len(list(self.directory.glob("*.json"))))

    def test_the_bound_holds_over_a_restart(self) -> None:
        """
        What another process has kept counts.
        """
        for number in range(MAX_DOMAINS + 20):
            CodeStore(self.directory).put(stub_code(f"d{number}.example"), float(number))

        self.assertEqual(MAX_DOMAINS, len(list(self.directory.glob("*.stub"))))
