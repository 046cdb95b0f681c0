"""
Moves of sessions between the members of a cluster.

A session is held by one member. Its generation rises with each move, and is written to disk by the member
that releases it before it lets go. Where two members hold a session, after a partition or because its holder
was dead, the highest (generation, member) keeps it, and the other one hands over what it has. What was
released goes to one member only, even if that is away for long, so that nothing comes twice.
"""

import os
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Protocol

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.cluster.membership import Members
from msgnode.cluster.moves.arrivals import Arrivals
from msgnode.cluster.moves.departures import Departures
from msgnode.cluster.moves.flushing import Flushing
from msgnode.cluster.moves.handover import Handover
from msgnode.cluster.moves.returns import Returns
from msgnode.cluster.moves.session_holder import Release, SessionHolder
from msgnode.cluster.moves.takes import GONE, NOT_HERE, TAKEN, Outcome, Takes
from msgnode.cluster.moves.wire import (
    HEAD_BYTES,
    PART_BYTES,
    Answer,
    AnyStatement,
    End,
    Flush,
    Flushed,
    Fragment,
    Got,
    Introduction,
    Messages,
    Offer,
    State,
    Take,
    Want,
    decode,
)

log = Logger()

TICK_SECONDS = 1.0
GONE_PER_TICK = 100  # handovers to members that are gone for good
GIVE_AGAIN_SECONDS = 60.0  # until one is tried again that could not be given elsewhere
MAX_MOVES = 10_000  # requests under way, and arrivals
MAX_MEMBERS = 64
ID_BYTES = 8


class SessionDirectory(Protocol):
    """
    The directory, as moves use it.
    """

    def other_holders(self, name: str) -> list[tuple[int, str]]:
        """
        The other members that hold the session, as (generation, member), the highest last.
        """

    def held(self, name: str, generation: int) -> None:
        """
        Notes that this node holds the session.
        """

    def let_go(self, name: str) -> None:
        """
        Notes that this node does not hold the session any more.
        """


class MoveCounts(msgspec.Struct):
    """
    The counts of moves since the node started.

    Sessions that clients opened here were `asked` for: they were `taken`, or the client was `refused` by the
    holder, or because too many were asked for (`full`); or the holder had it not any more (`gone`), or did
    not answer (`unanswered`). `released` are sessions that left, `lost` those of them that another member had
    with a higher generation, `unwritten` those that stayed because the disk failed; `ended` are handovers
    that have ended, `imported` the sessions that came. `malformed` are payloads that were dropped.
    """

    asked: int = 0
    taken: int = 0
    refused: int = 0
    full: int = 0
    gone: int = 0
    unanswered: int = 0
    released: int = 0
    lost: int = 0
    unwritten: int = 0
    imported: int = 0
    ended: int = 0
    malformed: int = 0


