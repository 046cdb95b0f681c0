"""
Messages whose beginning the plane has, and whose end takes too long.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

native = pytest.importorskip("msgnode_native", reason="msgnode_native is not built")

from msgnode.service.data_plane_selection import PartialInputTimer  # noqa: E402
from msgnode.transport.native_plane import MAX_LATE, NativePlane  # noqa: E402
from tests.support.plane_world import PlaneWorld  # noqa: E402

LATE = 2 * MAX_LATE + 1
AT_ONCE = 1e-9  # seconds


class Late:
    """
    A node with more late messages than are cut off in one turn.
    """

    def __init__(self, directory: Path) -> None:
        self.world = PlaneWorld(native, directory)
        plane = self.world.plane
        assert isinstance(plane, NativePlane)
        self.node = self.world.node
        self.timer = PartialInputTimer(self.node, plane, self.world.reactor)
        clients = [self.world.connect("lines") for _ in range(LATE)]
        for number, client in enumerate(clients):
            name = f"runtime://example.org/{number}"
            client.write(client.encode({"id": 1, "type": "open", "from": name, "to": "mn:/session"}))
        self.world.pump()
        for client in clients:
            client.write(b'{"id":1')
        self.world.pump()
        self.node.config.limits.partial_seconds = AT_ONCE

    def cut_off(self) -> int:
        return self.node.budget.refused["partial_seconds"]

    def closed(self) -> int:
        self.world.pump()
        return sum(client.is_over for client in self.world.clients)


@pytest.fixture
def late(tmp_path: Path) -> Iterator[Late]:
    late = Late(tmp_path)
    yield late
    late.world.end()


def test_one_look_cuts_off_all_late_messages(late: Late):
    """
    However many messages are late, one look cuts them all off, some in each turn of the reactor.
    """
    late.timer.look()
    in_first_turn = late.cut_off()

    assert late.closed() == LATE
    assert (in_first_turn, late.cut_off()) == (MAX_LATE, LATE)


def test_nothing_is_cut_off_after_the_service_has_stopped(late: Late):
    """
    A service that stops looks no further.
    """
    late.timer.look()
    late.timer.stopService()

    assert late.closed() == MAX_LATE
