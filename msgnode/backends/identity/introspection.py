"""
A provider that is asked about its tokens (OAuth 2.0 Token Introspection, RFC 7662).

It says whether a token is good, and if so what a signed one would say itself.
That is checked as a signed token is, but for the signature.
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
from msgnode.config.schema import ConfigError, IntrospectionOptions
from msgnode.protocol.errors import Rejected
from msgnode.sessions.principal import VerifiedToken
from msgnode.structures.log_limits import FailureLog

log = Logger()

ENDPOINT = "introspection_endpoint"
SILENT = "the identity provider does not say now whether the token is good; try again later"
DAY = 86400.0  # seconds that a token proves something whose provider names no end
# What is kept of an answer.  The rest is between the provider and us.
KEPT = (
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


def secret_of(options: IntrospectionOptions) -> str:
    """
    With what the node shows the provider that it may ask.  ConfigError if the file cannot be read.
    """
    path = options.client_secret_file
    if not path:
        return options.client_secret
    key = "identity.providers.introspection.client_secret_file"
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
    Asks one provider what its tokens prove (RFC 7662).  `secret` and the client's name are ours there.
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
        What the token proves; None: the provider does not know it, or no longer.

        Rejected: 401 it is not for us, or not now; 502 to 504 the provider does not say.
        """
        try:
            said = await self._ask(token)
        except Exception as why:
            raise self._failed(why) from None
        if self._failures:
            log.info("{issuer} answers about tokens again", issuer=self.provider.options.issuer)
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
        What need not be said is what it would be for a token of this provider and client.
        """
        options = self.provider.options
        claims = {name: said[name] for name in KEPT if said.get(name) not in (None, "", [])}
        name = claims.get("username")
        unsaid = {
            "iss": options.issuer,
            "aud": claims.get("client_id"),
            "exp": self._wall() + DAY,
            "preferred_username": name,
            # Where subjects are addresses, a name could be the subject of somebody else.
            "sub": None if "{sub}" in options.user_url else name,
        }
        whole = {**{name: value for name, value in unsaid.items() if value is not None}, **claims}
        return VerifiedToken(prove(whole, options, self._leeway, self._wall), claims)

    def _failed(self, why: Exception) -> Rejected:
        """
        What the bearer is told; the operator once learns more.
        """
        code = why.code if isinstance(why, Rejected) else 503
        if not isinstance(why, Rejected):
            self._unforeseen.note("asking about a token", Failure())
        self._failures += 1
        if self._failures == 1:
            issuer = self.provider.options.issuer
            log.warn("{issuer} does not answer about tokens: {why}", issuer=issuer, why=str(why))
        return Rejected(SILENT, code if code in (502, 503, 504) else 503, "back-end")


def _check_status(answer: Response) -> None:
    """
    Rejected, if it is no success.  What an error page says may hold the token, and is not repeated.
    """
    if 200 <= answer.status < 300:
        return
    if answer.status in (401, 403):
        raise Rejected(f"it answered {answer.status}; look at the client's name and secret", 503, "back-end")
    raise Rejected(f"it answered {answer.status}", 502 if answer.status >= 500 else 503, "back-end")


def basic(name: str, secret: str) -> str:
    """
    HTTP Basic as OAuth has it: both are percent-encoded first (RFC 6749, 2.3.1).
    """
    pair = f"{quote(name, safe='')}:{quote(secret, safe='')}"
    return f"Basic {b64encode(pair.encode()).decode()}"
