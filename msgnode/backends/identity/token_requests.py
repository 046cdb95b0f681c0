"""
Requests for tokens, by messages: access tokens, assertions, their end, and whose they are.
"""

from typing import Any

from twisted.internet.defer import Deferred

from msgnode.backends.identity.access_tokens import NotLoggedIn
from msgnode.backends.identity.grants import owner_of
from msgnode.backends.identity.login_page import login_url, scopes_of, text
from msgnode.backends.identity.logins import Logins
from msgnode.backends.identity.oidc_provider import OIDCProvider
from msgnode.backends.identity.token_validator import Tokens
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.session import Session

IDP_SCHEME = "domain-idp://"


class TokenRequests:
    """
    The requests of sessions; `logins` has what sessions are logged in with.
    """

    def __init__(self, tokens: Tokens, logins: Logins) -> None:
        self._tokens = tokens
        self._logins = logins
        self._access = logins.access

    def respond(self, method: str, message: Message, params: Any, session: Session) -> Deferred[Message]:
        if session.is_node or session.is_ephemeral:
            raise Rejected("only a session of this node can have a login", 403, "identity")
        if isinstance(params, list):
            params = {"resources": params}
        if params is not None and not isinstance(params, dict):
            raise Rejected("'params' must be an object")
        return Deferred.fromCoroutine(self._answer(method, message, params or {}, session))

    async def _answer(
        self, method: str, message: Message, params: dict[str, Any], session: Session
    ) -> Message:
        """
        The answer to the client that asked: once it has lost its connection, who has its session now would
        get it.
        """
        owner = owner_of(session)
        found = await METHODS[method](self, message, params, session)
        owner.check(session)
        return found

    async def _get_access_token(self, message: Message, params: dict[str, Any], session: Session) -> Message:
        """
        By the code of a login page; else by the session's login, if it has one; else by a device login.
        """
        provider = provider_of(self._tokens, message, params)
        if params.get("login") or params.get("code"):
            return _value(message, await self._access.exchange_code(provider, session, params))
        scopes = scopes_of(params, provider)
        is_logged_in = self._access.grants.find(session, provider.options.issuer) is not None
        if is_logged_in and params.get("device") is not True:
            return await self._refresh_access_token(message, params, session)
        return await self._logins.devices.begin(message, provider, session, scopes)

    async def _refresh_access_token(
        self, message: Message, params: dict[str, Any], session: Session
    ) -> Message:
        provider = provider_of(self._tokens, message, params)
        asked = scopes_of(params, provider) if params.get("resources") else []
        return _value(message, await self._access.access_token(provider, session, asked))

    async def _refresh_assertion(self, message: Message, params: dict[str, Any], session: Session) -> Message:
        provider = provider_of(self._tokens, message, params)
        return _value(message, await self._access.refresh_assertion(provider, session))

    async def _generate_assertion(
        self, message: Message, params: dict[str, Any], session: Session
    ) -> Message:
        provider = provider_of(self._tokens, message, params)
        contents = text(params, "contents", "")
        try:
            return _value(message, await self._access.generate_assertion(provider, session, contents))
        except NotLoggedIn as why:
            if params.get("code_challenge"):
                why.login_url = login_url(await provider.discover(), provider.options, params)
            raise

    async def _revoke_access_token(
        self, message: Message, params: dict[str, Any], session: Session
    ) -> Message:
        provider = provider_of(self._tokens, message, params)
        token = params.get("token", params)
        token = token.get("accessToken", "") if isinstance(token, dict) else token
        await self._access.revoke(provider, session, text({"accessToken": token}, "accessToken", ""))
        return _value(message, True)

    async def _get_identities(self, message: Message, params: dict[str, Any], session: Session) -> Message:
        own = await self._logins.own_sessions(session.identity) if session.identity else []
        return _value(message, self._access.identities(session, own))


METHODS = {
    "getAccessToken": TokenRequests._get_access_token,
    "refreshAccessToken": TokenRequests._refresh_access_token,
    "refreshAssertion": TokenRequests._refresh_assertion,
    "generateAssertion": TokenRequests._generate_assertion,
    "revokeAccessToken": TokenRequests._revoke_access_token,
    "getIdentities": TokenRequests._get_identities,
}


def provider_of(tokens: Tokens, message: Message, params: dict[str, Any]) -> OIDCProvider:
    """
    The provider of the domain in `params`, else of the address; else the first.
    """
    domain = params.get("domain")
    if domain is None and isinstance(message.to, str) and message.to.startswith(IDP_SCHEME):
        domain = message.to[len(IDP_SCHEME) :]
    return tokens.by_domain(domain)


def _value(message: Message, value: Any) -> Message:
    return message.reply({"code": 200, "value": value})
