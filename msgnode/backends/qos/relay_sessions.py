"""
The sessions at the relay that belong to reservations, and their end.
"""

from collections.abc import Container
from typing import Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.backends.qos.coturn import RelaySession

log = Logger()

MAX_WAITING = 100  # reservations about which the relay is asked together


class Relay(Protocol):
    """
    The relay, as reservations need it (Coturn).
    """

    async def sessions(self, *texts: str) -> list[RelaySession]: ...
    async def cancel(self, sessions: list[RelaySession]) -> None: ...


class RelaySessions:
    """
    The sessions at a relay. `failures` counts those of its command line, one after the other.
    """

    def __init__(self, relay: Relay) -> None:
        self.failures = 0
        self._relay = relay
        self._waiting: list[tuple[str, Deferred[str]]] = []  # reservations whose sessions are to be cancelled
        self._is_busy = False

    def cancel(self, reservation: str) -> Deferred[str]:
        """
        Cancels the sessions of a reservation. Fires with why they could not be cancelled now, or "". What
        ends while the relay is asked about others waits, and is asked about together.
        """
        if len(self._waiting) >= MAX_WAITING:
            return succeed("very many reservations end now; its turn is at the next look")
        over: Deferred[str] = Deferred()
        self._waiting.append((reservation, over))
        if not self._is_busy:
            self._cancel_waiting()
        return over

    async def look(self, prefix: str, granted: Container[str]) -> list[RelaySession] | None:
        """
        Cancels the sessions whose reservation begins with `prefix` and is not granted. Returns all that begin
        so; None if the relay does not answer.
        """
        try:
            found = await self._relay.sessions(prefix)
            ours = [each for each in found if each.reservation.startswith(prefix)]
            await self._relay.cancel([each for each in ours if each.reservation not in granted])
        except Exception:
            self._failed(Failure())
            return None
        self.failures = 0
        return ours

    def _cancel_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._is_busy = True
        done = Deferred.fromCoroutine(self._cancel({id for id, _ in waiting}))
        done.addErrback(self._failed).addCallback(self._have_cancelled, waiting)
        done.addErrback(
            lambda why: log.failure("the answer to the end of a reservation could not be sent", why)
        )

    def _have_cancelled(self, failure: str, waiting: list[tuple[str, Deferred[str]]]) -> None:
        self._is_busy = False
        if self._waiting:
            self._cancel_waiting()
        for _, over in waiting:
            over.callback(failure)

    async def _cancel(self, ids: set[str]) -> str:
        found = await self._relay.sessions(*sorted(ids))
        await self._relay.cancel([each for each in found if each.reservation in ids])
        self.failures = 0
        return ""

    def _failed(self, why: Failure) -> str:
        self.failures += 1
        if self.failures == 1:
            log.error(
                "the sessions of a reservation at the TURN server cannot be ended: {why}",
                why=why.getErrorMessage(),
            )
        return str(why.getErrorMessage())
