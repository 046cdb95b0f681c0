"""
A small OpenID provider: it signs tokens, tells where its keys are and which, and what opaque tokens prove.
"""

import json
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote_plus

from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

ISSUER = "https://id.example.org"
NOW = 1_800_000_000.0
# Made once: an RSA key takes a while.
RSA = RSAKey.generate_key(2048, {"kid": "rsa-1"})
OTHER_RSA = RSAKey.generate_key(2048, {"kid": "rsa-1"})


def provider(**options: Any) -> dict[str, Any]:
    """
    What an operator writes of it.
    """
    return {"domain": "example.org", "issuer": ISSUER, "audiences": ["msgnode"], **options}


class OpenID(Resource):
    """
    `wall` is its clock; `asked` counts requests by path; `metadata`, `keys` and the rest may be changed.
    """

    isLeaf = True

    def __init__(self, issuer: str = ISSUER, wall: Callable[[], float] = lambda: NOW) -> None:
        super().__init__()
        self.wall = wall
        self.issuer = issuer
        self.key: Any = RSA
        self.keys: list[Any] = [RSA]
        self.max_age: int | None = 3600
        self.asked: dict[str, int] = {}
        self.broken: bytes | None = None  # what it answers instead of its keys
        self.status = 200
        self.client = ("msgnode", "s3cret")  # who may ask about tokens
        self.opaque: dict[str, dict[str, Any]] = {}  # what it says of them
        self.said: bytes | None = None  # in place of that
        self.slow = False
        self.forms: list[dict[bytes, list[bytes]]] = []  # that it was asked with
        self.metadata = {
            "issuer": issuer,
            "jwks_uri": f"{issuer}/keys",
            "authorization_endpoint": f"{issuer}/login",
            "introspection_endpoint": f"{issuer}/introspect",
        }

    def render(self, request: Request) -> bytes | int:
        path = request.path.decode()
        self.asked[path] = self.asked.get(path, 0) + 1
        request.setResponseCode(self.status)
        request.setHeader(b"Content-Type", b"application/json")
        if path == "/.well-known/openid-configuration":
            return json.dumps(self.metadata).encode()
        if path == "/keys":
            if self.max_age is not None:
                request.setHeader(b"Cache-Control", f"public, max-age={self.max_age}".encode())
            if self.broken is not None:
                return self.broken
            return json.dumps({"keys": [key.as_dict(private=False) for key in self.keys]}).encode()
        if path == "/introspect" and request.method == b"POST":
            return NOT_DONE_YET if self.slow else self._introspect(request)
        request.setResponseCode(404)
        return b"<html>no such page</html>"

    def _introspect(self, request: Request) -> bytes:
        kind, _, credentials = request.getHeader("Authorization").partition(" ")
        name, _, secret = b64decode(credentials).decode().partition(":")
        if kind != "Basic" or (unquote_plus(name), unquote_plus(secret)) != self.client:
            request.setResponseCode(401)
            return b'{"error": "invalid_client"}'
        self.forms.append(request.args)
        said = self.opaque.get(request.args[b"token"][0].decode(), {"active": False})
        return json.dumps(said).encode() if self.said is None else self.said

    def issue(self, token: str, **claims: Any) -> str:
        """
        Make this an access token of Ann's; None takes a claim away.
        """
        said = {
            "active": True,
            "sub": "ann-1",
            "username": "ann",
            "client_id": "msgnode",
            "exp": int(self.wall()) + 600,
            "email": "ann@example.org",
            "email_verified": True,
            **claims,
        }
        self.opaque[token] = {name: value for name, value in said.items() if value is not None}
        return token

    def rotate(self, kid: str = "ec-2", keep: bool = False) -> None:
        """
        Sign with a new key from now on.
        """
        self.key = ECKey.generate_key("P-256", {"kid": kid})
        self.keys = [*self.keys, self.key] if keep else [self.key]

    def token(self, key: Any = None, alg: str | None = None, header: Any = None, **claims: Any) -> str:
        """
        A token for Ann, unless the claims say otherwise; None takes a claim away.
        """
        key = key or self.key
        said = {
            "iss": self.issuer,
            "sub": "ann-1",
            "aud": "msgnode",
            "iat": int(self.wall()),
            "exp": int(self.wall()) + 600,
            "email": "ann@example.org",
            "email_verified": True,
            **claims,
        }
        said = {name: value for name, value in said.items() if value is not None}
        alg = alg or {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}[key.key_type]
        head = {"alg": alg, "kid": key.kid, **(header or {})}
        head = {name: value for name, value in head.items() if value is not None}
        return jwt.encode(head, said, key, algorithms=[alg, "HS256"])


def unsigned(claims: dict[str, Any], alg: str = "none", signature: str = "") -> str:
    """
    A token nobody signed.
    """
    parts = ({"alg": alg, "typ": "JWT"}, claims)
    encoded = [urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, signature])


def okp() -> Any:
    return OKPKey.generate_key("Ed25519", {"kid": "ed-1"})
