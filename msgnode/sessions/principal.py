"""
What a token proves, and who looks at tokens.
"""

from typing import Any, Protocol

import msgspec
from msgspec import Struct, field
from twisted.internet.defer import Deferred


class Principal(Struct, frozen=True, omit_defaults=True):
    """
    A verified identity: `user`, its bearer's address, and until when, in seconds since 1970.

    `username` is how policies know the user, an e-mail address where there is
    one; `idp` the domain that vouches, `subject` the user's name there; `line`
    the hash by which a device's token is known.  Never the token itself: this is
    written to disk.
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
    A proof, and the claims of the token it came from.
    """

    proof: Principal
    claims: dict[str, Any] = field(default_factory=dict)


class TokenValidator(Protocol):
    """
    The port to token validation (backends/identity/token_validator.py).
    """

    def validate(self, token: str) -> VerifiedToken | Deferred[VerifiedToken]:
        """
        What the token says.  Rejected, in the bearer's words: 401 or 403 the token, 503 or 504 its provider.
        """

    def still_holds(self, proof: Principal) -> bool:
        """
        Is whoever vouched for this still believed?
        """


def read_proof(text: str | None) -> Principal | None:
    """
    The proof that was written down; None where there was none, or nothing that can be read.
    """
    try:
        return msgspec.json.decode(text, type=Principal) if text else None
    except msgspec.DecodeError:
        return None
