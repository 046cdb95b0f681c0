"""
The budget: what clients have the node remember, in bytes, and for whom.

A session's account lies below its user's, or below that of the host that
opened it while nobody knows whose it is, and those below the node's: what is
charged to one is charged to all above it.  Nothing on a message's path asks
here; only what adds to the node's state does.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from msgnode.config.schema import Config
from msgnode.protocol.errors import Rejected
from msgnode.protocol.peer_address import peer_host
from msgnode.sessions.limits.rate_limits import TokenBucket, TokenBuckets
from msgnode.sessions.principal import Principal

# Bytes of memory beside those of the names: objects, and entries in tables.
SESSION, BINDING, KEY, KEYED, REGISTERED = 2048, 256, 512, 256, 512

OF_SESSION, OF_USER, OF_HOST, OF_NODE = "_per_session", "_per_user", "_per_ip", ""  # as the limits' names end
ANY = TokenBucket(0, 0, 0)  # where there is no limit to what is taken from it
_WHO = {
    OF_SESSION: "a session",
    OF_USER: "the sessions of one user",
    OF_HOST: "the sessions of one IP address",
    OF_NODE: "the node",
}


class Account:
    """
    Bytes that are kept for somebody, and how many sessions there are.

    `kind` is one of the four above; `name` is the user's or the host's.
    """

    __slots__ = ("above", "bytes", "kind", "name", "sessions")

    def __init__(self, kind: str = OF_SESSION, name: str = "", above: "Account | None" = None) -> None:
        self.kind = kind
        self.name = name
        self.above = above
        self.bytes = 0
        self.sessions = 0

    def charge(self, size: int, sessions: int = 0) -> None:
        """
        So much more is kept; less, where it is negative.
        """
        account: Account | None = self
        while account is not None:
            account.bytes += size
            account.sessions += sessions
            account = account.above


def text_size(text: str) -> int:
    """
    Bytes that a name takes in memory, at most.
    """
    return len(text) if text.isascii() else 4 * len(text)


def binding_size(address: str) -> int:
    return BINDING + text_size(address)


class AccountHolder(Protocol):
    """
    A session, as far as it pays for what the node remembers of it.
    """

    account: Account
    runtime: str
    host: str
    identity: str
    proof: Principal | None


class Budget:
    """
    The accounts, and the limits on them; `refused` counts by the name of the limit.

    Whoever is verified pays for itself.  A UNIX socket and a trusted proxy are
    no host: who comes by them unverified counts for the node alone, and so does
    a session of before a restart of which nobody knows who opened it.
    """

    def __init__(self, config: Config, now: Callable[[], float]) -> None:
        self.node = Account(OF_NODE)
        self.refused: Counter[str] = Counter()
        self.accounts: dict[tuple[str, str], Account] = {}  # of users and hosts, by kind and name
        self._config = config
        self._now = now
        self._opened = TokenBuckets()  # by host: new sessions in a minute

    def host(self, connection: Any) -> str:
        """
        Whom a limit by host holds for; "" for nobody.
        """
        return peer_host(connection.peer, self._config.trusted_proxies)

    def by_kind(self, sessions: Iterable[AccountHolder]) -> dict[str, list[Account]]:
        """
        The accounts of sessions, users and hosts.
        """
        others = list(self.accounts.values())
        return {
            "session": [session.account for session in sessions],
            "user": [account for account in others if account.kind == OF_USER],
            "ip": [account for account in others if account.kind == OF_HOST],
        }

    # -- sessions --------------------------------------------------------------

    def may_open(self, runtime: str, user: str, host: str) -> bool:
        """
        Is there room for one more session, of this user or of this host?
        """
        kind, name = (OF_USER, user) if user else (OF_HOST, host)
        payer = self.accounts.get((kind, name)) or Account(kind if name else OF_NODE)
        size = SESSION + text_size(runtime)
        for account in (self.node, payer):
            if self._is_over("sessions", account, account.sessions + 1):
                return False
            if self._is_over("state_bytes", account, account.bytes + size):
                return False
        if user or not host or self._turn(host) is not None:
            return True
        self.refused["new_sessions_per_minute_per_ip"] += 1
        return False

    def take_turn(self, host: str) -> None:
        """
        A new session was opened from this host by somebody unverified.
        """
        turn = self._turn(host) if host else None
        if turn is not None:
            turn.messages -= 1

    def _turn(self, host: str) -> TokenBucket | None:
        self._opened.set(self._config.limits.new_sessions_per_minute_per_ip, 0)
        return self._opened.find(host, self._now() / 60) if self._opened.on else ANY

    def opened(self, session: AccountHolder) -> None:
        """
        A session is there, or is there again after a restart.
        """
        session.account.charge(SESSION + text_size(session.runtime), 1)
        self._place(session.account, self._payer(session))

    def may_rename(self, session: AccountHolder, runtime: str) -> bool:
        """
        Is there room for the longer name?  The session counts already.
        """
        more = text_size(runtime) - text_size(session.runtime)
        return more <= 0 or self.has_room(session.account, more)

    def settle(self, session: AccountHolder) -> None:
        """
        Whose it is may have changed; who has it now pays for it.
        """
        payer = self._payer(session)
        if payer is not session.account.above:
            self._place(session.account, payer)

    def ended(self, session: AccountHolder) -> None:
        """
        Nothing is kept for it any more.
        """
        self._place(session.account, None)

    def _payer(self, session: AccountHolder) -> Account:
        proof = session.proof
        user = proof.user if proof is not None else session.identity
        kind, name = (OF_USER, user) if user else (OF_HOST, session.host)
        if not name:
            return self.node
        account = self.accounts.get((kind, name))
        if account is None:
            account = self.accounts[kind, name] = Account(kind, name, self.node)
        return account

    def _place(self, account: Account, above: Account | None) -> None:
        """
        Put it below another one; None: below none.
        """
        before, account.above = account.above, above
        if above is not None:
            above.charge(account.bytes, account.sessions)
        if before is not None:
            before.charge(-account.bytes, -account.sessions)
            if not before.sessions and before is not self.node:
                del self.accounts[before.kind, before.name]

    # -- bytes -----------------------------------------------------------------

    def check(self, account: Account, size: int) -> None:
        """
        Rejected (429), if so many bytes more are too many for it or for those above it.
        """
        short = self._short(account, size)
        if short is not None:
            limit = f"state_bytes{short.kind}"
            most = getattr(self._config.limits, limit)
            raise Rejected(
                f"{_WHO[short.kind]} may have {most} bytes remembered (limits.{limit}),"
                f" not {size} more than {short.bytes}",
                429,
                "limit",
            )

    def has_room(self, account: Account, size: int) -> bool:
        """
        The same, for what is left out without a word.
        """
        return self._short(account, size) is None

    def _short(self, account: Account | None, size: int) -> Account | None:
        while account is not None:
            if self._is_over("state_bytes", account, account.bytes + size):
                return account
            account = account.above
        return None

    def _is_over(self, what: str, account: Account, would_be: int) -> bool:
        limit = f"{what}{account.kind}"
        most: int = getattr(self._config.limits, limit)
        if not most or would_be <= most:
            return False
        self.refused[limit] += 1
        return True
