"""
Whose an address is: who may send from it, and who may bind it beside its owner.

An address belongs to the session that allocated it or was the first to
subscribe it, for as long as that session is bound to it; whoever subscribes it
later only listens.  What is published to (`/changes`, `/children/...`,
`/registration`, `/status`) has no owner, and what lies at or below a runtimeURL
is that runtime's.
"""

from collections.abc import Callable
from weakref import WeakSet

from twisted.logger import Logger

from msgnode.config.schema import SessionTimes
from msgnode.protocol.address import is_multicast
from msgnode.protocol.errors import Claimed, Rejected
from msgnode.sessions.bindings import ALLOCATED, LEARNT, OWNED, RUNTIMES
from msgnode.sessions.routing import Routes
from msgnode.sessions.session import Session

log = Logger()

_GUARDED = ("hyperty://", *RUNTIMES)  # with `from_check`, heard by nobody beside their owner


class AddressOwnership:
    """
    Decides whose an address is, and who may send from it.

    `options` has `from_check` and `takeover_after_seconds`; `now` is the clock of `since` in sessions.
    """

    def __init__(self, options: SessionTimes, routes: Routes, now: Callable[[], float]) -> None:
        self._options = options
        self._routes = routes
        self._now = now
        # Whom a log event names already.
        self._told_of_binding: WeakSet[Session] = WeakSet()
        self._told_of_sending: WeakSet[Session] = WeakSet()

    # -- whose it is ---------------------------------------------------------

    def owner(self, address: str) -> Session | None:
        """
        The session that announced the address, else that at or below whose runtimeURL it lies.
        """
        return self._announced(address) or self._routes.runtime(address)

    def _announced(self, address: str) -> Session | None:
        """
        The session that announced it and is still there, where no runtime has come before it.
        """
        owner = self._routes.owners.get(address)
        while owner is not None and owner.ended:
            self._routes.disown(address, owner)
            owner = self._routes.owners.get(address)
        if owner is not None and address.startswith(RUNTIMES) and self._routes.runtime(address) is not None:
            return None
        return owner

    def owns(self, address: str, session: Session) -> bool:
        """
        Is it the session's own, or without an owner by its kind and bound to the session?
        """
        if address == session.runtime:
            return True
        held = session.bindings.get(address, 0)
        announced = self._announced(address)
        if announced is not None:
            return bool(held & OWNED) or _is_same_user(announced, session)
        runtime = self._routes.runtime(address)
        if runtime is not None:
            return runtime is session
        return bool(held) and is_multicast(address)

    def may_send(self, from_: str, session: Session) -> bool:
        """
        May the session send from it: its own, or learnt of it because nobody else has it?
        """
        return self.owns(from_, session) or bool(session.bindings.get(from_, 0) & LEARNT)

    def standing(self, address: str, session: Session) -> tuple[str, str]:
        """
        For the policies: `mine`, `other` or `none`, and the owner's verified user, if any.
        """
        owner = self.owner(address)
        if owner is None:
            return "none", ""
        return "mine" if self.owns(address, session) else "other", _name(owner)

    # -- announcing ------------------------------------------------------------

    def check_bind(self, address: str, session: Session, kind: int) -> None:
        """
        With `from_check`: Rejected (403) if nobody but its owner may hear it.
        """
        if self._options.from_check == "off" or not address.startswith(_GUARDED):
            return
        owner = self._announced(address)
        if owner is None or self._shares(owner, session) or self._yields(owner, kind):
            return
        if self._options.from_check == "refuse":
            raise Rejected(f"{address} belongs to another session", 403, "not-your-address")
        if session not in self._told_of_binding:
            self._told_of_binding.add(session)
            log.warn("{runtime} binds {address}, another's", runtime=session.runtime, address=address)

    def announce(self, address: str, session: Session, kind: int) -> int:
        """
        The session allocates or subscribes it: OWNED if it is its own from now on, else 0.
        """
        if is_multicast(address):
            return 0
        owner = self._announced(address)
        while owner is not None and not self._shares(owner, session):
            if not self._yields(owner, kind):
                return 0
            self._routes.disown(address, owner)
            owner = self._announced(address)
        return OWNED

    def holds(self, runtime: str, session: Session | None = None) -> bool:
        """
        Is it an address of another than `session`, or what a session was called before, so that nobody
        may open a new one by it?

        A runtime that opens takes back its own name from who merely subscribed it, unless that is the
        name of a hyperty, or `from_check` protects whoever was first.
        """
        if self._routes.is_name(runtime):
            return True
        owner = None if runtime.startswith(RUNTIMES) else self._announced(runtime)
        if owner is None or owner is session or self._is_replaceable(owner):
            return False
        is_kept = runtime.startswith("hyperty://") or self._options.from_check == "refuse"
        return is_kept or bool(owner.bindings[runtime] & ALLOCATED)

    def _shares(self, owner: Session, session: Session) -> bool:
        return owner is session or _is_same_user(owner, session)

    def _yields(self, owner: Session, kind: int) -> bool:
        """
        To whom the node allocates an address, who only subscribed it gives way: it may be of a pool.
        """
        return kind == ALLOCATED or self._is_replaceable(owner)

    def _is_replaceable(self, owner: Session) -> bool:
        """
        Has an owner whom nobody knows been away for too long?
        """
        if owner.connection is not None or _user(owner):
            return False
        return self._now() >= owner.since + self._options.takeover_after_seconds

    # -- sending ---------------------------------------------------------------

    def check_sender(self, from_: str, session: Session) -> None:
        """
        With `from_check`: may the session send from it, or is it a hyperty that nobody has?
        """
        if self._options.from_check == "off" or self.may_send(from_, session):
            return
        if from_.startswith("hyperty://") and from_ not in self._routes:
            return
        if self._options.from_check == "refuse":
            raise Claimed(f"{from_!r} is not yours to send from"[:200], reason="not-your-address")
        if session not in self._told_of_sending:
            self._told_of_sending.add(session)
            log.warn("{runtime} sends from {from_}, not its own", runtime=session.runtime, from_=from_[:200])


def _user(session: Session) -> str:
    """
    Whose the session is, though what proved it may have ended.
    """
    return session.proof.user if session.proof is not None else session.identity


def _is_same_user(owner: Session, session: Session) -> bool:
    """
    Is the session now its owner's, as a token or a certificate has shown?
    """
    return bool(session.identity) and session.identity == _user(owner)


def _name(session: Session) -> str:
    """
    The user as policies know the senders.
    """
    proof = session.proof
    return (proof.username or proof.user) if proof is not None else session.identity
