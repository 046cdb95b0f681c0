"""
This node's own advertisements: one for each audience, at most every 5 seconds, at once when a link is lost.
"""

from collections.abc import Iterator
from typing import Protocol

import msgspec
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.links.overlay.advertisement import MAX_BYTES, MAX_SEQUENCE, Advertisement
from msgnode.links.overlay.neighbours import Neighbours
from msgnode.links.overlay.network import NodeKeys
from msgnode.links.overlay.signatures import Seal
from msgnode.links.wire.node_name import domain_of

INTERVAL_SECONDS = 5.0
URGENT_SECONDS = 0.1  # between two advertisements when links are lost
REFRESH_SECONDS = 1200.0
FORGET_SECONDS = 3600.0
MAX_SIGNED = 32  # in one turn of the event loop
SLICE_SECONDS = 0.01
MAX_AUDIENCES = 1024

_log = Logger()


class Signed(msgspec.Struct):
    """
    An advertisement of this node, and when it was signed.
    """

    advertisement: Advertisement
    compact: str
    at: float


class OwnListener(Protocol):
    """
    A listener to this node's own advertisements, which passes them on.
    """

    def signed(self, signed: Signed) -> None: ...

    def is_gateway(self, node: str) -> bool:
        """
        Has the node of this domain a link to another domain, as it advertises?
        """


class OwnAdvertisements:
    """
    The advertisements of this node, and their sequence.
    """

    def __init__(
        self,
        clock: IReactorTime,
        node: str,
        kind: str,
        seal: Seal,
        keys: NodeKeys,
        start: int,
        neighbours: Neighbours,
        listener: OwnListener,
    ) -> None:
        self.keys = keys
        self.sequence = (start, 0)
        self.number = 0
        self._clock = clock
        self._node = node
        self._domain = domain_of(node)
        self._kind = kind
        self._seal = seal
        self._neighbours = neighbours
        self._listener = listener
        self._signed: dict[str, Signed] = {}
        self._again: set[str] = set()  # audiences that met an advertisement with a higher sequence
        self._last = float("-inf")
        self._timer: IDelayedCall | None = None
        self._is_gateway = self._is_too_big = False

    def __iter__(self) -> Iterator[Signed]:
        return iter(self._signed.values())

    def get(self, audience: str) -> Signed | None:
        return self._signed.get(audience)

    def changed(self, is_urgent: bool = False) -> None:
        """
        Signs, soon, each advertisement whose content has changed.
        """
        now = self._clock.seconds()
        wait = max(0.0, self._last + (URGENT_SECONDS if is_urgent else INTERVAL_SECONDS) - now)
        if self._timer is not None:
            if self._timer.getTime() <= now + wait:
                return
            self._timer.cancel()
        self._timer = self._clock.callLater(wait, self._sign_changed)

    def renew(self, keys: NodeKeys | None = None, is_urgent: bool = False) -> None:
        """
        Sign all again, because the certificate, the keys of streams or the features are others.
        """
        self.keys = keys or self.keys
        self._again.update(self._signed)
        self.changed(is_urgent)

    def refresh(self) -> None:
        """
        Sign again what is 1,200 seconds old. Call it every few seconds.
        """
        now = self._clock.seconds()
        for audience, signed in list(self._signed.items()):
            if not signed.advertisement.links and now >= signed.at + FORGET_SECONDS:
                del self._signed[audience]
            elif signed.advertisement.links and now >= signed.at + REFRESH_SECONDS:
                self._again.add(audience)
        if self._again:
            self.changed()

    def met(self, advertisement: Advertisement, compact: str) -> bool:
        """
        An advertisement of this node came back. Continue above its sequence. True if it was not from here.
        """
        audience = advertisement.audience
        signed = self._signed.get(audience)
        if signed is not None and (
            signed.compact == compact or signed.advertisement.sequence > advertisement.sequence
        ):
            return False
        if signed is None and len(self._signed) >= MAX_AUDIENCES:
            return False
        self.sequence = max(self.sequence, advertisement.sequence)
        if signed is None:
            self._signed[audience] = Signed(advertisement, compact, self._clock.seconds())
        self._again.add(audience)
        self.changed()
        return True

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def links(self) -> dict[str, dict[str, int]]:
        """
        The links that each audience learns of.

        Nodes of this domain get all links but those to neighbours without transit; others get the links to
        other domains and to gateways of this one; a neighbour without transit gets its own.
        """
        inside, outside, found = {}, {}, {}
        is_gateway = False
        for neighbour in self._neighbours.counted():
            cost = neighbour.cost.advertised
            if neighbour.is_inside:
                inside[neighbour.node] = cost
                continue
            is_gateway = True
            if neighbour.transit:
                outside[neighbour.node] = cost
            else:
                found[neighbour.node] = {neighbour.node: cost}
        self._is_gateway = is_gateway
        if inside:
            found[self._domain] = inside | outside
        if outside:
            gateways = {node: cost for node, cost in inside.items() if self._listener.is_gateway(node)}
            found[""] = outside | gateways
        return found

    def _sign_changed(self) -> None:
        self._timer = None
        now = self._last = self._clock.seconds()
        audiences = self.links()
        for audience in self._signed:
            audiences.setdefault(audience, {})
        number = 0
        for audience, links in audiences.items():
            if not self._is_other(audience, links):
                continue
            if number == MAX_SIGNED:
                self._timer = self._clock.callLater(SLICE_SECONDS, self._sign_changed)
                return
            number += 1
            self._again.discard(audience)
            self._sign(audience, links, now)

    def _is_other(self, audience: str, links: dict[str, int]) -> bool:
        signed = self._signed.get(audience)
        if signed is None or audience in self._again:
            return True
        old = signed.advertisement
        return links != old.links or self._is_gateway != old.gateway or self.keys != old.keys

    def _sign(self, audience: str, links: dict[str, int], now: float) -> None:
        start, counter = self.sequence
        # At the highest counter the start counter rises; it has room for a start each second for millennia.
        self.sequence = (start, counter + 1) if counter < MAX_SEQUENCE else (start + 1, 0)
        whole, compact = links, ""
        while True:
            advertisement = Advertisement(
                self._node, audience, self._kind, *self.sequence, self._is_gateway, links, self.keys
            )
            compact = self._seal.sign(advertisement)
            if len(compact) <= MAX_BYTES or not links:
                break
            links = _cheaper(links)
        if links is not whole and not self._is_too_big:
            self._is_too_big = True
            _log.error(
                "{left_out} links are not advertised, because an advertisement has at most {bytes} bytes",
                left_out=len(whole) - len(links),
                bytes=MAX_BYTES,
            )
        # The links that were left out would otherwise be a change for ever.
        kept = msgspec.structs.replace(advertisement, links=whole) if links is not whole else advertisement
        self._signed[audience] = Signed(kept, compact, now)
        self.number += 1
        self._listener.signed(self._signed[audience])


def _cheaper(links: dict[str, int]) -> dict[str, int]:
    """
    All links but the most expensive eighth.
    """
    kept = sorted(links.items(), key=lambda link: (link[1], link[0]))[: len(links) * 7 // 8]
    return dict(kept)
