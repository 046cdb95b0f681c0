"""
The replicated directory: each member sends the others what it binds, and keeps what the others hold.

A lookup is one dict access. A change is one entry of a delta to each member; nothing is
written to disk, because a member that starts again is sent a snapshot. A member that is silent is suspected
after SUSPECT_SECONDS: its addresses stay, and messages to it wait in its stream. They end with the lease;
when it starts again, with the end of its snapshot, or at once if it has lost its memory.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.cluster.directory.absent_holders import AbsentHolders, Telling, higher
from msgnode.cluster.directory.address_table import AddressTable, SessionEntry
from msgnode.cluster.directory.follower import Follower
from msgnode.cluster.directory.limits import DirectoryCounts, DirectoryLimits
from msgnode.cluster.directory.own_addresses import DeltaLog, OwnAddresses
from msgnode.cluster.directory.questions import ANSWER_SECONDS, Answer, Questions
from msgnode.cluster.directory.replica import Replica
from msgnode.cluster.directory.settling import Settling
from msgnode.cluster.directory.wire import (
    MAX_PAYLOAD_BYTES,
    Ask,
    Delta,
    Elsewhere,
    Found,
    HeldSession,
    Piece,
    Seen,
    Sync,
    decode,
)
from msgnode.cluster.membership import Members
from msgnode.structures.time_slices import Slices

log = Logger()

TICK_SECONDS = 1.0
ALIVE_SECONDS = 5.0  # a member gets a sign of life at least as often
SUSPECT_SECONDS = 15.0
SILENCE_SECONDS = 10.0  # without any member: sessions may have moved meanwhile
COMPARE_SECONDS = 2.0
LEAP_SECONDS = 2.0  # more between two ticks: this node did not run, so silence then proves nothing


class _Member(msgspec.Struct, eq=False):
    """
    A member that is known, up or not.
    """

    replica: Replica
    follower: Follower
    heard_at: float
    sent_at: float
    telling: Telling
    is_up: bool = False
    is_suspected: bool = False
    owes_seen: bool = False
    asks_again: bool = False
    says_copies: bool = False  # is it of a release that knows what is said of members that are away?
    is_logged: bool = False  # that it sent something malformed
    copied: int | None = None  # the last copy that was made here before what is not acknowledged
    said: int | None = None  # the last such one that was said: that may be lost with the link


class ReplicatedDirectory:
    """
    The directory of a cluster, and a listener to its members.

    `is_bound` tells whether an address is bound here; it decides what a question of another member is
    answered. `session_added` is called with the name of each session that a member says that it holds;
    `session_shared` with those of them that are held here, too; `session_absent` with those that are held
    here, and by a member that is away with that higher generation; `heard_again` when a member is heard after
    SILENCE_SECONDS without any. `last_copy` gives the number of the last copy of a message that this node has
    made. `acknowledged` is called with each member that acknowledges addresses of this node, its memory, and
    the last copy that it had made before it had the first of them.
    """

    def __init__(
        self,
        members: Members,
        is_bound: Callable[[str], bool],
        clock: IReactorTime,
        slices: Slices,
        limits: DirectoryLimits | None = None,
    ) -> None:
        self.counts = DirectoryCounts()
        self.limits = limits or DirectoryLimits()
        self.table = AddressTable()
        self.own = OwnAddresses()
        self.session_added: Callable[[str], None] = lambda name: None
        self.session_shared: Callable[[str], None] = lambda name: None
        self.session_absent: Callable[[str, int], None] = lambda name, generation: None
        self.heard_again: Callable[[], None] = lambda: None
        self.last_copy: Callable[[], int] = lambda: 0
        self.acknowledged: Callable[[str, bytes, int], None] = lambda node, memory, copied: None
        self.is_unanswered = False  # did a member not answer the last comparison in time?
        self._members = members
        self._is_bound = is_bound
        self._clock = clock
        self._slices = slices
        self._log = DeltaLog(self.limits.log_bytes)
        self._known: dict[str, _Member] = {}
        self._absent: frozenset[str] = frozenset()  # members that are known, and not up
        self._absent_holders = AbsentHolders(clock.seconds, self.limits.lease_seconds)
        self._settling = Settling(clock, self._unsuspected, self.limits.waiters, self.counts)
        self._questions = Questions(clock, self._reachable, self._ask, self.limits.questions, self.counts)
        self._turn_call: IDelayedCall | None = None
        self._tick_call: IDelayedCall | None = None
        self._ticked_at = self._started_at = 0.0
        self._is_sweeping = False
        self._heard_at = float("-inf")  # of any member
        self._last_sync = 0
        self._comparisons: dict[int, tuple[set[str], Deferred[None], IDelayedCall]] = {}

    # -- life ----------------------------------------------------------------------

    def start(self) -> None:
        self._ticked_at = self._started_at = self._clock.seconds()
        self._tick_call = self._clock.callLater(TICK_SECONDS, self._tick)

    def stop(self) -> None:
        for call in (self._turn_call, self._tick_call):
            if call is not None:
                call.cancel()
        self._turn_call = self._tick_call = None
        self._settling.stop()
        self._questions.stop()
        for id in list(self._comparisons):
            self._compared(id)

    # -- lookups -------------------------------------------------------------------

    def holders(self, address: str) -> tuple[str, ...]:
        """
        The other members that hold the address, or the session whose runtimeURL it is below; sorted.
        """
        return self.table.holders(address)

    def shared(self, address: str) -> tuple[str, ...]:
        """
        The other members that hold this very address; sorted. One dict access.
        """
        return self.table.shared(address)

    def sessions(self, name: str) -> list[tuple[str, SessionEntry]]:
        """
        The members that hold the session, and their entries of it; the highest (generation, member) last.
        One that is away, and of which this node has heard by others, is among them.
        """
        return self._absent_holders.merged(name, self.table.sessions(name))

    def session_holder(self, name: str) -> str:
        """
        The other member that holds the session with the highest (generation, member); "" if none does.
        """
        holders = self.table.sessions(name)
        return holders[-1][0] if holders else ""

    def newer_holder(self, name: str, generation: int) -> str:
        """
        The other member that holds the session with this generation or a higher one; "" if none does.
        """
        holders = self.table.sessions(name)
        return holders[-1][0] if holders and holders[-1][1].generation >= generation else ""

    def token_holder(self, token_hash: bytes) -> str:
        """
        The other member that holds the session with this token, by its hash; "" if none is known to.
        """
        return self.table.token_holder(token_hash)

    def ask(self, address: str, seconds: float = ANSWER_SECONDS) -> Deferred[Answer]:
        """
        The members that hold the address, by asking all that are up; None if some do not answer in so many
        seconds. Never fails.
        """
        return self._questions.ask(address, seconds)

    def is_suspected(self, node: str) -> bool:
        """
        Was nothing heard of the member for SUSPECT_SECONDS, or ever?
        """
        member = self._known.get(node)
        return member is None or member.is_suspected

    def knows_all(self, nodes: Iterable[str]) -> bool:
        """
        Is the whole snapshot of each of these members here, or had it no lease any more when this node
        started?
        """
        if self._clock.seconds() - self._started_at >= self.limits.lease_seconds:
            return True
        known = self._known
        return all(node in known and known[node].replica.is_complete for node in nodes)

    def compare(self) -> Deferred[None]:
        """
        Fires when all members that are up have sent all their changes until now; after COMPARE_SECONDS at
        most. `session_shared` was called for what they hold, too, then.
        """
        self._last_sync += 1
        done: Deferred[None] = Deferred()
        asked = {node for node in self._reachable() if self._known[node].follower.send(Sync(self._last_sync))}
        if not asked:
            done.callback(None)
            return done
        timer = self._clock.callLater(COMPARE_SECONDS, self._compared, self._last_sync)
        self._comparisons[self._last_sync] = (asked, done, timer)
        return done

    def _synced(self, node: str, id: int) -> None:
        if id in self._comparisons:
            asked = self._comparisons[id][0]
            asked.discard(node)
            if not asked:
                self._compared(id)

    def _compared(self, id: int) -> None:
        asked, done, timer = self._comparisons.pop(id)
        self.is_unanswered = bool(asked)
        if timer.active():
            timer.cancel()
        done.callback(None)

    # -- this node's addresses -----------------------------------------------------

    def bound(self, address: str) -> None:
        self.own.add(address)
        self._changed()

    def unbound(self, address: str) -> None:
        self.own.remove(address)
        self._changed()

    def session_bound(self, name: str, token_hash: bytes, generation: int) -> None:
        """
        Notes that this node holds a session with that name. `token_hash` is the start of the hash of its
        token, TOKEN_HASH_BYTES long.
        """
        self.own.add_session(HeldSession(name, token_hash, generation))
        self._changed()

    def session_unbound(self, name: str) -> None:
        self.own.remove_session(name)
        self._changed()

    def last_change(self, address: str) -> int:
        """
        The number of the last change of an address of this node.
        """
        return self.own.last_change(address)

    def has(self, node: str, change: int) -> bool:
        """
        Has the member acknowledged that change of this node's addresses, and all before it?
        """
        member = self._known.get(node)
        return member is not None and member.follower.has(change)

    def members(self) -> list[str]:
        """
        The members that are known, up or not.
        """
        return list(self._known)

    def settled(self, address: str) -> Deferred[None]:
        return self._settling.wait(self.own.last_change(address))

    def _changed(self) -> None:
        if self._turn_call is None and self.own.has_changes:
            self._wake()

    # -- the listener to members ---------------------------------------------------

    def member_up(self, node: str, epoch: tuple[bytes, int]) -> None:
        member = self._known.get(node)
        if member is None:
            if len(self._known) >= self.limits.members:
                log.error("{node} is ignored: there are {most} members", node=node, most=self.limits.members)
                return
            added = partial(self._session_added, node)
            replica = Replica(node, self.table, self.limits, self.counts, added)
            follower = Follower(node, self._members, self.own, self._log, self.counts)
            now = self._clock.seconds()
            member = self._known[node] = _Member(replica, follower, now, now, Telling())
        if member.replica.epoch != epoch:
            member.copied = member.said = None
        member.copied = member.said if member.copied is None else member.copied
        member.replica.begin(epoch)
        member.follower.link_up()
        member.is_up = member.owes_seen = member.asks_again = True
        member.telling.clear()
        self._note_absent()
        self._heard(node, member)
        self._sweep()
        self._wake()

    def member_down(self, node: str) -> None:
        member = self._known.get(node)
        if member is not None:
            member.is_up = False
            member.follower.link_down()
            member.telling.clear()
            self._note_absent()
            self._unreachable(node)

    def _note_absent(self) -> None:
        self._absent = frozenset(node for node, member in self._known.items() if not member.is_up)

    def _unreachable(self, node: str) -> None:
        """
        Wait for no answer of the member.
        """
        self._questions.unreachable(node)
        for id in list(self._comparisons):
            self._synced(node, id)

    def has_room(self, node: str) -> None:
        member = self._known.get(node)
        if member is not None:
            member.follower.room()
            self._wake()

    def member_heard(self, node: str, payload: bytes) -> None:
        member = self._known.get(node)
        if member is None:
            return
        self._heard(node, member)
        try:
            statement = decode(payload)
        except msgspec.DecodeError as why:
            self.counts.malformed += 1
            if not member.is_logged:
                member.is_logged = True
                log.warn("{node} sent a malformed statement about addresses: {why}", node=node, why=str(why))
            return
        if isinstance(statement, Delta):
            self._note_copies(member)
            self._followed(member, member.replica.apply_delta(statement))
        elif isinstance(statement, Piece):
            self._note_copies(member)
            self._followed(member, member.replica.apply_piece(statement))
            if member.replica.is_complete:
                self._absent_holders.forget(node)
            self._sweep()
        elif isinstance(statement, Seen):
            member.follower.seen(statement)
            self._settling.check()
            member.says_copies = statement.copied > 0
            self.acknowledged(node, member.replica.epoch[0], statement.copied)
            if statement.again:
                self._wake()
        elif isinstance(statement, Ask):
            member.follower.send(Found(statement.id, self._is_bound(statement.address)))
        elif isinstance(statement, Found):
            self._questions.answered(node, statement.id, statement.held)
        elif isinstance(statement, Sync):
            member.follower.sync(statement.id)
            self._wake()
        elif isinstance(statement, Elsewhere):
            self._held_elsewhere(statement)
        else:
            self._synced(node, statement.id)

    def _heard(self, node: str, member: _Member) -> None:
        now = member.heard_at = self._clock.seconds()
        silent, self._heard_at = now - self._heard_at, now
        if SILENCE_SECONDS <= silent < float("inf"):
            self.heard_again()
        if member.is_suspected:
            member.is_suspected = False
            member.owes_seen = member.asks_again = True
            log.info("{node} is heard again", node=node)

    def _note_copies(self, member: _Member) -> None:
        if member.copied is None:
            member.copied = self.last_copy()

    def _followed(self, member: _Member, is_applied: bool) -> None:
        if is_applied:
            member.owes_seen = True
        elif member.replica.must_ask():
            member.owes_seen = member.asks_again = True
        self._wake()

    def _session_added(self, node: str, name: str) -> None:
        self.session_added(name)
        if self.own.session(name) is not None:
            self.session_shared(name)
        member = self._known[node]
        if self._absent and member.says_copies:
            telling = member.telling
            for holder, entry in higher(self.table.sessions(name), node, self._absent):
                telling.add(holder, HeldSession(name, entry.token_hash, entry.generation))

    def _held_elsewhere(self, said: Elsewhere) -> None:
        """
        A member knows sessions of this node at a member that is away.
        """
        holder = self._known.get(said.node)
        if said.node == self._members.node or (holder is not None and holder.is_up):
            return
        for session in said.sessions:
            own = self.own.session(session.name)
            is_higher = own is not None and session.generation > own.generation
            if is_higher and self._absent_holders.note(said.node, session):
                self.session_absent(session.name, session.generation)

    # -- sending -------------------------------------------------------------------

    def _wake(self) -> None:
        if self._turn_call is None:
            self._turn_call = self._clock.callLater(0, self._turn)

    def _turn(self) -> None:
        """
        The work of one turn of the event loop: one delta, and a little for each member.
        """
        self._turn_call = None
        if not self._known:
            self.own.skip_changes()
            self._log.clear(self.own.number)
        elif self.own.has_changes:
            self._log.append(self.own.take_delta(min(MAX_PAYLOAD_BYTES, self._members.max_payload)))
        is_more = self.own.has_changes
        for member in self._known.values():
            if member.is_up:
                self._send_seen(member)
                if member.telling.send(member.follower.send, self._members.max_payload):
                    is_more |= member.follower.pump()
        if is_more:
            self._wake()

    def _send_seen(self, member: _Member) -> None:
        copied = self.last_copy() if member.copied is None else member.copied
        if member.owes_seen and member.follower.send(member.replica.seen(member.asks_again, copied)):
            member.owes_seen = member.asks_again = False
            if member.replica.is_complete and member.copied is not None:
                member.said, member.copied = member.copied, None
            member.sent_at = self._clock.seconds()

    def _ask(self, node: str, question: Ask) -> bool:
        return self._known[node].follower.send(question)

    def _reachable(self) -> list[str]:
        return [node for node, member in self._known.items() if member.is_up and not member.is_suspected]

    def _unsuspected(self) -> Iterable[Follower]:
        return [member.follower for member in self._known.values() if not member.is_suspected]

    # -- silence -------------------------------------------------------------------

    def _tick(self) -> None:
        self._tick_call = self._clock.callLater(TICK_SECONDS, self._tick)
        now = self._clock.seconds()
        leap = now - self._ticked_at - TICK_SECONDS
        self._ticked_at = now
        self._absent_holders.forget_old()
        for node, member in list(self._known.items()):
            if leap > LEAP_SECONDS:
                member.heard_at += leap
            self._judge_silence(node, member, now - member.heard_at)
            if member.replica.may_refill():
                member.replica.restart()
                member.owes_seen = member.asks_again = True
            member.owes_seen |= now - member.sent_at >= ALIVE_SECONDS
            member.follower.room()  # in case the call of `has_room` was lost
        self._wake()

    def _judge_silence(self, node: str, member: _Member, silent: float) -> None:
        if silent >= self.limits.lease_seconds and (member.replica.count or not member.is_up):
            log.warn(
                "{node} was silent for {silent} seconds; its {count} addresses end",
                node=node,
                silent=round(silent),
                count=member.replica.count,
            )
            member.replica.drop()
            if not member.is_up:
                del self._known[node]
                self._note_absent()
            self._sweep()
            self._settling.check()
        elif silent >= SUSPECT_SECONDS and not member.is_suspected:
            member.is_suspected = True
            self._unreachable(node)
            self._settling.check()
            log.warn("{node} is suspected: it was silent for {silent} seconds", node=node, silent=silent)

    def _sweep(self) -> None:
        """
        Removes the entries of dropped views, in slices.
        """
        if self._is_sweeping or not self.table.needs_sweep:
            return
        self._is_sweeping = True
        rest = self._slices.begin(self._swept())
        if rest is not None:
            rest.addErrback(partial(log.failure, "the addresses of a member could not be removed"))

    def _swept(self) -> Iterator[None]:
        try:
            yield from self.table.sweep()
        finally:
            self._is_sweeping = False
