"""
Opaque tokens: those that say nothing but to the provider that made them.

What it said of one is remembered: that it is good until its end, that it is
not for a moment.  However many show a token, one question about it is under
way.  Only hashes of tokens are kept.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.backends.identity.introspection import SILENT, Introspection
from msgnode.backends.identity.jwt import refuse
from msgnode.protocol.errors import Rejected
from msgnode.sessions.principal import VerifiedToken
from msgnode.structures.bounded_cache import BoundedCache
from msgnode.structures.log_limits import FailureLog
from msgnode.structures.single_flight import SingleFlight

log = Logger()

ENDLESS = 300.0  # seconds that a good token is remembered whose provider names no end
NO_GOOD = 10.0  # seconds that one is remembered which is no good
MAX_GOOD, MAX_NO_GOOD = 10_000, 1_000

# RFC 6749, A.12; those of sessions and devices are nobody else's business.
_TOKEN = re.compile(r"(?!mn[sd]_)[\x20-\x7e]+")

T = TypeVar("T")


class Remembered(Generic[T]):
    """
    A cache by the hash of a token, whose entries are good for some seconds each.
    """

    def __init__(self, most: int, clock: IReactorTime) -> None:
        self._clock = clock
        self._found: BoundedCache[bytes, tuple[T, float]] = BoundedCache(most)

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: bytes) -> T | None:
        found = self._found.get(key)
        if found is None:
            return None
        thing, until = found
        if self._clock.seconds() >= until:
            self._found.pop(key)
            return None
        return thing

    def put(self, key: bytes, thing: T, seconds: float) -> None:
        self._found.put(key, (thing, self._clock.seconds() + seconds))


class OpaqueTokens:
    """
    Validates opaque tokens by asking their providers, and caches the answers.

    `asked` are the providers, of which the first that knows a token decides; `wall` gives seconds since 1970.
    """

    def __init__(self, asked: list[Introspection], clock: IReactorTime, wall: Callable[[], float]) -> None:
        self._asked = asked
        self._wall = wall
        self._failures = FailureLog(log)
        self._under_way: SingleFlight[bytes, VerifiedToken] = SingleFlight()
        self._good: Remembered[VerifiedToken] = Remembered(MAX_GOOD, clock)
        self._no_good: Remembered[str] = Remembered(MAX_NO_GOOD, clock)

    def takes(self, token: str) -> bool:
        """
        Is there somebody to ask about such a token?
        """
        return bool(self._asked) and _TOKEN.fullmatch(token) is not None

    def validate(self, token: str, key: bytes) -> VerifiedToken | Deferred[VerifiedToken]:
        """
        What the token, whose hash is `key`, proves.  Rejected: 401 it is no good, 502 to 504 we cannot know.
        """
        good = self._good.get(key)
        if good is not None:
            return good
        why = self._no_good.get(key)
        if why is not None:
            raise Rejected(why, 401, "token")
        return self._under_way.call(key, partial(self._ask, token, key))

    async def _ask(self, token: str, key: bytes) -> VerifiedToken:
        try:
            claim = await self._first(token)
        except Rejected as why:
            if why.code == 401:
                self._no_good.put(key, str(why), NO_GOOD)
            raise
        until = claim.proof.until if "exp" in claim.claims else None
        self._good.put(key, claim, ENDLESS if until is None else until - self._wall())
        return claim

    async def _first(self, token: str) -> VerifiedToken:
        """
        What the first provider says that knows the token.  One that is silent may be the one.
        """
        silent: Rejected | None = None
        for provider in self._asked:
            try:
                claim = await provider.ask(token)
            except Rejected as why:
                if why.code < 500:
                    raise
                silent = silent or why
                continue
            except Exception:  # another may know the token all the same
                self._failures.note("asking a provider about a token", Failure())
                silent = silent or Rejected(SILENT, 503, "back-end")
                continue
            if claim is not None:
                return claim
        raise silent or refuse("is not known to its provider, or good no longer")
