"""
An OpenID provider: its discovery document and its signing keys.

Both are fetched on demand, cached as long as the provider allows, and used longer while the provider is down.
Concurrent calls share one fetch, and unknown key ids cause at most one fetch a minute.
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
MIN_KEY_SECONDS, MAX_KEY_SECONDS = 300.0, 86400.0  # bounds of the cache lifetime of keys, in seconds
STALE_KEY_SECONDS = 86400.0  # seconds beyond that, while the provider is down
UNKNOWN_KEY_SECONDS = 60.0  # seconds between two fetches because of unknown key ids
RETRY_SECONDS = 10.0  # seconds before a failed fetch is repeated
JSON = {"Accept": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}

Connect = Callable[[str, IdentityProvider], BackendClient]


class OIDCProvider:
    """
    A provider of `[[identity.providers]]`. `connect` makes the HTTP client of a host; `changed` runs after a
    key change.
    """

    def __init__(
        self,
        options: IdentityProvider,
        clock: IReactorTime,
        connect: Connect,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.options = options
        self.failures = 0  # failed fetches in a row
        self._unforeseen = FailureLog(log)
        self._clock = clock
        self._connect = connect
        self._changed = changed
        self._clients: dict[str, BackendClient] = {}
        self._found: dict[str, Any] = {}  # the discovery document
        self._found_at = 0.0
        self._finding: SingleFlight[None, dict[str, Any]] = SingleFlight()
        self._keys: list[Key] = []
        self._fresh_until = self._good_until = self._not_before = 0.0
        self._looked_at: float | None = None  # when an unknown key id last caused a fetch
        self._why = Rejected("the identity provider has not responded yet", 503, "back-end")
        self._fetching: Deferred[None] | None = None
        self._waiting: list[Deferred[list[Key]]] = []

    # -- keys ------------------------------------------------------------------

    def keys(self) -> list[Key] | Deferred[list[Key]]:
        """
        The signing keys, at once or later. Rejected (503, 504) without any, if the provider does not
        respond.
        """
        now = self._clock.seconds()
        if self._keys and now < self._good_until:
            if now >= self._fresh_until:
                self._fetch()  # in the background; the old keys serve meanwhile
            return self._keys
        if self._fetching is None and now < self._not_before:
            raise self._why
        return self._wait()

    def refresh(self) -> None:
        """
        Fetch the keys in the background if their cache lifetime is over.
        """
        if self._clock.seconds() >= self._fresh_until:
            self._fetch()

    def look_again(self) -> list[Key] | Deferred[list[Key]] | None:
        """
        Fetch the keys again for an unknown key id. None if that was tried within the last minute.
        """
        now = self._clock.seconds()
        if self._fetching is not None:
            return self._wait()
        if now < self._not_before or (
            self._looked_at is not None and now < self._looked_at + UNKNOWN_KEY_SECONDS
        ):
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
        self._good_until = self._fresh_until + STALE_KEY_SECONDS
        before, self._keys = self._keys, keys
        if before and [key.as_dict() for key in before] != [key.as_dict() for key in keys]:
            log.info("the signing keys of {issuer} have changed", issuer=self.options.issuer)
            self._changed()

    def _fetched(self, done: None) -> None:
        self._fetching = None
        if self.failures:
            log.info("the signing keys of {issuer} can be fetched again", issuer=self.options.issuer)
        self.failures = 0
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(self._keys)

    def _failed(self, why: Failure) -> None:
        """
        The fetch failed. Waiting calls get the previous keys, if they are still usable, else the error.
        """
        self._fetching = None
        self._found = {}  # its URLs may have changed
        now = self._clock.seconds()
        self._not_before = now + RETRY_SECONDS
        if not isinstance(why.value, Rejected):
            self._unforeseen.note(
                "the signing keys of {issuer} could not be fetched, unexpectedly",
                why,
                issuer=self.options.issuer,
            )
        self._why = _at_a_distance(why.value.code if isinstance(why.value, Rejected) else 503)
        self.failures += 1
        if self.failures == 1:
            log.warn(
                "the signing keys of {issuer} cannot be fetched: {why}",
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
        The discovery document, maybe from the cache.
        """
        if self._found and self._clock.seconds() < self._found_at + MAX_KEY_SECONDS:
            return succeed(self._found)
        return self._finding.call(None, self._discover)

    async def endpoint(self, name: str) -> str:
        """
        The URL of an endpoint in the discovery document. Rejected (502) if it is missing.
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

    def post(
        self, url: str, form: dict[str, str], headers: dict[str, str], safe: bool = True
    ) -> Deferred[Response]:
        """
        POST a form to the provider. `safe`: the endpoint is idempotent, so the request may be repeated.
        """
        client, path = self._way(url)
        return client.request(
            "POST", path, headers={**JSON, **FORM, **headers}, data=urlencode(form).encode(), safe=safe
        )

    def _way(self, url: str) -> tuple[BackendClient, str]:
        """
        The HTTP client for the URL's host, and the path with the query.
        """
        parts = urlsplit(url)
        host = f"{parts.scheme}://{parts.netloc}"
        client = self._clients.get(host)
        if client is None:
            client = self._clients[host] = self._connect(host, self.options)
        return client, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _is_url(url: object, issuer: str) -> bool:
    """
    Is this URL as safe as the issuer's: https, or http if the issuer's is?
    """
    if not isinstance(url, str) or not is_safe_url(url.partition("?")[0]):
        return False
    return url.startswith("https:") or issuer.startswith("http:")


def _at_a_distance(code: int) -> Rejected:
    """
    The error for clients, without details of the provider's response.
    """
    text = "the signing keys of the identity provider cannot be fetched now; try again later"
    return Rejected(text, code if code in (503, 504) else 503, "back-end")


def lifetime(headers: Headers) -> float:
    """
    The cache lifetime of a response in seconds, by its Cache-Control, within bounds.
    """
    said = ",".join(headers.getRawHeaders("cache-control", [])).lower()
    age = re.search(r"max-age\s*=\s*\"?(\d{1,9})", said)
    seconds = float(age[1]) if age else 3600.0
    if "no-store" in said or "no-cache" in said:
        seconds = 0.0
    return min(max(seconds, MIN_KEY_SECONDS), MAX_KEY_SECONDS)
