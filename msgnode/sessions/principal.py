"""
Principals: the verified identity that a token proves, and the port to token validation.
"""

from typing import Any, Protocol

import msgspec
from msgspec import Struct, field
from twisted.internet.defer import Deferred


class Principal(Struct, frozen=True, omit_defaults=True):
    """
    A verified identity: `user` is its address; it is valid `until`, in seconds since 1970.

    `username` is the name in policies, an e-mail address if there is one; `idp` is the domain of the identity
    provider, `subject` the user's name there; `line` is the hash of a device's token. The token itself is
    never included, because this is written to disk.
    """

    user: str
    idp: str = ""
    subject: str = ""
    username: str = ""
    scopes: tuple[str, ...] = ()
    until: float | None = None
    line: str = ""

    def encoded(self) -> str:
        return msgspec.json.encode(self).decode()


class VerifiedToken(Struct, frozen=True):
    """
    A principal, and the claims of its token.
    """

    proof: Principal
    claims: dict[str, Any] = field(default_factory=dict)


class TokenValidator(Protocol):
    """
    The port to token validation (backends/identity/token_validator.py).
    """

    @property
    def remembered(self) -> int:
        """
        The number of results that are cached.
        """

    def validate(self, token: str) -> VerifiedToken | Deferred[VerifiedToken]:
        """
        Validates a token. Raises Rejected with a text for its bearer: 401 or 403 for the token, 503 or 504
        for its provider.
        """

    def still_holds(self, proof: Principal) -> bool:
        """
        Is the source of this principal still trusted?
        """


def read_proof(text: str | None) -> Principal | None:
    """
    Decodes a stored principal; None if there is none, or it cannot be decoded.
    """
    try:
        return msgspec.json.decode(text, type=Principal) if text else None
    except msgspec.DecodeError:
        return None
