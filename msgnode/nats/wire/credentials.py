"""
Credentials: what a client says in CONNECT so that the server knows it.

With an nkey or a JWT the client signs the nonce of INFO, and its seed never leaves it. (Source: NATS client
protocol, CONNECT; "NATS Server: authentication".)
"""

import base64
import re
from dataclasses import dataclass, field
from typing import Protocol

from msgnode.nats.errors import CredentialsError
from msgnode.nats.wire.nkeys import KeyPair

_BLOCK = re.compile(r"-----BEGIN ([A-Z ]+)-----\s*(\S+)\s*-+END \1-+")


class Credentials(Protocol):
    """
    A way to authenticate.
    """

    def fields(self, nonce: str) -> dict[str, str]:
        """
        Fields for CONNECT. `nonce` is that of INFO, or "" if the server sent none.
        """


@dataclass(frozen=True)
class UserPassword:
    """
    A user and a password.
    """

    user: str
    password: str = field(repr=False)

    def fields(self, nonce: str) -> dict[str, str]:
        return {"user": self.user, "pass": self.password}


@dataclass(frozen=True)
class Token:
    """
    A token that all clients of a server share.
    """

    token: str = field(repr=False)

    def fields(self, nonce: str) -> dict[str, str]:
        return {"auth_token": self.token}


@dataclass(frozen=True)
class NKey:
    """
    An nkey, by its seed `SU...`. The server has the public key.
    """

    seed: str = field(repr=False)

    def fields(self, nonce: str) -> dict[str, str]:
        key = KeyPair.from_seed(self.seed)
        return {"nkey": key.public, "sig": _signature(key, nonce)}


@dataclass(frozen=True)
class JWT:
    """
    A user's JWT, and the seed of the nkey that it is issued for. A bearer JWT needs no seed.
    """

    jwt: str
    seed: str = field(default="", repr=False)

    def fields(self, nonce: str) -> dict[str, str]:
        if not self.seed:
            return {"jwt": self.jwt}
        return {"jwt": self.jwt, "sig": _signature(KeyPair.from_seed(self.seed), nonce)}


def parse_credentials(text: str) -> JWT:
    """
    The JWT and the seed of a `.creds` file, as `nsc generate creds` writes it. CredentialsError if one is
    missing.
    """
    blocks = dict(_BLOCK.findall(text))
    try:
        found = JWT(blocks["NATS USER JWT"], blocks["USER NKEY SEED"])
    except KeyError as missing:
        raise CredentialsError(f"expected credentials with a block {missing.args[0]}") from None
    KeyPair.from_seed(found.seed)
    return found


def _signature(key: KeyPair, nonce: str) -> str:
    if not nonce:
        raise CredentialsError("expected a nonce in INFO: the server does not ask for a signature")
    return base64.urlsafe_b64encode(key.sign(nonce.encode())).decode().rstrip("=")
