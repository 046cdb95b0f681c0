"""
An operator, an account and a user of a nats-server with JWTs, as `nsc` makes them.
"""

import base64
import hashlib
import json
import os
import time
from typing import Any

from msgnode.nats.wire.credentials import JWT
from msgnode.nats.wire.nkeys import KeyPair

_LIMITS = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)


def new_key(role: str) -> KeyPair:
    return KeyPair(role, os.urandom(32))


class Operator:
    """
    An operator with one account. `config` is for the server's file.
    """

    def __init__(self) -> None:
        self._key, self._account = new_key("operator"), new_key("account")
        account = {"limits": {**_LIMITS, "wildcards": True}, "type": "account", "version": 2}
        own = _jwt(self._key, self._key.public, "operator", {"type": "operator", "version": 2})
        account_jwt = _jwt(self._key, self._account.public, "account", account)
        self.config = f"operator: {own}\nresolver: MEMORY\n"
        self.config += f"resolver_preload: {{ {self._account.public}: {account_jwt} }}\n"

    def user(self, seconds: float = 3600) -> JWT:
        """
        Credentials of a new user, which expire after so many seconds.
        """
        key = new_key("user")
        rights = {"pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2}
        return JWT(_jwt(self._account, key.public, "user", rights, seconds), key.seed)


def creds_file(user: JWT) -> str:
    """
    The text of a `.creds` file.
    """
    return (
        f"-----BEGIN NATS USER JWT-----\n{user.jwt}\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )


def _jwt(issuer: KeyPair, subject: str, name: str, rights: dict[str, Any], seconds: float = 3600) -> str:
    now = int(time.time())
    claims = {"iat": now, "iss": issuer.public, "name": name, "sub": subject, "nats": rights}
    claims["exp"] = int(now + seconds)
    digest = hashlib.new("sha512_256", json.dumps(claims).encode()).digest()
    claims["jti"] = base64.b32encode(digest).decode().rstrip("=")
    parts = [{"typ": "JWT", "alg": "ed25519-nkey"}, claims]
    signed = ".".join(_base64(json.dumps(part).encode()) for part in parts)
    return f"{signed}.{_base64(issuer.sign(signed.encode()))}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
