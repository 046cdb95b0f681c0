"""
When a stream's destination acknowledges what came: at once, soon, or with the next datagram.
"""

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.links.stream.receiver import IncomingStream
from msgnode.links.stream.sending.retransmission import ACK_DELAY_SECONDS

ACK_AFTER = 64  # messages; fewer are acknowledged after ACK_DELAY_SECONDS


class Acknowledging:
    """
    The timer of acknowledgements to one node; `emit` sends one.
    """

    def __init__(self, clock: IReactorTime, incoming: IncomingStream, emit: Callable[[], object]) -> None:
        self._clock = clock
        self._incoming = incoming
        self._emit = emit
        self._timer: IDelayedCall | None = None

    def schedule(self) -> None:
        """
        There is something to acknowledge.
        """
        incoming = self._incoming
        soon = incoming.urgent or incoming.news >= ACK_AFTER
        timer = self._timer
        if timer is None:
            self._timer = self._clock.callLater(0.0 if soon else ACK_DELAY_SECONDS, self._acknowledge)
        elif soon and timer.getTime() > self._clock.seconds():
            timer.reset(0)

    def stop(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _acknowledge(self) -> None:
        self._timer = None
        if self._incoming.news:
            self._emit()
