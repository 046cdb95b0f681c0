"""
Flooding: advertisements are taken in, verified, and passed on to all neighbours but the one they came from.

An advertisement costs little before it is verified: duplicates and old advertisements are dropped
first, and the rest is verified at a limited rate, from each neighbour in turn.
"""

from collections import OrderedDict, deque
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.links.overlay.advertisement import MAX_BYTES, Advertisement, Refused, is_inside
from msgnode.links.overlay.link_state import LinkStates, Record
from msgnode.links.overlay.neighbours import Neighbour, Neighbours
from msgnode.links.overlay.own_advertisement import Signed
from msgnode.links.overlay.refusals import Refusals
from msgnode.links.overlay.routes.graph import Key
from msgnode.links.overlay.signatures import Seal, Signer
from msgnode.links.wire.entries import State
from msgnode.links.wire.node_name import domain_of
from msgnode.structures.bounded_cache import BoundedCache
from msgnode.structures.token_bucket import refilled

VERIFIED_PER_SECOND, MAX_VERIFIED_AT_ONCE = 1000, 32
WAIT_SECONDS = 0.01
MAX_WAITING = 4096  # of one neighbour
MAX_WAITING_BYTES = 8 * 1024 * 1024  # of all
REPLACED_PER_SECOND, MAX_REPLACED_AT_ONCE = 0.5, 10  # one advertisement
ANSWER_SECONDS = 5.0  # between two answers to old advertisements of a node
MAX_ANSWERED = 1024

_log = Logger()


class FloodingListener(Protocol):
    """
    A listener to what flooding takes in.
    """

    def record_changed(self, old: Advertisement | None, new: Advertisement) -> None: ...

    def is_reachable(self, node: str) -> bool: ...

    def is_key_of(self, node: str, key_hash: bytes) -> bool:
        """
        May a node that is reachable still sign by this key?
        """

    def met_own(self, advertisement: Advertisement, compact: str, signer: Signer, peer: str) -> None: ...


