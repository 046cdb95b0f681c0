"""
Events of quiet descriptors cost no logging context, and everything else is as Twisted does it.

Reactors of their own, which are asked for single turns and never run.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.selectreactor import SelectReactor
from twisted.logger import LogLevel, capturedLogs

epollreactor: Any = pytest.importorskip("twisted.internet.epollreactor")

from msgnode.transport.quiet_poll import poll_quietly  # noqa: E402


class Pipe:
    """
    A reader of the reactor, which keeps what comes; b"fail" makes it fail, and its loss, too.
    """

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        self.came = b""
        self.prefixes = 0

    def fileno(self) -> int:
        return self.read

    def logPrefix(self) -> str:
        self.prefixes += 1
        return "pipe"

    def doRead(self) -> Exception | None:
        self.came += os.read(self.read, 100)
        return OSError("it failed") if self.came == b"fail" else None

    def connectionLost(self, reason: Any) -> None:
        raise ValueError("and this too")

    def close(self) -> None:
        os.close(self.read)
        os.close(self.write)


@pytest.fixture
def reactor() -> Iterator[Any]:
    found = epollreactor.EPollReactor()
    yield found
    found.removeAll()
    found.fireSystemEvent("shutdown")


@pytest.fixture
def pipes(reactor: Any) -> Iterator[list[Pipe]]:
    found = [Pipe(), Pipe()]
    for each in found:
        reactor.addReader(each)
    yield found
    for each in found:
        reactor.removeReader(each)
        each.close()


def test_quiet_descriptors_cost_no_logging_context(reactor: Any, pipes: list[Pipe]):
    """
    A descriptor that logs nothing is served without its prefix being asked for.
    """
    quiet, loud = pipes
    assert poll_quietly(reactor, lambda each: each is quiet)
    for each in pipes:
        os.write(each.write, b"x")

    reactor.iterate(0)

    assert (quiet.came, loud.came) == (b"x", b"x")
    assert quiet.prefixes == 0
    assert loud.prefixes > 0


def test_a_turn_ends_when_all_events_are_handled(reactor: Any, pipes: list[Pipe]):
    """
    A turn is open while events are handled, and what waits for its end is called once, behind all of them.
    """
    turn = poll_quietly(reactor, lambda each: True)
    assert turn is not None
    seen: list[Any] = []

    class Waiting(Pipe):
        """
        A reader that waits for the end of the turn.
        """

        def doRead(self) -> Exception | None:
            super().doRead()
            assert turn is not None
            seen.append(turn.is_open)
            turn.at_end = lambda: seen.append("end")
            return None

    found = [Waiting(), Waiting()]
    for each in found:
        reactor.addReader(each)
        os.write(each.write, b"x")
    for _ in range(2):
        reactor.iterate(0)
    for each in found:
        reactor.removeReader(each)
        each.close()

    assert seen == [True, True, "end"]
    assert not turn.is_open


def test_a_failure_ends_one_connection(reactor: Any, pipes: list[Pipe]):
    """
    What a connection raises as it ends is logged, and the other has its event all the same.
    """
    assert poll_quietly(reactor, lambda each: True)
    os.write(pipes[0].write, b"fail")
    os.write(pipes[1].write, b"x")

    with capturedLogs() as lines:
        reactor.iterate(0)

    (line,) = [line for line in lines if line["log_level"] is LogLevel.critical]
    assert line["log_failure"].check(ValueError)
    assert pipes[1].came == b"x"


def test_other_reactors_stay_as_they_are():
    """
    Only Twisted's own epoll reactor is changed: another one, or one that polls in its own way, is not.
    """

    class Other(epollreactor.EPollReactor):
        """
        A reactor that polls in its own way.
        """

        def doPoll(self, timeout: float) -> None:
            pass

        doIteration = doPoll

    for kind in (SelectReactor, Other):
        reactor = kind()
        assert not poll_quietly(reactor)
        reactor.removeAll()
