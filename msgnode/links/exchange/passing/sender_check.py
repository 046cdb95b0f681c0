"""
The check of senders: a domain speaks for its own clients, and for others only with proof.
"""

from msgnode.links.exchange.domains import HomeDomains
from msgnode.links.exchange.node_sessions import Arrival, NodeSessions, peer_of
from msgnode.links.exchange.passing.origins import Origins
from msgnode.links.stream.streams import Envelope
from msgnode.links.wire.node_name import domain_of
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.routing import ALLOCATED


class SenderCheck:
    """
    The check of the sender and the addresses of each message that another node sends.
    """

    def __init__(self, homes: HomeDomains, nodes: NodeSessions, origins: Origins) -> None:
        self._homes = homes
        self._nodes = nodes
        self._origins = origins

    def check(
        self, message: Message, arrival: Arrival, source: str, envelope: Envelope, payload: bytes
    ) -> None:
        """
        Raises Rejected (403, `peer`) for a message that the node `source` may not send; else notes on the
        arrival whether it is proven, and whether it is a publication.
        """
        if arrival.is_passed_on:
            self._check_passed_on(message, arrival, source, envelope, payload)
        else:
            self._check_addresses(message, arrival, envelope, payload)

    def _check_addresses(
        self, message: Message, arrival: Arrival, envelope: Envelope, payload: bytes
    ) -> None:
        """
        Refuses what the domain may not send; it may publish to subscribers here at its own addresses.
        """
        session = arrival.session
        home, domain = self._homes.home, domain_of(session.runtime)
        to = message.to
        addresses = (to,) if isinstance(to, str) else to
        homes = {home(each) for each in addresses}
        sender = home(message.from_)
        _check_reserved(message.from_, *addresses)
        is_publication = homes == {domain}
        is_known = sender == domain or bool(
            sender == self._homes.own and session.bindings.get(message.from_, 0) & ALLOCATED
        )
        if not is_known:
            why = "it is not signed by the node that sent it first"
            if is_publication:
                why = self._origins.check(envelope, message.from_, payload, session.runtime, sender)
            if why:
                raise Rejected(f"{domain} does not speak for the sender: {why}", 403, "peer")
            arrival.is_proven = True
        if not is_publication and homes != {self._homes.own}:
            raise Rejected("this node is not the home of the address", 403, "peer")
        arrival.is_publication = is_publication

    def _check_passed_on(
        self, message: Message, arrival: Arrival, source: str, envelope: Envelope, payload: bytes
    ) -> None:
        """
        Refuses a message that another domain redirected or forwarded to here without proof of its sender.

        With proof it is a message of the node that sent it first: that node gets the answers.
        """
        _check_reserved(message.from_, str(message.to))
        sender = self._homes.home(message.from_)
        hop = envelope.origin.hops[-1] if envelope.origin is not None else None
        why = self._origins.check(envelope, message.from_, payload, source, sender)
        if not why and hop is not None and hop.forwarded and not message.forward:
            why = "its sender does not allow that it is forwarded"
        if why:
            raise Rejected(f"{domain_of(source)} does not speak for the sender: {why}", 403, "peer")
        if hop is None or self._homes.home(hop.to) != self._homes.own:
            raise Rejected("this node is not the home of the address", 403, "peer")
        if sender != self._homes.own:
            assert envelope.origin is not None
            first = self._nodes.find(envelope.origin.node)
            if first is None:
                raise Rejected("there are too many nodes of the sender's domain", 403, "limit")
            arrival.speaks_for(peer_of(envelope.origin.node, arrival.far.hops), first)
        arrival.is_proven = True


def _check_reserved(*addresses: str) -> None:
    for each in addresses:
        if each[:1] in "mgMG" and each[:7].lower().startswith(("mn:", "global:")):
            raise Rejected("these addresses belong to each node itself", 403, "peer")
