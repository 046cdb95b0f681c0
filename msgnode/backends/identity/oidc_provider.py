"""
An OpenID provider: where its keys are, and which they are now.

Both are fetched when they are first needed, kept as long as the provider
says, and kept on when it falls silent.  However many ask, one fetch is under
way; however many unknown keys are named, one a minute is looked for.
"""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode, urlsplit

from joserfc.jwk import Key
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http_headers import Headers

from msgnode.backends.http_client import BackendClient, Response
from msgnode.backends.identity.jwt import read_keys
from msgnode.config.schema import IdentityProvider
from msgnode.config.validation import is_safe_url
from msgnode.protocol.errors import Rejected
from msgnode.structures.log_limits import FailureLog
from msgnode.structures.single_flight import SingleFlight

log = Logger()

DISCOVERY = "/.well-known/openid-configuration"
SHORTEST, LONGEST = 300.0, 86400.0  # seconds that keys are used, whatever their provider says
OLDEST = 86400.0  # seconds beyond that, while the provider is down
UNKNOWN = 60.0  # seconds between two looks for a key that is not there
AGAIN = 10.0  # seconds between two tries after one that failed
JSON = {"Accept": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}

Connect = Callable[[str, IdentityProvider], BackendClient]


class OIDCProvider:
    """
    One of `[[identity.providers]]`.  `connect` makes the client for a host; `changed` is told of new keys.
    """

    def __init__(
        self,
        options: IdentityProvider,
        clock: IReactorTime,
        connect: Connect,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.options = options
        self.failures = 0  # fetches in a row that brought nothing
        self._unforeseen = FailureLog(log)
        self._clock = clock
        self._connect = connect
        self._changed = changed
        self._clients: dict[str, BackendClient] = {}
        self._found: dict[str, Any] = {}  # its discovery document
        self._found_at = 0.0
        self._finding: SingleFlight[None, dict[str, Any]] = SingleFlight()
        self._keys: list[Key] = []
        self._fresh_until = self._good_until = self._not_before = 0.0
        self._looked_at: float | None = None  # for an unknown key
        self._why = Rejected("the identity provider has not answered yet", 503, "back-end")
        self._fetching: Deferred[None] | None = None
        self._waiting: list[Deferred[list[Key]]] = []

    # -- keys ------------------------------------------------------------------

    def keys(self) -> list[Key] | Deferred[list[Key]]:
        """
        Its keys.  Rejected (503, 504), now or later, if there are none and it does not answer.
        """
        now = self._clock.seconds()
        if self._keys and now < self._good_until:
            if now >= self._fresh_until:
                self._fetch()  # meanwhile the old ones do
            return self._keys
        if self._fetching is None and now < self._not_before:
            raise self._why
        return self._wait()

    def refresh(self) -> None:
        """
        Fetch its keys anew if their time is over; nobody waits for them.
        """
        if self._clock.seconds() >= self._fresh_until:
            self._fetch()

    def look_again(self) -> list[Key] | Deferred[list[Key]] | None:
        """
        A token names a key that is not there: perhaps it is new.  None: that was looked into a moment ago.
        """
        now = self._clock.seconds()
        if self._fetching is not None:
            return self._wait()
        if now < self._not_before or (self._looked_at is not None and now < self._looked_at + UNKNOWN):
            return None
        self._looked_at = now
        return self._wait()

    def _wait(self) -> Deferred[list[Key]]:
        waiting: Deferred[list[Key]] = Deferred()
        self._waiting.append(waiting)
        self._fetch()
        return waiting

    def _fetch(self) -> None:
        if self._fetching is None and self._clock.seconds() >= self._not_before:
            self._fetching = fetching = Deferred.fromCoroutine(self._fetch_keys())
            fetching.addCallbacks(self._fetched, self._failed)

    async def _fetch_keys(self) -> None:
        url = self.options.jwks_uri or str((await self.discover())["jwks_uri"])
        answer = (await self._get(url)).check()
        try:
            keys = read_keys(answer.json())
        except ValueError as why:
            raise Rejected(f"{url}: {why}", 502) from None
        now = self._clock.seconds()
        self._fresh_until = now + lifetime(answer.headers)
        self._good_until = self._fresh_until + OLDEST
        before, self._keys = self._keys, keys
        if before and [key.as_dict() for key in before] != [key.as_dict() for key in keys]:
            log.info("{issuer} has other keys now", issuer=self.options.issuer)
            self._changed()

    def _fetched(self, done: None) -> None:
        self._fetching = None
        if self.failures:
            log.info("{issuer} gives its keys again", issuer=self.options.issuer)
        self.failures = 0
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(self._keys)

    def _failed(self, why: Failure) -> None:
        """
        What was fetched is no good, or nothing was; those who wait may still have the keys of before.
        """
        self._fetching = None
        self._found = {}  # perhaps they have moved
        now = self._clock.seconds()
        self._not_before = now + AGAIN
        if not isinstance(why.value, Rejected):
            self._unforeseen.note("fetching the keys of {issuer}", why, issuer=self.options.issuer)
        self._why = _at_a_distance(why.value.code if isinstance(why.value, Rejected) else 503)
        self.failures += 1
        if self.failures == 1:
            log.warn(
                "{issuer} does not give its keys: {why}",
                issuer=self.options.issuer,
                why=why.getErrorMessage(),
            )
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if self._keys and now < self._good_until:
                waiter.callback(self._keys)
            else:
                waiter.errback(self._why)

    # -- discovery ---------------------------------------------------------------

    def discover(self) -> Deferred[dict[str, Any]]:
        """
        What it says of itself.
        """
        if self._found and self._clock.seconds() < self._found_at + LONGEST:
            return succeed(self._found)
        return self._finding.call(None, self._discover)

    async def endpoint(self, name: str) -> str:
        """
        One of the addresses that it says it has.
        """
        url = (await self.discover()).get(name)
        if not _is_url(url, self.options.issuer):
            raise Rejected(f"its discovery document names no {name!r}", 502)
        return str(url)

    async def _discover(self) -> dict[str, Any]:
        issuer = self.options.issuer
        answer = (await self._get(issuer.rstrip("/") + DISCOVERY)).check()
        found = answer.json()
        if not isinstance(found, dict) or found.get("issuer") != issuer:
            other = found.get("issuer") if isinstance(found, dict) else None
            raise Rejected(f"expected the issuer {issuer!r}, found {other!r}"[:300], 502)
        if not self.options.jwks_uri and not _is_url(found.get("jwks_uri"), issuer):
            raise Rejected("its discovery document names no 'jwks_uri'; set identity.providers.jwks_uri", 502)
        self._found, self._found_at = found, self._clock.seconds()
        return found

    # -- calls -------------------------------------------------------------------

    def _get(self, url: str) -> Deferred[Response]:
        client, path = self._way(url)
        return client.request("GET", path, headers=JSON)

    def post(self, url: str, form: dict[str, str], headers: dict[str, str]) -> Deferred[Response]:
        """
        Ask it something with a form; it does no harm to ask twice.
        """
        client, path = self._way(url)
        return client.request(
            "POST", path, headers={**JSON, **FORM, **headers}, data=urlencode(form).encode(), safe=True
        )

    def _way(self, url: str) -> tuple[BackendClient, str]:
        """
        The client for the URL's host, and what to ask it for.
        """
        parts = urlsplit(url)
        host = f"{parts.scheme}://{parts.netloc}"
        client = self._clients.get(host)
        if client is None:
            client = self._clients[host] = self._connect(host, self.options)
        return client, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _is_url(url: object, issuer: str) -> bool:
    """
    A URL as safe as the issuer's own.
    """
    if not isinstance(url, str) or not is_safe_url(url.partition("?")[0]):
        return False
    return url.startswith("https:") or issuer.startswith("http:")


def _at_a_distance(code: int) -> Rejected:
    """
    What a bearer is told: not what the provider told us.
    """
    text = "the identity provider does not give its keys now; try again later"
    return Rejected(text, code if code in (503, 504) else 503, "back-end")


def lifetime(headers: Headers) -> float:
    """
    Seconds that an answer may be used, by its Cache-Control, within bounds.
    """
    said = ",".join(headers.getRawHeaders("cache-control", [])).lower()
    age = re.search(r"max-age\s*=\s*\"?(\d{1,9})", said)
    seconds = float(age[1]) if age else 3600.0
    if "no-store" in said or "no-cache" in said:
        seconds = 0.0
    return min(max(seconds, SHORTEST), LONGEST)
