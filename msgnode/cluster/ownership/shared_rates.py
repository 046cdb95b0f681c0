"""
Rates that count for all nodes of a domain together.

Each node has a whole token bucket, and draws from it what the other members say that they let pass, a few
times a second. So no message waits for another node, a client has the whole rate at whichever node it is, and
what passed too much meanwhile is paid off before the next message. While a member is away its part is not
counted.
"""

from typing import Annotated

import msgspec
from msgspec import Meta
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.cluster.membership import Members
from msgnode.structures.token_bucket import Take

EXCHANGE_SECONDS = 0.25
MAX_BUCKETS = 10_000  # of a kind in one exchange; all others count at this node only
BUCKETS_PER_PAYLOAD = 600
MAX_KEY_CHARS = 32
MAX_AMOUNT = 1e12
log = Logger()

Amount = Annotated[float, Meta(ge=0, le=MAX_AMOUNT)]
Key = Annotated[str, Meta(max_length=MAX_KEY_CHARS)]


class Taken(msgspec.Struct, array_like=True):
    """
    The messages and bytes that a node took since the last exchange, from each bucket of a kind.
    """

    kind: Key
    buckets: Annotated[dict[Key, tuple[Amount, Amount]], Meta(max_length=BUCKETS_PER_PAYLOAD)]


class SharedRateCounts(msgspec.Struct):
    """
    The counts of buckets since the node started: those sent to another member, those for which there was no
    room, those received, and payloads that could not be read.
    """

    sent: int = 0
    unsent: int = 0
    received: int = 0
    malformed: int = 0


_decode = msgspec.msgpack.Decoder(Taken).decode
_encode = msgspec.msgpack.Encoder().encode


class SharedRates:
    """
    The exchange of what is taken (MembersListener).
    """

    def __init__(self, members: Members, clock: IReactorTime) -> None:
        self.counts = SharedRateCounts()
        self._members = members
        self._clock = clock
        self._kinds: dict[str, Take] = {}
        self._taken: dict[str, dict[str, tuple[float, float]]] = {}
        self._timer: IDelayedCall | None = None
        self._logged: set[str] = set()

    def share(self, kind: str, take: Take) -> Take:
        """
        Share a kind of buckets (token_bucket.Share).
        """
        self._kinds[kind] = take
        taken = self._taken.setdefault(kind, {})

        def tell(key: str, first: float, second: float) -> None:
            before = taken.get(key)
            if before is not None:
                taken[key] = before[0] + first, before[1] + second
            elif len(taken) < MAX_BUCKETS:
                taken[key] = first, second
            else:
                self.counts.unsent += 1
            if self._timer is None:
                self._timer = self._clock.callLater(EXCHANGE_SECONDS, self._exchange)

        return tell

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _exchange(self) -> None:
        self._timer = None
        members = list(self._members.up())
        for kind, taken in self._taken.items():
            entries = list(taken.items())
            taken.clear()
            for at in range(0, len(entries), BUCKETS_PER_PAYLOAD):
                part = entries[at : at + BUCKETS_PER_PAYLOAD]
                payload = _encode(Taken(kind, dict(part)))
                for node in members:
                    if self._members.send(node, payload):
                        self.counts.sent += len(part)
                    else:
                        self.counts.unsent += len(part)

    # -- MembersListener -----------------------------------------------------------------------

    def member_up(self, node: str, epoch: tuple[bytes, int]) -> None:
        """
        Does nothing: what was taken before is refilled within seconds.
        """

    def member_down(self, node: str) -> None:
        """
        Does nothing: this node's buckets go on.
        """

    def has_room(self, node: str) -> None:
        """
        Does nothing: the next exchange is soon.
        """

    def member_heard(self, node: str, payload: bytes) -> None:
        try:
            told = _decode(payload)
        except ValueError as why:  # also msgspec.DecodeError
            self.counts.malformed += 1
            if node not in self._logged:
                self._logged.add(node)
                log.warn("{node} sent malformed rates: {why}", node=node, why=str(why)[:200])
            return
        take = self._kinds.get(told.kind)
        if take is None:
            return  # of a later release
        self.counts.received += len(told.buckets)
        for key, (first, second) in told.buckets.items():
            take(key, first, second)
