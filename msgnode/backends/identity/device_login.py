"""
Device logins (OAuth 2.0 Device Authorization Grant, RFC 8628): the user logs in elsewhere for a thing without
a browser, and the node asks the provider for the outcome.
"""

from collections.abc import Callable

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from msgnode.backends.identity.grants import Owner
from msgnode.backends.identity.token_endpoint import (
    DEVICE,
    DeviceAuthorization,
    Refusal,
    TokenEndpoint,
    TokenSet,
)
from msgnode.protocol.errors import Rejected

MIN_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS = 1.0, 60.0  # between two polls, whatever the provider says
SLOWER_SECONDS = 5.0  # RFC 8628, 3.5: slow_down


class PendingLogin(msgspec.Struct, kw_only=True):
    """
    A device login for a request of a session: what its final answer needs, and when it is over, in seconds
    since 1970. `sealed` has the device code. `user` is the session's, `session` the hash of its token.
    """

    id: str
    runtime: str
    user: str
    session: str
    issuer: str
    request: str
    scopes: list[str]
    until: float
    interval: float
    sealed: str

    @property
    def owner(self) -> Owner:
        return Owner(self.user, self.session)

    def about(self) -> str:
        return "\n".join((self.id, self.issuer, self.user, self.session))


def interval_of(found: DeviceAuthorization) -> float:
    return min(max(float(found.interval), MIN_INTERVAL_SECONDS), MAX_INTERVAL_SECONDS)


class DeviceLogin:
    """
    The polling of one device login. `outcome` fires with the tokens, or fails with Rejected.
    """

    def __init__(
        self,
        pending: PendingLogin,
        code: str,
        endpoint: TokenEndpoint,
        clock: IReactorTime,
        wall: Callable[[], float],
    ) -> None:
        self.pending = pending
        self.outcome: Deferred[TokenSet] = Deferred()
        self._code = code
        self._endpoint = endpoint
        self._clock = clock
        self._wall = wall
        self._interval = pending.interval
        self._timer: IDelayedCall | None = None
        self._is_over = False
        self._wait()

    def cancel(self, why: Rejected) -> None:
        """
        Ends the polling; `outcome` fails with this reason.
        """
        self._end(Failure(why))

    def stop(self) -> None:
        """
        Ends the polling; `outcome` never fires.
        """
        self._end(None)

    def _wait(self) -> None:
        left = self.pending.until - self._wall()
        if left <= 0:
            self.cancel(Rejected("the user has not logged in in time; ask again", 408, "stale"))
            return
        self._timer = self._clock.callLater(min(self._interval, left), self._ask)

    def _ask(self) -> None:
        self._timer = None
        asked = Deferred.fromCoroutine(self._endpoint.token(DEVICE, {"device_code": self._code}))
        asked.addErrback(self._refused)
        asked.addBoth(self._answered)

    def _refused(self, why: Failure) -> None:
        """
        Not yet: slower, if the provider says so or does not answer. Any other refusal is the outcome.
        """
        refusal = why.value
        if isinstance(refusal, Refusal) and refusal.error == "slow_down":
            self._interval = min(self._interval + SLOWER_SECONDS, MAX_INTERVAL_SECONDS)
        elif isinstance(refusal, Rejected) and refusal.code in (503, 504):
            self._interval = min(self._interval * 2, MAX_INTERVAL_SECONDS)
        elif not isinstance(refusal, Refusal) or refusal.error != "authorization_pending":
            why.raiseException()

    def _answered(self, result: TokenSet | Failure | None) -> None:
        if result is not None:
            self._end(result)
        elif not self._is_over:
            self._wait()

    def _end(self, result: TokenSet | Failure | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if result is not None:
            self.outcome.callback(result)
