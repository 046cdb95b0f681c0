"""
Opaque tokens: tokens that only their provider can read, validated by introspection.

Results are cached: a valid token until it expires, an invalid one for some seconds. Concurrent calls about
the same token share one request. Only hashes of tokens are kept.
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

DEFAULT_CACHE_SECONDS = 300.0  # seconds that a valid token without an expiry is cached
INVALID_CACHE_SECONDS = 10.0  # seconds that an invalid token is cached
MAX_VALID, MAX_INVALID = 10_000, 1_000

# The syntax is RFC 6749, A.12. Tokens of sessions and devices must not be sent to a provider.
_TOKEN = re.compile(r"(?!mn[sd]_)[\x20-\x7e]+")

T = TypeVar("T")


class ExpiringCache(Generic[T]):
    """
    A bounded cache by the hash of a token, with an expiry for each entry.
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
    The validator of opaque tokens: it asks their providers, and caches the results.

    `asked` are the providers; the first that knows a token decides. `wall` is the time of day in seconds
    since 1970.
    """

    def __init__(self, asked: list[Introspection], clock: IReactorTime, wall: Callable[[], float]) -> None:
        self._asked = asked
        self._wall = wall
        self._failures = FailureLog(log)
        self._under_way: SingleFlight[bytes, VerifiedToken] = SingleFlight()
        self._good: ExpiringCache[VerifiedToken] = ExpiringCache(MAX_VALID, clock)
        self._no_good: ExpiringCache[str] = ExpiringCache(MAX_INVALID, clock)

    @property
    def remembered(self) -> int:
        """
        The number of results that are cached.
        """
        return len(self._good) + len(self._no_good)

    def takes(self, token: str) -> bool:
        """
        Can any provider be asked about this token?
        """
        return bool(self._asked) and _TOKEN.fullmatch(token) is not None

    def validate(self, token: str, key: bytes) -> VerifiedToken | Deferred[VerifiedToken]:
        """
        Validate the token with the hash `key`. Rejected: 401 if it is invalid, 502 to 504 if that is unknown.
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
                self._no_good.put(key, str(why), INVALID_CACHE_SECONDS)
            raise
        until = claim.proof.until if "exp" in claim.claims else None
        self._good.put(key, claim, DEFAULT_CACHE_SECONDS if until is None else until - self._wall())
        return claim

    async def _first(self, token: str) -> VerifiedToken:
        """
        The result of the first provider that knows the token. If one does not respond and no other knows it,
        its error.
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
            except Exception:  # another provider may know the token
                self._failures.note("token introspection failed unexpectedly", Failure())
                silent = silent or Rejected(SILENT, 503, "back-end")
                continue
            if claim is not None:
                return claim
        raise silent or refuse("is not known to its provider, or no longer valid")
