"""
The memory budget: bytes of state that clients cause in the node, with limits by session, user, IP address and
node.

The account of a session is below that of its user, or below that of the host that opened it if it is
unauthenticated; these are below the node's. A charge counts in every account above. Only code that adds state
uses the budget, not the path of a message.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from msgnode.config.schema import Config
from msgnode.protocol.errors import Rejected
from msgnode.protocol.peer_address import peer_host
from msgnode.sessions.limits.rate_limits import TokenBucket, TokenBuckets
from msgnode.sessions.principal import Principal

# Bytes of memory for objects and table entries, without the names in them.
SESSION, BINDING, KEY, KEYED, REGISTERED = 2048, 256, 512, 256, 512

# The suffixes of the limits' names.
OF_SESSION, OF_USER, OF_HOST, OF_NODE = "_per_session", "_per_user", "_per_ip", ""
ANY = TokenBucket(0, 0, 0)  # stands for an unlimited bucket
_WHO = {
    OF_SESSION: "a session",
    OF_USER: "the sessions of one user",
    OF_HOST: "the sessions of one IP address",
    OF_NODE: "the node",
}


class Account:
    """
    The bytes of state of one session, user or host, and the number of its sessions.

    `kind` is one of the four above; `name` is that of the user or host.
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
        Adds `size` bytes here and in all accounts above; subtracts if negative.
        """
        account: Account | None = self
        while account is not None:
            account.bytes += size
            account.sessions += sessions
            account = account.above


def text_size(text: str) -> int:
    """
    An upper bound for the bytes of a text in memory.
    """
    return len(text) if text.isascii() else 4 * len(text)


def binding_size(address: str) -> int:
    return BINDING + text_size(address)


class AccountHolder(Protocol):
    """
    A session, as seen by the budget.
    """

    account: Account
    runtime: str
    host: str
    identity: str
    proof: Principal | None


class Budget:
    """
    The accounts and their limits. `refused` counts refusals by the name of the limit.

    An authenticated user has an account. UNIX sockets and trusted proxies are no hosts: an unauthenticated
    client behind them counts for the node only. So does a session from before a restart, if its host is
    unknown.
    """

    def __init__(self, config: Config, now: Callable[[], float]) -> None:
        self.node = Account(OF_NODE)
        self.refused: Counter[str] = Counter()
        self.accounts: dict[tuple[str, str], Account] = {}  # of users and hosts, by kind and name
        self._config = config
        self._now = now
        self._opened = TokenBuckets()  # new sessions in a minute, by host

    def host(self, connection: Any) -> str:
        """
        The host that limits count for; "" if there is none.
        """
        return peer_host(connection.peer, self._config.trusted_proxies)

    def by_kind(self, sessions: Iterable[AccountHolder]) -> dict[str, list[Account]]:
        """
        All accounts of sessions, users and hosts.
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
        Is there room for one more session of this user, or of this host?
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
        Counts a new session that an unauthenticated client opened from this host.
        """
        turn = self._turn(host) if host else None
        if turn is not None:
            turn.messages -= 1

    def _turn(self, host: str) -> TokenBucket | None:
        self._opened.set(self._config.limits.new_sessions_per_minute_per_ip, 0)
        return self._opened.find(host, self._now() / 60) if self._opened.on else ANY

    def opened(self, session: AccountHolder) -> None:
        """
        Charges a session that was opened, or restored after a restart.
        """
        session.account.charge(SESSION + text_size(session.runtime), 1)
        self._place(session.account, self._payer(session))

    def may_rename(self, session: AccountHolder, runtime: str) -> bool:
        """
        Is there room for a longer name of the session?
        """
        more = text_size(runtime) - text_size(session.runtime)
        return more <= 0 or self.has_room(session.account, more)

    def settle(self, session: AccountHolder) -> None:
        """
        Moves the account of a session whose user may have changed.
        """
        payer = self._payer(session)
        if payer is not session.account.above:
            self._place(session.account, payer)

    def ended(self, session: AccountHolder) -> None:
        """
        Removes the account of an ended session.
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
        Puts an account below another one, or below none.
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
        Raises Rejected (429) if `size` more bytes exceed the limit of the account, or of one above it.
        """
        short = self._short(account, size)
        if short is not None:
            limit = f"state_bytes{short.kind}"
            most = getattr(self._config.limits, limit)
            raise Rejected(
                f"{_WHO[short.kind]} may have {most} bytes of state (limits.{limit}),"
                f" not {size} more than {short.bytes}",
                429,
                "limit",
            )

    def has_room(self, account: Account, size: int) -> bool:
        """
        Is there room for `size` more bytes? For state that may be dropped without an error.
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
