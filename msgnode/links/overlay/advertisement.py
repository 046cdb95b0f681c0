"""
The signed advertisement of a node: a JWS in compact form, with the certificate chain in `x5c`.

The payload is MessagePack. An advertisement has an audience: all nodes (the empty text), the nodes of its
own domain (the domain's name), or what lies behind one neighbour that gets no transit (the neighbour's
name). A node signs one for each audience, so that no neighbour learns of links that are not for it.
"""

import base64
import binascii
import hashlib

import msgspec

from msgnode.links.carrier.link import CLIENT, SERVER
from msgnode.links.overlay.network import NodeKeys
from msgnode.links.overlay.routes.shortest_path import MAX_COST
from msgnode.links.wire.node_name import parse

MAX_BYTES = 16 * 1024
MAX_LINKS = 256
MAX_SEQUENCE = 1 << 40  # of the start counter, and of the counter
MAX_RSA_BYTES = 1024
MAX_FEATURES, MAX_FEATURE_CHARS = 16, 32
DIGEST_BYTES = 16


class Refused(Exception):
    """
    A refusal of an advertisement, with the `reason` it is counted by.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Advertisement(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """
    A statement of a node about itself: its links with their costs, its keys, and its kind.

    `start` and `counter` are its sequence. `gateway`: it has a link to another domain.
    """

    node: str
    audience: str
    kind: str
    start: int
    counter: int
    gateway: bool
    links: dict[str, int]
    keys: NodeKeys

    @property
    def sequence(self) -> tuple[int, int]:
        return self.start, self.counter

    @property
    def key(self) -> tuple[str, str]:
        return self.node, self.audience


_decoder = msgspec.msgpack.Decoder(Advertisement)


def read(compact: str) -> Advertisement:
    """
    The content of an advertisement, checked but not verified. Raises Refused.
    """
    if len(compact) > MAX_BYTES:
        raise Refused("too-big", f"expected at most {MAX_BYTES} bytes, found {len(compact)}")
    parts = compact.split(".")
    if len(parts) != 3:
        raise Refused("malformed", f"expected a JWS of 3 parts, found {len(parts)}")
    try:
        advertisement = _decoder.decode(unbase64(parts[1]))
        check(advertisement)
    except (msgspec.MsgspecError, ValueError) as why:
        raise Refused("malformed", str(why)) from None
    return advertisement


def check(advertisement: Advertisement) -> None:
    """
    Check that the advertisement says only what its signer owns, within all bounds; else ValueError in words.
    """
    domain = parse(advertisement.node).domain
    if advertisement.kind not in (SERVER, CLIENT):
        raise ValueError(f"expected SERVER or CLIENT, found {advertisement.kind[:20]!r}")
    if not all(0 <= number <= MAX_SEQUENCE for number in advertisement.sequence):
        raise ValueError(f"expected a sequence of 0 to {MAX_SEQUENCE}, found {advertisement.sequence}")
    links = advertisement.links
    if len(links) > MAX_LINKS:
        raise ValueError(f"expected at most {MAX_LINKS} links, found {len(links)}")
    for node, cost in links.items():
        parse(node)
        if not 1 <= cost <= MAX_COST or node == advertisement.node:
            raise ValueError(f"expected a link to another node with a cost of 1 to {MAX_COST}, found {cost}")
    if advertisement.audience not in ("", domain):
        parse(advertisement.audience)
        if links.keys() - {advertisement.audience}:
            raise ValueError("an advertisement for one neighbour has a link to that neighbour only")
    _check_keys(advertisement.keys)


def _check_keys(keys: NodeKeys) -> None:
    if len(keys.start) != 16 or len(keys.x25519) != 32 or len(keys.rsa) > MAX_RSA_BYTES:
        raise ValueError("expected a start of 16 bytes, an X25519 key of 32, and an RSA key of at most 1,024")
    if len(keys.features) > MAX_FEATURES or any(len(each) > MAX_FEATURE_CHARS for each in keys.features):
        raise ValueError(f"expected at most {MAX_FEATURES} features of {MAX_FEATURE_CHARS} characters")


def unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as why:
        raise ValueError(f"expected base64url: {why}") from None


def is_inside(advertisement: Advertisement) -> bool:
    """
    Is the advertisement for nodes of its own domain only?
    """
    return advertisement.audience != "" and not advertisement.audience.startswith("mn://")


def mark(advertisement: Advertisement) -> int:
    """
    The part of an advertisement in a digest.
    """
    text = f"{advertisement.node} {advertisement.audience} {advertisement.start} {advertisement.counter}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest(), "big")
