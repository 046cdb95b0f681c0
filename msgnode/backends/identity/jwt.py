"""
Validation of signed tokens (JWT): signature, issuer, audience, expiry, and the user they identify.

joserfc verifies signatures. It checks that a key fits the algorithm, so that a public key is never used as a
shared secret. This module decides the rest: accepted algorithms, issuers and audiences, and the address of
the user.
"""

import binascii
import re
import warnings
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from joserfc import jws, jwt
from joserfc.errors import ExpiredTokenError, JoseError, SecurityWarning
from joserfc.jwk import JWKRegistry, Key

from msgnode.config.schema import IdentityProvider
from msgnode.protocol.errors import Rejected
from msgnode.sessions.principal import Principal, VerifiedToken

MAX_TOKEN_CHARS = 16 * 1024  # characters of a token
MAX_KEYS = 100  # of one provider
MAX_TRIED = 8  # keys tried for a token that names none
MAX_USER_CHARS = 512

_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_NAME = re.compile(r"[^\s\x00-\x1f\x7f]+")


class UnreadableToken(Rejected):
    """
    A token that is not a readable JWT. `token` is its text.
    """

    def __init__(self, token: str) -> None:
        super().__init__("the token is not a signed token of three parts", 401, "token")
        self.token = token


class UnverifiedToken(msgspec.Struct):
    """
    The claims of a token before its signature is verified: enough to select the key.
    """

    token: str
    alg: str
    kid: str | None
    issuer: str


def refuse(text: str, code: int = 401) -> Rejected:
    return Rejected(f"the token {text}", code, "token")


def read(assertion: str) -> UnverifiedToken:
    """
    Parse a compact JWS, or base64 of a JSON object with one as `tokenID`. Unreadable if it is neither.
    """
    if len(assertion) > MAX_TOKEN_CHARS:
        raise refuse(f"has more than {MAX_TOKEN_CHARS} characters")
    token = assertion if _COMPACT.fullmatch(assertion) else _unwrapped(assertion)
    if not _COMPACT.fullmatch(token):
        raise UnreadableToken(token or assertion)
    header, payload = (_object(part, token) for part in token.split(".")[:2])
    alg, kid, issuer = header.get("alg"), header.get("kid"), payload.get("iss")
    if not isinstance(alg, str) or not isinstance(issuer, str):
        raise refuse("does not say who signed it, or how")
    return UnverifiedToken(token, alg, kid if isinstance(kid, str) else None, issuer)


def _unwrapped(assertion: str) -> str:
    try:
        wrapped = msgspec.json.decode(b64decode(assertion, altchars=b"-_" if "-" in assertion else None))
    except (binascii.Error, ValueError, RecursionError):
        return ""
    token = wrapped.get("tokenID") if isinstance(wrapped, dict) else None
    return token if isinstance(token, str) and len(token) <= MAX_TOKEN_CHARS else ""


