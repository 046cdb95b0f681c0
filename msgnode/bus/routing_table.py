"""
The routing table: the sessions that are bound to each address.

Each binding is stored twice: by address, so that a lookup is one dict access for any number of bindings, and
by session, so that the end of a session costs only its own. `resolve` returns the tuples by address; they are
shared and never built for a message.

Binding and unbinding cost the same for any number of sessions at the address. An operation on many addresses,
the start or the end of a session, is done in slices; the result of `resolve` is right from the first of them.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from twisted.logger import Logger

from msgnode.bus.components import HeldAddresses
from msgnode.bus.listeners import Listeners, Ordered, Owners
from msgnode.protocol.address import MAX_ADDRESS_CHARS
from msgnode.sessions.allocation_keys import Keys
from msgnode.sessions.limits.memory_budget import binding_size
from msgnode.sessions.persistence import SessionStore
from msgnode.sessions.routing import ALLOCATED, LEARNED, OWNED, RUNTIMES, SUBSCRIBED
from msgnode.structures.time_slices import ADDRESSES, Slices
from msgnode.transport.data_plane import NO_DATA_PLANE

if TYPE_CHECKING:
    from msgnode.sessions.session import Session

log = Logger()

NOBODY: tuple["Session", ...] = ()

_REASONS, _FLAGS = ALLOCATED | SUBSCRIBED | LEARNED, 0xFF
_OBJECT = 8  # bits below the length of the object of which the address was subscribed as a child, or 0

MAX_FORMER = 64  # names and sids of merged sessions that one session has
MAX_SEGMENTS = 32  # path segments below a runtimeURL that a lookup tries; an attacker chooses the slashes


class RoutingTable:
    """
    The routing table. Addresses are exact strings; nothing is normalised.
    """

    def __init__(self, session_store: SessionStore, slices: Slices) -> None:
        self._session_store = session_store
        self._slices = slices
        self._listeners = Listeners()
        self._tuples = self._listeners.tuples
        self._runtimes: dict[str, Session] = {}
        self._by_sid: dict[int, Session] = {}
        self.owners = Owners()
        # Bindings of other sessions to addresses that look like part of a runtime. A runtime that opens above
        # them has precedence at once; `_ordered` finds them when they are removed.
        self._strays = Listeners()
        self._ordered = Ordered()
        # Called with each address that is released from its allocation.
        self.released: Callable[[str], None] | None = None
        # Called with each address to which a session is no longer bound, and the session.
        self.unbound: Callable[[str, Session], None] | None = None
        self.held: HeldAddresses | None = None  # None: no other node has to know
        self.data_plane = NO_DATA_PLANE
        self._leaving: set[Session] = set()  # ended sessions whose bindings are not all removed yet

    def __len__(self) -> int:
        return len(self._listeners) + len(self._strays)

    def __contains__(self, address: str) -> bool:
        """
        Is any session bound to `address`? Does not count them.
        """
        return (not self._leaving and address in self._listeners) or bool(self.resolve(address))

    def resolve(self, address: str) -> tuple["Session", ...]:
        """
        The sessions bound to `address`, else the one whose runtimeURL it is below.
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
            return runtime.as_tuple
        return self._find_strays(address) if self._strays else NOBODY

    def _find_strays(self, address: str) -> tuple["Session", ...]:
        found = self._strays.get(address)
        if found is not None and self._leaving:
            found = self._still_there(found)
        return found or NOBODY

    def _still_there(self, found: tuple["Session", ...]) -> tuple["Session", ...] | None:
        """
        The tuple without the sessions that have ended; None if none is left.
        """
        return tuple([session for session in found if session not in self._leaving]) or None

    def listener(self, address: str, sid: int) -> "Session | None":
        """
        The session with that sid, if `resolve` would find it, or if it is another node's; does not examine
        the others.
        """
        session = self._by_sid.get(sid)
        if session is None or session.is_node:
            return session
        if address in self._listeners:
            is_bound = self._listeners.is_bound(address, session)
        else:
            runtime = self.runtime(address)
            is_bound = runtime is session if runtime is not None else self._strays.is_bound(address, session)
        return session if is_bound else None

    def runtime(self, address: str) -> "Session | None":
        """
        The session whose runtimeURL is `address`, or is above it at a `/`.
        """
        if len(address) > MAX_ADDRESS_CHARS:
            return None
        for _ in range(MAX_SEGMENTS):
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
        Is it the runtimeURL of a session, its present one or a former one?
        """
        return runtime in self._runtimes

    def is_allocated(self, address: str) -> bool:
        """
        Is this address allocated to a session? Others may be subscribed to it.
        """
        found = self._listeners.get(address) or NOBODY
        return any(session.bindings.get(address, 0) & ALLOCATED for session in found)

    def _in_slices(self, steps: Iterator[None], session: "Session") -> None:
        rest = self._slices.begin(steps)
        if rest is not None:
            rest.addErrback(
                partial(
                    log.failure, "the addresses of {runtime} could not be released", runtime=session.runtime
                )
            )

    # -- the start of a session ----------------------------------------------------

    def join(self, session: "Session") -> None:
        """
        Adds an opened session: it owns everything at and below its runtimeURL.

        Earlier bindings of other sessions below it are removed for the schemes of RUNTIMES only: a search
        through all bindings for any name that a client chooses would cost all the others too much.
        """
        runtime = session.runtime
        self.data_plane.change_name(runtime)
        self._runtimes[runtime] = session
        self._by_sid[session.sid] = session
        if self.held is not None:
            self.held.opened(runtime)
        if runtime in self._listeners:
            self._listeners.move(runtime, self._strays)
            self._ordered.add(runtime)
        if self._strays:
            self._in_slices(self._take_back(session), session)

    def token_changed(self, session: "Session") -> None:
        """
        Tells the other nodes of the domain of the session's new token.
        """
        if self.held is not None and self._runtimes.get(session.runtime) is session:
            self.held.opened(session.runtime)

    def rename(self, session: "Session", runtime: str) -> None:
        """
        Gives the session another runtimeURL; it owns everything at and below it, and its bindings stay.

        It keeps the old runtimeURL as well, because answers may be in flight to it.
        """
        session.names = (*session.names, session.runtime)
        session.runtime = runtime
        self.join(session)

    def _take_back(self, session: "Session") -> Iterator[None]:
        """
        Unbinds other sessions from the addresses below its runtimeURL, in slices of ADDRESSES bindings.
        """
        runtime, done = session.runtime, 0
        while self._runtimes.get(runtime) is session:
            stray = runtime if runtime in self._strays else self._ordered.first(runtime + "/")
            if stray is None:
                return
            for other in self._strays.get(stray) or NOBODY:
                if other is session:  # bound before it got that name
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
        Binds `session` to `address`. This ends a learned route of another session to it.

        With `object_length` the address is subscribed as a child of the object that it begins with, unless it
        was subscribed by its own name: one request unsubscribes it with all children of the object.
        """
        while session.ended:
            if session.successor is None:
                return
            session = session.successor
        bindings = session.bindings
        reasons = bindings.get(address, 0)
        if not reasons:
            other = self._listeners.only(address)  # an address with a binding gets no learned route
            if other is not None and other.bindings.get(address) == LEARNED:
                self.unbind(address, other)
            self._add(address, session)
            session.learned += kind == LEARNED
        elif reasons == LEARNED:
            reasons = 0
            session.learned -= 1
        if kind & SUBSCRIBED:
            if not object_length:
                reasons = self._leave_object(address, session, reasons)
            elif not reasons & SUBSCRIBED:
                reasons |= object_length << _OBJECT
                self._join_object(address, session, object_length)
        bindings[address] = reasons | kind
        self.data_plane.change(address)
        if kind & OWNED:
            self.owners.add(address, session)
        self._session_store.bound(session.sid, address, reasons | kind)

    def restore(self, address: str, session: "Session", kinds: int) -> None:
        """
        Restores a binding after a restart.
        """
        session.bindings[address] = kinds
        self.data_plane.change(address)
        session.learned += kinds == LEARNED
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
    def _leave_object(address: str, session: "Session", reasons: int) -> int:
        """
        The binding without its mark as an object's child.
        """
        if reasons > _FLAGS:
            assert session.children is not None
            session.children.forget(address)
            if not len(session.children):
                session.children = None
        return reasons & _FLAGS

    def _add(self, address: str, session: "Session") -> None:
        session.account.charge(binding_size(address))
        if self.held is not None and not self._is_bound(address):
            self.held.bound(address)
        if address.startswith(RUNTIMES) and self.runtime(address) is not session:
            if address not in self._strays:
                self._ordered.add(address)
            self._strays.add(address, session)
        else:
            self._listeners.add(address, session)

    def unbind(self, address: str, session: "Session", kinds: int = ALLOCATED | SUBSCRIBED | LEARNED) -> None:
        """
        Removes `kinds` from the binding; when none is left, removes the binding, and the ownership with it.
        """
        reasons = session.bindings.get(address)
        if reasons is None:
            return
        self.data_plane.change(address)
        if kinds & SUBSCRIBED:
            reasons = self._leave_object(address, session, reasons)
        if reasons & _REASONS & ~kinds:
            left = session.bindings[address] = reasons & (~kinds | OWNED)
            self._session_store.bound(session.sid, address, left)
            if reasons & kinds & ALLOCATED and self.released is not None:
                self.released(address)
            return
        del session.bindings[address]
        session.learned -= reasons == LEARNED
        self._remove(address, session, reasons)
        self._session_store.bound(session.sid, address, 0)

    def move(self, address: str, session: "Session", other: "Session") -> None:
        """
        Moves the binding to the other session, and the ownership if the session has it.
        """
        reasons = session.bindings[address]
        self.unbind(address, session)
        self.bind(address, other, reasons & _FLAGS, reasons >> _OBJECT)

    def disown(self, address: str, owner: "Session") -> None:
        """
        Ends the ownership; the session stays bound.
        """
        self.data_plane.change(address)
        left = owner.bindings[address] = owner.bindings[address] & ~OWNED
        self.owners.discard(address, owner)
        if not owner.ended:
            self._session_store.bound(owner.sid, address, left)

    def _remove(self, address: str, session: "Session", reasons: int) -> None:
        self.data_plane.change(address)
        if reasons & OWNED:
            self.owners.discard(address, session)
        session.account.charge(-binding_size(address))
        if self._strays and self._strays.is_bound(address, session):
            self._drop_stray(address, session)
        else:
            self._listeners.remove(address, session)
        if self.held is not None and not self._is_bound(address):
            self.held.unbound(address)
        if reasons & ALLOCATED and self.released is not None:
            self.released(address)
        if self.unbound is not None:
            self.unbound(address, session)

    def _is_bound(self, address: str) -> bool:
        return address in self._listeners or address in self._strays

    def addresses(self) -> Iterator[str]:
        """
        The addresses with a binding, at the time of the call.
        """
        return iter([*self._listeners, *self._strays])

    def some(self, first: int, number: int) -> list[str]:
        """
        So many addresses with a binding, from this place on; places change as addresses come and go.
        """
        found = self._listeners.some(first, number)
        return found + self._strays.some(max(0, first - len(self._listeners)), number - len(found))

    def names(self) -> Iterator[str]:
        """
        The runtimeURLs of all sessions, the former ones too, at the time of the call.
        """
        return iter(list(self._runtimes))

    def _drop_stray(self, address: str, session: "Session") -> None:
        self._strays.remove(address, session)
        if address not in self._strays:
            self._ordered.remove(address)

    # -- the end of a session ----------------------------------------------------------

    def forget(self, session: "Session") -> None:
        """
        Removes all bindings of an ended session; from now on it gets no messages.
        """
        heir = session.successor
        names, session.names = (*session.names, session.runtime), ()
        for name in names:
            self.data_plane.change_name(name)
            if self._runtimes.get(name) is not session:
                continue
            if heir is None or heir.ended or len(heir.names) >= MAX_FORMER:
                del self._runtimes[name]
                if self.held is not None:
                    self.held.closed(name)
            else:
                self._runtimes[name] = heir
                heir.names = (*heir.names, name)
        former, session.former = [session.sid, *session.former], []
        for sid in former:
            if heir is None or heir.ended or len(heir.former) == MAX_FORMER:
                self._by_sid.pop(sid, None)
            else:
                self._by_sid[sid] = heir  # a requested receipt is still delivered
                heir.former.append(sid)
        self._in_slices(self._forget(session), session)

    def _forget(self, session: "Session") -> Iterator[None]:
        """
        Removes the bindings in slices of ADDRESSES.
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
            address, reasons = bindings.popitem()
            self._remove(address, session, reasons)
