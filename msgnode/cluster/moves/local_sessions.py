"""
The sessions of this node, as moves see them (SessionHolder): real ones, with their state in the spool.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

import msgspec
from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.cluster.commits import Commits
from msgnode.cluster.copies.absent_members import AbsentMembers
from msgnode.cluster.copies.coming_copies import ComingCopies
from msgnode.cluster.copies.copy_marks import Marks, later
from msgnode.cluster.copies.overlap import CopyBudget, CopyId, SessionOverlap
from msgnode.cluster.copies.session_beginnings import Beginnings
from msgnode.cluster.moves import session_transfer as transfer
from msgnode.cluster.moves.node_parts import NoRequests, Parts, Requests
from msgnode.cluster.moves.session_holder import Claims, Release
from msgnode.cluster.moves.wire import PART_BYTES
from msgnode.protocol.close_codes import SUPERSEDED, Closing
from msgnode.protocol.message import Message
from msgnode.sessions.persistence import SessionMove
from msgnode.sessions.principal import read_proof
from msgnode.sessions.queue import QueuedMessage
from msgnode.sessions.session import Session

log = Logger()

MAX_OVER = 20_000  # handovers whose end is remembered, in case that the other member did not hear of it
MAX_LATE = 10_000  # sessions that have left, for which late messages are waited for
LATE_SECONDS = 1.0  # until it is asked again whether those have come
AWAY_SECONDS = 2.0  # after a restart, for which sessions wait for members that are away
HERE = ""  # this node, as the one that hands a session over to itself
EXPECT_SECONDS = 10.0  # between two looks whether another member still has a session


class LocalSessions:
    """
    The sessions of this node, and those that left it and are still being handed over.

    `refused` says why a client with a claim may not have a session. `own_flushed` fires when all that this
    node has sent is acknowledged, `flushed` when all that members have sent to it and to another one has
    arrived, `arrived` when all that they have sent to it has. `more` is called when there are messages for a
    session that left; `copy_id` gives the id of a message's copies.
    """

    def __init__(
        self,
        node: Parts,
        clock: IReactorTime,
        refused: Callable[[Session, bytes], Closing | None],
        copy_id: Callable[[Message], CopyId | None],
    ) -> None:
        self.more: Callable[[str], None] = lambda name: None
        self.copy_marks: Callable[[], Marks] = dict  # of the copies that came to this node, or that it sent
        self.own_flushed: Callable[[], Deferred[None]]
        self.flushed: Callable[[str], Deferred[bool]]
        self.arrived: Callable[[], Deferred[bool]]
        self.requests: Requests = NoRequests()
        self.has_others: Callable[[str], bool] = lambda name: False  # do other members have the session?
        self.away: Callable[[], set[str]] = set  # the members that will be back
        # Those of which something was late when `flushed` or `arrived` fired; None if any may be one.
        self.late_members: Callable[[], set[str] | None] = lambda: None
        self.absent = AbsentMembers(lambda: node.sessions.last_sid)
        # Why the connections of sessions that leave are closed, by name; else they are superseded.
        self.closings: dict[str, Closing] = {}
        self._node = node
        self._sessions = node.sessions
        self._clock = clock
        self._refused = refused
        self._copy_id = copy_id
        self._leaving: dict[bytes, Session] = {}
        self._stays: dict[str, list[int]] = {}  # the sids of these, by name
        self._arriving: dict[str, Session] = {}  # by handover: where its messages go
        self._left_bindings: dict[bytes, dict[str, int]] = {}  # of those that came back here meanwhile
        self._flushing: dict[bytes, bool] = {}  # has all that was sent to it here arrived?
        self._late: set[bytes] = set()  # not all that was sent has arrived in time
        self._asking: dict[str, list[Release]] = {}  # of these, what is asked for soon, by new holder
        self.most_late = MAX_LATE
        self.copies = CopyBudget()
        self.given_up = 0  # sessions beyond that, for which late messages were not waited for
        self._released_at: dict[bytes, int] = {}  # the last key at the release
        self._marks_at: dict[bytes, Marks] = {}  # of copies, at the release
        self._over: dict[str, int] = {}  # handovers to sessions that have left: their last keys
        self._handed_over: set[bytes] = set()  # by this node, which stops, and not at a client's wish
        self._unflushed: dict[Session, None] = {}
        self.has_heard: Callable[[str, int], bool] = lambda node, change: True
        self._decided: deque[Session] = deque()  # for which messages are not held any more
        self.beginnings = Beginnings(
            clock,
            lambda node, change: self.has_heard(node, change),
            lambda node: self.absent.is_up(node) or node in self.away(),
            self._beginning_decided,
        )
        self._coming = ComingCopies(clock, lambda: self.arrived(), self._still_waits, self._all_copies_came)
        self._commits = Commits(node, clock)

    def restore(self) -> None:
        """
        Continue with the sessions of before a restart, and with what was arriving for them.
        """
        self.absent.restored()
        for session in self._sessions.released.values():
            if session.move is not None:
                self._begin_leaving(bytes.fromhex(session.move.id), session)
                self._watch(session)
                session.mailbox.give(session.mailbox.last_key)  # its new holder may have them all
        last = {release.name: release.id for release in self.releases()}
        for id, session in self._leaving.items():
            if id != last[session.runtime] or self._sessions.get(session.runtime) is not None:
                self._leave_routes(id, session)
        for session in [*self._sessions, *self._sessions.released.values()]:
            if session.move is None:
                continue
            for handover, (_, has_ended) in session.move.progress.items():
                self._arriving[handover] = session
                if not has_ended:
                    self._watch(session)
        for session in self._sessions:
            if session.is_moved and session.mailbox.overlap is None:
                self.expect(session, is_restored=True)
        self._sessions.copies.clear()
        if self._arriving:
            self._clock.callLater(AWAY_SECONDS, self._stop_waiting_for_others)

    def _stop_waiting_for_others(self) -> None:
        """
        The members that have not come back after a restart hand nothing over.
        """
        away = {HERE, *self.away()}
        self._node.slices.begin(self._stop_waiting(away.__contains__))

    @property
    def late(self) -> int:
        """
        The number of sessions that have left and wait for what members that were away had sent to them.
        """
        return len(self._late)

    # -- held here --------------------------------------------------------------------

    def generation(self, name: str) -> int | None:
        session = self._sessions.get(name)
        return None if session is None or session.is_node else session.generation

    def refusal(self, name: str, claim: bytes) -> tuple[int, str] | None:
        session = self._sessions.get(name)
        if session is None:
            return None
        why = self._refused(session, claim)
        return None if why is None else (why.code, why.reason)

    def outrank(self, name: str, generation: int) -> int | None:
        session = self._sessions.get(name)
        if session is None or self.absent.is_restored(session.sid):
            return None
        session.generation = max(session.generation, generation + 1)
        session.write_state()
        self.expect(session)
        return session.generation

    def leave_routes(self, name: str) -> None:
        """
        A session of that name is held here again: nothing more is collected for the one that left.
        """
        for id, session in self._leaving.items():
            if session.runtime == name and id not in self._left_bindings:
                self._leave_routes(id, session)

    def _begin_leaving(self, id: bytes, session: Session) -> None:
        self._leaving[id] = session
        self._stays.setdefault(session.runtime, []).append(session.sid)

    def _end_leaving(self, id: bytes) -> Session:
        session = self._leaving.pop(id)
        stays = self._stays[session.runtime]
        stays.remove(session.sid)
        if not stays:
            del self._stays[session.runtime]
        return session

    def _leave_routes(self, id: bytes, session: Session) -> None:
        self._left_bindings[id] = dict(session.bindings)
        self._node.routes.forget(session)

    def _watch(self, session: Session) -> SessionOverlap:
        """
        Knows the copies of messages that another member has of the session from now on.
        """
        overlap = session.mailbox.overlap
        if not isinstance(overlap, SessionOverlap):
            overlap = SessionOverlap(
                session.mailbox, self._copy_id, lambda: self._collected(session), self.copies
            )
            session.mailbox.overlap = overlap
            overlap.marks = _marks_of(session)
            overlap.restore(self._sessions.copies.pop(session.sid, {}))
            for kept in session.mailbox.waiting_messages():
                overlap.note_early(kept)
        return overlap

    def _collected(self, session: Session) -> None:
        """
        There is one message more for a session that another member has, or had.
        """
        self.more(session.runtime)
        if session.connection is not None and session not in self._unflushed:
            if not self._unflushed:
                self._clock.callLater(0, self._flush_all)
            self._unflushed[session] = None

    def _flush_all(self) -> None:
        unflushed, self._unflushed = self._unflushed, {}
        for session in unflushed:
            self.flush(session)

    def expect(self, session: Session, is_restored: bool = False) -> None:
        """
        A session began here, and another member has it, too, which does not answer. What that hands over
        later may have come here by itself. If it `is_restored`, any member that is away may have it.
        """
        self._watch(session).is_double = True
        session.pause()
        self._clock.callLater(EXPECT_SECONDS, self._still_expects, session, is_restored)

    def began(self, session: Session, change: int, members: Iterable[str]) -> None:
        """
        A session began here without its earlier holder. `change` of this node's addresses says so to these
        members.
        """
        self.expect(session)
        overlap = self._watch(session)
        overlap.is_from_before = lambda copy: self._came_from_before(session, copy)
        self.beginnings.begin(session, overlap, change, members)

    def _came_from_before(self, session: Session, copy: Message | QueuedMessage) -> None:
        """
        A copy is from before a session: it is for an earlier stay, if that is being handed over.
        """
        stays = [each for each in self._leaving.values() if each.runtime == session.runtime]
        earlier = [each for each in stays if each.sid < session.sid]
        if not earlier:
            return
        stay = earlier[-1]
        if isinstance(copy, Message):
            stay.mailbox.put(copy)
            return
        data, overlap = session.mailbox.read_back(copy), self._watch(stay)
        if data is not None and copy.copy is not None and overlap.is_new(copy.copy):
            overlap.note(stay.mailbox.adopt(data, copy.until, copy.priority, 0, copy.copy, copy.asker))

    def _beginning_decided(self, session: Session) -> None:
        """
        Its messages do not wait for what members say. There may be many such sessions at once.
        """
        self._decided.append(session)
        if len(self._decided) == 1:
            self._clock.callLater(0, lambda: self._node.slices.begin(self._end_holds()))

    def _end_holds(self) -> Iterator[None]:
        while self._decided:
            session = self._decided.popleft()
            if not session.ended:
                self._end_hold(session)
                self.flush(session)
            yield

    def _end_hold(self, session: Session) -> None:
        overlap = session.mailbox.overlap
        holds = isinstance(overlap, SessionOverlap) and overlap.holds
        if not holds and (session.move is None or not session.move.behind):  # else a handover ends it
            session.mailbox.end_arrival()

    def _end_overlap(self, session: Session) -> None:
        """
        No other member has anything of the session any more.
        """
        session.mailbox.overlap = None
        self._end_hold(session)

    def _still_expects(self, session: Session, is_restored: bool) -> None:
        if session.mailbox.overlap is None or session.ended or session.sid in self._sessions.released:
            return
        if self._is_arriving(session):
            return  # it ends with that
        is_awaited = self.has_others(session.runtime) or self.beginnings.waits(session)
        if is_awaited or (is_restored and bool(self.away())):
            self._clock.callLater(EXPECT_SECONDS, self._still_expects, session, is_restored)
        elif self._expects(session):
            self._coming.wait(session)
        else:
            self._end_overlap(session)
            self.flush(session)

    # -- leaving ----------------------------------------------------------------------

    def release(self, release: Release) -> Deferred[None]:
        session = self._sessions.get(release.name)
        assert session is not None, "it is held here"
        move = session.move or SessionMove()
        session.move = msgspec.structs.replace(
            move, id=release.id.hex(), to=release.to, generation=release.generation
        )
        closing = self.closings.pop(release.name, None)
        self._sessions.release(session, closing or SUPERSEDED)
        if closing is not None:
            self._handed_over.add(release.id)
        self._begin_leaving(release.id, session)
        self._released_at[release.id] = session.mailbox.last_key
        if (
            session.mailbox.overlap is None
        ):  # else copies may be on their way that came here before the session
            self._marks_at[release.id] = {
                place: number
                for place, number in self.copy_marks().items()
                if not self.absent.had_none(place[0], session.sid)
            }
        self._watch(session)
        session.write_state()
        written = self._commits.commit().addErrback(self._keep, release, session)
        return written.addCallback(lambda done: self.own_flushed())

    def _keep(self, why: Failure, release: Release, session: Session) -> Failure:
        """
        The release could not be written: the session stays.
        """
        self._end_leaving(release.id)
        del self._released_at[release.id]
        self._marks_at.pop(release.id, None)
        assert session.move is not None
        session.move = msgspec.structs.replace(session.move, id="", to="", generation=0)
        if not self._is_arriving(session):
            self._end_overlap(session)
        session.write_state()
        if self._sessions.get(session.runtime) is None:
            self._sessions.hold_again(session)
        return why

    def releases(self) -> Iterable[Release]:
        found = []
        for id, session in self._leaving.items():
            assert session.move is not None
            found.append(Release(id, session.runtime, session.move.generation, session.move.to))
        return sorted(found, key=lambda release: release.generation)

    def state(self, release: Release, claims: Claims) -> bytes:
        session = self._leaving[release.id]
        outbox = session.mailbox.outbox
        for epoch, received in claims:
            if outbox is not None and outbox.epoch == epoch and received > outbox.acknowledged:
                outbox.acknowledge(min(received, outbox.last))
        try:
            return self._export(session, release)
        except OSError as why:
            log.warn("{name} loses messages that cannot be read: {why}", name=session.runtime, why=str(why))
            if outbox is not None:
                outbox.drop_unreadable(count_missed=True)
            return self._export(session, release)

    def _export(self, session: Session, release: Release) -> bytes:
        registered, asked = self._node.registered.of(session), self.requests.awaited_of(session)
        bindings, copies = self._bindings(release.id), self._watch(session).delivered()
        told = self.requests.told_to(session)
        at_release = self._marks_at.get(release.id, {})
        marks = later(_marks_of(session), at_release)
        return transfer.export_state(
            session, self._sessions, registered, bindings, asked, told, copies, marks
        )

    def _bindings(self, id: bytes) -> dict[str, int]:
        return self._left_bindings.get(id, self._leaving[id].bindings)

    def messages(self, release: Release, after: int, most_bytes: int) -> list[tuple[int, bytes]]:
        session = self._leaving[release.id]
        session.mailbox.give(0)  # what was on its way is there, or comes again now
        session.mailbox.expire()
        released_at = self._released_at.get(release.id, 0)  # after a restart all may be late
        overlap = session.mailbox.overlap
        above = overlap.awaited_above if isinstance(overlap, SessionOverlap) else None
        found = transfer.export_messages(session, self._sessions, after, most_bytes, released_at, above)
        session.mailbox.give(found[-1][0] if found else 0)
        return found

    def handed_over(self, release: Release, key: int) -> None:
        self._leaving[release.id].mailbox.hand_over(key)
        self._commits.settle_soon()

    def seal(self, release: Release) -> bool:
        session = self._leaving[release.id]
        if self._is_arriving(session):
            return False
        session.mailbox.end_arrival()
        if release.id not in self._flushing:
            self._flushing[release.id] = False
            if release.id in self._handed_over:
                # All members know the new holder by now: what they publish goes there, too. A client that
                # goes on by itself is back sooner than such copies, and would get later messages before them.
                self._watch(session).awaited_above = session.mailbox.last_key
            self.flushed(release.to).addCallback(self._all_arrived, release)
        if session.mailbox.queued:
            self._clock.callLater(0, self.more, release.name)
            return False
        if not self._flushing[release.id]:
            return False
        if release.id not in self._left_bindings:
            self._leave_routes(release.id, session)
        return True

    def _all_arrived(self, is_late: bool, release: Release) -> None:
        if release.id not in self._leaving:
            return
        was_late = release.id in self._late
        is_late = is_late and self._is_late_for(self._leaving[release.id])
        if is_late and (was_late or len(self._late) < self.most_late):
            self._late.add(release.id)
            self._ask_again(release)
        else:
            self.given_up += is_late
            self._flushing[release.id] = True
        if not (is_late and was_late):
            self.more(release.name)

    def _is_late_for(self, session: Session) -> bool:
        """
        May something that is late be for the session? What members have sent that were away all the time is
        not, also while it was here before: what they sent then may still come, and is for it.
        """
        late, first = self.late_members(), min(self._stays[session.runtime])
        return late is None or any(self.absent.knew(node, first) for node in late)

    def _ask_again(self, release: Release) -> None:
        """
        Asks once for all sessions that have gone to the same member.
        """
        asking = self._asking.get(release.to)
        if asking is None:
            asking = self._asking[release.to] = []
            self._clock.callLater(LATE_SECONDS, self._flush_again, release.to)
        asking.append(release)

    def _flush_again(self, node: str) -> None:
        self.flushed(node).addCallback(self._all_have_arrived, self._asking.pop(node))

    def _all_have_arrived(self, is_late: bool, releases: list[Release]) -> None:
        for release in releases:
            self._all_arrived(is_late, release)

    def is_late(self, release: Release) -> bool:
        session = self._leaving[release.id]
        if self._is_arriving(session):
            return not session.mailbox.is_arriving  # it is late from an earlier holder
        return release.id in self._late

    def redirect(self, release: Release, other: Release) -> Deferred[None]:
        self._rename(release, other)
        return self._commits.commit().addErrback(self._not_redirected, release, other)

    def _not_redirected(self, why: Failure, release: Release, other: Release) -> Failure:
        """
        The other release could not be written: after a kill it would not be known.
        """
        self._rename(other, release)
        return why

    def _rename(self, release: Release, other: Release) -> None:
        session = self._end_leaving(release.id)
        assert session.move is not None, "it has been released"
        session.move = msgspec.structs.replace(
            session.move, id=other.id.hex(), to=other.to, generation=other.generation
        )
        self._begin_leaving(other.id, session)
        if release.id in self._left_bindings:
            self._left_bindings[other.id] = self._left_bindings.pop(release.id)
        if release.id in self._released_at:
            self._released_at[other.id] = self._released_at.pop(release.id)
        if release.id in self._marks_at:
            self._marks_at[other.id] = self._marks_at.pop(release.id)
        self._flushing.pop(release.id, None)
        self._late.discard(release.id)
        self._handed_over.discard(release.id)
        session.write_state()

    def take_back(self, release: Release) -> Deferred[None]:
        taken: Deferred[None] = succeed(None)
        done = self.progress(HERE, release.id)
        if done is None:
            state = self.state(release, self.claims(release.name))
            taken = maybeDeferred(self.import_state, HERE, release, state)
        taken.addCallback(lambda result: self._take_back(release, 0 if done is None else done[0]))
        return taken.addCallback(lambda result: self.discard(release))

    def _take_back(self, release: Release, after: int) -> Deferred[None]:
        found = self.messages(release, after, PART_BYTES)
        if not found:
            return self.finish(HERE, release.id)
        key = found[-1][0]
        written = self.import_messages(HERE, release.id, key, [data for _, data in found])
        written.addCallback(lambda result: self.handed_over(release, key))
        return written.addCallback(lambda result: self._take_back(release, key))

    def discard(self, release: Release) -> None:
        session = self._end_leaving(release.id)
        self._handed_over.discard(release.id)
        self._left_bindings.pop(release.id, None)
        self._flushing.pop(release.id, None)
        self._late.discard(release.id)
        self._released_at.pop(release.id, None)
        self._marks_at.pop(release.id, None)
        self._forget_handovers(session)
        self._node.registered.forget(session)
        self.requests.forget_awaited(session)
        self._sessions.forget_released(session)
        self._commits.settle_soon()

    # -- arriving ---------------------------------------------------------------------

    def progress(self, of: str, id: bytes) -> tuple[int, bool] | None:
        handover = _handover(of, id)
        session = self._arriving.get(handover)
        if handover in self._over:
            return self._over[handover], True
        return None if session is None or session.move is None else session.move.progress.get(handover)

    def claims(self, name: str) -> Claims:
        sessions = [session for session in self._leaving.values() if session.runtime == name]
        session = self._sessions.get(name) or (sessions[-1] if sessions else None)
        return [] if session is None or session.move is None else list(session.move.claims.items())

    def import_state(self, of: str, release: Release, state: bytes) -> Deferred[None]:
        name, handover = release.name, _handover(of, release.id)
        found = transfer.read_state(state)
        session = self._sessions.get(name)
        self.leave_routes(name)
        if session is None:
            session, steps = transfer.begin_import(name, found, self._node, release.generation)
            self._node.identity_expiry.resume(session)
            self._node.budget.settle(session)
            self._begin_arrival(session, handover)
            self._adopt_marks(found, session)
        elif not _is_same_owner(session, found):
            return fail(ValueError(f"{name} belongs to another user here"))
        else:
            session.generation = max(session.generation, release.generation)
            self._begin_arrival(session, handover)
            steps = transfer.bind(found, session, self._node)
            transfer.merge_messages(found, session, self._sessions)
        self._watch(session).adopt(found.copies)
        for url in found.registered:
            shown = session.proof
            self._node.registered.restore(session, url, shown.user if shown is not None else session.identity)
            self._node.session_store.registered(session.sid, url)
        self.requests.adopt_awaited(found.asked, session)
        self.requests.adopt_told(found.told, session)
        session.write_state()
        self.flush(session)
        bound = self._node.slices.begin(self._bind(steps, session))
        written = (
            self._commits.commit()
            if bound is None
            else bound.addCallback(lambda done: self._commits.commit())
        )
        return written.addErrback(self._not_imported, handover, session)

    def _adopt_marks(self, found: transfer.State, session: Session) -> None:
        """
        Notes what came to its earlier node. Not for one that began here meanwhile: it may have subscribed to
        more than that, and copies of those may be on their way.
        """
        assert session.move is not None
        marks = {(instance, lane): number for instance, lane, number in found.marks}
        self._watch(session).marks = marks
        session.move.marks = [(instance.hex(), lane, number) for (instance, lane), number in marks.items()]

    def _bind(self, steps: Iterator[None], session: Session) -> Iterator[None]:
        yield from steps
        foreign = self._node.router.foreign
        if foreign is not None and not session.ended:
            foreign.adopt(session)

    def _begin_arrival(self, session: Session, handover: str) -> None:
        if session.move is None:
            session.move = SessionMove()
        session.move.note_progress(handover, 0, False)
        self._arriving[handover] = session
        self._watch(session)
        behind = session.mailbox.begin_arrival()
        session.move.behind = session.move.behind or behind
        session.pause()

    def _not_imported(self, why: Failure, handover: str, session: Session) -> Failure:
        self._arriving.pop(handover, None)
        if session.move is not None:
            session.move.progress.pop(handover, None)
        if not self._is_arriving(session):
            self._end_arrival(session)
        return why

    def import_messages(self, of: str, id: bytes, key: int, messages: list[bytes]) -> Deferred[None]:
        handover = _handover(of, id)
        session = self._place(handover)
        overlap = self._watch(session)
        for data in messages:
            message = transfer.read_message(data)
            if session.ended:
                continue
            if message.copy is not None and not overlap.is_new(message.copy):
                continue
            if message.copy is not None and (message.late or overlap.is_double):
                overlap.may_come(message.copy)
            if not self.requests.is_expected(message.data):
                continue
            if not message.late or not session.mailbox.is_arriving:
                overlap.note_early(transfer.import_message(message, session, self._sessions))
                continue
            late = transfer.import_late(message, session, self._sessions)
            if message.copy is not None:
                overlap.note_late(message.copy, late, message.is_awaited)
        self._note(session, handover, key, False)
        self.flush(session)
        name = session.runtime
        return self._commits.commit().addCallback(lambda done: self.more(name))

    def wait_no_more(self, of: str, id: bytes) -> Deferred[None]:
        session = self._place(_handover(of, id))
        session.mailbox.end_arrival()
        if session.move is not None:
            session.move.behind = 0
        if not session.ended:
            session.write_state()
            self.flush(session)
        return self._commits.commit()

    def member_up(self, of: str, epoch: tuple[bytes, int]) -> None:
        self.absent.up(of, epoch[0])
        self.beginnings.member_up(of, epoch[1])

    def member_down(self, of: str) -> None:
        self.absent.down(of)
        self.beginnings.give_up(of)
        self._node.slices.begin(self._stop_waiting(lambda node: node == of))

    def _stop_waiting(self, is_away: Callable[[str], bool]) -> Iterator[None]:
        """
        Lets sessions no longer wait for what such members hand over.
        """
        for handover in list(self._arriving):
            node, _, id = handover.partition(" ")
            if is_away(node) and handover in self._arriving and self._place(handover).mailbox.is_arriving:
                self.wait_no_more(node, bytes.fromhex(id))
                yield

    def finish(self, of: str, id: bytes) -> Deferred[None]:
        came = self._watch(self._place(_handover(of, id))).all_came(self._clock)
        if came is not None:
            return came.addCallback(lambda done: self._finish(of, id))
        return self._finish(of, id)

    def _finish(self, of: str, id: bytes) -> Deferred[None]:
        handover = _handover(of, id)
        session = self._place(handover)
        assert session.move is not None
        key, _ = session.move.progress[handover]
        self._note(session, handover, key, True)
        if not self._is_arriving(session):
            self._end_arrival(session)
        name = session.runtime
        return self._commits.commit().addCallback(lambda done: self.more(name))

    def _place(self, handover: str) -> Session:
        """
        The session that gets the messages of a handover: the one that it was merged into, if it was.
        """
        session = self._arriving[handover]
        while session.successor is not None:
            heir = session.successor
            if session.move is not None and handover in session.move.progress:
                heir.move = heir.move or SessionMove()
                heir.move.progress[handover] = session.move.progress[handover]
            session = self._arriving[handover] = heir
        return session

    def _note(self, session: Session, handover: str, key: int, has_ended: bool) -> None:
        assert session.move is not None
        session.move.note_progress(handover, key, has_ended)
        for each in [each for each, place in self._arriving.items() if place is session] if has_ended else ():
            if each not in session.move.progress:
                del self._arriving[each]
        if not session.ended:
            session.write_state()

    def _end_arrival(self, session: Session) -> None:
        if session.mailbox.is_arriving:
            session.mailbox.end_arrival()
        if session.move is not None:
            session.move.behind = 0
        overlap = session.mailbox.overlap
        if isinstance(overlap, SessionOverlap) and overlap.expects:
            self._coming.wait(session)
        elif session.sid not in self._sessions.released:
            self._end_overlap(session)
        if not session.ended:
            session.write_state()
            self.flush(session)

    def _expects(self, session: Session) -> bool:
        overlap = session.mailbox.overlap
        return isinstance(overlap, SessionOverlap) and overlap.expects and not session.ended

    def _still_waits(self, session: Session) -> bool:
        """
        Does the session expect copies of a member that is late?
        """
        overlap, late = session.mailbox.overlap, self.late_members()
        if isinstance(overlap, SessionOverlap) and late is not None:
            overlap.forget_arrived(lambda instance: self.absent.may_send(late, instance))
        return self._expects(session)

    def _all_copies_came(self, session: Session) -> None:
        is_held = not session.ended and session.sid not in self._sessions.released
        if is_held and not self._is_arriving(session):
            self._end_overlap(session)
            self.flush(session)

    def _is_arriving(self, session: Session) -> bool:
        move = session.move
        return move is not None and any(not has_ended for _, has_ended in move.progress.values())

    def _forget_handovers(self, session: Session) -> None:
        for handover, (key, has_ended) in session.move.progress.items() if session.move is not None else ():
            if self._arriving.get(handover) is session:
                del self._arriving[handover]
            if has_ended:
                self._over[handover] = key
                if len(self._over) > MAX_OVER:
                    del self._over[next(iter(self._over))]

    def ended(self, session: Session) -> None:
        """
        A session ended, with what it knew of handovers that have ended.
        """
        if session.move is not None and not self._is_arriving(session):
            self._forget_handovers(session)

    def flush(self, session: Session) -> None:
        """
        Send what is queued.
        """
        with self._node.together:
            session.flush()


def _marks_of(session: Session) -> Marks:
    """
    The marks of the copies that the session has had at earlier nodes.
    """
    marks = session.move.marks if session.move is not None else ()
    return {(bytes.fromhex(instance), priority): number for instance, priority, number in marks}


def _handover(of: str, id: bytes) -> str:
    return f"{of} {id.hex()}"


def _is_same_owner(session: Session, state: transfer.State) -> bool:
    """
    Did the same user open the session at both nodes? One without a user belongs to any client.
    """
    record = state.record
    proof = read_proof(record.proof)
    there = proof.user if proof is not None else record.identity
    here = session.proof.user if session.proof is not None else session.identity
    return not there or there == here
