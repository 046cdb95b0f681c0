"""
The OAuth 2.0 endpoints of a provider that issue and revoke tokens: RFC 6749, 7009, 8628 and 8693.

No text of a provider is repeated, because it may contain a token.
"""

from typing import TypeVar

import msgspec
from twisted.logger import Logger

from msgnode.backends.http_client import Response
from msgnode.backends.identity.introspection import basic
from msgnode.backends.identity.oidc_provider import OIDCProvider
from msgnode.protocol.errors import NotOffered, Rejected

log = Logger()

T = TypeVar("T")

CODE = "authorization_code"
REFRESH = "refresh_token"
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
DEFAULT_INTERVAL_SECONDS = 5  # RFC 8628, 3.2

# The errors of RFC 6749 (5.2), 7009, 8628 (3.5) and 8693: the code for the sender, and what is said.
_ERRORS = {
    "invalid_grant": (401, "no longer knows this login, or never did; log in again"),
    "access_denied": (403, "was told by the user not to issue a token"),
    "expired_token": (408, "has waited too long for the user to log in"),
    "invalid_scope": (400, "knows no such scope for this login"),
    "invalid_target": (400, "issues no token for this resource"),
    "invalid_request": (400, "does not understand this request"),
    "authorization_pending": (408, "still waits for the user to log in"),
    "slow_down": (429, "is asked too often"),
    "unauthorized_client": (501, "does not offer this to the client of this node"),
    "unsupported_grant_type": (501, "does not offer this"),
    "unsupported_token_type": (501, "does not revoke tokens of this type"),
}


class Refusal(Rejected):
    """
    A provider's refusal; `error` is its word.
    """

    def __init__(self, issuer: str, error: str) -> None:
        code, said = _ERRORS[error]
        reasons = {408: "stale", 429: "rate", 501: "not-handled"}
        super().__init__(f"the identity provider {issuer} {said}", code, reasons.get(code, "token"))
        self.error = error


class TokenSet(msgspec.Struct, kw_only=True):
    """
    The tokens of one answer. It is never shown as text.
    """

    access_token: str
    token_type: str = "Bearer"
    expires_in: int | None = None
    refresh_token: str | None = None
    id_token: str | None = None
    scope: str | None = None
    issued_token_type: str | None = None

    def __repr__(self) -> str:
        return "TokenSet(...)"


class DeviceAuthorization(msgspec.Struct, kw_only=True):
    """
    The codes that a device shows its user (RFC 8628, 3.2), and the code by which the node asks for the
    outcome.
    """

    device_code: str
    user_code: str
    verification_uri: str
    expires_in: int
    verification_uri_complete: str | None = None
    interval: int = DEFAULT_INTERVAL_SECONDS

    def __repr__(self) -> str:
        return "DeviceAuthorization(...)"


class TokenEndpoint:
    """
    The node as an OAuth client of one provider; `secret` is its secret there, "" for a public client.

    `counts` has the number of requests by grant and outcome.
    """

    def __init__(self, provider: OIDCProvider, secret: str, counts: dict[tuple[str, str], int]) -> None:
        self.provider = provider
        self.issuer = provider.options.issuer
        self.client_id = provider.options.client_id or provider.options.audiences[0]
        self._secret = secret
        self._counts = counts
        self._is_refused = False

    async def token(self, grant: str, form: dict[str, str]) -> TokenSet:
        """
        The tokens for a grant. Rejected if there are none; Refusal if the provider says why.
        """
        answer = await self._post("token_endpoint", "tokens", grant, {"grant_type": grant, **form})
        return self._read(answer, TokenSet)

    async def authorize_device(self, scope: str) -> DeviceAuthorization:
        endpoint = "device_authorization_endpoint"
        answer = await self._post(endpoint, "device authorization", "device", {"scope": scope})
        return self._read(answer, DeviceAuthorization)

    async def revoke(self, token: str, hint: str) -> None:
        form = {"token": token, "token_type_hint": hint}
        await self._post("revocation_endpoint", "revocation", "revoke", form)

    async def check_exchange(self) -> None:
        """
        NotOffered if the provider exchanges no tokens.
        """
        found = await self.provider.discover()
        if EXCHANGE not in (found.get("grant_types_supported") or ()):
            raise NotOffered(f"the identity provider {self.issuer} does not offer token exchange")

    async def _post(self, endpoint: str, what: str, kind: str, form: dict[str, str]) -> Response:
        found = await self.provider.discover()
        if not found.get(endpoint):
            raise NotOffered(f"the identity provider {self.issuer} does not offer {what}")
        url = await self.provider.endpoint(endpoint)
        headers, client = {}, {"client_id": self.client_id}
        if self._secret:
            headers, client = {"Authorization": basic(self.client_id, self._secret)}, {}
        kind = kind.rpartition(":")[2]
        try:
            # Not repeated: a refresh token is used up by its first use.
            answer = await self.provider.post(url, {**form, **client}, headers, safe=False)
            self._check(answer)
        except Rejected as why:
            self._count(kind, why.error if isinstance(why, Refusal) else "failed")
            raise
        self._count(kind, "ok")
        self._is_refused = False
        return answer

    def _count(self, kind: str, outcome: str) -> None:
        self._counts[kind, outcome] = self._counts.get((kind, outcome), 0) + 1

    def _check(self, answer: Response) -> None:
        if 200 <= answer.status < 300:
            return
        error = (answer.object() or {}).get("error")
        if isinstance(error, str) and error in _ERRORS:
            raise Refusal(self.issuer, error)
        if error == "invalid_client" and not self._is_refused:
            self._is_refused = True
            log.warn(
                "{issuer} does not accept the client {client}: check 'client_id' and its secret",
                issuer=self.issuer,
                client=self.client_id,
            )
        text = f"the identity provider {self.issuer} does not answer properly; try again later"
        raise Rejected(text, 503 if 400 <= answer.status < 500 else 502, "back-end")

    def _read(self, answer: Response, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except (msgspec.DecodeError, RecursionError):
            answer.asked.counts["nonsense"] += 1
            raise Rejected(f"Invalid response from the {answer.asked.name}.", 502) from None
