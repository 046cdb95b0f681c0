"""
The logins of sessions at identity providers: their refresh tokens, and those that are not over.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime

from msgnode.backends.identity import device_logins, grants
from msgnode.backends.identity.access_tokens import AccessTokens
from msgnode.backends.identity.device_logins import Answer, DeviceLogins
from msgnode.backends.identity.grants import Grants
from msgnode.backends.identity.token_validator import Tokens
from msgnode.config.schema import IdentityOptions
from msgnode.protocol.errors import Rejected
from msgnode.sessions.session import Session
from msgnode.storage.keyed_journal import KeyedJournal
from msgnode.structures.time_slices import Slices

FILE = "logins.jsonl"
MAX_OWN_SESSIONS = 100  # of one user, that are listed
MAX_SEARCHES = 8  # at a time
_STEP = 500  # sessions that are looked at in one slice


class Logins(Service):
    """
    The service that keeps the logins over a restart. `state` is the state directory, or None; `find` finds a
    session by its runtimeURL, `sessions` are all.
    """

    def __init__(
        self,
        options: IdentityOptions,
        tokens: Tokens,
        answer: Answer,
        find: Callable[[str], Session | None],
        sessions: Iterable[Session],
        slices: Slices,
        clock: IReactorTime,
        state: Path | None = None,
        run: Callable[..., Deferred[Any]] = maybeDeferred,
        wall: Callable[[], float] = time.time,
        trusted: Callable[[], list[str]] = lambda: [],
    ) -> None:
        self._options = options
        self._find = find
        self._sessions = sessions
        self._slices = slices
        self._searches = 0
        self._journal = KeyedJournal(state / FILE if state is not None else None, clock, run)
        kept = Grants(None, self._journal, lambda: options.max_refresh_tokens)
        self.access = AccessTokens(options, tokens, kept, wall)
        self.devices = DeviceLogins(options, self.access, tokens, self._journal, answer, clock, wall, trusted)

    def apply(self) -> None:
        self.access.apply()

    def startService(self) -> None:
        """
        Gives the logins of before a restart to their sessions.
        """
        super().startService()
        kept = self._journal.read()
        by_kind: dict[str, dict[str, Any]] = {grants.KIND: {}, device_logins.KIND: {}}
        for key, value in kept.items():
            by_kind[value[0]][key] = value
        issuers = {provider.issuer for provider in self._options.providers}
        self.access.grants.restore(by_kind[grants.KIND], self._find, issuers)
        self.devices.restore(by_kind[device_logins.KIND], self._find)

    def stopService(self) -> Deferred[None]:
        super().stopService()
        self.devices.stop()
        return self._journal.close()

    def ended(self, session: Session) -> None:
        """
        Forgets the logins of a session that has ended, or is at another node now.
        """
        self.access.grants.ended(session)
        self.devices.ended(session)

    def own_sessions(self, user: str) -> Deferred[list[Session]]:
        """
        The sessions of a verified user at this node, MAX_OWN_SESSIONS at most.
        """
        if self._searches >= MAX_SEARCHES:
            raise Rejected("too many sessions are looked for; try again later", 503, "limit")
        self._searches += 1
        found: list[Session] = []
        over = self._slices.work(self._search(user, found))
        over.addBoth(self._searched)
        return over.addCallback(lambda done: found)

    def _searched(self, result: Any) -> Any:
        self._searches -= 1
        return result

    def _search(self, user: str, found: list[Session]) -> Iterator[None]:
        for number, session in enumerate(list(self._sessions), 1):
            if session.identity == user and not session.ended:
                found.append(session)
            if len(found) >= MAX_OWN_SESSIONS:
                return
            if number % _STEP == 0:
                yield
