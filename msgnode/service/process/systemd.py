"""
Notifications to systemd, for a unit of `Type=notify`: ready, reloading, status, watchdog, stopping.

sd_notify(3) has the protocol: a datagram of lines NAME=VALUE.
"""

import os
import socket
import time
from collections.abc import Callable, MutableMapping
from typing import Any

from twisted.application.service import Service
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from msgnode.config.reload import ReloadVerdict
from msgnode.structures.log_limits import printable

log = Logger()

STATUS_SECONDS = 10.0
_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class NotifySocket:
    """
    The socket of systemd at the address `NOTIFY_SOCKET`.  A message that it does not take is lost.
    """

    def __init__(self, address: str) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def __call__(self, **fields: Any) -> None:
        text = "\n".join(f"{name}={value}" for name, value in fields.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
                notify.setblocking(False)
                notify.sendto(text.encode(), self._address)
        except OSError as why:
            log.warn("systemd cannot be notified: {why}", why=why.strerror)


class SystemdNotifier(Service):
    """
    A service that tells systemd what the node does; it starts last.

    `notify` sends fields, `status` returns one line about the node.  With `watchdog_seconds` a timer of the
    event loop tells systemd twice in that time that it runs; systemd restarts a node whose loop hangs.
    """

    def __init__(
        self,
        notify: Callable[..., None],
        status: Callable[[], str],
        watchdog_seconds: float | None,
        clock: Any,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._notify = notify
        self._status = status
        self._failed = ""  # why the last reload failed
        self._monotonic = monotonic
        self._timers: list[tuple[LoopingCall, float]] = []
        calls: list[tuple[Callable[[], None], float]] = [(self._tell, STATUS_SECONDS)]
        if watchdog_seconds is not None:
            calls.append((lambda: notify(WATCHDOG=1), watchdog_seconds / 2))
        for call, seconds in calls:
            timer = LoopingCall(call)
            timer.clock = clock
            self._timers.append((timer, seconds))

    def startService(self) -> None:
        super().startService()
        self._notify(READY=1, STATUS=self._status())
        for timer, seconds in self._timers:
            if not timer.running:
                timer.start(seconds, now=False)

    def stopService(self) -> None:
        """
        Tell systemd that the node stops.  The watchdog goes on: a node that hangs while it stops is ended.
        """
        super().stopService()
        self._notify(STOPPING=1, STATUS="stops: writes its state, and tells its clients")
        if self._timers[0][0].running:
            self._timers[0][0].stop()

    def reloading(self) -> None:
        """
        Called before the configuration is read again.
        """
        self._notify(RELOADING=1, MONOTONIC_USEC=self._monotonic() // 1000)

    def reloaded(self, verdict: ReloadVerdict) -> None:
        """
        Called with the result; a failure stays in the status until a reload succeeds.
        """
        self._failed = "" if verdict.ok else f"the last reload failed: {printable(verdict.text)}; "
        self._notify(READY=1, STATUS=self._failed + self._status())

    def _tell(self) -> None:
        self._notify(STATUS=self._failed + self._status())


def systemd_notifier(
    environment: MutableMapping[str, str], status: Callable[[], str], clock: Any
) -> SystemdNotifier | None:
    """
    Returns the notifier if systemd started this process, and takes its variables out of the environment.
    """
    address, watchdog, pid = (environment.pop(name, "") for name in _VARIABLES)
    if not address.startswith(("/", "@")):
        return None
    is_ours = watchdog.isdigit() and (not pid or pid == str(os.getpid()))
    seconds = int(watchdog) / 1e6 if is_ours and int(watchdog) else None
    return SystemdNotifier(NotifySocket(address), status, seconds, clock)