class Flooding:
    """
    Takes in advertisements and passes them on.
    """

    def __init__(
        self,
        clock: IReactorTime,
        node: str,
        seal: Seal,
        states: LinkStates,
        neighbours: Neighbours,
        refusals: Refusals,
        listener: FloodingListener,
    ) -> None:
        self.received = self.duplicates = self.passed_on = self.waiting_bytes = 0
        self._clock = clock
        self._node = node
        self._seal = seal
        self._states = states
        self._neighbours = neighbours
        self._refusals = refusals
        self._listener = listener
        self._waiting: OrderedDict[Neighbour, deque[str]] = OrderedDict()
        self._tokens, self._filled = float(MAX_VERIFIED_AT_ONCE), clock.seconds()
        self._answered: BoundedCache[Key, float] = BoundedCache(MAX_ANSWERED)
        self._timer: IDelayedCall | None = None

    def take(self, neighbour: Neighbour, compact: str) -> None:
        """
        Take in an advertisement that came from a neighbour, now or when its turn comes.
        """
        self.received += 1
        held = self._states.held(compact)
        if held is not None:
            self._repeated(neighbour, held)
        elif len(compact) > MAX_BYTES:
            self._refusals.refuse(neighbour.node, "too-big", f"an advertisement of {len(compact)} bytes")
        elif self._timer is None and self._may_verify():
            self._take(neighbour, compact)
        else:
            self._wait(neighbour, compact)

    def forget(self, neighbour: Neighbour) -> None:
        """
        The link is down: what waits of it is dropped.
        """
        for compact in self._waiting.pop(neighbour, ()):
            self.waiting_bytes -= len(compact)

    def announce(self, signed: Signed) -> None:
        """
        Send an advertisement of this node to the neighbours that it is for.
        """
        for neighbour in self._neighbours.counted():
            if self.is_own_for(neighbour, signed.advertisement):
                self._send(neighbour, signed.compact)

    def is_own_for(self, neighbour: Neighbour, advertisement: Advertisement) -> bool:
        """
        Is an advertisement of this node for the neighbour?
        """
        if advertisement.audience == neighbour.node:
            return True
        if advertisement.audience == "":
            return neighbour.transit
        return is_inside(advertisement) and neighbour.is_inside

    def is_for(self, neighbour: Neighbour, record: Record) -> bool:
        """
        Does the neighbour get an advertisement of another node? Its own ones, too: it may
        have lost its sequence.
        """
        advertisement = record.advertisement
        if advertisement.node == neighbour.node:
            return True
        if self._states.excluded and domain_of(advertisement.node) in self._states.excluded:
            return False
        if not record.spread or not neighbour.transit:
            return False
        return neighbour.is_inside or not is_inside(advertisement)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _repeated(self, neighbour: Neighbour, held: Record) -> None:
        self.duplicates += 1
        if neighbour.transit and not held.spread:
            self._states.spread(held)
            self._pass_on(held, neighbour)

    def _may_verify(self) -> bool:
        now = self._clock.seconds()
        self._tokens = refilled(self._tokens, now - self._filled, VERIFIED_PER_SECOND, MAX_VERIFIED_AT_ONCE)
        self._filled = now
        return self._tokens >= 1

    def _wait(self, neighbour: Neighbour, compact: str) -> None:
        queue = self._waiting.setdefault(neighbour, deque())
        # One neighbour may fill half of the memory, so that there is some for others.
        share = MAX_WAITING_BYTES // 2 if len(self._waiting) == 1 else MAX_WAITING_BYTES
        if len(queue) >= MAX_WAITING or self.waiting_bytes + len(compact) > share:
            # Digests find what is missing later.
            self._refusals.refuse(neighbour.node, "busy", "more advertisements than can be verified")
            return
        queue.append(compact)
        self.waiting_bytes += len(compact)
        if self._timer is None:
            self._timer = self._clock.callLater(WAIT_SECONDS, self._turn)

    def _turn(self) -> None:
        """
        Take in what waits, from each neighbour in turn.
        """
        self._timer = None
        while self._waiting and self._may_verify():
            neighbour, queue = next(iter(self._waiting.items()))
            compact = queue.popleft()
            self.waiting_bytes -= len(compact)
            self._waiting.move_to_end(neighbour)
            if not queue:
                del self._waiting[neighbour]
            held = self._states.held(compact)
            if held is not None:
                self._repeated(neighbour, held)
            else:
                self._take(neighbour, compact)
        if self._waiting:
            self._timer = self._clock.callLater(WAIT_SECONDS, self._turn)

    def _take(self, neighbour: Neighbour, compact: str) -> None:
        advertisement: Advertisement | None = None
        try:
            advertisement = self._seal.read(compact)
            if advertisement.node == self._node:
                signer = self._verified(compact, advertisement)
                self._listener.met_own(advertisement, compact, signer, neighbour.node)
            elif self._states.is_newer(advertisement):
                self._check(neighbour, advertisement, compact)
                self._keep(neighbour, advertisement, compact, self._verified(compact, advertisement))
            else:
                self._old(neighbour, advertisement)
        except Refused as why:
            is_own = advertisement is not None and advertisement.node == self._node
            if is_own and neighbour.link.is_steady and why.reason == "untrusted":
                self._refusals.count("own-former")  # of an earlier start, by a key of that start
            else:
                self._refusals.refuse(neighbour.node, why.reason, str(why))

    def _old(self, neighbour: Neighbour, advertisement: Advertisement) -> None:
        """
        An old advertisement of another process is answered with the newest: the node may have been restarted
        without its start counter, and has to continue above it.
        """
        self._refusals.count("old")
        newest = self._states.last(advertisement.key)
        if newest is None or newest.advertisement.keys.start == advertisement.keys.start:
            return
        now = self._clock.seconds()
        answered = self._answered.get(advertisement.key)
        if answered is None or now >= answered + ANSWER_SECONDS:
            self._answered.put(advertisement.key, now)
            self._send(neighbour, newest.compact)

    def _verified(self, compact: str, advertisement: Advertisement) -> Signer:
        self._tokens -= 1
        return self._seal.verify(compact, advertisement)

    def _check(self, neighbour: Neighbour, advertisement: Advertisement, compact: str) -> None:
        """
        Refuse what is not for this node, or for which there is no room.
        """
        if is_inside(advertisement) and not (
            neighbour.is_inside and advertisement.audience == neighbour.domain
        ):
            raise Refused("audience", f"{advertisement.node} told this only its own domain")
        if full := self._states.full(advertisement, len(compact), neighbour.node):
            raise Refused(full, f"no room for {advertisement.node}")
        record = self._states.records.get(advertisement.key)
        if record is not None and self._tokens_of(record) < 1:
            raise Refused("too-often", f"{advertisement.node} advertises more often than every two seconds")

    def _tokens_of(self, record: Record) -> float:
        passed = self._clock.seconds() - record.received
        return refilled(record.tokens, passed, REPLACED_PER_SECOND, MAX_REPLACED_AT_ONCE)

    def _keep(self, neighbour: Neighbour, advertisement: Advertisement, compact: str, signer: Signer) -> None:
        newest = self._states.newest(advertisement.node)
        if newest is not None and newest.signer.key_hash != signer.key_hash:
            self._take_over(newest, advertisement, signer, neighbour.node)
        old = self._states.records.get(advertisement.key)
        tokens = float(MAX_REPLACED_AT_ONCE) if old is None else self._tokens_of(old)
        spread = neighbour.transit
        record = Record(advertisement, compact, signer, self._clock.seconds(), spread, tokens - 1)
        self._states.put(record, neighbour.node)
        self._listener.record_changed(None if old is None else old.advertisement, advertisement)
        if spread:
            self._pass_on(record, neighbour)

    def _take_over(self, newest: Record, claim: Advertisement, signer: Signer, peer: str) -> None:
        """
        Another key claims the name of a known node. It may, if the node has renewed its key or is gone.
        """
        node = claim.node
        is_same_process = claim.keys.start == newest.advertisement.keys.start
        is_held = self._listener.is_reachable(node) and self._listener.is_key_of(node, newest.signer.key_hash)
        if is_same_process or not is_held:
            for record in list(self._states.of_node(node)):
                record.signer = signer if record.advertisement.audience != claim.audience else record.signer
            self._states.conflicts.pop(node, None)
            return
        if self._states.conflict(node, newest.signer.key_hash, signer.key_hash, peer):
            _log.error(
                "two nodes claim the name {node}; the second, which {peer} has passed on, is refused",
                node=node,
                peer=peer,
            )
        raise Refused("conflict", f"two keys claim the name {node}")

    def _pass_on(self, record: Record, source: Neighbour) -> None:
        for neighbour in self._neighbours.counted():
            if neighbour is not source and self.is_for(neighbour, record):
                self._send(neighbour, record.compact)

    def _send(self, neighbour: Neighbour, compact: str) -> None:
        self.passed_on += 1
        neighbour.link.send_state(State(compact))
