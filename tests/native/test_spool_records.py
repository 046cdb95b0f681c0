"""
The records that the plane makes for the spool are those that the spool itself writes.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.sessions.queue import FOREVER, QueuedMessage
from msgnode.storage.spool import Spool

native = pytest.importorskip("msgnode_native", reason="msgnode_native is not built")

FIRST = {recipient: (100 + recipient, 10 * recipient, 7) for recipient in range(1, 5)}  # sid, key, number


class Written:
    """
    The descriptor's place: what a spool writes, batch by batch, without the head of each.
    """

    def __init__(self) -> None:
        self.batches: list[bytes] = []

    def __call__(self, file: int, parts: list[bytes]) -> None:
        self.batches.append(b"".join(parts[1:]))


@given(
    before=st.binary(max_size=20),
    sent=st.lists(
        st.tuples(st.binary(min_size=1, max_size=50), st.sets(st.sampled_from(sorted(FIRST)), min_size=1)),
        max_size=10,
    ),
)
def test_a_batch_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, before: bytes, sent: list[tuple[bytes, set[int]]]
):
    """
    However many messages go to however many recipients, behind whatever is in the batch already, the bytes
    are the same, and each message lies where it is said to lie.
    """
    written = Written()
    spool = Spool(Path(tmp_path_factory.mktemp("spool")), write=written)
    spool.open()
    spool.state(1, before)
    spool.flush()
    length = len(written.batches.pop())
    spool.state(1, before)
    counts = dict.fromkeys(FIRST, 0)
    queued: list[tuple[int, QueuedMessage, int]] = []
    for payload, recipients in sent:
        data = bytes(bytearray(payload))  # one object for this message alone
        for recipient in sorted(recipients):
            sid, key, number = FIRST[recipient]
            at = counts[recipient]
            counts[recipient] += 1
            queued.append((sid, QueuedMessage(key + at, data, len(data), FOREVER, 5, 0), number + at))
    spool.append_sent(queued)
    spool.flush()
    spool.close()

    batch = [(payload, sorted(recipients)) for payload, recipients in sent]
    records, places = native.spool_records(length, batch, list(FIRST.items()))

    assert written.batches[-1][length:] == records
    whole = written.batches[-1]
    expected = {each: [data for data, to in batch if each in to] for each in FIRST if counts[each]}
    found = {each: [whole[at : at + size] for at, size in placed] for each, placed in places}
    assert expected == found
