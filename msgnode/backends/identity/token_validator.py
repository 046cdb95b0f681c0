"""
Token validation: tokens of the configured OpenID providers and devices.

Keys are fetched only from the provider's own URLs, never from a URL in a token. Results are cached until the
token expires.
"""

import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from msgnode.backends.http_client import BackendClient
from msgnode.backends.identity.introspection import Introspection, secret_of
from msgnode.backends.identity.jwt import (
    MAX_TOKEN_CHARS,
    UnreadableToken,
    UnverifiedToken,
    check,
    read,
    refuse,
)
from msgnode.backends.identity.oidc_provider import Connect, OIDCProvider
from msgnode.backends.identity.opaque_tokens import OpaqueTokens
from msgnode.config.schema import IDP, ConfigError, IdentityOptions, IdentityProvider
from msgnode.protocol.errors import NotOffered, Rejected
from msgnode.sessions.access.device_tokens import PREFIX, DeviceTokens
from msgnode.sessions.principal import Principal, VerifiedToken
from msgnode.structures.bounded_cache import BoundedCache

log = Logger()

MAX_KNOWN = 10_000  # validated tokens in the cache


class Tokens:
    """
    The TokenValidator of the node. `connect` makes the HTTP client for a provider's host.
    """

    def __init__(
        self,
        options: IdentityOptions,
        clock: IReactorTime,
        connect: Connect,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.devices = DeviceTokens(options.devices)
        self.verified = 0  # signatures verified, for the metrics
        self._options = options
        self._clock = clock
        self.called: Callable[[BackendClient], None] = lambda client: None  # is called with each new client
        self._connect = connect
        self.wall = wall
        self._providers: dict[str, OIDCProvider] = {}
        self._known: BoundedCache[bytes, VerifiedToken] = BoundedCache(MAX_KNOWN)
        self._opaque: OpaqueTokens
        self._asked: dict[str, Introspection] = {}
        self.use(self.read())
        self.apply()

    @property
    def remembered(self) -> int:
        return len(self._known) + self._opaque.remembered

    def apply(self) -> None:
        """
        Apply a changed configuration. Cached results are dropped, since they may not hold any more.
        """
        if self.devices.path != self._options.devices:
            self.devices = DeviceTokens(self._options.devices)
            try:
                self.use(self.read())
            except ConfigError as why:
                log.error("no device token is valid, because the file cannot be used: {why}", why=str(why))
        before, after = self._providers, {}
        for options in self._options.providers:
            kept = before.get(options.issuer)
            if kept is None or kept.options != options:
                self._connect(options.issuer, options)  # an unusable certificate file is reported now
                kept = OIDCProvider(options, self._clock, self._client, partial(self._forget, options.domain))
            after[options.issuer] = kept
        asked = {issuer: self._introspection(provider) for issuer, provider in after.items()}
        self._providers, self._asked = after, {issuer: found for issuer, found in asked.items() if found}
        self._opaque = OpaqueTokens(list(self._asked.values()), self._clock, self.wall)
        if before:
            self._known.clear()

    def _introspection(self, provider: OIDCProvider) -> Introspection | None:
        """
        The introspection client of a provider, if introspection is configured for it.
        """
        options = provider.options.introspection
        if options is None:
            return None
        before = self._asked.get(provider.options.issuer)
        try:
            secret = secret_of(options)
        except ConfigError as why:
            if before is None or before.provider is not provider:
                raise
            log.error(
                "the client secret for {issuer} could not be reloaded: {why}",
                issuer=provider.options.issuer,
                why=str(why),
            )
            return before
        return Introspection(provider, options, secret, self._options.leeway_seconds, self.wall)

    def _client(self, host: str, options: IdentityProvider) -> BackendClient:
        client = self._connect(host, options)
        self.called(client)
        return client

    def start(self) -> None:
        """
        Fetch the keys of all providers, so that the first client need not wait.
        """
        for provider in self._providers.values():
            keys = provider.keys()
            if isinstance(keys, Deferred):
                keys.addErrback(lambda why: None)  # it was logged, and will be repeated

    def read(self) -> dict[str, Principal]:
        """
        Load the file of device tokens. ConfigError if it is invalid.
        """
        return self.devices.read()

    def use(self, known: dict[str, Principal]) -> dict[str, Principal]:
        return self.devices.use(known)

    def still_holds(self, proof: Principal) -> bool:
        """
        Is the source of this principal, a provider or a device, still configured?
        """
        if proof.line:
            return self.devices.knows(proof)
        if any(provider.options.domain == proof.idp for provider in self._providers.values()):
            return True
        return proof.idp == IDP and self.devices.knows(proof)

    # -- tokens ------------------------------------------------------------------

    def validate(self, token: str) -> VerifiedToken | Deferred[VerifiedToken]:
        """
        Validate a token. Rejected: 401 if it is invalid, 403 if its issuer is not trusted, 503 or 504 if that
        is unknown.
        """
        if len(token) > MAX_TOKEN_CHARS:
            raise refuse(f"has more than {MAX_TOKEN_CHARS} characters")
        if token.startswith(PREFIX):
            proof = self.devices.find(token)
            if proof is None:
                raise refuse("is not the token of a device here")
            return VerifiedToken(proof)
        key = sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._known.get(key)
        if known is not None:
            return self._known_claim(key, known)
        try:
            unsigned = read(token)
        except UnreadableToken as why:
            if not self._opaque.takes(why.token):
                raise
            return self._opaque.validate(why.token, key)
        provider = self._providers.get(unsigned.issuer)
        if provider is None:
            raise refuse(f"is from {unsigned.issuer!r}, which is not trusted here"[:300], 403)
        keys = provider.keys()
        if isinstance(keys, Deferred):
            return keys.addCallback(lambda found: self._check(key, unsigned, provider, found))
        return self._check(key, unsigned, provider, keys)

    def _known_claim(self, key: bytes, claim: VerifiedToken) -> VerifiedToken:
        until = claim.proof.until
        if until is not None and until + self._options.leeway_seconds <= self.wall():
            self._known.pop(key)
            raise refuse("has expired")
        provider = self._providers.get(claim.claims["iss"])
        if provider is not None:
            provider.refresh()  # in the background: the signing key may have been revoked
        return claim

    def _check(
        self, key: bytes, unsigned: UnverifiedToken, provider: OIDCProvider, keys: list[Any]
    ) -> VerifiedToken | Deferred[VerifiedToken]:
        try:
            return self._checked(key, unsigned, provider, keys)
        except KeyError:
            again = provider.look_again()
        why = "is signed with a key that its provider does not have"
        if again is None:
            raise refuse(f"{why}, as far as is known; try again later", 503)
        unknown = refuse(why)

        def found(keys: list[Any]) -> VerifiedToken:
            try:
                return self._checked(key, unsigned, provider, keys)
            except KeyError:
                raise unknown from None

        return (succeed(again) if isinstance(again, list) else again).addCallback(found)

    def _checked(
        self, key: bytes, unsigned: UnverifiedToken, provider: OIDCProvider, keys: list[Any]
    ) -> VerifiedToken:
        self.verified += 1
        claim = check(unsigned, keys, provider.options, self._options.leeway_seconds, self.wall)
        if self._providers.get(unsigned.issuer) is provider:  # else the configuration has changed meanwhile
            self._known.put(key, claim)
        return claim

    def _forget(self, idp: str) -> None:
        """
        Drop cached results after a key change of their provider.
        """
        for key in [key for key, claim in self._known.items() if claim.proof.idp == idp]:
            self._known.pop(key)

    def by_issuer(self, issuer: str) -> OIDCProvider | None:
        return self._providers.get(issuer)

    def by_domain(self, domain: Any) -> OIDCProvider:
        """
        The provider of a domain; if `domain` is None, the first. Rejected if there is none.
        """
        for provider in self._providers.values():
            if domain in (None, provider.options.domain):
                return provider
        if domain is None:
            raise NotOffered("no identity provider is configured here")
        raise Rejected(f"the identity provider {domain!r} is not trusted here"[:200], 403, "identity")
