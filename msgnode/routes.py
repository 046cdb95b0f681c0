"""
The routing table: which sessions hear an address.

Each binding is kept twice: by address, so that a lookup is one dict access
however many there are, and by session, so that a session's end costs only its
own.  The tuples by address are what `resolve` returns, shared and never built
for a message.
"""

from typing import TYPE_CHECKING

from msgnode.address import LONGEST
from msgnode.keeping import Keeping

if TYPE_CHECKING:
    from msgnode.session import Session

NOBODY: tuple["Session", ...] = ()

ALLOCATED, SUBSCRIBED, LEARNT = 1, 2, 4  # why a session is bound; may be combined
RUNTIMES = ("runtime://", "hyperty-runtime://")  # where runtimeURLs are looked for

DEEPEST = 32  # segments below a runtimeURL that are looked through; an attacker chooses the slashes


class RoutingTable:
    """
    Addresses are exact strings; nothing is normalised.
    """

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping
        self._sessions: dict[str, tuple[Session, ...]] = {}
        self._runtimes: dict[str, Session] = {}
        # Bindings that look like part of a runtime, held by somebody else, by
        # the beginning they would share with its runtimeURL.
        self._strays: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(self, address: str) -> tuple["Session", ...]:
        """
        The sessions bound to `address`, else the one whose runtimeURL it lies below.
        """
        found = self._sessions.get(address)
        if found is not None:
            return found
        runtime = self.runtime(address)
        return NOBODY if runtime is None else runtime.alone

    def runtime(self, address: str) -> "Session | None":
        """
        The session whose runtimeURL is `address` or stands above it at a `/`.
        """
        if len(address) > LONGEST:
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

    def is_allocated(self, address: str) -> bool:
        """
        Does a session hold this address as its own?  Others may listen there.
        """
        return any(session.bindings[address] & ALLOCATED for session in self._sessions.get(address, NOBODY))

    def join(self, session: "Session") -> None:
        """
        A session opened: everything at and below its runtimeURL is its own.

        What others bound below it beforehand is taken back for the schemes of
        RUNTIMES only: to look through everything for a name that somebody made
        up would cost all the others too much.
        """
        self._runtimes[session.runtime] = session
        below = session.runtime + "/"
        strays = self._strays.get(_beginning(session.runtime), ())
        for address in [a for a in strays if a.startswith(below)] + [session.runtime]:
            for other in self._sessions.get(address, NOBODY):
                if other is not session:
                    self.unbind(address, other)

    def bind(self, address: str, session: "Session", kind: int) -> None:
        """
        Let `session` hear `address`.  Who learnt it hears it no more, once somebody asks for it.
        """
        bindings = session.bindings
        held = bindings.get(address, 0)
        if not held:
            present = self._sessions.get(address)
            if present and kind != LEARNT:
                for other in present:
                    if other.bindings[address] == LEARNT:
                        self.unbind(address, other)
                present = self._sessions.get(address)
            self._sessions[address] = (*present, session) if present else session.alone
            self._note_stray(address, session)
            session.learnt += kind == LEARNT
        elif held == LEARNT:
            held = 0
            session.learnt -= 1
        bindings[address] = held | kind
        self._keeping.bound(session.sid, address, held | kind)

    def restore(self, address: str, session: "Session", kinds: int) -> None:
        """
        Bind again what was bound before a restart.
        """
        session.bindings[address] = kinds
        session.learnt += kinds == LEARNT
        present = self._sessions.get(address)
        self._sessions[address] = (*present, session) if present else session.alone
        self._note_stray(address, session)

    def _note_stray(self, address: str, session: "Session") -> None:
        if address.startswith(RUNTIMES) and self.runtime(address) is not session:
            self._strays.setdefault(_beginning(address), set()).add(address)

    def unbind(self, address: str, session: "Session", kinds: int = ALLOCATED | SUBSCRIBED | LEARNT) -> None:
        """
        Forget `kinds` of the binding; when none is left, it is gone.
        """
        held = session.bindings.get(address)
        if held is None:
            return
        if held & ~kinds:
            session.bindings[address] = held & ~kinds
            self._keeping.bound(session.sid, address, held & ~kinds)
            return
        self._remove(address, session)
        self._keeping.bound(session.sid, address, 0)

    def _remove(self, address: str, session: "Session") -> None:
        held = session.bindings.pop(address)
        session.learnt -= held == LEARNT
        rest = tuple(other for other in self._sessions[address] if other is not session)
        if rest:
            self._sessions[address] = rest if len(rest) > 1 else rest[0].alone
        else:
            del self._sessions[address]
            strays = self._strays.get(_beginning(address))
            if strays is not None:
                strays.discard(address)
                if not strays:
                    del self._strays[_beginning(address)]

    def forget(self, session: "Session") -> None:
        """
        The session ended: everything bound to it goes.
        """
        for address in list(session.bindings):
            self._remove(address, session)
        if self._runtimes.get(session.runtime) is session:
            del self._runtimes[session.runtime]


def _beginning(address: str) -> str:
    """
    `runtime://domain/first` of a longer address: no runtimeURL is shorter.
    """
    return "/".join(address.split("/", 4)[:4])
