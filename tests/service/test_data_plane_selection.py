"""
Which data plane a node runs, and what the log says about it.
"""

import sys
from types import ModuleType
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs

from msgnode import __version__
from msgnode.config.loader import check
from msgnode.service.data_plane_selection import make_data_plane


def made(reactor: object, **performance: bool) -> tuple[bool, str]:
    """
    Is it the compiled one; and the log line.
    """
    with capturedLogs() as lines:
        plane = make_data_plane(check({"performance": performance}, "test"), reactor)
    (line,) = [line for line in lines if line["log_level"] is LogLevel.info]
    return plane.is_native, line["log_format"].format(**line)


def test_switched_off_by_the_configuration() -> None:
    """
    With performance.native = false Python carries all messages.
    """
    expected = "messages are carried by Python alone: performance.native is off"
    assert made(Clock(), native=False) == (False, expected)


def test_switched_off_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    MSGNODE_NATIVE=0 wins over the configuration.
    """
    monkeypatch.setenv("MSGNODE_NATIVE", "0")

    expected = "messages are carried by Python alone: MSGNODE_NATIVE=0"
    assert made(Clock(), native=True) == (False, expected)


def test_a_platform_without_epoll(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Where there is no epoll object, Python carries all messages.
    """
    module: Any = ModuleType("msgnode_native")
    module.__version__ = __version__
    monkeypatch.delenv("MSGNODE_NATIVE", raising=False)
    monkeypatch.setitem(sys.modules, "msgnode_native", module)
    monkeypatch.setitem(sys.modules, "msgnode.transport.native_poller", None)

    expected = "messages are carried by Python alone: the data plane needs epoll, and this platform has none"
    assert made(Clock(), native=True) == (False, expected)


def test_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A module of another version is left alone, and the log says which it is.
    """
    module: Any = ModuleType("msgnode_native")
    module.__version__ = "0.0.9"
    monkeypatch.delenv("MSGNODE_NATIVE", raising=False)
    monkeypatch.setitem(sys.modules, "msgnode_native", module)

    expected = (
        f"messages are carried by Python alone: msgnode-native 0.0.9 is not of this version, {__version__}"
    )
    assert made(Clock(), native=True) == (False, expected)


@pytest.mark.parametrize(
    ("switch", "how"),
    [
        ("", "its poller replaces that of Twisted's reactor"),
        ("nested", "its poller is nested in that of Twisted's reactor: as asked"),
    ],
)
def test_which_poller(monkeypatch: pytest.MonkeyPatch, switch: str, how: str) -> None:
    """
    With Twisted's epoll reactor and the module, the log says how the plane waits for events.
    """
    epollreactor = pytest.importorskip("twisted.internet.epollreactor")
    pytest.importorskip("msgnode_native", reason="msgnode_native is not built")
    monkeypatch.setenv("MSGNODE_NATIVE", switch)
    reactor = epollreactor.EPollReactor()

    expected = f"messages are carried by the compiled data plane; {how}"
    assert made(reactor, native=True) == (True, expected)

    reactor.removeAll()
    reactor.fireSystemEvent("shutdown")


def test_another_reactor() -> None:
    """
    With a reactor that is not Twisted's epoll reactor, or without the module, Python carries all messages.
    """
    is_native, line = made(Clock(), native=True)

    assert not is_native
    assert line.startswith("messages are carried by Python alone: ")
