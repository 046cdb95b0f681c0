"""
The identity responder: it validates tokens, shows a session its own identity, returns login URLs, and gets
tokens.

It answers at `domain://idm.<domain>`, and at the addresses that runtimes use for a provider.
"""

from functools import partial
from typing import Any

from twisted.internet.defer import Deferred

from msgnode.backends.identity.jwt import refuse
from msgnode.backends.identity.login_page import ASKED, login_url
from msgnode.backends.identity.token_requests import METHODS, TokenRequests, provider_of
from msgnode.backends.identity.token_validator import Tokens
from msgnode.config.schema import IdentityOptions
from msgnode.protocol.errors import NotOffered, Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.access.device_tokens import PREFIX
from msgnode.sessions.principal import VerifiedToken
from msgnode.sessions.session import Session

LOGINS = ("getLoginEndpoint", "getAccessTokenAuthorisationEndpoint")


class IdentityResponder:
    """
    The responder for identity. `tokens` validates tokens, `requests` gets them for sessions.
    """

    def __init__(
        self, options: IdentityOptions, domain: str, tokens: Tokens, requests: TokenRequests
    ) -> None:
        self._options = options
        self._own = (f"domain://idm.{domain}", f"domain://msg-node.{domain}/idm")
        self._tokens = tokens
        self._requests = requests

    @property
    def addresses(self) -> list[str]:
        """
        The addresses of the responder. `domain-idp://` is how runtimes name a provider.
        """
        own = [f"{address}{slash}" for address in self._own for slash in ("", "/")]
        return own + [f"domain-idp://{options.domain}" for options in self._options.providers]

    def respond(self, message: Message, session: Session) -> Message | Deferred[Message]:
        fields = message.fields()
        kind = message.type.lower()
        if not (self._options.providers or self._options.devices):
            if kind == "read":
                raise Rejected("this node has no identities: it authenticates no clients", 404)
            raise NotOffered("no identity provider is configured here")
        if kind == "read":
            return self._profile(message, fields.get("resource"), session)
        if kind != "execute":
            raise NotOffered(f"identity understands execute and read, not {message.type!r}"[:200])
        method, params = fields.get("method"), fields.get("params")
        if method == "validateAssertion":
            return self._validate(message, params)
        if method in LOGINS:
            return self._login(message, params)
        if method in METHODS:
            return self._requests.respond(method, message, params, session)
        known = ", ".join(("validateAssertion", *LOGINS, *METHODS))
        raise NotOffered(f"identity offers {known}, not {method!r}"[:400])

    def _validate(self, message: Message, params: Any) -> Message | Deferred[Message]:
        assertion = params.get("assertion") if isinstance(params, dict) else None
        if not isinstance(assertion, str) or not assertion:
            raise Rejected("'params.assertion' must be a token")
        if assertion.startswith(PREFIX):
            raise refuse("is a device token, which only its device may use")
        claim = self._tokens.validate(assertion)
        if isinstance(claim, Deferred):
            return claim.addCallback(partial(_asserted, message))
        return _asserted(message, claim)

    def _profile(self, message: Message, resource: Any, session: Session) -> Message:
        """
        The identity of the session itself. That of another session is refused.
        """
        if not isinstance(resource, str) or not (resource + "/").startswith("/identity/"):
            raise Rejected("'resource' must be /identity/ and your own address")
        wanted = resource[len("/identity/") :]
        proof = session.proof
        if not session.identity:
            raise Rejected("this session is not authenticated", 404)
        if wanted not in ("", session.identity):
            raise Rejected("only your own identity can be read", 403, "identity")
        if proof is None or proof.user != session.identity:
            return message.reply({"code": 200, "value": {"userURL": session.identity}})
        value: dict[str, Any] = {
            "userURL": proof.user,
            "idp": proof.idp,
            "preferred_username": proof.username,
            "scopes": proof.scopes,
        }
        if proof.until is not None:
            value["expires"] = int(proof.until)
        return message.reply({"code": 200, "value": value})

    def _login(self, message: Message, params: Any) -> Deferred[Message]:
        """
        The login URL of a provider. It uses the code flow with PKCE, so that no token appears in a URL.
        """
        asked = params if isinstance(params, dict) else {}
        provider = provider_of(self._tokens, message, asked)
        for name in ASKED:
            if not isinstance(asked.get(name, ""), str):
                raise Rejected(f"'params.{name}' must be a string")
        if not asked.get("code_challenge"):
            raise Rejected("'params.code_challenge' is missing: the S256 challenge of PKCE (RFC 7636)")

        def found(document: dict[str, Any]) -> Message:
            return message.reply({"code": 200, "value": login_url(document, provider.options, asked)})

        return provider.discover().addCallback(found)


def _asserted(message: Message, claim: VerifiedToken) -> Message:
    proof, claims = claim.proof, claim.claims
    value: dict[str, Any] = {
        "identity": proof.username,
        "contents": claims.get("nonce"),
        "userURL": proof.user,
        "idp": {"domain": proof.idp, "protocol": "OIDC"},
        "expires": int(proof.until or 0),
        "claims": claims,
    }
    return message.reply({"code": 200, "value": value})