class Moves:
    """
    The moves of sessions from and to this node, and a listener to its members.
    """

    def __init__(
        self,
        members: Members,
        holder: SessionHolder,
        directory: SessionDirectory,
        clock: IReactorTime,
        random_bytes: Callable[[int], bytes] = os.urandom,
        flushing: Flushing | None = None,
        settled: Callable[[], Deferred[None]] = lambda: succeed(None),
        most: int = MAX_MOVES,
    ) -> None:
        self.flushing = flushing or Flushing(members, clock)
        self.flushing.send = self._reply
        self.counts = MoveCounts()
        self._members = members
        self._holder = holder
        self._directory = directory
        self._clock = clock
        self._random_bytes = random_bytes
        self._known: dict[str, Departures] = {}
        self._by_name: dict[str, list[Handover]] = {}  # the newest last
        self._releasing: dict[str, Release] = {}  # by name, which are not on disk yet
        self._unreleased: set[str] = set()  # names whose release could not be written
        self.taking_seconds = 0.0  # of all that were taken
        self._takes = Takes(
            members.node, clock, self._reply, most, self._took, self._leaves_to, self._newest_holder
        )
        self._returns = Returns(clock)
        self._arrivals = Arrivals(members.node, holder, self._reply, self._imported, most, settled)
        self.is_gone: Callable[[str], bool] = lambda node: False  # has a member no lease any more?
        self._logged: set[str] = set()
        self.introduction = Introduction("", True)  # of this node, to members
        self.introductions: dict[str, Introduction] = {}
        self._turn_call: IDelayedCall | None = None
        self._tick_call: IDelayedCall | None = None

    def start(self) -> None:
        """
        Continue the handovers of before a restart.
        """
        for release in self._holder.releases():
            self._hand_over(release)
        self._tick_call = self._clock.callLater(TICK_SECONDS, self._tick)

    def stop(self) -> None:
        for call in (self._turn_call, self._tick_call):
            if call is not None:
                call.cancel()
        self._turn_call = self._tick_call = None
        self._returns.stop()
        self._takes.stop()
        self.flushing.stop()

    @property
    def under_way(self) -> tuple[int, int, int]:
        """
        The numbers of requests, of sessions that arrive, and of sessions that are handed over.
        """
        leaving = sum(len(departures.handovers) for departures in self._known.values())
        return len(self._takes), len(self._arrivals), leaving

    @property
    def put_off(self) -> int:
        """
        The number of offers that came while too many sessions arrived; they are made again.
        """
        return self._arrivals.put_off

    @property
    def unsaid(self) -> int:
        """
        The number of answers to members that were dropped, as too many waited; they are asked for again.
        """
        return sum(departures.unsaid for departures in self._known.values())

    def receivers(self) -> Iterable[str]:
        """
        The members to which sessions are being handed over.
        """
        return [node for node, departures in self._known.items() if departures.handovers]

    def leaving_to(self, nodes: Iterable[str]) -> int:
        """
        The number of sessions that are being handed over to these members, without those that wait only for
        what members have sent that are away.
        """
        known = [self._known[node] for node in nodes if node in self._known]
        handovers = [each for departures in known for each in departures.handovers.values()]
        return sum(self.flushing.is_slow or not each.only_waits for each in handovers)

    # -- of this node --------------------------------------------------------------

    def take(self, name: str, claim: bytes, found: tuple[str, ...] = ()) -> Deferred[Outcome] | None:
        """
        Ask for a session that a client has opened here; None if no other member is known to hold it. `found`
        are members that said so when they were asked. The result comes after 2 s without a sign of the
        holder, 6 at most, and 3 more if the session is being handed over from here; it never fails.
        """
        if self._goes_on(name):
            return self._returns.wait(name).addCallback(lambda done: self._take_back(name, claim, found))
        return self._take(name, claim, found)

    def _goes_on(self, name: str) -> bool:
        """
        Is a handover of the session under way that does not only wait for members that are slow or away?
        """
        leaving = self._by_name.get(name, ())
        return any(not each.only_waits and self._departures(each.release.to).is_up for each in leaving)

    def _take_back(self, name: str, claim: bytes, found: tuple[str, ...]) -> Outcome | Deferred[Outcome]:
        generation = self._holder.generation(name)
        if generation is not None:
            return Outcome(TAKEN, generation)
        return self._take(name, claim, found) or Outcome(GONE, 1)

    def _take(self, name: str, claim: bytes, found: tuple[str, ...]) -> Deferred[Outcome] | None:
        holder = self._newest_holder(name, found)
        if holder is None:
            return None
        generation, node = holder
        self.counts.asked += 1
        taken = self._takes.take(name, claim, node, generation)
        self._wake()
        return taken

    def _newest_holder(self, name: str, found: tuple[str, ...] = ()) -> tuple[int, str] | None:
        holders = [(0, node) for node in found]
        holders += [(each.generation, each.to) for each in self._leaving(name)]
        holders += self._directory.other_holders(name)
        return max(holders, default=None)

    def heard_of(self, name: str) -> None:
        """
        A member has said that it holds a session.
        """
        self._takes.heard_of(name)

    def _took(self, kind: str, seconds: float) -> None:
        setattr(self.counts, kind, getattr(self.counts, kind) + 1)
        if kind == TAKEN:
            self.taking_seconds += seconds

    def is_leaving(self, name: str) -> bool:
        """
        Is a session of that name being handed over to another member?
        """
        return name in self._by_name or name in self._releasing

    def _leaving(self, name: str) -> list[Release]:
        found = [handover.release for handover in self._by_name.get(name, ())]
        releasing = self._releasing.get(name)
        return found if releasing is None else [*found, releasing]

    def _leaves_to(self, name: str, node: str) -> bool:
        return any(release.to == node for release in self._leaving(name))

    def compare(self, name: str) -> None:
        """
        Another member holds the session, too: let it go if that one has the higher (generation, member).
        """
        generation = self._holder.generation(name)
        holders = self._directory.other_holders(name)
        if generation is None:
            self._let_go(name)
        if generation is None or not holders or name in self._releasing:
            return
        newer = [each for each in holders if each > (generation, self._members.node)]
        if newer:
            # One that is away gets what is here first: it may have had the same, and knows that.
            absent = [each for each in newer if not self._departures(each[1]).is_up]
            self.counts.lost += 1
            self._release(name, *(absent[0] if absent else newer[-1]))

    def newer_holder_is_absent(self, name: str, generation: int) -> None:
        """
        A member that is away holds the session, too, with that higher generation. One that has begun here
        since is newer than that; an older one belongs there.
        """
        held = self._holder.outrank(name, generation)
        if held is None:
            self.compare(name)
        else:
            self._directory.held(name, held)

    def compare_soon(self, name: str) -> None:
        """
        Compares in the next turn: a client is opening the session, which has to have its connection first.
        """
        self._clock.callLater(0, self.compare, name)

    @property
    def is_releasing(self) -> bool:
        """
        Is a release not on disk yet?
        """
        return bool(self._releasing)

    def hand_over(self, name: str, node: str) -> bool:
        """
        Give the session to a member that has not asked for it. False if it is not held here, or leaves
        already.
        """
        generation = self._holder.generation(name)
        if generation is None or name in self._releasing or self._arrivals.is_importing(name):
            return False
        holders = self._directory.other_holders(name)
        self._release(name, max(generation, holders[-1][0] if holders else 0) + 1, node)
        return True

    def more(self, name: str) -> None:
        """
        There are more messages for a session that was released.
        """
        for handover in self._by_name.get(name, ()):
            self._departures(handover.release.to).wake(handover)
        self._wake()

    def _release(self, name: str, generation: int, to: str) -> None:
        release = Release(self._random_bytes(ID_BYTES), name, generation, to)
        self._releasing[name] = release
        self._holder.release(release).addCallbacks(
            self._released, self._not_released, (release,), {}, (release,)
        )

    def _released(self, done: None, release: Release) -> None:
        self._releasing.pop(release.name, None)
        self.counts.released += 1
        self._hand_over(release)
        self.compare(release.name)  # a client may have begun it again meanwhile

    def _not_released(self, why: Failure, release: Release) -> None:
        """
        The disk fails. The session is held until the release can be written, or is asked for again.
        """
        self._releasing.pop(release.name, None)
        self._unreleased.add(release.name)
        self.counts.unwritten += 1
        log.warn(
            "{name} could not be released to {node}: {why}",
            name=release.name,
            node=release.to,
            why=why.getErrorMessage(),
        )

    def _hand_over(self, release: Release) -> None:
        part_bytes = min(PART_BYTES, self._members.max_payload - HEAD_BYTES)
        handover = Handover(release, self._holder, part_bytes)
        self._by_name.setdefault(release.name, []).append(handover)
        self._departures(release.to).add(handover)
        self._wake()

    def _imported(self, release: Release) -> None:
        """
        A session is held here now, unless it was let go before all of it came.
        """
        self.counts.imported += 1
        generation = self._holder.generation(release.name)
        if generation is not None:
            self._directory.held(release.name, generation)
            self._takes.imported(release.name, generation)
            self.compare(release.name)
        self.more(release.name)

    # -- the listener to members ---------------------------------------------------

    def member_up(self, node: str, epoch: tuple[bytes, int]) -> None:
        self._departures(node).link_up()
        self._holder.member_up(node, epoch)
        self.introduce(node)
        self._takes.member_up(node)
        self.flushing.member_up(node)
        self._wake()

    def introduce(self, node: str) -> None:
        """
        Tell a member where clients reach this node, and whether it takes sessions.
        """
        self._reply(node, self.introduction)

    def member_down(self, node: str) -> None:
        self._departures(node).link_down()
        self._end_waits(self._returns.names())
        self._arrivals.member_down(node)
        self._holder.member_down(node)

    def has_room(self, node: str) -> None:
        self._departures(node).room()
        self._wake()

    def member_heard(self, node: str, payload: bytes) -> None:
        try:
            statement = decode(payload)
        except msgspec.DecodeError as why:
            self.counts.malformed += 1
            if node not in self._logged:
                self._logged.add(node)
                log.warn("{node} sent a malformed statement about sessions: {why}", node=node, why=str(why))
            return
        if isinstance(statement, Take):
            self._asked(node, statement)
        elif isinstance(statement, Answer):
            self._takes.answered(node, statement)
        elif isinstance(statement, Want | Got):
            self._advanced(node, statement)
        elif isinstance(statement, Introduction):
            self.introductions[node] = statement
        elif isinstance(statement, Flush):
            self.flushing.asked(node, statement)
        elif isinstance(statement, Flushed):
            self.flushing.answered(node, statement)
        else:
            self._arrived(node, statement)
        self._wake()

    def _asked(self, node: str, take: Take) -> None:
        """
        A member has a client that opens this session.
        """
        name, generation = take.name, self._holder.generation(take.name)
        if name in self._releasing or (generation is not None and self._arrivals.is_importing(name)):
            self._reply(node, Answer(take.id, 0, "", "", generation or 0))
        elif generation is not None:
            refusal = self._holder.refusal(name, take.claim)
            if refusal is not None:
                self._reply(node, Answer(take.id, *refusal, "", generation))
            else:
                holders = self._directory.other_holders(name)
                highest = max(generation, holders[-1][0] if holders else 0)
                self._release(name, highest + 1, node)
        elif name in self._by_name:
            release = self._by_name[name][-1].release
            self._reply(node, Answer(take.id, 0, "", release.to, release.generation))
        elif self._arrivals.is_importing(name):
            self._reply(node, Answer(take.id, 0, "", "", 0))
        else:
            holders = [each for each in self._directory.other_holders(name) if each[1] != node]
            if holders:
                self._reply(node, Answer(take.id, 0, "", holders[-1][1], holders[-1][0]))
            else:
                self._reply(node, Answer(take.id, NOT_HERE, "no-session", "", 0))

    def _advanced(self, node: str, statement: Want | Got) -> None:
        departures = self._departures(node)
        handover = departures.handovers.get(statement.id)
        if handover is None:
            if isinstance(statement, Want):  # of an offer that was repeated meanwhile
                self._reply(node, End(statement.id, max(0, statement.key)))
            return
        if isinstance(statement, Want):
            handover.wanted(statement)
        else:
            handover.got(statement)
        departures.wake(handover)
        name = handover.release.name
        self._let_go(name)
        if isinstance(statement, Got) and statement.ended:
            self._ended(handover)
        self._end_waits((name,))

    def _ended(self, handover: Handover) -> None:
        self.counts.ended += 1
        name = handover.release.name
        left = [each for each in self._by_name.get(name, ()) if each is not handover]
        if left:
            self._by_name[name] = left
            return
        self._by_name.pop(name, None)
        if self._holder.generation(name) is None and name not in self._releasing:
            self._directory.let_go(name)

    def _end_waits(self, names: Iterable[str]) -> None:
        for name in names:
            if not self._goes_on(name):
                self._returns.over(name)

    def _let_go(self, name: str) -> None:
        """
        Leave the directory once the holder of the newest release is in it: until then this node is the one
        that can be found.
        """
        handovers = self._by_name.get(name)
        if not handovers or self._holder.generation(name) is not None or name in self._releasing:
            return
        holders, newest = self._directory.other_holders(name), handovers[-1]
        if newest.is_imported and holders and holders[-1][0] >= newest.release.generation:
            self._directory.let_go(name)

    def _arrived(self, node: str, statement: Offer | State | Messages | Fragment | End) -> None:
        arrivals = self._arrivals
        if isinstance(statement, Offer):
            self._takes.offered(statement.name)
            arrivals.offered(node, statement)
        elif isinstance(statement, State):
            arrivals.state(node, statement)
        elif isinstance(statement, Messages):
            arrivals.messages(node, statement)
        elif isinstance(statement, Fragment):
            arrivals.fragment(node, statement)
        else:
            arrivals.end(node, statement)

    # -- sending -------------------------------------------------------------------

    def _departures(self, node: str) -> Departures:
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = Departures(node, self._members, self._clock)
        return found

    def _reply(self, node: str, statement: AnyStatement) -> None:
        self._departures(node).reply(statement)
        self._wake()

    def _wake(self) -> None:
        if self._turn_call is None:
            self._turn_call = self._clock.callLater(0, self._turn)

    def _turn(self) -> None:
        self._turn_call = None
        if any([departures.pump() for departures in self._known.values()]):
            self._wake()

    def _tick(self) -> None:
        self._tick_call = self._clock.callLater(TICK_SECONDS, self._tick)
        for node, departures in self._known.items():
            departures.tick()
            if departures.handovers and not departures.is_up and self.is_gone(node):
                self._give_all_elsewhere(departures)
        unreleased, self._unreleased = self._unreleased, set()
        for name in unreleased:
            self.compare(name)
        self._wake()

    def _give_all_elsewhere(self, departures: Departures) -> None:
        before = self._clock.seconds() - GIVE_AGAIN_SECONDS
        due = (each for each in departures.handovers.values() if each.failed_at < before)
        for handover in list(islice(due, GONE_PER_TICK)):
            self._give_elsewhere(handover)

    def _give_elsewhere(self, handover: Handover) -> None:
        """
        The member to which a session was handed over does not come back: its newest holder gets what is left.
        """
        release, node = handover.release, handover.release.to
        holders = [each for each in self._directory.other_holders(release.name) if each[1] != node]
        is_here = self._holder.generation(release.name) is not None
        if not is_here and not holders:
            return
        self._departures(node).handovers.pop(release.id, None)
        self._ended(handover)
        log.warn("what {node} had not got of {name} goes elsewhere", node=node, name=release.name)
        if is_here:
            given = self._holder.take_back(release)
        else:
            other = Release(self._random_bytes(ID_BYTES), release.name, *holders[-1])
            given = self._holder.redirect(release, other).addCallback(lambda done: self._hand_over(other))
        given.addErrback(lambda why: self._not_given(why, handover))

    def _not_given(self, why: Failure, handover: Handover) -> None:
        """
        It is tried again, if it is still here.
        """
        handover.failed_at = self._clock.seconds()
        log.warn("{name}: {why}", name=handover.release.name, why=why.getErrorMessage())
        if any(release.id == handover.release.id for release in self._holder.releases()):
            self._by_name.setdefault(handover.release.name, []).append(handover)
            self._departures(handover.release.to).add(handover)
