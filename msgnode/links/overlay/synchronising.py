"""
The synchronisation of two maps: a new neighbour gets everything, and digests find what was lost.

A digest is sent every 30 seconds. Where both differ twice in a row each end sends a summary of its map, and
gets what it lacks. If they differ for good, because one of them refuses what the other believes, they are
compared less and less often.
"""

from twisted.internet.interfaces import IReactorTime

from msgnode.links.overlay.advertisement import DIGEST_BYTES, mark
from msgnode.links.overlay.flooding import Flooding
from msgnode.links.overlay.link_state import LinkStates
from msgnode.links.overlay.neighbours import Neighbour, Neighbours
from msgnode.links.overlay.own_advertisement import OwnAdvertisements
from msgnode.links.overlay.routes.graph import Key
from msgnode.links.wire.entries import Digest, State, Summary
from msgnode.links.wire.node_name import MAX_NODE_NAME_CHARS

DIGEST_SECONDS = 30.0
MAX_COMPARE_SECONDS = 3600.0
DIFFERENCES = 2
SLICE_BYTES = 64 * 1024
MAX_SUMMARY_BYTES = 192 * 1024  # fits into a message of a link; a larger map is sent whole instead
NUMBERS_BYTES = 24  # of a sequence in a summary, with the frame of its entry
SLICE_SECONDS = 0.02


class Synchronising:
    """
    Keeps the neighbours' maps equal to this node's.
    """

    def __init__(
        self,
        clock: IReactorTime,
        node: str,
        states: LinkStates,
        own: OwnAdvertisements,
        neighbours: Neighbours,
        flooding: Flooding,
    ) -> None:
        self.summaries = 0
        self._clock = clock
        self._node = node
        self._states = states
        self._own = own
        self._neighbours = neighbours
        self._flooding = flooding

    def send_all(self, neighbour: Neighbour) -> None:
        """
        Send a new neighbour all that is for it, in slices.
        """
        self._send(neighbour, self._sequences(neighbour))

    def send_digests(self) -> None:
        """
        Send a digest to each neighbour that gets the whole map. Call it every 30 seconds.
        """
        for neighbour in self._neighbours.counted():
            if neighbour.transit:
                neighbour.link.send_state(Digest(self._digest(neighbour)))

    def received_digest(self, neighbour: Neighbour, digest: bytes) -> None:
        if not neighbour.transit or not neighbour.counts or self._clock.seconds() < neighbour.compare_at:
            return
        if digest == self._digest(neighbour):
            neighbour.differing, neighbour.compare_wait = 0, 0.0
            return
        neighbour.differing += 1
        if neighbour.differing >= DIFFERENCES:
            self._summarise(neighbour)

    def received_summary(self, neighbour: Neighbour, nodes: list[tuple[str, int, int]]) -> None:
        """
        Send what the neighbour lacks; and a summary, for what this node lacks.
        """
        if not neighbour.transit or not neighbour.counts or neighbour.unsent:
            return
        theirs = {_key(name): (start, counter) for name, start, counter in nodes}
        ours = self._sequences(neighbour)
        self._send(neighbour, {key: ours[key] for key in ours if theirs.get(key, (-1, -1)) < ours[key]})
        if self._clock.seconds() >= neighbour.compare_at:
            self._summarise(neighbour)

    def _digest(self, neighbour: Neighbour) -> bytes:
        digest = self._states.digest(neighbour.is_inside, (self._node, neighbour.node))
        for signed in self._own:
            audience = signed.advertisement.audience
            if audience != neighbour.node and self._flooding.is_own_for(neighbour, signed.advertisement):
                digest ^= mark(signed.advertisement)
        return digest.to_bytes(DIGEST_BYTES, "big")

    def _summarise(self, neighbour: Neighbour) -> None:
        neighbour.differing = 0
        neighbour.compare_wait = min(MAX_COMPARE_SECONDS, neighbour.compare_wait * 2 or DIGEST_SECONDS)
        neighbour.compare_at = self._clock.seconds() + neighbour.compare_wait
        sequences = self._sequences(neighbour)
        # The sequence of a node whose names are too long for an entry is left out: it is sent again.
        nodes = [
            (name, *sequence)
            for key, sequence in sequences.items()
            if len(name := _name(key)) <= MAX_NODE_NAME_CHARS
        ]
        if sum(len(name) + NUMBERS_BYTES for name, _, _ in nodes) > MAX_SUMMARY_BYTES:
            self._send(neighbour, sequences)
        else:
            self.summaries += 1
            neighbour.link.send_state(Summary(nodes))

    def _sequences(self, neighbour: Neighbour) -> dict[Key, tuple[int, int]]:
        """
        The sequence of each advertisement that is for the neighbour.
        """
        found = {
            key: record.advertisement.sequence
            for key, record in self._states.records.items()
            if self._flooding.is_for(neighbour, record)
        }
        for signed in self._own:
            if self._flooding.is_own_for(neighbour, signed.advertisement):
                found[signed.advertisement.key] = signed.advertisement.sequence
        return found

    def _send(self, neighbour: Neighbour, keys: dict[Key, tuple[int, int]]) -> None:
        neighbour.unsent.update(dict.fromkeys(keys))
        if neighbour.unsent and neighbour.sending is None:
            self._send_slice(neighbour)

    def _send_slice(self, neighbour: Neighbour) -> None:
        neighbour.sending = None
        sent = 0
        while neighbour.unsent and sent < SLICE_BYTES:
            key = next(iter(neighbour.unsent))
            del neighbour.unsent[key]
            if compact := self._compact(neighbour, key):
                neighbour.link.send_state(State(compact))
                sent += len(compact)
        if neighbour.unsent:
            neighbour.sending = self._clock.callLater(SLICE_SECONDS, self._send_slice, neighbour)

    def _compact(self, neighbour: Neighbour, key: Key) -> str:
        if key[0] == self._node:
            signed = self._own.get(key[1])
            return "" if signed is None else signed.compact
        record = self._states.records.get(key)
        return "" if record is None or not self._flooding.is_for(neighbour, record) else record.compact


def _name(key: Key) -> str:
    """
    A node and an audience as one text: `<node>` or `<node>#<audience>`.
    """
    return f"{key[0]}#{key[1]}" if key[1] else key[0]


def _key(name: str) -> Key:
    node, _, audience = name.partition("#")
    return node, audience
