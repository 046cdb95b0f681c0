"""
The sections about links to other nodes: this node's own options, and the peers, which are other domains.
"""

import re
from base64 import b64decode
from typing import Annotated, Literal

from msgspec import Meta

from msgnode.config.sections import Bytes, Count, OrOff, Positive, Section

Accept = Literal["none", "peers", "open"]
Encrypt = Literal["never", "asked", "always"]
LinkUse = Literal["auto", "dial", "listen", "none"]
Cost = Annotated[int, Meta(ge=1, le=1_000_000)]

NODE_PORT = 9093


class FederationOptions(Section):
    """
    Options of links to nodes of other domains: the certificate that proves this domain, and limits.
    """

    accept: Accept = "peers"
    listen: str = ""
    cert: str = ""
    key: str = ""
    ca: str = ""
    crl: str = ""
    contact: str = ""
    compress: bool = True
    encrypt: Encrypt = "asked"
    queue_messages: Count = 100_000
    queue_bytes: Bytes = 256 * 1024 * 1024
    spool_bytes: Bytes = 1024 * 1024 * 1024
    max_wait_seconds: Positive = 86_400.0
    lease_seconds: Annotated[float, Meta(ge=30)] = 3600.0
    link_queue_bytes: Annotated[int, Meta(ge=65_536)] = 8 * 1024 * 1024
    handshakes: Count = 100
    handshake_seconds: Positive = 10.0
    links_per_domain: Count = 64
    max_grants: Count = 100_000
    max_upstream: Count = 100_000
    rate_messages: OrOff = 0
    rate_bytes: OrOff = 0


class Peer(Section):
    """
    A peer: another domain, how to reach its node, how its certificates are checked, and what it may do. A
    limit that is None is that of [federation].
    """

    domain: str
    url: str = ""
    link: LinkUse = "auto"
    cost: Cost | None = None
    ca: str = ""
    crl: str = ""
    pins: list[str] = []
    transit: bool = False
    triangle: bool = False
    encrypt: Literal["default", "never", "asked", "always"] = "default"
    max_grants: Count | None = None
    max_upstream: Count | None = None
    rate_messages: OrOff | None = None
    rate_bytes: OrOff | None = None

    @property
    def is_dialled(self) -> bool:
        return self.link == "dial" or (self.link == "auto" and bool(self.url))


def pin_hash(pin: str) -> bytes:
    """
    The 32 bytes of a pin, `sha256:` and the hash in hexadecimal or base64. ValueError if it is no such pin.
    """
    kind, _, text = pin.partition(":")
    try:
        if kind != "sha256":
            raise ValueError
        digits = text.replace(":", "")
        found = (
            bytes.fromhex(digits)
            if re.fullmatch("[0-9A-Fa-f]{64}", digits)
            else b64decode(text, validate=True)
        )
        if len(found) != 32:
            raise ValueError
    except ValueError:
        raise ValueError(
            f"expected sha256: and 64 hexadecimal digits, or 32 bytes in base64, found {pin[:100]!r}"
        ) from None
    return found
