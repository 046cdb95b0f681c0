"""
Address ownership: which session owns an address, may send from it, and may share it.

The owner is the session that allocated the address or was the first to subscribe it, while it stays bound.
Later subscribers only receive. Publication addresses (`/changes`, `/children/...`, `/registration`,
`/status`) have no owner. An address at or below a runtimeURL belongs to that runtime.
"""

from collections.abc import Callable
from weakref import WeakSet

from twisted.logger import Logger

from msgnode.config.schema import SessionTimes
from msgnode.protocol.address import TOPICS, is_multicast
from msgnode.protocol.errors import Claimed, Rejected
from msgnode.sessions.routing import ALLOCATED, LEARNED, OWNED, RUNTIMES, Routes
from msgnode.sessions.session import Session

log = Logger()

_GUARDED = ("hyperty://", *RUNTIMES)  # with `from_check`, only the owner may subscribe these


class AddressOwnership:
    """
    The rules of address ownership: which session owns an address, and which sessions may send from it.

    `options` has `from_check` and `takeover_after_seconds`; `now` is the clock of `since` in sessions.
    """

    def __init__(self, options: SessionTimes, routes: Routes, now: Callable[[], float]) -> None:
        self._options = options
        self._routes = routes
        self._now = now
        # Does a session at another node of the domain, which is reached, hold the address?
        self.is_held_elsewhere: Callable[[str], bool] = lambda address: False
        # Sessions that a warning in the log has named already.
        self._warned_of_binding: WeakSet[Session] = WeakSet()
        self._warned_of_sending: WeakSet[Session] = WeakSet()

    # -- owners ----------------------------------------------------------------

    def owner(self, address: str) -> Session | None:
        """
        The session that announced the address, else the one whose runtimeURL is the address or is above it.
        """
        return self._announced(address) or self._routes.runtime(address)

    def _announced(self, address: str) -> Session | None:
        """
        The session that announced the address and is still open, unless the address is below another
        runtimeURL.
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
        Is the session the owner of the address? For an address that cannot have an owner: is it bound to the
        session?
        """
        if address == session.runtime:
            return True
        reasons = session.bindings.get(address, 0)
        announced = self._announced(address)
        if announced is not None:
            return bool(reasons & OWNED) or _is_same_user(announced, session)
        runtime = self._routes.runtime(address)
        if runtime is not None:
            return runtime is session
        return bool(reasons) and is_multicast(address)

    def may_send(self, from_: str, session: Session) -> bool:
        """
        May the session send from the address: its own, or a learned route?
        """
        return self.owns(from_, session) or bool(session.bindings.get(from_, 0) & LEARNED)

    def topic_owner(self, address: str, session: Session) -> tuple[str, str]:
        """
        For the policies: `mine`, `other` or `none`, and the authenticated user of the owner, if any.
        """
        owner = self.owner(address)
        if owner is None:
            return "none", ""
        return "mine" if self.owns(address, session) else "other", _name(owner)

    # -- announcing ------------------------------------------------------------

    def check_bind(self, address: str, session: Session, kind: int) -> None:
        """
        With `from_check`, raises Rejected (403) if only the owner may subscribe the address.
        """
        if self._options.from_check == "off" or not address.startswith(_GUARDED):
            return
        owner = self._announced(address)
        if owner is not None:
            is_free = self._shares(owner, session) or self._yields(owner, kind)
        else:
            is_free = kind == ALLOCATED or bool(session.bindings.get(address))
            is_free = is_free or not self.is_held_elsewhere(address)
        if is_free:
            return
        if self._options.from_check == "refuse":
            raise Rejected(f"{address} belongs to another session", 403, "not-your-address")
        if session not in self._warned_of_binding:
            self._warned_of_binding.add(session)
            log.warn(
                "{runtime} binds {address}, which belongs to another session",
                runtime=session.runtime,
                address=address,
            )

    def announce(self, address: str, session: Session, kind: int) -> int:
        """
        The flags for a session that allocates or subscribes an address: OWNED if it becomes the owner, else
        0.
        """
        if is_multicast(address) or address in TOPICS:
            return 0
        owner = self._announced(address)
        while owner is not None and not self._shares(owner, session):
            if not self._yields(owner, kind):
                return 0
            self._routes.disown(address, owner)
            owner = self._announced(address)
        return OWNED

    def is_taken(self, runtime: str, session: Session | None = None) -> bool:
        """
        Does the name belong to another session than `session`, or did it before, so that no new session may
        open with it?

        A runtime that opens gets its own name back from a session that only subscribed it, unless the name is
        a hyperty, or `from_check` protects the first owner.
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
        Does the owner lose the address? An allocation, maybe from a pool, takes it from a subscriber.
        """
        return kind == ALLOCATED or self._is_replaceable(owner)

    def _is_replaceable(self, owner: Session) -> bool:
        """
        Is the owner unauthenticated, and disconnected for longer than `takeover_after_seconds`?
        """
        if owner.connection is not None or _user(owner):
            return False
        return self._now() >= owner.since + self._options.takeover_after_seconds

    # -- sending ---------------------------------------------------------------

    def check_sender(self, from_: str, session: Session) -> None:
        """
        With `from_check`, raises Claimed unless the session may send from the address; a hyperty address
        without an owner is allowed.
        """
        if self._options.from_check == "off" or self.may_send(from_, session):
            return
        if from_.startswith("hyperty://") and from_ not in self._routes and not self.is_held_elsewhere(from_):
            return
        if self._options.from_check == "refuse":
            raise Claimed(f"{from_!r} is not yours to send from"[:200], reason="not-your-address")
        if session not in self._warned_of_sending:
            self._warned_of_sending.add(session)
            log.warn(
                "{runtime} sends from {from_}, which is not its own address",
                runtime=session.runtime,
                from_=from_[:200],
            )


def _user(session: Session) -> str:
    """
    The user of the session, even if its authentication has expired.
    """
    return session.proof.user if session.proof is not None else session.identity


def _is_same_user(owner: Session, session: Session) -> bool:
    """
    Is the session authenticated as the owner's user?
    """
    return bool(session.identity) and session.identity == _user(owner)


def _name(session: Session) -> str:
    """
    The user's name as policies see it.
    """
    proof = session.proof
    return (proof.username or proof.user) if proof is not None else session.identity
