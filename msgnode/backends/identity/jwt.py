"""
Is this token what its provider signed, for us, and now?

Signatures are joserfc's work.  It checks that a key is of the algorithm's
kind, so that a public key is never taken for a shared secret, and it is told
the time.  What it has no opinion on stands here: which algorithms, whose
tokens, for whom, and what a user is called.
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
MAX_TRIED = 8  # keys for a token that does not say which
MAX_USER_CHARS = 512

_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_NAME = re.compile(r"[^\s\x00-\x1f\x7f]+")


class Unreadable(Rejected):
    """
    A token that says nothing to us; `token` is its text.
    """

    def __init__(self, token: str) -> None:
        super().__init__("the token is no signed token of three parts", 401, "token")
        self.token = token


class Unsigned(msgspec.Struct):
    """
    The claims of a token before its signature is checked: enough to know whose key to look at.
    """

    token: str
    alg: str
    kid: str | None
    issuer: str


def refuse(text: str, code: int = 401) -> Rejected:
    return Rejected(f"the token {text}", code, "token")


def read(assertion: str) -> Unsigned:
    """
    Look into a token: a compact JWS, or base64 of a JSON object that holds one as `tokenID`; else Unreadable.
    """
    if len(assertion) > MAX_TOKEN_CHARS:
        raise refuse(f"has more than {MAX_TOKEN_CHARS} characters")
    token = assertion if _COMPACT.fullmatch(assertion) else _unwrapped(assertion)
    if not _COMPACT.fullmatch(token):
        raise Unreadable(token or assertion)
    header, payload = (_object(part, token) for part in token.split(".")[:2])
    alg, kid, issuer = header.get("alg"), header.get("kid"), payload.get("iss")
    if not isinstance(alg, str) or not isinstance(issuer, str):
        raise refuse("does not say who signed it, or how")
    return Unsigned(token, alg, kid if isinstance(kid, str) else None, issuer)


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
        raise Unreadable(token) from None
    if not isinstance(found, dict):
        raise Unreadable(token)
    return found


def read_keys(document: Any) -> list[Key]:
    """
    The keys of a provider that signatures can be checked with.  ValueError if there are none.
    """
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise ValueError("expected an object with a list of keys")
    keys = []
    for one in listed:
        # A shared secret has no business in a public document.
        if (
            isinstance(one, dict)
            and one.get("kty") in ("RSA", "EC", "OKP")
            and one.get("use", "sig") == "sig"
        ):
            # One key that cannot be read does not spoil the others; each kind complains in its own way.
            with suppress(Exception):
                keys.append(JWKRegistry.import_key(one))
    if not keys:
        raise ValueError("expected keys that sign")
    return keys


def check(
    unsigned: Unsigned, keys: list[Key], provider: IdentityProvider, leeway: float, wall: Callable[[], float]
) -> VerifiedToken:
    """
    What the token proves.  KeyError if the provider has no key of the name it gives.
    """
    if unsigned.alg not in provider.algs:
        raise refuse(f"is signed with {unsigned.alg!r}; expected {' or '.join(provider.algs)}"[:200])
    claims = _verified(unsigned, keys)
    return VerifiedToken(prove(claims, provider, leeway, wall), claims)


def prove(
    claims: dict[str, Any], provider: IdentityProvider, leeway: float, wall: Callable[[], float]
) -> Principal:
    """
    What the provider's word proves, if it was given for us, and holds now.
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
        raise refuse(f"does not do: {why}"[:200]) from None


def _verified(unsigned: Unsigned, keys: list[Key]) -> dict[str, Any]:
    registry = jws.JWSRegistry(algorithms=[unsigned.alg], strict_check_header=False)
    registry.max_header_length = MAX_TOKEN_CHARS
    candidates = _candidates(unsigned.kid, keys)
    with warnings.catch_warnings():
        # EdDSA has a new name, Ed25519; providers go on using the old one.
        warnings.simplefilter("ignore", SecurityWarning)
        for key in candidates:
            with suppress(JoseError, ValueError, TypeError):
                return jwt.decode(unsigned.token, key, registry=registry).claims
    if unsigned.kid is None or candidates[0].kid is None:
        raise KeyError(unsigned.kid)  # perhaps there is a newer one
    raise refuse("is not signed by its provider")


def _candidates(kid: str | None, keys: list[Key]) -> list[Key]:
    """
    The key of that name, else those without one; for a token that names none, all.
    """
    found = keys if kid is None else [key for key in keys if key.kid == kid]
    found = found or [key for key in keys if key.kid is None]
    if not found:
        raise KeyError(kid)
    return found[:MAX_TRIED]


def _check_party(claims: dict[str, Any], provider: IdentityProvider) -> None:
    """
    A token for several says who asked for it, and that must be one of ours.
    """
    audience, party = claims["aud"], claims.get("azp")
    several = isinstance(audience, list) and len(audience) > 1
    if several and party is not None and party not in provider.audiences:
        raise refuse(f"was given to {party!r}"[:200])


def _proof(claims: dict[str, Any], provider: IdentityProvider) -> Principal:
    email = claims.get("email")
    verified = provider.trust_email or claims.get("email_verified") in (True, "true")
    if email is not None and "{email}" in provider.user_url and not verified:
        raise refuse("holds an e-mail address that its provider has not verified")
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
            raise refuse(f"has no {name!r}, of which a user's address is made")
    user = provider.user_url.format(**{name: _piece(value) for name, value in names.items()})
    if len(user) > MAX_USER_CHARS:
        raise refuse(f"makes an address of more than {MAX_USER_CHARS} characters")
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
    A name as one piece of an address: what stands behind a slash in it could be somebody else's.
    """
    return re.sub("[%/?#]", lambda mark: f"%{ord(mark[0]):02X}", name) if isinstance(name, str) else name


def _scopes(claims: dict[str, Any]) -> tuple[str, ...]:
    found = claims.get("scope", claims.get("scp"))
    if isinstance(found, str):
        return tuple(found.split())
    if isinstance(found, list):
        return tuple(scope for scope in found if isinstance(scope, str))
    return ()
