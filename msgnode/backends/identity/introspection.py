"""
Token introspection (OAuth 2.0, RFC 7662): the provider validates its opaque tokens.

Its response has the claims that a signed token would have. They are checked as those of a signed token.
"""

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.backends.http_client import Response
from msgnode.backends.identity.jwt import prove
from msgnode.backends.identity.oidc_provider import OIDCProvider
from msgnode.config.schema import ConfigError, IdentityProvider, IntrospectionOptions
from msgnode.protocol.errors import Rejected
from msgnode.sessions.principal import VerifiedToken
from msgnode.structures.log_limits import FailureLog

log = Logger()

ENDPOINT = "introspection_endpoint"
SILENT = "the identity provider cannot validate the token now; try again later"
DEFAULT_LIFETIME_SECONDS = 86400.0  # seconds that a token without an expiry is trusted
# The claims of a response that are kept.
KEPT_CLAIMS = (
    "iss",
    "sub",
    "aud",
    "azp",
    "client_id",
    "exp",
    "nbf",
    "iat",
    "scope",
    "scp",
    "username",
    "preferred_username",
    "email",
    "email_verified",
    "nonce",
)


def secret_of(options: IntrospectionOptions | IdentityProvider) -> str:
    """
    The client secret of this node at the provider. ConfigError if its file cannot be read.
    """
    path = options.client_secret_file
    if not path:
        return options.client_secret
    section = "introspection." if isinstance(options, IntrospectionOptions) else ""
    key = f"identity.providers.{section}client_secret_file"
    return read_secret(path, key)


def read_secret(path: str, key: str) -> str:
    """
    The secret in a file of the configuration's `key`. ConfigError if it cannot be read.
    """
    try:
        secret = Path(path).read_text("utf-8").rstrip("\r\n")
    except OSError as why:
        raise ConfigError(f"{key}: {path}: cannot be read: {why.strerror}") from why
    except UnicodeDecodeError as why:
        raise ConfigError(f"{key}: {path}: is not UTF-8 at byte {why.start}") from why
    if not secret:
        raise ConfigError(f"{key}: {path}: expected a secret, found nothing")
    return secret


class Introspection:
    """
    The introspection client of one provider. `secret` and `options.client_id` are the node's credentials
    there.
    """

    def __init__(
        self,
        provider: OIDCProvider,
        options: IntrospectionOptions,
        secret: str,
        leeway: float,
        wall: Callable[[], float],
    ) -> None:
        self.provider = provider
        self._url = options.url
        self._headers = {"Authorization": basic(options.client_id, secret)}
        self._leeway = leeway
        self._wall = wall
        self._failures = 0  # in a row
        self._unforeseen = FailureLog(log)

    async def ask(self, token: str) -> VerifiedToken | None:
        """
        The verified token, or None if the provider does not know it as active.

        Rejected: 401 if the token is not for this node or not valid now; 502 to 504 if the provider does not
        respond.
        """
        try:
            said = await self._ask(token)
        except Exception as why:
            raise self._failed(why) from None
        if self._failures:
            log.info("token introspection at {issuer} works again", issuer=self.provider.options.issuer)
            self._failures = 0
        return self._claim(said) if said["active"] else None

    async def _ask(self, token: str) -> dict[str, Any]:
        url = self._url or await self.provider.endpoint(ENDPOINT)
        form = {"token": token, "token_type_hint": "access_token"}
        answer = await self.provider.post(url, form, self._headers)
        _check_status(answer)
        said = answer.json()
        if not isinstance(said, dict) or not isinstance(said.get("active"), bool):
            answer.asked.counts["nonsense"] += 1
            raise Rejected("expected an object with 'active', true or false", 502)
        return said

    def _claim(self, said: dict[str, Any]) -> VerifiedToken:
        """
        Convert a response to claims. Missing claims get the values of a token of this provider and client.
        """
        options = self.provider.options
        claims = {name: said[name] for name in KEPT_CLAIMS if said.get(name) not in (None, "", [])}
        name = claims.get("username")
        unsaid = {
            "iss": options.issuer,
            "aud": claims.get("client_id"),
            "exp": self._wall() + DEFAULT_LIFETIME_SECONDS,
            "preferred_username": name,
            # If addresses are made of subjects, a name could equal another user's subject.
            "sub": None if "{sub}" in options.user_url else name,
        }
        whole = {**{name: value for name, value in unsaid.items() if value is not None}, **claims}
        return VerifiedToken(prove(whole, options, self._leeway, self._wall), claims)

    def _failed(self, why: Exception) -> Rejected:
        """
        The error for the client. The first failure in a row is logged with its details.
        """
        code = why.code if isinstance(why, Rejected) else 503
        if not isinstance(why, Rejected):
            self._unforeseen.note("token introspection failed unexpectedly", Failure())
        self._failures += 1
        if self._failures == 1:
            issuer = self.provider.options.issuer
            log.warn("token introspection at {issuer} fails: {why}", issuer=issuer, why=str(why))
        return Rejected(SILENT, code if code in (502, 503, 504) else 503, "back-end")


def _check_status(answer: Response) -> None:
    """
    Rejected if the response is no success. Its text is not repeated, for it may contain the token.
    """
    if 200 <= answer.status < 300:
        return
    if answer.status in (401, 403):
        raise Rejected(
            f"it answered {answer.status}; check 'client_id' and the client secret", 503, "back-end"
        )
    raise Rejected(f"it answered {answer.status}", 502 if answer.status >= 500 else 503, "back-end")


def basic(name: str, secret: str) -> str:
    """
    HTTP Basic credentials for OAuth: both parts are percent-encoded first (RFC 6749, 2.3.1).
    """
    pair = f"{quote(name, safe='')}:{quote(secret, safe='')}"
    return f"Basic {b64encode(pair.encode()).decode()}"
