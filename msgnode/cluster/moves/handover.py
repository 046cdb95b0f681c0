"""
The handover of one session to its new holder, as the member that releases it sees it.
"""

from msgnode.cluster.moves.session_holder import Claims, Release, SessionHolder
from msgnode.cluster.moves.wire import (
    MAX_CLAIMS,
    AnyStatement,
    End,
    Fragment,
    Got,
    Messages,
    Offer,
    State,
    Want,
)

# The phases of a handover, by what comes from the new holder:
#
#   offered --Want--> stating --Got--> moving --Got that has ended--> over
#           \-- Want of a receiver that has the state --> moving
#
# Each phase sends one statement at a time; `next` is None until it is acknowledged.
OFFERED, STATING, MOVING, OVER = "offered", "stating", "moving", "over"


class Handover:
    """
    The handover of a release. It has one part under way: the next is made when the last was acknowledged.
    """

    def __init__(self, release: Release, holder: SessionHolder, part_bytes: int) -> None:
        self.release = release
        self.phase = OFFERED
        self.is_imported = False  # the new holder has the session
        self.sent_at = 0.0
        self.failed_at = float("-inf")  # when it could not be given to another member than its own
        self._holder = holder
        self._part_bytes = part_bytes
        self._state: bytes | None = None  # None: it is made when there is room for it
        self._wants: Claims = []
        self._at = 0  # the offset of the next part of the state, or of a large message
        self._key = 0
        self._large: tuple[int, bytes] | None = None
        self._must_offer = True
        self._is_early = False  # was the new holder told to wait for nothing more?
        self.is_awaited = False  # an acknowledgement

    @property
    def makes_state(self) -> bool:
        """
        Does the next statement begin with all of the session's state in memory?
        """
        return self.phase == STATING and self._state is None and not (self._must_offer or self.is_awaited)

    @property
    def only_waits(self) -> bool:
        """
        Has the new holder all that has come in time, so that it waits for nothing?
        """
        return self.phase == MOVING and self._is_early and not self.is_awaited

    def offer_again(self) -> None:
        """
        Begin with an offer: a link is up again, or nothing was heard.
        """
        self._must_offer = True

    def wanted(self, want: Want) -> None:
        """
        The new holder says from where to continue.
        """
        if self.phase == OVER:
            return
        self.is_awaited = self._is_early = False
        self._at, self._large = 0, None
        if want.key < 0:
            self.phase, self._state = STATING, None
            self._wants = want.claims[:MAX_CLAIMS]
        else:
            self._moved(want.key)

    def got(self, got: Got) -> None:
        """
        The new holder has all that is said on its disk.
        """
        if self.phase == OVER:
            return
        self.is_awaited = False
        self._moved(got.key)
        if got.ended:
            self.phase = OVER
            self._holder.discard(self.release)

    def _moved(self, key: int) -> None:
        self.is_imported = True
        self.phase, self._state = MOVING, None
        self._at, self._large = 0, None
        if key > self._key:
            self._key = key
            self._holder.handed_over(self.release, key)

    def next(self) -> AnyStatement | None:
        """
        The next statement to send; None while an acknowledgement, or a message, has to come first.
        """
        if self._must_offer:
            self._must_offer, self.is_awaited = False, True
            return Offer(self.release.id, self.release.name, self.release.generation)
        if self.is_awaited:
            return None
        if self.phase == STATING:
            return self._next_state()
        if self.phase == MOVING:
            return self._next_messages()
        return None

    def _next_state(self) -> State:
        if self._state is None:
            self._state = self._holder.state(self.release, self._wants)
        data = self._state[self._at : self._at + self._part_bytes]
        part = State(self.release.id, self._at, len(self._state), data)
        self._at += len(data)
        self.is_awaited = self._at == len(self._state)
        return part

    def _next_messages(self) -> Messages | Fragment | End | None:
        release, after = self.release, self._key
        if self._large is None:
            found = self._holder.messages(release, after, self._part_bytes)
            if not found:
                is_early = not self._holder.seal(release)
                if is_early and (self._is_early or not self._holder.is_late(release)):
                    return None
                self.is_awaited, self._is_early = True, is_early
                return End(release.id, after, is_early)
            if len(found[0][1]) <= self._part_bytes:
                return self._messages(found)
            self._large, self._at = found[0], 0
        key, data = self._large
        part = data[self._at : self._at + self._part_bytes]
        begun, self._at = self._at, self._at + len(part)
        if self._at < len(data):
            return Fragment(release.id, after, begun, part)
        self.is_awaited = True
        return Messages(release.id, after, key, begun, [part])

    def _messages(self, found: list[tuple[int, bytes]]) -> Messages:
        size, key = 0, self._key
        data: list[bytes] = []
        for key_of, message in found:
            size += len(message) + 5
            if data and size > self._part_bytes:
                break
            data.append(message)
            key = key_of
        self.is_awaited = True
        return Messages(self.release.id, self._key, key, 0, data)
