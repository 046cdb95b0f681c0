"""
The plane as a poller: it reads its ports by itself, and returns the events of all other descriptors.

Sockets in pairs, within this process.
"""

import errno
import os
import socket
import time
from collections.abc import Iterator
from select import EPOLLIN, EPOLLOUT
from typing import Any

import pytest

native = pytest.importorskip("msgnode_native", reason="msgnode_native is not built")

from .test_plane_flows import ANN, BOB, LONGEST, Cork, Ledger, Owner, update  # noqa: E402

SOON = 5.0  # seconds; only a test that fails waits so long
ROUND_MICROSECONDS = 60_000_000


class SocketOwner(Owner):
    """
    The owner of a port with a socket.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_ended = False
        self.came_again = 0

    def ended(self) -> None:
        self.has_ended = True

    def traffic(self) -> None:
        self.came_again += 1


class Sockets:
    """
    A plane that reads one end of each pair of sockets.
    """

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self.plane = native.Plane(Cork(), Ledger(), self.failures.append)
        # On a busy machine a round of the usual 5 ms may end before its first message.
        self.plane.set_limits(2**20, 2**20, ROUND_MICROSECONDS, 0)
        self.ends: list[socket.socket] = []
        self.ann, self.from_ann, self.ann_end = self.add()
        self.bob, self.to_bob, self.bob_end = self.add()
        self.plane.set_ready(self.to_bob, True)
        assert self.plane.install(self.from_ann, ANN, BOB, "update", [self.to_bob])

    def add(self, framing: str = "lines") -> tuple[SocketOwner, int, socket.socket]:
        here, there = socket.socketpair()
        self.ends += [here, there]
        here.setblocking(False)
        there.settimeout(SOON)
        owner = SocketOwner()
        port = self.plane.add(here.fileno(), owner, framing, LONGEST, "host")
        self.plane.resume(port)
        return owner, port, there

    def close(self) -> None:
        for each in self.ends:
            each.close()


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    found = Sockets()
    yield found
    found.close()


def test_carries_from_socket_to_socket(sockets: Sockets):
    """
    What one client sends, the other reads, and no event is left for the reactor.
    """
    sockets.ann_end.sendall(update() + b"\n")

    assert sockets.plane.poll(SOON, 10) == []

    assert sockets.bob_end.recv(1000) == update() + b"\n"
    assert sockets.ann.messages == []


def test_returns_the_events_of_other_descriptors(sockets: Sockets):
    """
    A descriptor that the reactor registers is reported until it is not registered any more.
    """
    read, write = os.pipe()
    try:
        sockets.plane.register(read, EPOLLIN)
        assert sockets.plane.poll(0, 10) == []
        os.write(write, b"x")
        assert sockets.plane.poll(SOON, 10) == [(read, EPOLLIN)]
        sockets.plane.modify(read, 0)
        assert sockets.plane.poll(0, 10) == []
        sockets.plane.unregister(read)
        with pytest.raises(FileNotFoundError):
            sockets.plane.unregister(read)
    finally:
        os.close(read)
        os.close(write)


def test_no_descriptor_gets_the_event_of_one_before_it(sockets: Sockets):
    """
    An event of a descriptor that a port's owner closes in the same round is not that of the descriptor which
    has its number afterwards.
    """
    read, write = os.pipe()
    later: list[int] = []

    def punted(data: bytes) -> None:
        sockets.plane.unregister(read)
        os.close(read)
        later.extend(os.pipe())
        sockets.plane.register(later[0], EPOLLIN)

    sockets.ann.punted = punted  # type: ignore[method-assign]
    sockets.plane.register(read, EPOLLIN)
    os.write(write, b"x")
    sockets.ann_end.sendall(b"something else\n")
    try:
        assert sockets.plane.poll(SOON, 10) == []
        assert later[0] == read
    finally:
        for each in (write, *later):
            os.close(each)


def test_serves_ports_and_reports_others_in_one_call(sockets: Sockets):
    """
    The reactor's descriptors have their turn in each round, whatever the ports have.
    """
    read, write = os.pipe()
    try:
        sockets.plane.register(read, EPOLLIN)
        os.write(write, b"x")
        sockets.ann_end.sendall(update() + b"\n")

        assert sockets.plane.poll(SOON, 10) == [(read, EPOLLIN)]

        assert sockets.bob_end.recv(1000) == update() + b"\n"
    finally:
        os.close(read)
        os.close(write)


def test_a_port_may_be_written_by_the_reactor(sockets: Sockets):
    """
    While Twisted has something to send by a port's socket it hears when it may, and the plane reads on.
    """
    fd = sockets.ends[0].fileno()
    sockets.plane.register(fd, EPOLLOUT)
    sockets.ann_end.sendall(update() + b"\n")

    assert sockets.plane.poll(SOON, 10) == [(fd, EPOLLOUT)]

    assert sockets.bob_end.recv(1000) == update() + b"\n"
    sockets.plane.unregister(fd)
    sockets.ann_end.sendall(update() + b"\n")
    assert sockets.plane.poll(SOON, 10) == []
    assert sockets.bob_end.recv(1000) == update() + b"\n"


def test_errors_carry_their_number(sockets: Sockets):
    """
    A regular file cannot be waited for: the reactor sees by the number of the error that it has to ask it
    all the time.
    """
    with open(__file__) as file:
        with pytest.raises(PermissionError) as why:
            sockets.plane.register(file.fileno(), EPOLLIN)
        assert why.value.errno == errno.EPERM
        assert why.value.strerror == os.strerror(errno.EPERM)
    with pytest.raises(OSError) as why_closed:
        sockets.plane.register(-1, EPOLLIN)
    assert why_closed.value.errno == errno.EBADF


def test_a_paused_port_is_not_read(sockets: Sockets):
    """
    What comes while a port is paused waits in its socket, also when its client has gone.
    """
    sockets.plane.pause(sockets.from_ann)
    sockets.ann_end.sendall(update() + b"\n")
    sockets.ann_end.close()
    assert sockets.plane.poll(0, 10) == []
    assert not sockets.ann.has_ended

    sockets.plane.resume(sockets.from_ann)
    sockets.plane.poll(SOON, 10)
    assert sockets.bob_end.recv(1000) == update() + b"\n"
    sockets.plane.poll(SOON, 10)
    assert sockets.ann.has_ended


def test_the_end_is_the_owners_once(sockets: Sockets):
    """
    When nothing more comes the owner hears it, and reads by itself from then on.
    """
    sockets.ann_end.shutdown(socket.SHUT_WR)
    sockets.plane.poll(SOON, 10)
    assert sockets.ann.has_ended
    sockets.ann.has_ended = False

    assert sockets.plane.poll(0, 10) == []

    assert not sockets.ann.has_ended
    fd = sockets.ends[0].fileno()
    sockets.plane.register(fd, EPOLLIN)
    ((found, event),) = sockets.plane.poll(SOON, 10)
    assert found == fd and event & EPOLLIN


def test_what_the_socket_does_not_take_is_the_owners(sockets: Sockets):
    """
    A client that does not read gets the rest by Twisted, in order.
    """
    sockets.plane.set_limits(2**24, 2**24, 10**7, 0)
    messages = [update("x" * 9000 + str(number)) + b"\n" for number in range(100)]
    sent = b"".join(messages)
    for start in range(0, len(sent), 16384):
        sockets.ann_end.sendall(sent[start : start + 16384])
        sockets.plane.poll(SOON, 10)
    sockets.bob_end.settimeout(0.0)
    read = b""
    while True:
        try:
            read += sockets.bob_end.recv(2**20)
        except BlockingIOError:
            break

    assert sockets.bob.sent != b""
    assert read + sockets.bob.sent == sent


def test_a_busy_port_does_not_starve_another(sockets: Sockets):
    """
    A round that is over goes on with the port that was not served.
    """
    _, from_other, other_end = sockets.add()
    sockets.plane.install(from_other, ANN, BOB, "update", [sockets.to_bob])
    sockets.plane.set_limits(2**20, 15_000, 10**7, 0)  # less than one of them sends
    sockets.ann_end.sendall((update("ann") + b"\n") * 100)
    other_end.sendall((update("other") + b"\n") * 100)

    for _ in range(2):
        sockets.plane.poll(SOON, 10)

    came = sockets.bob_end.recv(2**20)
    assert b'"ann"' in came and b'"other"' in came


def test_hears_of_traffic_when_asked(sockets: Sockets):
    """
    A connection that waits for a sign of life hears of the next bytes, once.
    """
    sockets.plane.watch(sockets.from_ann)
    for _ in range(2):
        sockets.ann_end.sendall(update() + b"\n")
        sockets.plane.poll(SOON, 10)

    assert sockets.ann.came_again == 1


def test_gathers_only_where_reads_hold_several_messages(sockets: Sockets):
    """
    After a read of one message the next round begins at once; after a read of several a little later, unless
    it was so large that few more would fit.
    """
    gather = 1.5
    sockets.plane.set_limits(2**20, 2**20, 10**7, int(gather * 1e6))
    took = []
    for count, size in ((1, 1), (0, 0), (3, 1), (0, 0), (0, 0), (3, 3000), (0, 0)):
        if count:
            sockets.ann_end.sendall((update("x" * size) + b"\n") * count)
        before = time.monotonic()
        sockets.plane.poll(0, 10)
        took.append(time.monotonic() - before)

    assert [seconds >= gather for seconds in took] == [False, False, False, True, False, False, False]


def test_a_reactor_that_watches_its_descriptor_may_ask_for_rounds(sockets: Sockets):
    """
    Nested in another poller, a round serves what is due and says whether more is.
    """
    sockets.ann_end.sendall(update() + b"\n")

    assert sockets.plane.round() is False

    assert sockets.bob_end.recv(1000) == update() + b"\n"


def test_names_ports_whose_message_does_not_end(sockets: Sockets):
    """
    What has begun to come and does not end is found by its time, and counted by its bytes.
    """
    sockets.ann_end.sendall(b"x" * 6000)
    sockets.plane.poll(SOON, 10)

    assert sockets.plane.late(2**63, 10) == [sockets.from_ann]
    assert sockets.plane.late(1, 10) == []
    assert sockets.plane.partial_bytes("host") == (6000 - 4096,) * 3
    assert sockets.plane.take_pending(sockets.from_ann) == b"x" * 6000
    assert sockets.plane.partial_bytes("host") == (0, 0, 0)


def test_a_number_used_again_is_another_port(sockets: Sockets):
    """
    What is said about a port that is gone touches no other.
    """
    gone = sockets.from_ann
    sockets.plane.remove(gone)
    _, port, end = sockets.add()

    sockets.plane.set_ready(gone, False)
    sockets.plane.block(gone)

    assert port != gone
    end.setblocking(False)
    with pytest.raises(BlockingIOError):
        end.recv(1)


def test_collects_cycles() -> None:
    """
    A plane whose hooks and owners refer back to it is collected.
    """
    import gc
    import weakref

    class Hooks(Cork):
        """
        Hooks that keep the plane.
        """

        plane: Any

    hooks = Hooks()
    hooks.plane = native.Plane(hooks, hooks, print)
    found = weakref.ref(hooks)
    del hooks
    gc.collect(1)  # it is young; all other tests' objects are not looked through
    assert found() is None
