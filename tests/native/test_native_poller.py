"""
The reactor with the plane's poller, in its place or within it: Twisted's own descriptors work as before.

Reactors of their own, which are asked for single turns and never run.
"""

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest

epollreactor = pytest.importorskip("twisted.internet.epollreactor")
native = pytest.importorskip("msgnode_native", reason="msgnode_native is not built")

from twisted.internet.asyncioreactor import AsyncioSelectorReactor  # noqa: E402
from twisted.internet.pollreactor import PollReactor  # noqa: E402
from twisted.internet.selectreactor import SelectReactor  # noqa: E402

from msgnode.transport.native_poller import NESTED, REPLACED, Unsuitable, attach  # noqa: E402

from .test_plane_flows import update  # noqa: E402
from .test_poller import Sockets  # noqa: E402

TURNS = 5


class Pipe:
    """
    A reader of the reactor, which keeps what comes.
    """

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        self.came = b""

    def fileno(self) -> int:
        return self.read

    def logPrefix(self) -> str:
        return "pipe"

    def doRead(self) -> None:
        self.came += os.read(self.read, 100)

    def connectionLost(self, reason: Any) -> None:
        pass

    def close(self) -> None:
        os.close(self.read)
        os.close(self.write)


class File(Pipe):
    """
    A regular file, which no epoll object takes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.file = os.open(__file__, os.O_RDONLY)

    def fileno(self) -> int:
        return self.file

    def doRead(self) -> None:
        self.came += os.read(self.file, 10)

    def close(self) -> None:
        super().close()
        os.close(self.file)


@pytest.fixture
def reactor() -> Iterator[Any]:
    found = epollreactor.EPollReactor()
    yield found
    found.removeAll()
    found.fireSystemEvent("shutdown")


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    found = Sockets()
    yield found
    found.close()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    found = Pipe()
    yield found
    found.close()


def turn(reactor: Any) -> None:
    for _ in range(TURNS):
        reactor.iterate(0)


@pytest.mark.parametrize("nested", [False, True])
def test_both_kinds_of_descriptors_work(reactor: Any, sockets: Sockets, pipe: Pipe, nested: bool):
    """
    Readers from before and after, writers, threads and the plane's own ports all have their turns.
    """
    reactor.addReader(pipe)
    assert attach(reactor, sockets.plane, nested).how == (NESTED if nested else REPLACED)
    later = Pipe()
    reactor.addReader(later)
    called: list[int] = []
    reactor.callFromThread(called.append, 1)
    os.write(pipe.write, b"before")
    os.write(later.write, b"after")
    sockets.ann_end.sendall(update() + b"\n")

    turn(reactor)

    assert (pipe.came, later.came, called) == (b"before", b"after", [1])
    assert sockets.bob_end.recv(1000) == update() + b"\n"
    reactor.removeReader(later)
    os.write(later.write, b"more")
    turn(reactor)
    assert later.came == b"after"
    later.close()
    reactor.removeReader(pipe)


class FailsOnce:
    """
    A poller whose first round fails.
    """

    def __init__(self, poller: Any) -> None:
        self._poller = poller
        self.has_failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poller, name)

    def round(self) -> bool:
        if not self.has_failed:
            self.has_failed = True
            raise MemoryError("no")
        return bool(self._poller.round())


def test_a_nested_round_that_fails_is_not_the_last(reactor: Any, sockets: Sockets):
    """
    The ports are served as before after a round that raised, as with memory that was short.
    """
    poller = FailsOnce(sockets.plane)
    attach(reactor, poller, nested=True)
    sockets.ann_end.sendall(update() + b"\n")

    turn(reactor)

    assert poller.has_failed
    assert sockets.bob_end.recv(1000) == update() + b"\n"


@pytest.mark.parametrize("nested", [False, True])
def test_a_regular_file_is_read_all_the_time(reactor: Any, sockets: Sockets, nested: bool):
    """
    What epoll refuses, as a node's standard input from a file, Twisted polls by itself as before.
    """
    attach(reactor, sockets.plane, nested)
    file = File()

    reactor.addReader(file)
    turn(reactor)
    reactor.removeReader(file)

    assert file.came
    file.close()


def test_a_reactor_with_a_surprise_keeps_its_poller(reactor: Any, sockets: Sockets):
    """
    Where Twisted's reactor is not made as expected, the plane is nested and everything works.
    """

    class Other(set):
        """
        Another kind of set.
        """

    reactor._reads = Other(reactor._reads)

    assert attach(reactor, sockets.plane) == (NESTED, "the reactor's _reads is no set")

    sockets.ann_end.sendall(update() + b"\n")
    turn(reactor)
    assert sockets.bob_end.recv(1000) == update() + b"\n"


def test_a_poller_that_reports_nothing_is_not_used(reactor: Any, sockets: Sockets):
    """
    A poller that does not report a byte in a pipe is not put into the reactor's place.
    """

    class Deaf:
        """
        A poller that never reports anything.
        """

        fileno = sockets.plane.fileno
        register = modify = unregister = lambda *given: None
        round = sockets.plane.round

        def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
            return []

    assert attach(reactor, Deaf()) == (NESTED, "a byte through a pipe was not reported")


class KQueueReactor(PollReactor):  # type: ignore[misc]
    """
    A reactor of the name that macOS and the BSDs have; Twisted's own cannot be imported here.
    """


@pytest.mark.parametrize("kind", [SelectReactor, PollReactor, KQueueReactor])
def test_other_reactors_are_refused_in_one_line(sockets: Sockets, kind: Any):
    """
    The plane works with Twisted's epoll reactor alone, and says so.
    """
    other = kind()

    with pytest.raises(Unsuitable, match=f"epoll reactor, and this is {kind.__name__}$"):
        attach(other, sockets.plane)

    other.removeAll()


def test_the_asyncio_reactor_is_refused_in_one_line(sockets: Sockets):
    """
    The reactor on asyncio waits by asyncio's selector, which the plane does not know.
    """
    loop = asyncio.new_event_loop()
    other = AsyncioSelectorReactor(loop)

    with pytest.raises(Unsuitable, match="epoll reactor, and this is AsyncioSelectorReactor"):
        attach(other, sockets.plane)

    other.removeAll()
    loop.close()


def test_left_over_work_of_a_round_is_done_when_nested(reactor: Any, sockets: Sockets):
    """
    What a round leaves makes no descriptor readable; the reactor comes back to it by itself.
    """
    attach(reactor, sockets.plane, nested=True)
    sockets.plane.set_limits(2**20, 1000, 10**7, 0)
    sent = (update() + b"\n") * 50
    sockets.ann_end.sendall(sent)

    for _ in range(50):
        reactor.iterate(0)

    assert sockets.bob_end.recv(2**20) == sent
