"""
The handovers of this node to one other member, and their statements in turn.
"""

from collections import deque

from twisted.internet.interfaces import IReactorTime

from msgnode.cluster.membership import Members
from msgnode.cluster.moves.handover import MOVING, OVER, STATING, Handover
from msgnode.cluster.moves.wire import AnyStatement, Fragment, Messages, State, encode

MOVING_AT_ONCE = 32  # handovers whose messages are under way to one member: 8 MiB
STATE_BYTES = 8 * 1024 * 1024  # of states that are on their way to one member, and of one state more
BYTES_PER_TURN = 512 * 1024
STATEMENTS_PER_TURN = 64
REPLIES_PER_TURN = 256
MAX_REPLIES = 20_000
RETRY_SECONDS = 5.0


class Departures:
    """
    The statements to one member: answers first, then the parts of handovers in turn.
    """

    def __init__(self, node: str, members: Members, clock: IReactorTime) -> None:
        self.is_up = False
        self.handovers: dict[bytes, Handover] = {}
        self._node = node
        self._members = members
        self._clock = clock
        self.unsaid = 0  # answers that were dropped, as too many waited
        self._has_room = False
        self._replies: deque[AnyStatement] = deque()
        self._unsent: bytes | None = None
        self._ready: dict[bytes, None] = {}  # handovers that may have something to send, in order
        self._moving: set[bytes] = set()
        self._parked: dict[bytes, None] = {}  # handovers that wait until fewer are moving
        self._stating: dict[bytes, int] = {}  # handovers whose state is on its way, and its bytes
        self._state_bytes = 0
        self._stateless: dict[bytes, None] = {}  # handovers that wait until there is room for their state

    def link_up(self) -> None:
        self.is_up = self._has_room = True
        for handover in self.handovers.values():
            handover.offer_again()
            self._ready[handover.release.id] = None

    def link_down(self) -> None:
        self.is_up = self._has_room = False
        self._replies.clear()
        self._unsent = None
        self._ready.clear()
        self._moving.clear()
        self._parked.clear()
        self._stating.clear()
        self._state_bytes = 0
        self._stateless.clear()

    def room(self) -> None:
        self._has_room = self.is_up

    def reply(self, statement: AnyStatement) -> None:
        """
        Send an answer; lost if the link is down. Beyond the bound it is dropped: it is asked for again.
        """
        if not self.is_up:
            return
        if len(self._replies) < MAX_REPLIES:
            self._replies.append(statement)
        else:
            self.unsaid += 1

    def add(self, handover: Handover) -> None:
        self.handovers[handover.release.id] = handover
        self.wake(handover)

    def wake(self, handover: Handover) -> None:
        """
        The handover may have something to send.
        """
        id = handover.release.id
        self._moving.discard(id)
        if handover.phase != STATING:
            self._note_state(id, 0)
        if handover.phase == OVER:
            self.handovers.pop(id, None)
        elif self.is_up:
            self._ready[id] = None

    def tick(self) -> None:
        """
        Offer again what is not answered. Call it every second.
        """
        self.room()
        before = self._clock.seconds() - RETRY_SECONDS
        for id, handover in self.handovers.items():
            if self.is_up and handover.sent_at < before and not handover.only_waits:
                handover.offer_again()
                self._moving.discard(id)
                self._ready[id] = None

    def pump(self) -> bool:
        """
        Send a little. Is there more for the next turn?
        """
        if not self._send_unsent():
            return False
        for _ in range(min(REPLIES_PER_TURN, len(self._replies))):
            if not self._send(self._replies.popleft()):
                return False
        size = 0
        for _ in range(STATEMENTS_PER_TURN):
            handover = self._next_ready() if size <= BYTES_PER_TURN else None
            if handover is None:
                break
            statement = handover.next()
            if statement is None:
                continue
            handover.sent_at = self._clock.seconds()
            self._ready[handover.release.id] = None
            if isinstance(statement, Messages | Fragment):
                self._moving.add(handover.release.id)
            elif isinstance(statement, State):
                self._note_state(handover.release.id, statement.size)
            payload = encode(statement)
            size += len(payload)
            self._unsent = payload
            if not self._send_unsent():
                return False
        is_parked = (self._parked and not self._is_moving_enough) or (
            self._stateless and self._has_room_for_state
        )
        return bool(self._replies or self._ready or is_parked)

    def _note_state(self, id: bytes, size: int) -> None:
        self._state_bytes += size - self._stating.pop(id, 0)
        if size:
            self._stating[id] = size

    @property
    def _has_room_for_state(self) -> bool:
        return self._state_bytes < STATE_BYTES

    @property
    def _is_moving_enough(self) -> bool:
        return len(self._moving) >= MOVING_AT_ONCE

    def _next_ready(self) -> Handover | None:
        """
        The next handover that may have something to send. One with messages waits while others are moving,
        and one whose state comes next while those of others are on their way.
        """
        while self._ready:
            id = next(iter(self._ready))
            del self._ready[id]
            handover = self.handovers.get(id)
            if handover is None:
                continue
            if handover.makes_state:
                self._note_state(id, 0)  # of an earlier attempt
                if self._has_room_for_state:
                    return handover
                self._stateless[id] = None
            elif handover.phase != MOVING or id in self._moving or not self._is_moving_enough:
                return handover
            else:
                self._parked[id] = None
        return self._next_parked()

    def _next_parked(self) -> Handover | None:
        while self._stateless and self._has_room_for_state:
            id = next(iter(self._stateless))
            del self._stateless[id]
            if id in self.handovers:
                return self.handovers[id]
        while self._parked and not self._is_moving_enough:
            id = next(iter(self._parked))
            del self._parked[id]
            if id in self.handovers:
                return self.handovers[id]
        return None

    def _send(self, statement: AnyStatement) -> bool:
        self._unsent = encode(statement)
        return self._send_unsent()

    def _send_unsent(self) -> bool:
        if self._unsent is not None and self._has_room:
            if self._members.send(self._node, self._unsent):
                self._unsent = None
            else:
                self._has_room = False
        return self._has_room
