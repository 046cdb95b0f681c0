"""
Tables that are shared fairly between their owners.
"""

from msgnode.structures.fair_table import FairTable


def test_the_owner_of_the_most_loses_its_oldest_value():
    """
    An owner that adds very many entries evicts its own.
    """
    table: FairTable[int, str] = FairTable(4)
    for key in (1, 2, 3):
        table.put(key, "flood", "a", "a")
    table.put(4, "small", "b", "b")

    evicted = table.put(5, "small", "c", "c")

    assert evicted == [(1, "flood")]
    assert sorted(key for key, _ in table.items()) == [2, 3, 4, 5]


def test_a_value_of_several_units_evicts_several_values():
    """
    Long entries count more than short ones, so that what all of them cost is bounded.
    """
    table: FairTable[int, str] = FairTable(10)
    for key in range(5):
        table.put(key, "short", "a", "a")

    first = table.put(10, "long", "b", "b", units=7)
    second = table.put(11, "long", "b", "b", units=7)

    assert [key for key, _ in first] == [10]  # with 7 of 12 units, its own group was the largest
    assert [key for key, _ in second] == [11]
    assert len(table) == 5


def test_units_are_given_back():
    """
    What was removed, or replaced, does not count any more.
    """
    table: FairTable[int, str] = FairTable(10)

    for _ in range(5):
        table.put(1, "long", "a", "a", units=6)
    evicted = table.put(2, "short", "b", "b", units=4)
    removed = table.pop(1)
    again = table.put(3, "long", "b", "b", units=6)

    assert (evicted, removed, again) == ([], "long", [])
    assert table.pop(1) is None


def test_values_of_a_member() -> None:
    """
    The values of one member are found in the order in which they came.
    """
    table: FairTable[int, str] = FairTable(10)
    for key, member in enumerate(("a", "b", "a")):
        table.put(key, f"{member}{key}", "group", member)

    assert [(0, "a0"), (2, "a2")] == table.of("group", "a")
    assert [] == table.of("group", "c")
