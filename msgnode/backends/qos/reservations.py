"""
The reservations of a node: what is granted of the relay's capacity, until when, and to whom.

A reservation that has ended is taken off the relay: its sessions there are cancelled. Credentials may outlive
their reservation, since a change may make it shorter. Therefore each id begins with the name of this node at
the relay, which outlives a restart, and as long as any credentials are valid the node cancels each session
with its name whose reservation is not granted.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

import msgspec
from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from msgnode.backends.qos.coturn import RelaySession
from msgnode.backends.qos.policing import Overuse, Policing
from msgnode.backends.qos.relay_sessions import Relay, RelaySessions
from msgnode.backends.qos.reservation import Reservation, Wanted
from msgnode.config.sections import QoSOptions
from msgnode.protocol.close_codes import REMOVED
from msgnode.protocol.errors import Rejected
from msgnode.sessions.session import Session
from msgnode.storage.keyed_journal import KeyedJournal

log = Logger()

FILE = "reservations.jsonl"
SWEEP_SECONDS = 5.0  # between two looks for sessions of reservations that have ended
MARGIN_SECONDS = 600  # that the node looks longer than needed: the time on disk changes less often
NODE = "node"  # the key in the file, in addition to the ids of reservations
SHARES = 10  # one user or host has one of them
WARNED_SECONDS = 600.0  # after a warning, during which another overuse ends the reservation
OVERUSE, ENDED = "overuse", "ended"


class RelayName(msgspec.Struct):
    """
    The name of this node at the relay, with which the ids of its reservations begin; `until` then, in seconds
    since 1970, credentials with it may be valid.
    """

    prefix: str
    until: int = 0


class Conflict(Rejected):
    """
    A refusal because capacity is spent. `left` has the bits per second that are left.
    """

    def __init__(self, text: str, left: dict[str, int]) -> None:
        super().__init__(text, 409, "limit")
        self.left = left

    def body(self) -> dict[str, Any]:
        return {**super().body(), "left": self.left}


class Notice(NamedTuple):
    """
    A notice to a session about its reservation: `overuse`, or that it has `ended`, and why; `used` has the
    bits per second that were measured.
    """

    status: str
    reason: str
    used: dict[str, int] | None = None


class Reservations(Service):
    """
    The reservations by id. `find` finds a session by its runtimeURL; `wall` is the time of day.
    """

    def __init__(
        self,
        options: QoSOptions,
        relay: Relay,
        find: Callable[[str], Session | None],
        clock: IReactorTime,
        wall: Callable[[], float],
        state: Path | None = None,
        run: Callable[..., Deferred[Any]] = maybeDeferred,
    ) -> None:
        self.warned = self.stopped = 0  # reservations that were overused, and that were ended for that
        # Tells the session of a reservation what has become of it.
        self.tell: Callable[[Session, Reservation, Notice], object] = lambda *told: None
        self._policing = Policing()
        self._warnings: dict[str, float] = {}  # reservations, and when their client was warned
        self._options = options
        self._relay = RelaySessions(relay)
        self._find = find
        self._clock = clock
        self._wall = wall
        self._journal = KeyedJournal(state / FILE if state is not None else None, clock, run)
        self._granted: dict[str, Reservation] = {}
        self._timers: dict[str, IDelayedCall] = {}
        self._name = RelayName(f"msgnode-{token_hex(4)}-")
        self._sweeping = LoopingCall(self._sweep)
        self._sweeping.clock = clock

    def __len__(self) -> int:
        return len(self._granted)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self._granted.values())

    # -- service -------------------------------------------------------------------

    def startService(self) -> None:
        """
        Goes on with the reservations of before a restart whose sessions are still here.
        """
        super().startService()
        kept = self._journal.read()
        if NODE in kept:
            self._name = msgspec.convert(kept.pop(NODE), RelayName)
        for id, value in kept.items():
            found = msgspec.convert(value, Reservation)
            self._granted[id] = found
            is_ours = self._is_held(found) and id.startswith(self._name.prefix)
            if is_ours and found.until > self._wall():
                self._set_timer(found)
            else:
                self._end(found)
        window = self._options.overuse_seconds
        self._sweeping.start(min(SWEEP_SECONDS, window / 2 if window else SWEEP_SECONDS), now=False)

    def stopService(self) -> Deferred[None]:
        super().stopService()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._sweeping.running:
            self._sweeping.stop()
        return self._journal.close()

    def now(self) -> float:
        return self._wall()

    @property
    def failures(self) -> int:
        """
        The failures of the relay's command line, one after the other; 0 if it answered the last time.
        """
        return self._relay.failures

    # -- capacity ------------------------------------------------------------------

    def capacity(self) -> dict[str, int]:
        return {"up": self._options.capacity_up, "down": self._options.capacity_down}

    def left(self, but: str = "") -> dict[str, int]:
        """
        The bits per second that are not granted, without those of one reservation.
        """
        rest = self.capacity()
        for each in self._granted.values():
            if each.id != but:
                rest["up"] -= each.up
                rest["down"] -= each.down
        return {name: max(bits, 0) for name, bits in rest.items()}

    def _check(self, wanted: Wanted, session: Session, but: str = "") -> None:
        left = self.left(but)
        if wanted.up > left["up"] or wanted.down > left["down"]:
            text = f"{left['up']} bit/s up and {left['down']} bit/s down are left"
            raise Conflict(f"the relay has not enough capacity: {text}", left)
        options = self._options
        if wanted.seconds > options.max_reservation_seconds:
            text = f"'value.seconds' must be at most {options.max_reservation_seconds:.0f}"
            raise Rejected(text, 400, "limit")
        if but:
            return
        if len(self._granted) >= options.max_reservations:
            raise Rejected("there are as many reservations as this node keeps; try again later", 503, "limit")
        most = options.max_reservations_per_session
        if sum(each.runtime == session.runtime for each in self) >= most:
            raise Rejected(f"a session has at most {most} reservations", 429, "limit")
        share, payer = max(most, options.max_reservations // SHARES), session.identity or session.host
        if payer and sum(each.payer == payer for each in self) >= share:
            raise Rejected(f"a user or host has at most {share} reservations", 429, "limit")

    # -- reservations --------------------------------------------------------------

    def find(self, id: str) -> Reservation | None:
        return self._granted.get(id)

    def of(self, session: Session) -> Iterator[Reservation]:
        return (each for each in self._granted.values() if each.belongs_to(session))

    def get(self, id: str, session: Session) -> Reservation:
        """
        A reservation of this session, or of which it is a party. Rejected (404) if it is neither.
        """
        found = self._granted.get(id)
        if found is None or not (found.belongs_to(session) or self.is_party(found, session)):
            raise Rejected(f"there is no reservation {id!r}"[:200], 404)
        return found

    @staticmethod
    def is_party(found: Reservation, session: Session) -> bool:
        return bool({session.identity, session.runtime} & set(found.parties) - {""})

    async def create(
        self, session: Session, wanted: Wanted, application: str, parties: list[str]
    ) -> Reservation:
        self._end_lost(session.runtime)
        self._check(wanted, session)
        made = Reservation(
            id=f"{self._name.prefix}{token_hex(8)}",
            runtime=session.runtime,
            user=session.identity,
            token=session.token_hash.hex(),
            session=application,
            parties=parties,
            up=wanted.up,
            down=wanted.down,
            until=int(self._wall() + wanted.seconds),
            host=session.host,
        )
        await self._put(made)
        return made

    async def update(self, found: Reservation, session: Session, wanted: Wanted) -> Reservation:
        self._check(wanted, session, found.id)
        until = int(self._wall() + wanted.seconds)
        changed = msgspec.structs.replace(found, up=wanted.up, down=wanted.down, until=until)
        await self._put(changed)
        self._policing.forget(found.id)
        return changed

    async def _put(self, made: Reservation) -> None:
        before = self._granted.get(made.id)
        self._granted[made.id] = made  # at once, so that others see it in `left`
        self._set_timer(made)
        self._note_credentials(made.until)
        try:
            await self._journal.put(made.id, msgspec.to_builtins(made))
        except Rejected:
            if before is None:
                self._end(made)
            elif made.id in self._granted:
                self._granted[made.id] = before
                self._set_timer(before)
                self._journal.put(before.id, msgspec.to_builtins(before)).addErrback(lambda why: None)
            raise
        if made.id not in self._granted:
            raise Rejected(f"reservation {made.id!r} has ended meanwhile"[:200], 404)

    def _note_credentials(self, until: int) -> None:
        """
        Keeps until when credentials are valid. It is on disk before what is written after it.
        """
        if until > self._name.until:
            self._name.until = until + MARGIN_SECONDS
            kept = self._journal.put(NODE, msgspec.to_builtins(self._name))
            kept.addErrback(lambda why: None)  # the journal has logged it

    def _set_timer(self, made: Reservation) -> None:
        timer = self._timers.pop(made.id, None)
        if timer is not None:
            timer.cancel()
        self._timers[made.id] = self._clock.callLater(max(made.until - self._wall(), 0), self._end, made)

    async def delete(self, found: Reservation) -> str:
        """
        Ends a reservation, and its sessions at the relay. Returns why it may still carry packets, or "".
        """
        return await self._end(found)

    async def take_back(self, found: Reservation) -> str:
        """
        Ends a reservation for an operator, and notifies its session. Returns why the relay may still carry
        packets of it, or "".
        """
        session = self._find(found.runtime)
        failure = await self._end(found)
        if session is not None and not session.ended and found.belongs_to(session):
            self.tell(session, found, Notice(ENDED, REMOVED.word))
        return failure

    def ended(self, session: Session) -> None:
        """
        Ends the reservations of a session that has ended.
        """
        for each in [each for each in self._granted.values() if each.runtime == session.runtime]:
            self._end(each)

    def renamed(self, session: Session) -> None:
        """
        Keeps the reservations of an anonymous session that has got its name.
        """
        for each in [each for each in self if each.runtime in session.names and each.belongs_to(session)]:
            each.runtime = session.runtime
            self._journal.put(each.id, msgspec.to_builtins(each)).addErrback(lambda why: None)

    def _is_held(self, made: Reservation) -> bool:
        """
        Does its session still belong to the client that made it?
        """
        session = self._find(made.runtime)
        return session is not None and made.belongs_to(session)

    def _end_lost(self, runtime: str = "") -> None:
        """
        Ends the reservations that no client can end any more: their session was opened again by another
        client, or is not here any more.
        """
        for each in [each for each in self if not runtime or each.runtime == runtime]:
            if not self._is_held(each):
                self._end(each)

    def _end(self, made: Reservation) -> Deferred[str]:
        self._granted.pop(made.id, None)
        timer = self._timers.pop(made.id, None)
        if timer is not None and timer.active():
            timer.cancel()
        self._warnings.pop(made.id, None)
        self._journal.remove(made.id).addErrback(lambda why: None)  # the journal has logged it
        return self._relay.cancel(made.id)

    # -- the relay -----------------------------------------------------------------

    def _sweep(self) -> Deferred[None]:
        """
        Cancels what is relayed with the credentials of a reservation that has ended, and ends those that are
        overused.
        """
        swept = Deferred.fromCoroutine(self._look())
        return swept.addErrback(lambda why: log.failure("reservations could not be looked through", why))

    async def _look(self) -> None:
        self._end_lost()
        if self._wall() > self._name.until and not self.failures:
            return
        found = await self._relay.look(self._name.prefix, self._granted)
        if found is not None:
            self._police(found)

    def _police(self, found: list[RelaySession]) -> None:
        """
        Warns the clients of reservations that are overused; ends a reservation the second time.
        """
        seconds, at = self._options.overuse_seconds, self._clock.seconds()
        if not seconds:
            return
        for each in self._policing.look(found, self._granted, at, seconds, self._options.overuse_tolerance):
            made = each.reservation
            warned_at = self._warnings.get(made.id)
            if warned_at is not None and at - warned_at <= WARNED_SECONDS:
                self.stopped += 1
                log.warn(
                    "reservation {id} of {runtime} is ended: it relays {up} and {down} bit/s",
                    id=made.id,
                    runtime=made.runtime,
                    up=each.up,
                    down=each.down,
                )
                self._end(made)
                self._tell(made, ENDED, each)
                continue
            self.warned += 1
            self._warnings[made.id] = at
            self._policing.forget(made.id)
            self._tell(made, OVERUSE, each)

    def _tell(self, made: Reservation, status: str, overuse: Overuse) -> None:
        session = self._find(made.runtime)
        if session is not None and made.belongs_to(session):
            used = {"up": overuse.up, "down": overuse.down}
            self.tell(session, made, Notice(status, OVERUSE, used))
