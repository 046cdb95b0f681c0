"""
The routing table: which sessions hear an address.

Each binding is kept twice: by address, so that a lookup is one dict access
however many there are, and by session, so that a session's end costs only its
own.  The tuples by address are what `resolve` returns, shared and never built
for a message.

To bind or unbind costs the same however many listen, and what would touch
many addresses at once, a session's end or its beginning, goes on in slices;
what `resolve` says is right from the first of them.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from twisted.logger import Logger

from msgnode.bus.listeners import Listeners, Ordered, Owners
from msgnode.protocol.address import MAX_ADDRESS_CHARS
from msgnode.sessions.allocation_keys import Keys
from msgnode.sessions.bindings import ALLOCATED, LEARNT, OWNED, RUNTIMES, SUBSCRIBED
from msgnode.sessions.limits.memory_budget import binding_size
from msgnode.sessions.persistence import SessionStore
from msgnode.structures.time_slices import ADDRESSES, Slices

if TYPE_CHECKING:
    from msgnode.sessions.session import Session

log = Logger()

NOBODY: tuple["Session", ...] = ()

_REASONS, _FLAGS = ALLOCATED | SUBSCRIBED | LEARNT, 0xFF
_OBJECT = 8  # bits below the length of the object that the address was subscribed as a child of, or 0

MAX_FORMER = 64  # sessions that became one with one
DEEPEST = 32  # segments below a runtimeURL that are looked through; an attacker chooses the slashes


class RoutingTable:
    """
    Addresses are exact strings; nothing is normalised.
    """

    def __init__(self, session_store: SessionStore, slices: Slices) -> None:
        self._session_store = session_store
        self._slices = slices
        self._listeners = Listeners()
        self._tuples = self._listeners.tuples
        self._runtimes: dict[str, Session] = {}
        self._by_sid: dict[int, Session] = {}
        self.owners = Owners()
        # Bindings that look like part of a runtime, held by somebody else.  A runtime that opens above
        # comes before them at once; in order they are found when they are taken back.
        self._strays = Listeners()
        self._ordered = Ordered()
        self.released: Callable[[str], None] | None = None  # told of what is allocated no more
        self._leaving: set[Session] = set()  # ended, and not yet forgotten at every address

    def __len__(self) -> int:
        return len(self._listeners) + len(self._strays)

    def __contains__(self, address: str) -> bool:
        """
        Would a message to `address` find anybody?  Without looking at how many.
        """
        return (not self._leaving and address in self._listeners) or bool(self.resolve(address))

    def resolve(self, address: str) -> tuple["Session", ...]:
        """
        The sessions bound to `address`, else the one whose runtimeURL it lies below.
        """
        found = self._tuples.get(address)
        if found is None and self._listeners.unmade:
            found = self._listeners.make(address)
        if found is not None and self._leaving:
            found = self._still_there(found)
        if found is not None:
            return found
        runtime = self.runtime(address)
        if runtime is not None:
            return runtime.alone
        return self._find_strays(address) if self._strays else NOBODY

    def _find_strays(self, address: str) -> tuple["Session", ...]:
        found = self._strays.get(address)
        if found is not None and self._leaving:
            found = self._still_there(found)
        return found or NOBODY

    def _still_there(self, found: tuple["Session", ...]) -> tuple["Session", ...] | None:
        """
        Without those that have ended; None if that is nobody.
        """
        return tuple([session for session in found if session not in self._leaving]) or None

    def listener(self, address: str, sid: int) -> "Session | None":
        """
        The session of that sid, if it is one of those that `resolve` finds; without looking at the others.
        """
        session = self._by_sid.get(sid)
        if session is None:
            return None
        if address in self._listeners:
            hears = self._listeners.hears(address, session)
        else:
            runtime = self.runtime(address)
            hears = runtime is session if runtime is not None else self._strays.hears(address, session)
        return session if hears else None

    def runtime(self, address: str) -> "Session | None":
        """
        The session whose runtimeURL is `address` or stands above it at a `/`.
        """
        if len(address) > MAX_ADDRESS_CHARS:
            return None
        for _ in range(DEEPEST):
            session = self._runtimes.get(address)
            if session is not None:
                return session
            cut = address.rfind("/")
            if cut < 1:
                return None
            address = address[:cut]
        return None

    def is_name(self, runtime: str) -> bool:
        """
        Is it the runtimeURL of a session, or was it before that had another?
        """
        return runtime in self._runtimes

    def is_allocated(self, address: str) -> bool:
        """
        Does a session hold this address as its own?  Others may listen there.
        """
        found = self._listeners.get(address) or NOBODY
        return any(session.bindings.get(address, 0) & ALLOCATED for session in found)

    def _in_slices(self, steps: Iterator[None], session: "Session") -> None:
        rest = self._slices.begin(steps)
        if rest is not None:
            rest.addErrback(
                partial(log.failure, "freeing the addresses of {runtime}", runtime=session.runtime)
            )

    # -- a session begins ----------------------------------------------------

    def join(self, session: "Session") -> None:
        """
        A session opened: everything at and below its runtimeURL is its own.

        What others bound below it beforehand is taken back for the schemes of
        RUNTIMES only: to look through everything for a name that somebody made
        up would cost all the others too much.
        """
        runtime = session.runtime
        self._runtimes[runtime] = session
        self._by_sid[session.sid] = session
        if runtime in self._listeners:
            self._listeners.move(runtime, self._strays)
            self._ordered.add(runtime)
        if self._strays:
            self._in_slices(self._take_back(session), session)

    def rename(self, session: "Session", runtime: str) -> None:
        """
        Everything at and below another runtimeURL is its own from now on; what it has bound stays.

        Its old name stays its own as well: answers are on their way there.
        """
        session.names = (*session.names, session.runtime)
        session.runtime = runtime
        self.join(session)

    def _take_back(self, session: "Session") -> Iterator[None]:
        """
        In slices of ADDRESSES bindings, as many as there are below it, and none besides.
        """
        runtime, done = session.runtime, 0
        while self._runtimes.get(runtime) is session:
            stray = runtime if runtime in self._strays else self._ordered.first(runtime + "/")
            if stray is None:
                return
            for other in self._strays.get(stray) or NOBODY:
                if other is session:  # it bound this before it had that name
                    self._drop_stray(stray, session)
                    self._listeners.add(stray, session)
                else:
                    self.unbind(stray, other)
                done += 1
                if done % ADDRESSES == 0:
                    yield
                    if self._runtimes.get(runtime) is not session:
                        return

    # -- bindings --------------------------------------------------------------

    def bind(self, address: str, session: "Session", kind: int, object_length: int = 0) -> None:
        """
        Let `session` hear `address`.  Who learnt it hears it no more, once somebody asks for it.

        With `object_length` it is subscribed as a child of the object it begins with, unless it was
        subscribed by its own name: one word ends it with all children of the object.
        """
        while session.ended:
            if session.successor is None:
                return
            session = session.successor
        bindings = session.bindings
        held = bindings.get(address, 0)
        if not held:
            other = self._listeners.alone(address)  # nothing is learnt where somebody listens
            if other is not None and other.bindings.get(address) == LEARNT:
                self.unbind(address, other)
            self._add(address, session)
            session.learnt += kind == LEARNT
        elif held == LEARNT:
            held = 0
            session.learnt -= 1
        if kind & SUBSCRIBED:
            if not object_length:
                held = self._leave_object(address, session, held)
            elif not held & SUBSCRIBED:
                held |= object_length << _OBJECT
                self._join_object(address, session, object_length)
        bindings[address] = held | kind
        if kind & OWNED:
            self.owners.add(address, session)
        self._session_store.bound(session.sid, address, held | kind)

    def restore(self, address: str, session: "Session", kinds: int) -> None:
        """
        Bind again what was bound before a restart.
        """
        session.bindings[address] = kinds
        session.learnt += kinds == LEARNT
        if kinds & OWNED:
            self.owners.add(address, session)
        if kinds > _FLAGS:
            self._join_object(address, session, kinds >> _OBJECT)
        self._add(address, session)

    @staticmethod
    def _join_object(address: str, session: "Session", object_length: int) -> None:
        if session.children is None:
            session.children = Keys(session.account)
        session.children.add(address[:object_length], [address])

    @staticmethod
    def _leave_object(address: str, session: "Session", held: int) -> int:
        """
        It is no object's child any more; the rest of what is held.
        """
        if held > _FLAGS:
            assert session.children is not None
            session.children.forget(address)
            if not len(session.children):
                session.children = None
        return held & _FLAGS

    def _add(self, address: str, session: "Session") -> None:
        session.account.charge(binding_size(address))
        if address.startswith(RUNTIMES) and self.runtime(address) is not session:
            if address not in self._strays:
                self._ordered.add(address)
            self._strays.add(address, session)
        else:
            self._listeners.add(address, session)

    def unbind(self, address: str, session: "Session", kinds: int = ALLOCATED | SUBSCRIBED | LEARNT) -> None:
        """
        Forget `kinds` of the binding; when none is left, it is gone, and so is what it owned.
        """
        held = session.bindings.get(address)
        if held is None:
            return
        if kinds & SUBSCRIBED:
            held = self._leave_object(address, session, held)
        if held & _REASONS & ~kinds:
            left = session.bindings[address] = held & (~kinds | OWNED)
            self._session_store.bound(session.sid, address, left)
            if held & kinds & ALLOCATED and self.released is not None:
                self.released(address)
            return
        del session.bindings[address]
        session.learnt -= held == LEARNT
        self._remove(address, session, held)
        self._session_store.bound(session.sid, address, 0)

    def move(self, address: str, session: "Session", other: "Session") -> None:
        """
        The other hears it from now on as the session did, and owns it if that did.
        """
        held = session.bindings[address]
        self.unbind(address, session)
        self.bind(address, other, held & _FLAGS, held >> _OBJECT)

    def disown(self, address: str, owner: "Session") -> None:
        """
        The owner stays bound, and only listens from now on.
        """
        left = owner.bindings[address] = owner.bindings[address] & ~OWNED
        self.owners.discard(address, owner)
        if not owner.ended:
            self._session_store.bound(owner.sid, address, left)

    def _remove(self, address: str, session: "Session", held: int) -> None:
        if held & OWNED:
            self.owners.discard(address, session)
        session.account.charge(-binding_size(address))
        if self._strays and self._strays.hears(address, session):
            self._drop_stray(address, session)
        else:
            self._listeners.remove(address, session)
        if held & ALLOCATED and self.released is not None:
            self.released(address)

    def _drop_stray(self, address: str, session: "Session") -> None:
        self._strays.remove(address, session)
        if address not in self._strays:
            self._ordered.remove(address)

    # -- a session ends ----------------------------------------------------------

    def forget(self, session: "Session") -> None:
        """
        The session ended: nothing reaches it any more, and everything bound to it goes.
        """
        heir = session.successor
        names, session.names = (*session.names, session.runtime), ()
        for name in names:
            if self._runtimes.get(name) is not session:
                continue
            if heir is None or heir.ended or len(heir.names) >= MAX_FORMER:
                del self._runtimes[name]
            else:
                self._runtimes[name] = heir
                heir.names = (*heir.names, name)
        former, session.former = [session.sid, *session.former], []
        for sid in former:
            if heir is None or heir.ended or len(heir.former) == MAX_FORMER:
                self._by_sid.pop(sid, None)
            else:
                self._by_sid[sid] = heir  # whoever asked for a receipt still gets it
                heir.former.append(sid)
        self._in_slices(self._forget(session), session)

    def _forget(self, session: "Session") -> Iterator[None]:
        """
        In slices of ADDRESSES bindings.
        """
        bindings = session.bindings
        while len(bindings) > ADDRESSES:
            self._leaving.add(session)
            self._forget_some(session)
            yield
        self._forget_some(session)
        self._leaving.discard(session)

    def _forget_some(self, session: "Session") -> None:
        bindings = session.bindings
        for _ in range(min(ADDRESSES, len(bindings))):
            address, held = bindings.popitem()
            self._remove(address, session, held)
