"""
Access tokens and assertions for sessions: the node logs its clients' users in at their providers, keeps the
refresh tokens, and gives out what lives shortly.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from msgnode.backends.identity.grants import Grant, Grants, Owner, owner_of
from msgnode.backends.identity.introspection import secret_of
from msgnode.backends.identity.login_page import code_of, scopes_of, text
from msgnode.backends.identity.oidc_provider import OIDCProvider
from msgnode.backends.identity.sealing import Unsealable, read_token_keys
from msgnode.backends.identity.token_endpoint import (
    ACCESS_TOKEN,
    CODE,
    EXCHANGE,
    ID_TOKEN,
    REFRESH,
    Refusal,
    TokenEndpoint,
    TokenSet,
)
from msgnode.backends.identity.token_validator import Tokens
from msgnode.config.schema import ConfigError, IdentityOptions
from msgnode.protocol.errors import NotOffered, Rejected
from msgnode.sessions.principal import VerifiedToken
from msgnode.sessions.session import Session
from msgnode.structures.single_flight import SingleFlight

log = Logger()

DEFAULT_TOKEN_SECONDS = 300  # of an access token whose provider says nothing
_PROFILE = ("preferred_username", "name", "picture", "email", "locale")


class NotLoggedIn(Rejected):
    """
    The session has no usable login at the provider. The runtimes expect an object as description.
    """

    def __init__(self, issuer: str, login_url: str = "") -> None:
        text = f"this session has no login at {issuer} that can be refreshed; ask for getAccessToken"
        super().__init__(text, 401, "token")
        self.login_url = login_url

    def body(self) -> dict[str, Any]:
        described = {"name": "IdPLoginError", "loginUrl": self.login_url, "message": str(self)}
        return {"code": self.code, "desc": str(self), "description": described}


class AccessTokens:
    """
    The tokens of the sessions' users. `tokens` validates what providers issue, `grants` keeps refresh tokens.
    """

    def __init__(
        self,
        options: IdentityOptions,
        tokens: Tokens,
        grants: Grants,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.counts: dict[tuple[str, str], int] = {}  # requests to token endpoints, by grant and outcome
        self.grants = grants
        self._options = options
        self._tokens = tokens
        self._wall = wall
        self._endpoints: dict[str, TokenEndpoint] = {}
        self._secrets: dict[str, str] = {}
        self._is_applied = False
        self._turns: dict[str, DeferredLock] = {}  # of refreshes, by grant
        self._refreshing: SingleFlight[tuple[str, str], tuple[Grant, TokenSet]] = SingleFlight()

    def apply(self) -> None:
        """
        Applies a changed configuration. ConfigError at the start if a secret cannot be read; later it is
        logged.
        """
        secrets = {}
        for options in self._options.providers:
            try:
                secrets[options.issuer] = secret_of(options)
            except ConfigError as why:
                if options.issuer not in self._secrets:
                    raise
                log.error("{why}; the earlier secret stays", why=str(why))
                secrets[options.issuer] = self._secrets[options.issuer]
        if secrets != self._secrets:
            self._endpoints.clear()
        is_first, self._secrets = not self._is_applied, secrets
        self._is_applied = True
        if self._options.token_keys_file:
            try:
                self.grants.use(read_token_keys(self._options.token_keys_file))
            except ConfigError as why:
                if is_first:
                    raise
                log.error("{why}; the earlier keys stay", why=str(why))
        self.grants.retain(set(secrets))

    def endpoint(self, provider: OIDCProvider) -> TokenEndpoint:
        issuer = provider.options.issuer
        found = self._endpoints.get(issuer)
        if found is None or found.provider is not provider:
            secret = self._secrets.get(issuer, "")
            found = self._endpoints[issuer] = TokenEndpoint(provider, secret, self.counts)
        return found

    # -- logins --------------------------------------------------------------------

    async def exchange_code(
        self, provider: OIDCProvider, session: Session, params: dict[str, Any]
    ) -> dict[str, Any]:
        """
        The tokens of a login whose page has redirected the browser back (RFC 6749, 4.1.3, with PKCE).
        """
        code, redirect_uri = code_of(params, provider.options.redirect_uri)
        form = {"code": code, "code_verifier": text(params, "code_verifier"), "redirect_uri": redirect_uri}
        self.grants.check_room(session, provider.options.issuer)
        owner, scopes = owner_of(session), scopes_of(params, provider)
        found = await self.endpoint(provider).token(CODE, form)
        return await self.accept(provider, session, owner, found, scopes)

    async def accept(
        self, provider: OIDCProvider, session: Session, owner: Owner, found: TokenSet, scopes: list[str]
    ) -> dict[str, Any]:
        """
        Keeps the refresh token of a login, if it came with one; returns the value of the answer. Rejected
        (410) if the session is not any more that of the owner who logged in.
        """
        claim = await self._claim(provider, found.id_token) if found.id_token else None
        user = claim.proof.user if claim is not None else ""
        granted = found.scope.split() if found.scope else scopes
        try:
            owner.check(session)
        except Rejected:
            await self.revoke_quietly(provider, found.refresh_token or found.access_token)
            raise
        kept = None
        if found.refresh_token:
            kept = self.grants.add(session, provider.options.issuer, user, granted, found.refresh_token)
        if kept is not None:
            await kept
        return self._value(provider, found, claim, granted, refreshable=kept is not None)

    async def access_token(
        self, provider: OIDCProvider, session: Session, scopes: list[str]
    ) -> dict[str, Any]:
        """
        A new access token by the session's refresh token.
        """
        grant, found = await self.refresh(provider, session, scopes)
        claim = await self._claim(provider, found.id_token, grant) if found.id_token else None
        return self._value(provider, found, claim, scopes or grant.scopes, refreshable=True)

    def refresh(
        self, provider: OIDCProvider, session: Session, scopes: list[str] | None = None
    ) -> Deferred[tuple[Grant, TokenSet]]:
        """
        New tokens by the session's refresh token. Concurrent requests share one: providers take a second use
        of the same refresh token for a theft.
        """
        grant = self.grants.find(session, provider.options.issuer)
        if grant is None:
            raise NotLoggedIn(provider.options.issuer)
        key = (grant.id, " ".join(sorted(scopes or ())))
        return self._refreshing.call(key, lambda: self._refresh_in_turn(provider, session, grant, key[1]))

    async def _refresh_in_turn(
        self, provider: OIDCProvider, session: Session, grant: Grant, scope: str
    ) -> tuple[Grant, TokenSet]:
        """
        Requests for other scopes wait: each uses the refresh token that the one before has got.
        """
        turn = self._turns.setdefault(grant.id, DeferredLock())
        await turn.acquire()
        try:
            if self.grants.find(session, grant.issuer) is not grant:
                raise NotLoggedIn(grant.issuer)
            return await self._refresh(provider, session, grant, scope)
        finally:
            turn.release()
            if not turn.locked:
                self._turns.pop(grant.id, None)

    async def _refresh(
        self, provider: OIDCProvider, session: Session, grant: Grant, scope: str
    ) -> tuple[Grant, TokenSet]:
        form = {"scope": scope} if scope else {}
        try:
            form["refresh_token"] = self.grants.open(grant)
            found = await self.endpoint(provider).token(REFRESH, form)
        except Unsealable:
            self.grants.drop(session, grant.issuer)
            raise NotLoggedIn(grant.issuer) from None
        except Refusal as why:
            if why.error == "invalid_grant":
                self.grants.drop(session, grant.issuer)
            raise
        if (
            self.grants.find(session, grant.issuer) is not grant
        ):  # revoked meanwhile, or the session has ended
            await self.revoke_quietly(provider, found.refresh_token or found.access_token)
            raise NotLoggedIn(grant.issuer)
        if found.refresh_token:
            await self.grants.replace(grant, found.refresh_token)
        return grant, found

    async def revoke_quietly(self, provider: OIDCProvider, token: str) -> None:
        """
        Revokes what a provider has issued for a login that is over.
        """
        with suppress(Rejected):
            await self.endpoint(provider).revoke(token, "refresh_token")

    # -- assertions ----------------------------------------------------------------

    async def refresh_assertion(self, provider: OIDCProvider, session: Session) -> dict[str, Any]:
        """
        A new ID token of the session's user.
        """
        grant, found = await self.refresh(provider, session)
        if not found.id_token:
            issuer = provider.options.issuer
            raise NotOffered(f"the identity provider {issuer} does not offer ID tokens by refresh")
        return assertion(found.id_token, await self._claim(provider, found.id_token, grant))

    async def generate_assertion(
        self, provider: OIDCProvider, session: Session, contents: str
    ) -> dict[str, Any]:
        """
        An ID token that vouches for `contents`, the user's public key, by token exchange (RFC 8693).
        """
        endpoint = self.endpoint(provider)
        await endpoint.check_exchange()
        grant, found = await self.refresh(provider, session)
        form = {
            "subject_token": found.access_token,
            "subject_token_type": ACCESS_TOKEN,
            "requested_token_type": ID_TOKEN,
            "scope": "openid",
            "nonce": contents,
        }
        issued = await endpoint.token(EXCHANGE, {name: value for name, value in form.items() if value})
        claim = await self._claim(provider, issued.access_token, grant)
        if contents and claim.claims.get("nonce") != contents:
            # A peer would take it for an assertion of another key.
            issuer = provider.options.issuer
            raise NotOffered(f"the identity provider {issuer} does not offer to sign 'params.contents'")
        return assertion(issued.access_token, claim)

    async def _claim(self, provider: OIDCProvider, token: str, grant: Grant | None = None) -> VerifiedToken:
        """
        The claims of a token that the provider has just issued, with `grant` for its user. Rejected (502) if
        it is not valid here, or is another provider's or another user's.
        """
        issuer = provider.options.issuer
        try:
            found = self._tokens.validate(token)
            claim = await found if isinstance(found, Deferred) else found
        except Rejected as why:
            if why.code in (503, 504):
                raise
            raise Rejected(
                f"the identity provider issued a token that is not valid here: {why}", 502
            ) from None
        if claim.claims.get("iss") != issuer:
            raise Rejected(f"the identity provider {issuer} issued a token of another provider", 502)
        if grant is not None and grant.user and claim.proof.user != grant.user:
            raise Rejected(f"the identity provider {issuer} issued a token of another user", 502)
        return claim

    # -- the rest ------------------------------------------------------------------

    async def revoke(self, provider: OIDCProvider, session: Session, token: str) -> None:
        """
        Revokes an access token, or with "" the session's login: its refresh token is forgotten in any case.
        """
        endpoint = self.endpoint(provider)
        if token:
            await endpoint.revoke(token, "access_token")
            return
        grant = self.grants.find(session, provider.options.issuer)
        if grant is None:
            raise NotLoggedIn(provider.options.issuer)
        try:
            refresh_token = self.grants.open(grant)
        except Unsealable:
            refresh_token = ""
        self.grants.drop(session, grant.issuer)
        if refresh_token:
            await endpoint.revoke(refresh_token, "refresh_token")

    def identities(self, session: Session, own: list[Session]) -> list[dict[str, Any]]:
        """
        The identities of these sessions, which are all of one user: by their tokens, and by logins.
        """
        found = []
        for each in own or [session]:
            if each.identity:
                found.append(_identity(each))
            for grant in self.grants.of(each):
                issuer = {"userURL": grant.user, "issuer": grant.issuer, "scopes": grant.scopes}
                found.append({**issuer, "session": each.runtime, "refreshable": True})
        return found

    def _value(
        self,
        provider: OIDCProvider,
        found: TokenSet,
        claim: VerifiedToken | None,
        scopes: list[str],
        refreshable: bool,
    ) -> dict[str, Any]:
        lifetime = found.expires_in if found.expires_in is not None else DEFAULT_TOKEN_SECONDS
        value: dict[str, Any] = {
            "domain": provider.options.domain,
            "resources": scopes,
            "accessToken": found.access_token,
            "expires": int(self._wall()) + lifetime,
            "input": {"resources": scopes},
            "refreshable": refreshable,
        }
        if claim is not None:
            value |= {"userURL": claim.proof.user, "assertion": found.id_token}
        return value


def assertion(token: str, claim: VerifiedToken) -> dict[str, Any]:
    """
    The value of an assertion, as runtimes have it.
    """
    profile = {name: claim.claims[name] for name in _PROFILE if claim.claims.get(name) is not None}
    return {
        "assertion": token,
        "idp": {"domain": claim.proof.idp, "protocol": "OIDC"},
        "expires": int(claim.proof.until or 0),
        "userProfile": {"userURL": claim.proof.user, **profile},
    }


def _identity(session: Session) -> dict[str, Any]:
    found: dict[str, Any] = {"userURL": session.identity, "session": session.runtime, "refreshable": False}
    proof = session.proof
    if proof is not None and proof.user == session.identity:
        found |= {"idp": proof.idp, "preferred_username": proof.username, "scopes": list(proof.scopes)}
        if proof.until is not None:
            found["expires"] = int(proof.until)
    return found
