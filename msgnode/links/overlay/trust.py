"""
The seam between the overlay and the configured certificate authorities and pins.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes


class Untrusted(Exception):
    """
    A certificate chain is refused. The text says why, for operators.
    """


class TrustedKey(msgspec.Struct, frozen=True):
    """
    A public key that may speak for a domain. `until` is when its certificate ends, in seconds since 1970.

    `pinned`: the key was configured by its hash, so that its certificate may have any name.
    """

    public_key: PublicKeyTypes
    until: float
    pinned: bool = False


class TrustAnchors(Protocol):
    """
    The certificate authorities and pins that this node has for each domain.
    """

    def verify(self, domain: str, chain: Sequence[bytes]) -> TrustedKey:
        """
        The key of the first certificate, if the chain (DER) or a pin proves that it is of the domain.

        Raises Untrusted. The certificate's name is `msg-node.<domain>`, without a wildcard, unless the key is
        pinned. The overlay caches the answer until the certificate ends, or until `trust_changed` is called.
        """
