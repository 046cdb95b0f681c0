"""
Notifications to systemd: when the node is ready, reloads, hangs and stops.
"""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from msgnode.config.reload import ReloadVerdict
from msgnode.service.process.systemd import NotifySocket, SystemdNotifier, systemd_notifier


class Told:
    def __init__(self) -> None:
        self.fields: list[dict[str, Any]] = []

    def __call__(self, **fields: Any) -> None:
        self.fields.append(fields)


def test_ready_status_and_stopping() -> None:
    """
    systemd is told that the node is ready, each 10 seconds what it does, and that it stops.
    """
    told, clock = Told(), Clock()
    notifier = SystemdNotifier(told, lambda: "3 sessions", None, clock)

    notifier.startService()
    clock.pump([5, 5])
    notifier.stopService()
    clock.pump([10, 10])

    assert [{"READY": 1, "STATUS": "3 sessions"}, {"STATUS": "3 sessions"}] == told.fields[:2]
    assert 1 == told.fields[2]["STOPPING"] and 3 == len(told.fields)


def test_watchdog_goes_on_until_the_process_ends() -> None:
    """
    The event loop tells the watchdog twice in its time, also while the node stops.
    """
    told, clock = Told(), Clock()
    notifier = SystemdNotifier(told, lambda: "", 4.0, clock)

    notifier.startService()
    clock.pump([1] * 4)
    notifier.stopService()
    clock.pump([1] * 4)

    assert 4 == told.fields.count({"WATCHDOG": 1})


def test_failed_reload_stays_in_the_status() -> None:
    """
    A reload is announced; if it fails, the status says why until one succeeds.
    """
    told, clock = Told(), Clock()
    notifier = SystemdNotifier(told, lambda: "up", None, clock, monotonic=lambda: 7_000)
    notifier.startService()
    told.fields.clear()

    notifier.reloading()
    notifier.reloaded(ReloadVerdict(0, False, "x.toml: no\nkey"))
    clock.pump([10])
    notifier.reloaded(ReloadVerdict(0, True, ""))

    failed = "the last reload failed: x.toml: no\ufffdkey; up"
    assert [
        {"RELOADING": 1, "MONOTONIC_USEC": 7},
        {"READY": 1, "STATUS": failed},
        {"STATUS": failed},
        {"READY": 1, "STATUS": "up"},
    ] == told.fields


@pytest.mark.parametrize("abstract", [False, True])
def test_datagrams(tmp_path: Path, abstract: bool) -> None:
    """
    A notification is one datagram of lines, to a path or an abstract address; without a listener it is lost.
    """
    address = f"\0msgnode-{os.getpid()}" if abstract else str(tmp_path / "n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address)

        NotifySocket(address.replace("\0", "@"))(READY=1, STATUS="up")

        assert b"READY=1\nSTATUS=up" == listening.recv(1000)
    NotifySocket(str(tmp_path / "nobody"))(READY=1)


def test_variables_of_systemd() -> None:
    """
    Without systemd there is no notifier; its variables are not left for children.
    """
    assert systemd_notifier({}, str, Clock()) is None
    mine = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid()), "A": "b"}

    assert systemd_notifier(mine, str, Clock()) is not None
    assert {"A": "b"} == mine
