"""
The heartbeat of Engine.IO, by which the node and a client each detect that the other is gone.

In version 3 the client pings, in version 4 the node does.
"""

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.connectors.socketio.codec import VERSIONS

TIMEOUT_SECONDS = dict(
    zip(VERSIONS, (60.0, 20.0), strict=True)
)  # seconds after the next ping is due; by version
DEFAULT_SECONDS = 25.0  # seconds between pings if the operator has turned pings on WebSocket off


class Heartbeat:
    """
    The timer of one client: calls `ping` at each interval, and `lost` once the client is silent for too long.

    `ping_seconds` gives the interval as configured, 0 for no pings on WebSocket.
    """

    def __init__(
        self,
        clock: IReactorTime,
        version: int,
        ping_seconds: Callable[[], float],
        ping: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        self.timeout = TIMEOUT_SECONDS[version]
        self._clock = clock
        self._ping_seconds = ping_seconds
        self._ping = ping
        self._lost = lost
        self._heard_at = clock.seconds()
        self._timer: IDelayedCall | None = None

    @property
    def interval(self) -> float:
        return self._ping_seconds() or DEFAULT_SECONDS

    def start(self) -> None:
        self._timer = self._clock.callLater(self.interval, self._beat)

    def heard(self) -> None:
        """
        Restart the timer: the client has sent a packet.
        """
        self._heard_at = self._clock.seconds()

    def stop(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def _beat(self) -> None:
        silent = self._clock.seconds() - self._heard_at
        if silent >= self.interval + self.timeout:
            self._lost()
            return
        self._ping()
        self.start()
