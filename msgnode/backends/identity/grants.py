"""
Grants: the refresh tokens that providers gave for sessions of this node.

They are sealed at once, in memory as on disk, and opened only to be sent to their provider. A grant belongs
to the session under which its user logged in, and to no client that takes the session over: it serves the
same verified user, or the client with the same session token.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from secrets import token_hex
from typing import Any, NamedTuple, Protocol

import msgspec
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from msgnode.backends.identity.sealing import TokenKeys, Unsealable
from msgnode.protocol.errors import Rejected

log = Logger()

KIND = "grant"
HAS_LEFT = "this session is at another node of the domain now, which has no login of it: ask there again"
SHARES = 10  # one user has one of them


class GrantHolder(Protocol):
    """
    A session, as grants see it.
    """

    runtime: str
    identity: str
    token_hash: bytes
    connection: Any
    ended: bool

    @property
    def has_left(self) -> bool: ...


class Journal(Protocol):
    """
    The file of sealed values (storage/keyed_journal.py).
    """

    def put(self, key: str, value: Any) -> Deferred[None]: ...
    def remove(self, key: str) -> Deferred[None]: ...


def serves(user: str, token_hash: str, session: GrantHolder) -> bool:
    """
    Does the session still belong to this verified user, or to the client that had this session token?
    """
    if user and session.identity == user:
        return True
    return bool(session.token_hash) and session.token_hash.hex() == token_hash


class Owner(NamedTuple):
    """
    The client that a session belonged to when it asked for something: its verified user, and the hash of its
    session token. A client that knows no session tokens has it while it is connected, with `connection`.
    """

    user: str
    token_hash: str
    connection: object | None = None

    def has(self, session: GrantHolder) -> bool:
        if self.connection is not None and not session.token_hash:
            return self.connection is session.connection
        return serves(self.user, self.token_hash, session)

    def check(self, session: GrantHolder) -> None:
        """
        Rejected (410) if the session has ended, is at another node, or belongs to another client now.
        """
        if session.has_left:
            raise Rejected(HAS_LEFT, 410, "no-session")
        if session.ended:
            raise Rejected("this session has ended", 410, "no-session")
        if not self.has(session):
            raise Rejected("this session has another owner now", 410, "no-session")


def owner_of(session: GrantHolder) -> Owner:
    is_nameless = not session.identity and not session.token_hash
    return Owner(session.identity, session.token_hash.hex(), session.connection if is_nameless else None)


class Grant(msgspec.Struct, kw_only=True):
    """
    A refresh token, sealed; `user` is its user's address, "" if the provider proved none, `issuer` the
    provider. `session` is the hash of the session token under which it came, in hexadecimal.
    """

    id: str
    runtime: str
    issuer: str
    user: str
    scopes: list[str]
    session: str
    sealed: str

    def serves(self, session: GrantHolder) -> bool:
        return serves(self.user, self.session, session)

    def about(self) -> str:
        """
        The fields that the seal protects, too: a grant on disk cannot become another's.
        """
        return "\n".join((self.id, self.issuer, self.user, self.session))


class Grants:
    """
    The grants of all sessions, at most one for each provider and session. `most` is how many are kept in all.

    `keys` seals them. `journal` keeps them only with keys of the configuration (`is_kept`).
    """

    def __init__(self, keys: TokenKeys | None, journal: Journal, most: Callable[[], int]) -> None:
        self.is_kept = keys is not None
        self.keys = keys or TokenKeys.made()
        self._journal = journal
        self._most = most
        self._by_session: dict[GrantHolder, dict[str, Grant]] = {}
        self._count = 0
        self._users: Counter[tuple[str, str]] = Counter()  # grants by provider and user

    def __len__(self) -> int:
        return self._count

    def use(self, keys: TokenKeys) -> None:
        """
        Uses other keys from now on; what they do not open is lost. Older grants are sealed again.
        """
        before, self.keys = self.keys, keys
        was_kept, self.is_kept = self.is_kept, True
        for session, grants in list(self._by_session.items()):
            for grant in list(grants.values()):
                try:
                    token = before.open(grant.sealed, grant.about())
                except Unsealable:
                    self.drop(session, grant.issuer)
                    continue
                if not was_kept or not keys.is_newest(grant.sealed):
                    grant.sealed = keys.seal(token, grant.about())
                    self._put(grant)

    def check_room(self, session: GrantHolder, issuer: str) -> None:
        """
        Rejected (503) if one more cannot be kept.
        """
        if issuer not in self._by_session.get(session, {}) and self._count >= self._most():
            self._sweep()
            if self._count >= self._most():
                text = f"this node keeps no more than {self._most()} refresh tokens; try again later"
                raise Rejected(text, 503, "limit")

    def add(
        self, session: GrantHolder, issuer: str, user: str, scopes: list[str], token: str
    ) -> Deferred[None] | None:
        """
        Seals and keeps a refresh token, in the place of an earlier one. None if there is no room, if the user
        has a tenth of all already, or if the session has ended or left meanwhile.
        """
        try:
            self.check_room(session, issuer)
        except Rejected:
            return None
        if session.ended or session.has_left:
            return None
        self.drop(session, issuer)
        if user and self._users[issuer, user] >= max(1, self._most() // SHARES):
            return None
        grant = Grant(
            id=token_hex(8),
            runtime=session.runtime,
            issuer=issuer,
            user=user,
            scopes=scopes,
            session=session.token_hash.hex(),
            sealed="",
        )
        grant.sealed = self.keys.seal(token.encode(), grant.about())
        self._added(session, grant)
        return self._put(grant)

    def _added(self, session: GrantHolder, grant: Grant) -> None:
        self._by_session.setdefault(session, {})[grant.issuer] = grant
        self._count += 1
        self._users[grant.issuer, grant.user] += 1

    def replace(self, grant: Grant, token: str) -> Deferred[None]:
        """
        Keeps the refresh token that its provider gave in the place of the last one.
        """
        grant.sealed = self.keys.seal(token.encode(), grant.about())
        return self._put(grant)

    def _put(self, grant: Grant) -> Deferred[None]:
        if self.is_kept:
            return self._journal.put(grant.id, (KIND, msgspec.to_builtins(grant)))
        return self._journal.remove(grant.id)

    def find(self, session: GrantHolder, issuer: str) -> Grant | None:
        """
        The grant of the session at a provider, if it still serves the session.
        """
        found = self._by_session.get(session, {}).get(issuer)
        return found if found is not None and found.serves(session) else None

    def of(self, session: GrantHolder) -> Iterator[Grant]:
        for grant in self._by_session.get(session, {}).values():
            if grant.serves(session):
                yield grant

    def open(self, grant: Grant) -> str:
        """
        The refresh token. Raises Unsealable.
        """
        return self.keys.open(grant.sealed, grant.about()).decode()

    def drop(self, session: GrantHolder, issuer: str) -> None:
        grants = self._by_session.get(session, {})
        grant = grants.pop(issuer, None)
        if grant is not None:
            self._count -= 1
            self._users[issuer, grant.user] -= 1
            if not self._users[issuer, grant.user]:
                del self._users[issuer, grant.user]
            self._removed(grant)
        if not grants:
            self._by_session.pop(session, None)

    def _removed(self, grant: Grant) -> None:
        self._journal.remove(grant.id).addErrback(lambda why: None)  # the journal says so, and tries again

    def ended(self, session: GrantHolder) -> None:
        """
        Drops the grants of a session that has ended, or is at another node now.
        """
        for issuer in list(self._by_session.get(session, ())):
            self.drop(session, issuer)

    def _sweep(self) -> None:
        for session in [session for session in self._by_session if session.ended]:
            self.ended(session)

    def retain(self, issuers: set[str]) -> None:
        """
        Drops the grants of providers that are not trusted any more.
        """
        for session, grants in list(self._by_session.items()):
            for issuer in [issuer for issuer in grants if issuer not in issuers]:
                self.drop(session, issuer)

    def restore(
        self, kept: dict[str, Any], find: Callable[[str], GrantHolder | None], issuers: set[str]
    ) -> None:
        """
        Gives the grants of before a restart to their sessions; drops those that cannot be used any more.
        """
        unreadable = 0
        for key, (_, value) in kept.items():
            grant = msgspec.convert(value, Grant)
            session = find(grant.runtime)
            usable = self.is_kept and session is not None and grant.serves(session)
            usable = usable and grant.issuer in issuers
            try:
                token = self.keys.open(grant.sealed, grant.about()) if usable else b""
            except Unsealable:
                unreadable, usable = unreadable + 1, False
            if session is None or not usable:
                self._journal.remove(key).addErrback(lambda why: None)
                continue
            if not self.keys.is_newest(grant.sealed):
                self.replace(grant, token.decode()).addErrback(lambda why: None)
            self._added(session, grant)
        if unreadable:
            log.error(
                "{number} refresh tokens cannot be read with the keys of identity.token_keys_file; their"
                " users log in again",
                number=unreadable,
            )
