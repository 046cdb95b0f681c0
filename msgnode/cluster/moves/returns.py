"""
Clients that come back to this node while it is still handing their sessions over.

They wait until that has ended, but not for long. Otherwise the node could not distinguish what members send
to the session that left from what they send to the one that came back, and the order of their messages is
lost.
"""

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from msgnode.structures.timeouts import Timeouts

RETURN_SECONDS = 3.0


class Returns:
    """
    The waits of such clients, by the name of the session.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._waiting: dict[str, list[Deferred[None]]] = {}
        self._timeouts: Timeouts[str] = Timeouts(clock, RETURN_SECONDS, self.over)

    def names(self) -> list[str]:
        return list(self._waiting)

    def wait(self, name: str) -> Deferred[None]:
        """
        Fires when the handovers of the session are over, or RETURN_SECONDS after its first client came.
        """
        if name not in self._waiting:
            self._waiting[name] = []
            self._timeouts.start(name)
        done: Deferred[None] = Deferred()
        self._waiting[name].append(done)
        return done

    def over(self, name: str) -> None:
        """
        The handovers of a session are over, or have taken too long.
        """
        waiting = self._waiting.pop(name, None)
        if waiting is not None:
            self._timeouts.cancel(name)
            for done in waiting:
                done.callback(None)

    def stop(self) -> None:
        self._timeouts.stop()
        self._waiting.clear()
