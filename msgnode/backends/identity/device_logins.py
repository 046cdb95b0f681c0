"""
All device logins of the node that are not over: begun by a request, answered when the user has logged in.

The request is answered at once with what the device shows, and a second time with the outcome, also after a
restart of the node.
"""

from collections.abc import Callable
from secrets import token_hex
from typing import Any, Protocol

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.backends.identity.access_tokens import AccessTokens
from msgnode.backends.identity.device_login import DeviceLogin, PendingLogin, interval_of
from msgnode.backends.identity.grants import HAS_LEFT, Journal, owner_of
from msgnode.backends.identity.oidc_provider import OIDCProvider
from msgnode.backends.identity.sealing import Unsealable
from msgnode.backends.identity.token_endpoint import DeviceAuthorization
from msgnode.backends.identity.token_validator import Tokens
from msgnode.config.schema import IdentityOptions
from msgnode.protocol.errors import FAILED, Rejected, error_body
from msgnode.protocol.message import Message, compose, decode
from msgnode.protocol.peer_address import peer_host
from msgnode.sessions.session import Connection, Session

log = Logger()

KIND = "device login"
PROVISIONAL = 100
SHARES = 10  # one user or host has one of them
_STOPPING = "the node stops, and keeps no logins over a restart; ask again"

Key = tuple[Session, str]  # and the issuer


class Answer(Protocol):
    """
    Sends a late answer to a session; without a connection, to where the session is now.
    """

    def __call__(self, reply: Message, session: Session, connection: Connection | None) -> None: ...


