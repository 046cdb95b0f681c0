"""
The buffer of commands that are to be sent.

It outlives connections: publications wait in it while there is none. Commands of one turn of the event loop
leave in one write. It is the producer of its transport, and holds back what the transport cannot take.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from zope.interface import implementer

from msgnode.nats.wire.commands import PONG

BLOCK_BYTES = 64 * 1024  # of a write while much is waiting
_PUBLICATIONS = (b"PUB ", b"HPUB ")


@implementer(IPushProducer)
class Outgoing:
    """
    A bounded queue of commands. `on_full` is called when a publication is refused, `on_room` once half of the
    bytes are free again.
    """

    def __init__(
        self, clock: IReactorTime, max_bytes: int, on_full: Callable[[], None], on_room: Callable[[], None]
    ) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0  # that wait
        self.is_full = False  # since a publication was refused
        self._clock = clock
        self._on_full = on_full
        self._on_room = on_room
        self._commands: deque[bytes] = deque()
        self._transport: Any = None
        self._is_paused = False
        self._is_pong_due = False
        self._is_held = False
        self._flushing: IDelayedCall | None = None

    def put(self, command: bytes) -> bool:
        """
        Queue a publication; False if it does not fit.
        """
        size = self.bytes + len(command)
        if size > self.max_bytes:
            if not self.is_full:
                self.is_full = True
                self._on_full()
            return False
        self.bytes = size
        self._commands.append(command)
        if self._flushing is None and not self._is_held:
            self._schedule()
        return True

    def put_control(self, command: bytes) -> None:
        """
        Queue a command that is no publication, for instance SUB. It is dropped if the connection is lost
        before.
        """
        self.bytes += len(command)
        self._commands.append(command)
        if self._flushing is None and not self._is_held:
            self._schedule()

    def _schedule(self) -> None:
        if self._transport is not None and not self._is_paused:
            self._flushing = self._clock.callLater(0, self._flush_later)

    def hold(self) -> None:
        """
        Write nothing before `flush`, which the caller promises for this turn.
        """
        self._is_held = True

    def pong(self) -> None:
        """
        Answer a ping before all else. One answer is enough for all pings of a server that does not read.
        """
        if self._transport is not None and not self._is_paused:
            self._transport.write(PONG)
        else:
            self._is_pong_due = True

    def attach(self, transport: Any, first: bytes) -> None:
        """
        Write to this transport from now on: `first`, which has the subscriptions, then all that waits.
        """
        self._transport = transport
        transport.registerProducer(self, True)
        if first:
            transport.write(first)
        self.flush()

    def detach(self) -> None:
        """
        The transport is of no use any more. Publications wait for the next one.
        """
        if self._transport is not None:
            transport, self._transport = self._transport, None
            transport.unregisterProducer()
        self._is_paused = self._is_pong_due = self._is_held = False
        self._cancel()
        self._commands = deque(each for each in self._commands if each.startswith(_PUBLICATIONS))
        self.bytes = sum(map(len, self._commands))
        self._look_for_room()

    def clear(self) -> None:
        """
        Drop all that waits.
        """
        self._cancel()
        self._commands.clear()
        self.bytes = 0

    def flush(self) -> None:
        """
        Write what waits, as far as the transport takes it.
        """
        self._is_held = False
        self._cancel()
        while self._commands and self._transport is not None and not self._is_paused:
            self._transport.write(self._take())
        if self.is_full:
            self._look_for_room()

    def _take(self) -> bytes:
        """
        Remove all commands, or the first ones, at least one.
        """
        if self.bytes <= BLOCK_BYTES:
            block = b"".join(self._commands)
            self._commands.clear()
            self.bytes = 0
            return block
        taken, size = [], 0
        while self._commands and size < BLOCK_BYTES:
            taken.append(self._commands.popleft())
            size += len(taken[-1])
        self.bytes -= size
        return b"".join(taken)

    def _flush_later(self) -> None:
        self._flushing = None
        self.flush()

    def _cancel(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None

    def _look_for_room(self) -> None:
        if self.is_full and self.bytes <= self.max_bytes // 2:
            self.is_full = False
            self._on_room()

    # -- IPushProducer -------------------------------------------------------

    def pauseProducing(self) -> None:
        self._is_paused = True
        self._cancel()

    def resumeProducing(self) -> None:
        self._is_paused = False
        if self._is_pong_due and self._transport is not None:
            self._is_pong_due = False
            self._transport.write(PONG)
        self.flush()

    def stopProducing(self) -> None:
        """
        Called by a transport that is lost. `detach` follows.
        """
        self._is_paused = True
        self._cancel()