def _object(part: str, token: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        raise UnreadableToken(token) from None
    if not isinstance(found, dict):
        raise UnreadableToken(token)
    return found


def read_keys(document: Any) -> list[Key]:
    """
    The signing keys in a provider's JWK set. ValueError if it has none.
    """
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise ValueError("expected an object with a list of keys")
    keys = []
    for one in listed:
        # Symmetric keys do not belong in a public document.
        if (
            isinstance(one, dict)
            and one.get("kty") in ("RSA", "EC", "OKP")
            and one.get("use", "sig") == "sig"
        ):
            # A key that cannot be parsed is skipped; each type raises exceptions of its own.
            with suppress(Exception):
                keys.append(JWKRegistry.import_key(one))
    if not keys:
        raise ValueError("expected keys that sign")
    return keys


def check(
    unsigned: UnverifiedToken,
    keys: list[Key],
    provider: IdentityProvider,
    leeway: float,
    wall: Callable[[], float],
) -> VerifiedToken:
    """
    Verify a token with the keys of its provider. Rejected if it is invalid; KeyError if its key is unknown.
    """
    if unsigned.alg not in provider.algs:
        raise refuse(f"is signed with {unsigned.alg!r}; expected {' or '.join(provider.algs)}"[:200])
    claims = _verified(unsigned, keys)
    return VerifiedToken(prove(claims, provider, leeway, wall), claims)


def prove(
    claims: dict[str, Any], provider: IdentityProvider, leeway: float, wall: Callable[[], float]
) -> Principal:
    """
    The principal that valid claims identify. Rejected (401) if they are expired or not for this node.
    """
    try:
        registry = jwt.JWTClaimsRegistry(
            now=lambda: int(wall()),
            leeway=int(leeway),
            iss={"essential": True, "value": provider.issuer},
            aud={"essential": True, "values": list(provider.audiences)},
            exp={"essential": True},
            sub={"essential": True},
        )
        registry.validate(claims)
        _check_party(claims, provider)
        return _proof(claims, provider)
    except ExpiredTokenError:
        raise refuse("has expired") from None
    except (JoseError, OverflowError) as why:
        raise refuse(f"is not valid: {why}"[:200]) from None


def _verified(unsigned: UnverifiedToken, keys: list[Key]) -> dict[str, Any]:
    registry = jws.JWSRegistry(algorithms=[unsigned.alg], strict_check_header=False)
    registry.max_header_length = MAX_TOKEN_CHARS
    candidates = _candidates(unsigned.kid, keys)
    with warnings.catch_warnings():
        # joserfc warns about the name EdDSA, now Ed25519, which providers still use.
        warnings.simplefilter("ignore", SecurityWarning)
        for key in candidates:
            with suppress(JoseError, ValueError, TypeError):
                return jwt.decode(unsigned.token, key, registry=registry).claims
    if unsigned.kid is None or candidates[0].kid is None:
        raise KeyError(unsigned.kid)  # the provider may have a newer one
    raise refuse("is not signed by its provider")


def _candidates(kid: str | None, keys: list[Key]) -> list[Key]:
    """
    The key with that `kid`, else the keys without one. All keys for a token without `kid`.
    """
    found = keys if kid is None else [key for key in keys if key.kid == kid]
    found = found or [key for key in keys if key.kid is None]
    if not found:
        raise KeyError(kid)
    return found[:MAX_TRIED]


def _check_party(claims: dict[str, Any], provider: IdentityProvider) -> None:
    """
    A token for several audiences names the authorized party, which must be one of ours.
    """
    audience, party = claims["aud"], claims.get("azp")
    several = isinstance(audience, list) and len(audience) > 1
    if several and party is not None and party not in provider.audiences:
        raise refuse(f"was given to {party!r}"[:200])


def _proof(claims: dict[str, Any], provider: IdentityProvider) -> Principal:
    email = claims.get("email")
    verified = provider.trust_email or claims.get("email_verified") in (True, "true")
    if email is not None and "{email}" in provider.user_url and not verified:
        raise refuse("has an e-mail address that its provider has not verified")
    names: dict[str, Any] = {
        "domain": provider.domain,
        "email": email,
        "sub": claims["sub"],
        "preferred_username": claims.get("preferred_username"),
    }
    needed = re.findall(r"{(\w+)}", provider.user_url)
    for name in needed:
        value = names[name]
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise refuse(f"has no {name!r}, which the user's address needs")
    user = provider.user_url.format(**{name: _piece(value) for name, value in names.items()})
    if len(user) > MAX_USER_CHARS:
        raise refuse(f"results in a user's address of more than {MAX_USER_CHARS} characters")
    username = next((names[name] for name in needed if name != "domain"), claims["sub"])
    return Principal(
        user=user,
        idp=provider.domain,
        subject=claims["sub"],
        username=username,
        scopes=_scopes(claims),
        until=float(claims["exp"]),
    )


def _piece(name: Any) -> Any:
    """
    Escape a name as one segment of an address: a slash in it could produce another user's address.
    """
    return re.sub("[%/?#]", lambda mark: f"%{ord(mark[0]):02X}", name) if isinstance(name, str) else name


def _scopes(claims: dict[str, Any]) -> tuple[str, ...]:
    found = claims.get("scope", claims.get("scp"))
    if isinstance(found, str):
        return tuple(found.split())
    if isinstance(found, list):
        return tuple(scope for scope in found if isinstance(scope, str))
    return ()
