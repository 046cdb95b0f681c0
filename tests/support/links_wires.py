"""
Two link tables on a clock, with wires between them that can be cut, stalled and filled.
"""

import random
from collections.abc import Sequence
from typing import Any

from twisted.internet.task import Clock

from msgnode.config.loader import check
from msgnode.links.carrier.connection import LinkConnection
from msgnode.links.carrier.link_table import LinkTable
from msgnode.links.overlay.trust import TrustedKey
from msgnode.links.trust.certificates import UntrustedCertificate
from msgnode.links.wire.entries import MAX_MESSAGE_BYTES, Hello
from msgnode.links.wire.node_name import parse
from tests.support.links_carrier import RecordingListener


class StubAnchors:
    """
    TrustAnchors for chains that name the domain in plain text, until `expires`.
    """

    def __init__(self) -> None:
        self.expires = float("inf")
        self.refuses = ""

    def verify(self, domain: str, chain: Sequence[bytes]) -> TrustedKey:
        if self.refuses:
            raise UntrustedCertificate(self.refuses)
        if list(chain) != [domain.encode()]:
            raise UntrustedCertificate(f"the certificate names {chain}")
        return TrustedKey(None, self.expires)


class TableNode:
    """
    A link table of a node, whose peers are any domain.
    """

    def __init__(self, clock: Clock, name: str, epoch: int = 1, **own: Any) -> None:
        self.clock = clock
        self.name, self.domain = name, parse(name).domain
        federation = {"accept": "open", "listen": "tcp:1", "cert": "x", **own}
        table = {"domain": self.domain, "node": parse(name).node, "federation": federation}
        self.settings = check(table, "test")
        self.heard = RecordingListener()
        self.anchors = StubAnchors()
        self.hello = Hello(name, "SERVER", "1", epoch, [], "", MAX_MESSAGE_BYTES)
        self.table = LinkTable(
            self.settings, self.hello, self.anchors, self.heard, clock, random.Random(1), clock.seconds
        )

    @property
    def link(self) -> Any:
        return self.heard.link


class EndOfWire:
    """
    One end of a wire; a Wire. `sent` has its messages; `limit` is the size of the largest that it takes.
    """

    def __init__(self, clock: Clock, delay: float) -> None:
        self.clock, self.delay = clock, delay
        self.sent: list[bytes] = []
        self.other: EndOfWire | None = None
        self.connection: LinkConnection | None = None
        self.limit = 0
        self.is_open = True
        self.stalled = False
        self.reading = True

    def send_message(self, message: bytes) -> None:
        self.sent.append(message)
        if self.is_open and not self.stalled:
            self.clock.callLater(self.delay, self._arrive, message)

    def _arrive(self, message: bytes) -> None:
        if self.other is not None and self.other.is_open and self.other.connection is not None:
            self.other.connection.message_received(message)

    def set_limit(self, max_bytes: int) -> None:
        self.limit = max_bytes

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def lose(self) -> None:
        if not self.stalled:
            self.clock.callLater(self.delay, self.cut)

    def abort(self) -> None:
        self.cut()

    def cut(self) -> None:
        """
        Both ends notice that the connection is gone.
        """
        for end in (self, self.other):
            if end is not None and end.is_open:
                end.is_open = False
                if end.connection is not None:
                    end.connection.lost("connection lost")


def dial(client: TableNode, server: TableNode, delay: float = 0.01) -> tuple[EndOfWire, EndOfWire]:
    """
    Connect two nodes; nothing is sent before the clock is advanced.
    """
    near, far = EndOfWire(client.clock, delay), EndOfWire(client.clock, delay)
    near.other, far.other = far, near
    near.connection = client.table.connect(near, dialled=server.domain)
    far.connection = server.table.connect(far, host="192.0.2.1")
    assert near.connection is not None
    if far.connection is None:
        far.cut()
        return near, far
    far.connection.opened([client.domain.encode()])
    near.connection.opened([server.domain.encode()])
    return near, far
