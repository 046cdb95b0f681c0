"""
A seal without cryptography: the verification of advertisements is injected, so that a thousand nodes fit in
one process.
"""

import msgspec

from msgnode.links.overlay.advertisement import Advertisement, Refused, check
from msgnode.links.overlay.signatures import Signer

_encoder = msgspec.json.Encoder()


class OpenSeal:
    """
    A Seal that believes everything that was signed by one of its kind. What it has signed is kept, decoded.

    `key` is the name of the key: two nodes with one name and two keys are in conflict. Keys in `refused` are
    not trusted any more.
    """

    _signed: dict[str, tuple[Advertisement, Signer]] = {}

    def __init__(self, key: str, until: float = float("inf")) -> None:
        self._signer = Signer(key.encode(), until)
        self.refused: set[str] = set()

    def sign(self, advertisement: Advertisement) -> str:
        check(advertisement)
        compact = f"{advertisement.node} {advertisement.audience} {advertisement.sequence} {self._signer}"
        compact += f" {advertisement.links} {advertisement.kind} {advertisement.keys.start.hex()}"
        self._signed[compact] = advertisement, self._signer
        return compact

    def read(self, compact: str) -> Advertisement:
        if compact not in self._signed:
            raise Refused("malformed", "not signed here")
        return self._signed[compact][0]

    def verify(self, compact: str, advertisement: Advertisement) -> Signer:
        signer = self._signed[compact][1]
        if signer.key_hash.decode() in self.refused:
            raise Refused("untrusted", "a former key")
        return signer
