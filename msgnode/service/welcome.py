"""
The welcome that the node prints once it listens: the address of each listener, and a first step.

`tools/run` requests it with MSGNODE_WELCOME, which is the last line of the welcome.
"""

import sys
from collections.abc import Iterable
from typing import Protocol, TextIO

from twisted.application.service import Service

VARIABLE = "MSGNODE_WELCOME"
_ABOUT = {
    "web": ("pages and clients", "{}://{}/"),
    "line": ("devices, by TCP", "{1}"),
    "admin": ("operators", "{0}://{1}/live and /metrics"),
}


class Place(Protocol):
    """
    A listener: its kind, the address where it listens (`""` until it does), and the scheme of its URLs.
    """

    kind: str
    where: str

    @property
    def scheme(self) -> str: ...


class Welcome(Service):
    """
    A service that prints the welcome when it starts, after all others.
    """

    def __init__(self, hint: str, listeners: Iterable[Place], output: TextIO = sys.stderr) -> None:
        self._hint = hint
        self._listeners = list(listeners)
        self._output = output

    def startService(self) -> None:
        super().startService()
        lines = ["", "The node is up; Ctrl-C stops it."]
        for listener in self._listeners:
            what, where = _ABOUT[listener.kind]
            where = "{1}" if listener.where.startswith("unix:") else where  # no URL can name a UNIX socket
            lines.append(f"  {what + ':':20}{where.format(listener.scheme, listener.where)}")
        lines += ["To see a message travel, follow 'A conversation' in README.md.", self._hint, ""]
        print("\n".join(lines), file=self._output, flush=True)
