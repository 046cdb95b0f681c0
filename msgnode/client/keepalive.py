"""
Is the node still at the other end of a line?

A peer that vanished without a word may leave a connection that looks well for
as long as nothing is sent, and for many minutes if something is.  WebSocket
has pings against that; on lines the client asks the node for a sign of life.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall

from msgnode.client.message import encode
from msgnode.client.transports import Link
from msgnode.protocol.address import SESSION

QUIET = 25.0  # seconds without a word until the node is asked, and until it must have answered


class Keepalive:
    """
    Looks after an open link of lines; `dead` is called when the node does not answer.
    """

    def __init__(self, reactor: Any, link: Link, runtime: str, dead: Callable[[], None]) -> None:
        self._reactor = reactor
        self._link = link
        self._ping = encode({"id": 0, "type": "ping", "from": runtime, "to": SESSION})
        self._dead = dead
        self._asked = False
        self._next: IDelayedCall = reactor.callLater(QUIET, self._look)
        link.silent = True

    def stop(self) -> None:
        if self._next.active():
            self._next.cancel()

    def _look(self) -> None:
        link = self._link
        if link.silent and self._asked:
            self._dead()
            return
        self._asked = link.silent
        if link.silent:
            link.send(self._ping)
        link.silent = True
        self._next = self._reactor.callLater(QUIET, self._look)