class DeviceLogins:
    """
    The device logins, at most one for each session and provider. `trusted` returns the trusted proxies.
    """

    def __init__(
        self,
        options: IdentityOptions,
        access: AccessTokens,
        tokens: Tokens,
        journal: Journal,
        answer: Answer,
        clock: IReactorTime,
        wall: Callable[[], float],
        trusted: Callable[[], list[str]] = lambda: [],
    ) -> None:
        self._trusted = trusted
        self._options = options
        self._access = access
        self._tokens = tokens
        self._journal = journal
        self._answer = answer
        self._clock = clock
        self._wall = wall
        self._under_way: dict[Key, tuple[DeviceLogin, Message]] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    async def begin(
        self, message: Message, provider: OIDCProvider, session: Session, scopes: list[str]
    ) -> Message:
        """
        Begins a login; returns the provisional answer, with what the user needs.
        """
        issuer = provider.options.issuer
        self._check_room(session, issuer)
        self._check_share(session, issuer, message)
        owner = owner_of(session)
        found = await self._access.endpoint(provider).authorize_device(" ".join(scopes))
        self._check_room(session, issuer)  # others came meanwhile
        self._check_share(session, issuer, message)
        owner.check(session)
        self._cancel((session, issuer), Rejected("another login was begun in place of this one", 409))
        request = compose(message.id, message.type, message.from_, _to(message), {}, message.transaction)
        pending = self._pending(found, session, issuer, scopes, request)
        await self._keep(pending)
        message.data = request.data  # what is needed of it for the answer
        self._poll(pending, found.device_code, provider, session, message)
        return message.reply({"code": PROVISIONAL, "value": _shown(found, pending, provider)})

    def _check_room(self, session: Session, issuer: str) -> None:
        most = self._options.max_device_logins
        if (session, issuer) not in self._under_way and len(self) >= most:
            raise Rejected(
                f"this node awaits no more than {most} device logins; try again later", 503, "limit"
            )
        self._access.grants.check_room(session, issuer)

    def _check_share(self, session: Session, issuer: str, message: Message) -> None:
        """
        Rejected (429) if this user, or host, awaits a tenth of all logins already: others have users, too.
        """
        name = self._name(session, message)
        if not name or (session, issuer) in self._under_way:
            return
        most = max(1, self._options.max_device_logins // SHARES)
        if sum(self._name(key[0], begun) == name for key, (_, begun) in self._under_way.items()) >= most:
            text = f"this user or host awaits no more than {most} device logins; finish one of them"
            raise Rejected(text, 429, "limit")

    def _name(self, session: Session, message: Message) -> str:
        return session.identity or peer_host(getattr(message.origin, "peer", "unix"), self._trusted())

    def _pending(
        self, found: DeviceAuthorization, session: Session, issuer: str, scopes: list[str], request: Message
    ) -> PendingLogin:
        lifetime = min(float(found.expires_in), self._options.device_login_seconds)
        pending = PendingLogin(
            id=token_hex(8),
            runtime=session.runtime,
            user=session.identity,
            session=session.token_hash.hex(),
            issuer=issuer,
            request=request.data.decode(),
            scopes=scopes,
            until=self._wall() + lifetime,
            interval=interval_of(found),
            sealed="",
        )
        pending.sealed = self._access.grants.keys.seal(found.device_code.encode(), pending.about())
        return pending

    async def _keep(self, pending: PendingLogin) -> None:
        if not self._access.grants.is_kept:
            return
        try:
            await self._journal.put(pending.id, (KIND, msgspec.to_builtins(pending)))
        except Rejected:
            self._journal.remove(pending.id).addErrback(lambda why: None)  # it is refused
            raise

    def _poll(
        self, pending: PendingLogin, code: str, provider: OIDCProvider, session: Session, message: Message
    ) -> None:
        endpoint = self._access.endpoint(provider)
        login = DeviceLogin(pending, code, endpoint, self._clock, self._wall)
        key = (session, pending.issuer)
        self._under_way[key] = (login, message)

        async def outcome() -> dict[str, Any]:
            tokens = await login.outcome
            value = await self._access.accept(provider, session, pending.owner, tokens, pending.scopes)
            pending.owner.check(session)
            return {"code": 200, "value": value}

        over: Deferred[Any] = Deferred.fromCoroutine(outcome())
        over.addErrback(self._refused)
        over.addCallback(self._finish, key, login, message)
        over.addErrback(lambda why: log.failure("a device login could not be answered", why))

    @staticmethod
    def _refused(why: Failure) -> dict[str, Any]:
        if isinstance(why.value, Rejected):
            return why.value.body()
        log.failure("a device login failed unexpectedly", why)
        return error_body(500, FAILED)

    def _finish(self, body: dict[str, Any], key: Key, login: DeviceLogin, message: Message) -> None:
        if self._under_way.get(key, (None,))[0] is login:
            del self._under_way[key]
        self._journal.remove(login.pending.id).addErrback(lambda why: None)
        self._answer(message.reply(body), key[0], message.origin)

    def _cancel(self, key: Key, why: Rejected) -> None:
        login, _ = self._under_way.pop(key, (None, None))
        if login is not None:
            login.cancel(why)

    def ended(self, session: Session) -> None:
        """
        Ends the logins of a session that has ended, or is at another node now.
        """
        why = HAS_LEFT if session.has_left else "this session has ended"
        for key in [key for key in self._under_way if key[0] is session]:
            self._cancel(key, Rejected(why, 410, "no-session"))

    def stop(self) -> None:
        """
        The node stops: what is on disk goes on after a restart, everything else is answered.
        """
        for key in list(self._under_way):
            if self._access.grants.is_kept:
                self._under_way.pop(key)[0].stop()
            else:
                self._cancel(key, Rejected(_STOPPING, 503, "failed"))

    def restore(self, kept: dict[str, Any], find: Callable[[str], Session | None]) -> None:
        """
        Goes on with the logins of before a restart whose sessions are still here.
        """
        for key, (_, value) in kept.items():
            pending = msgspec.convert(value, PendingLogin)
            session = find(pending.runtime)
            try:
                provider = self._tokens.by_issuer(pending.issuer)
                code = self._access.grants.keys.open(pending.sealed, pending.about()).decode()
            except (Unsealable, Rejected):
                provider = None
            if provider is None or session is None or not pending.owner.has(session):
                self._journal.remove(key).addErrback(lambda why: None)
                continue
            self._poll(pending, code, provider, session, decode(pending.request.encode()))


def _to(message: Message) -> str:
    return message.to if isinstance(message.to, str) else message.to[0]


def _shown(found: DeviceAuthorization, pending: PendingLogin, provider: OIDCProvider) -> dict[str, Any]:
    value = {
        "domain": provider.options.domain,
        "user_code": found.user_code,
        "verification_uri": found.verification_uri,
        "expires": int(pending.until),
    }
    if found.verification_uri_complete:
        value["verification_uri_complete"] = found.verification_uri_complete
    return value
