"""
The streams of a node, for operators.
"""

from msgnode.links.operations import StreamStatus
from msgnode.links.stream.node_streams import NodeStreams
from msgnode.links.stream.peer import Peer
from msgnode.links.stream.sending.entry import Entry
from msgnode.links.wire.node_name import domain_of


class StreamView:
    """
    A view of the streams to other nodes; `now` is the clock of the streams.
    """

    def __init__(self, streams: NodeStreams) -> None:
        self._streams = streams

    @property
    def spool(self) -> tuple[int, int]:
        """
        The bytes of all messages for other nodes, and how many they may have.
        """
        return self._streams.undelivered_bytes, self._streams.limits.spool_bytes

    def domains(self) -> set[str]:
        """
        The domains for which messages wait.
        """
        return {domain_of(node) for node, peer in self._streams.peers.items() if len(peer.outgoing)}

    def of(self, domain: str, now: float) -> tuple[StreamStatus, ...]:
        peers = self._streams.peers.items()
        return tuple(
            self._status(node, peer, now) for node, peer in sorted(peers) if domain_of(node) == domain
        )

    def saved(self) -> dict[str, int]:
        """
        The bytes that compression saved, by domain, of the streams that are there now.
        """
        found: dict[str, int] = {}
        for node, peer in self._streams.peers.items():
            domain = domain_of(node)
            found[domain] = found.get(domain, 0) + peer.outgoing.estimate.saved
        return found

    def _status(self, node: str, peer: Peer, now: float) -> StreamStatus:
        outgoing = peer.outgoing
        backlog, counts = outgoing.backlog, outgoing.counts
        return StreamStatus(
            destination=node,
            undelivered=len(backlog),
            undelivered_bytes=backlog.bounds.bytes,
            oldest_seconds=self._oldest(peer, now),
            window=sum(int(lane.window) for lane in outgoing.lanes()),
            sent_again=counts.sent_again,
            in_doubt=counts.in_doubt,
            bytes_saved=outgoing.estimate.saved,
            refused=dict(counts.refused),
        )

    def _oldest(self, peer: Peer, now: float) -> float:
        """
        The age of the oldest message at the head of a lane.
        """
        ages = [0.0]
        for lane in peer.outgoing.lanes():
            for entries in (lane.flight.values(), lane.queue):
                head = next((entry for entry in entries if not entry.settled), None)
                ages += [self._age(head, now)] if head is not None else []
        return round(max(ages), 3)

    def _age(self, entry: Entry, now: float) -> float:
        if entry.envelope is None:  # it is only on disk
            return 0.0
        seconds = min(entry.envelope.ttl_millis / 1000, self._streams.limits.max_wait_seconds)
        return max(0.0, now - (entry.until - seconds))
