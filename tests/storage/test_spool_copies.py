"""
The ids of copies of messages, in the spool.
"""

from msgnode.storage.spool import Spool
from msgnode.storage.spool_records import MAX_COPIES


def test_ids_of_copies_are_recovered_also_after_a_fresh_state(tmp_path):
    """
    A message's id is known after a restart, as its key goes on; of a peer's number that has no room there
    some id is.
    """
    spool = Spool(tmp_path)
    spool.open()
    spool.copies(1, b"i", [(3, 7), (4, -1)])
    spool.state(1, b"{}", fresh=True)
    spool.flush()
    spool.close()

    found = Spool(tmp_path).open()

    assert found[1].copies == {3: (b"i", 7), 4: (b"i", (1 << 64) - 1)}


def test_ids_of_copies_are_bounded(tmp_path):
    """
    The last ids of a session are remembered.
    """
    spool = Spool(tmp_path)
    spool.open()
    spool.copies(1, b"i", [(key, key) for key in range(MAX_COPIES + 10)])
    spool.flush()
    spool.close()

    copies = Spool(tmp_path).open()[1].copies

    assert (len(copies), min(copies)) == (MAX_COPIES, 10)
