"""
The domain registry at `domain://registry.<domain>`: who is registered, found, kept alive and gone.

Every request is answered, an `update` too; runtimes wait for it.  Whoever subscribed
`<address>/registration` is told when what is registered there comes or goes.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.backends.http_client import BackendClient, Response, Unanswered
from msgnode.backends.registry import requests
from msgnode.backends.registry.requests import Call
from msgnode.backends.registry.status import DISCONNECTED, LIVE, StatusNotifications
from msgnode.config.sections import RegistryOptions
from msgnode.protocol.errors import FAILED, Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.bindings import LEARNT, OWNED
from msgnode.sessions.session import Session
from msgnode.structures.log_limits import FailureLog

log = Logger()

UNAVAILABLE = "Temporarily Unavailable"
PAYER = "X-Msgnode-Payer"  # the header that tells an embedded registry whose an entry is
PHRASES = {400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}


class Registrations(Protocol):
    """
    The port to the table of what each session has registered (registrations.py).
    """

    def add(self, url: str, session: Session, anew: bool) -> bool: ...
    def drop(self, url: str) -> None: ...
    def owner(self, url: str) -> str: ...


class DomainRegistry:
    """
    The responder.  `publish` sends a message of the node's own to whoever listens.
    """

    def __init__(
        self,
        domain: str,
        rest: BackendClient,
        options: RegistryOptions,
        publish: Callable[[Message], int],
        registered: Registrations,
    ) -> None:
        self.address = f"domain://registry.{domain}"
        self._domain = domain
        self._rest = rest
        self._options = options
        self._status_notifications = StatusNotifications(self.address, publish)
        self._registered = registered
        self._is_refused = False  # as the log has said
        self._failures = FailureLog(log)
        # Whose an entry is that the message makes; backends sets it, where the registry wants to know.
        self.payer: Callable[[Message, Session], str] = _nobody
        # What is done for a session that ended meanwhile; the Disconnector sets it, where that is wanted.
        self.late: Callable[[str, Session], None] = lambda url, session: None

    def respond(self, message: Message, session: Session) -> Deferred[Message] | None:
        """
        Whatever becomes of it is told in a reply; only a response has none.
        """
        kind = message.type.lower()
        if kind == "response":
            raise Rejected("the domain registry asks nothing, so it takes no response")
        return Deferred.fromCoroutine(self._answered(self._carry_out(kind, message, session), message))

    async def _answered(self, doing: Coroutine[Any, Any, dict[str, Any]], message: Message) -> Message:
        try:
            body = await doing
        except Rejected as why:
            body = {"code": why.code, "description": str(why)}
            message.reason = why.reason
        except Exception:  # an update would not be answered elsewhere
            self._failures.note("asking the domain registry for {who}", Failure(), who=message.from_[:200])
            body = {"code": 503, "description": FAILED}
            message.reason = "failed"
        if body["code"] != 200:
            body["desc"] = body["description"]
        message.code = body["code"]
        return message.reply(body)

    async def _carry_out(self, kind: str, message: Message, session: Session) -> dict[str, Any]:
        body = message.fields()
        if kind == "read":
            return await self._read(requests.reads(body, self._domain))
        if kind == "create":
            call = requests.create(body, message.from_, session.runtime)
            self._check_user(body, session)
            self._check_owner(call.url, session)
            return await self._create(call._replace(payer=self.payer(message, session)), session)
        if kind == "update":
            call = requests.update(body, self._domain)
            self._check_owner(call.url, session)
            call = call._replace(payer=self.payer(message, session))
            return await self._update(call, session, body.get("method") == "refresh")
        if kind == "delete":
            found, name = requests.delete(body)
            self._check_user(body, session)
            if found is not None:
                self._check_owner(found.url, session)
            return await self._delete(found, name, session)
        raise Rejected(
            f"the domain registry understands create, read, update and delete, not {message.type!r}"
        )

    @staticmethod
    def _check_user(body: dict[str, Any], session: Session) -> None:
        """
        Whom the node knows may register for nobody else.
        """
        value = body.get("value")
        user = value.get("user") if isinstance(value, dict) else None
        if session.identity and isinstance(user, str) and user not in _names(session):
            raise Rejected(
                f"you are {session.identity}; you cannot register for {user!r}"[:300], 403, "identity"
            )

    def _check_owner(self, url: str, session: Session) -> None:
        """
        What somebody registered whom the node knows, nobody else may change.
        """
        if self._is_anothers(url, session):
            raise Rejected(f"{url} was registered by somebody else"[:300], 403, "identity")

    def _is_anothers(self, url: str, session: Session) -> bool:
        return self._registered.owner(url) not in ("", session.identity)

    async def _check_record(self, url: str, session: Session) -> None:
        """
        Of a hyperty that the node does not know, the registry knows whose it is.
        """
        if not session.identity or self._registered.owner(url) or not requests.is_hyperty(url):
            return
        user = ((await self._ask(requests.by_url(url))).object() or {}).get("userID")
        if isinstance(user, str) and user not in _names(session):
            raise Rejected(f"{url} was registered by somebody else"[:300], 403, "identity")

    # -- reading -----------------------------------------------------------------

    async def _read(self, calls: list[Call]) -> dict[str, Any]:
        for number, call in enumerate(calls, 1):
            answer = await self._ask(call)
            if answer.status != 404 or number == len(calls):
                break
        if answer.status not in (200, 408):
            return self._failure(answer)
        value = answer.object()
        if answer.status == 408 and value is None:
            return {"code": self._options.unavailable_code, "description": UNAVAILABLE}
        if value is None:
            answer.json()  # tells what is wrong, unless it is JSON
            raise Rejected("Invalid response from the domain registry.", 502)
        code = answer.status
        if call.filter is not None:
            value = {url: record for url, record in value.items() if requests.fits(record, call.filter)}
            if not value:
                return {"code": 404, "description": PHRASES[404]}
            code = 408 if all(record.get("status") == DISCONNECTED for record in value.values()) else 200
        if code == 408:
            return {"code": self._options.unavailable_code, "description": UNAVAILABLE, "value": value}
        return {"code": 200, "value": value}

    # -- writing -----------------------------------------------------------------

    async def _create(self, call: Call, session: Session) -> dict[str, Any]:
        answer = await self._write(call)
        if answer.status != 200:
            return self._failure(answer, requests.missing(call))
        status = _status(call)
        self._remember(call.url, session, status, anew=True)
        self._status_notifications.settle(call.url, status)
        if self._status_notifications.is_gone(call.url):
            self._status_notifications.announce(call.url, status)
        return {"code": 200}

    async def _update(self, call: Call, session: Session, refresh: bool = False) -> dict[str, Any]:
        await self._check_record(call.url, session)
        answer = await self._write(call)
        if answer.status != 200:
            return self._failure(answer)
        status = _status(call)
        if status is not None:
            self._remember(call.url, session, status, anew=False)
            self._announce_change(call, answer, status, refresh)
        return {"code": 200}

    async def _delete(self, call: Call | None, name: str, session: Session) -> dict[str, Any]:
        if call is None:
            url = await self._own_object(name, session)
            if url is None:
                return {"code": 404, "description": PHRASES[404]}
            call = requests.write(url, {"status": DISCONNECTED})
        if call.method == "PUT":
            return await self._update(call, session)
        answer = await self._ask(call)
        if answer.status != 200:
            return self._failure(answer)
        self._registered.drop(call.url)
        return {"code": 200}  # who listens is told of it by the next poll

    async def _own_object(self, name: str, session: Session) -> str | None:
        """
        The session's own data object of that name.
        """
        answer = await self._ask(requests.by_name(name))
        found = answer.object() if answer.status == 200 else None
        for url, record in (found or {}).items():
            mine = isinstance(record, dict) and (
                record.get("runtime") == session.runtime or _reports(record.get("reporter"), session)
            )
            if mine and record.get("status") != DISCONNECTED and not self._is_anothers(url, session):
                return url
        return None

    async def disconnect(self, url: str) -> None:
        """
        Nobody is there any more.  Rejected if the registry cannot be told.
        """
        call = requests.write(url, {"status": DISCONNECTED})
        answer = await self._write(call)
        if answer.status == 200:
            self._announce_change(call, answer, DISCONNECTED, refresh=False)
        elif answer.status != 404:  # there is nothing to disconnect
            raise Rejected(f"The registry said {answer.status}", 502)

    async def _write(self, call: Call) -> Response:
        """
        Ask for it.  Of what was perhaps carried out without an answer, the status is in doubt.
        """
        try:
            answer = await self._ask(call)
        except Exception as why:
            if not isinstance(why, Unanswered) or why.is_carried_out is None:
                self._status_notifications.doubt(call.url, _status(call))
            raise
        if answer.status == 200:
            self._is_refused = False
        if answer.status >= 500:  # a balancer says so, too, that waited in vain
            self._status_notifications.doubt(call.url, _status(call))
        return answer

    def _remember(self, url: str, session: Session, status: str, anew: bool) -> None:
        if status == DISCONNECTED:
            self._registered.drop(url)
        elif not self._registered.add(url, session, anew):
            self.late(url, session)  # it ended while the registry was asked

    # -- notifications -----------------------------------------------------------

    def _announce_change(self, call: Call, answer: Response, status: str, refresh: bool) -> None:
        again = self._status_notifications.settle(call.url, status) or answer.attempts > 1
        is_gone = self._status_notifications.is_gone(call.url)
        if requests.is_hyperty(call.url):
            changed = (answer.object() or {}).get("statusChanged") == "true"
            # Of a status that an earlier attempt has written, the registry says that nothing changed.
            if status == LIVE:
                changed = changed or is_gone or (again and bool(call.body) and not refresh)
            else:
                changed = changed or (again and not is_gone)
        elif status == LIVE:  # the registry does not say, and this is how it is kept alive
            changed = is_gone
        else:
            changed = bool(call.body) and not refresh
        if changed:
            self._status_notifications.announce(call.url, status)

    def changed(self, url: str, status: object) -> None:
        """
        The registry changed it by itself, as the poll says.
        """
        if status == DISCONNECTED and not self._registered.owner(url):  # else nobody else revives it
            self._registered.drop(url)
        self._status_notifications.announce(url, status)

    # -- the registry --------------------------------------------------------------

    def _ask(self, call: Call) -> Deferred[Response]:
        headers = {PAYER: call.payer} if call.payer else None
        return self._rest.request(call.method, call.path, call.body, headers, safe=call.method != "DELETE")

    def _failure(self, answer: Response, missing: list[str] | None = None) -> dict[str, Any]:
        """
        What the sender is told of a status that is no success.
        """
        status = answer.status
        if 300 <= status < 400 or status == 401:
            if not self._is_refused:  # once, until it takes a write
                log.warn(
                    "the domain registry refuses what we ask: {status}; is [registry] cert set, "
                    "and does its LOAD_BALANCER_IP let us in?",
                    status=status,
                )
            self._is_refused = True
            return {"code": 401, "description": PHRASES[401]}
        said = (answer.object() or {}).get("message")
        text = said if isinstance(said, str) and said else PHRASES.get(status, f"The registry said {status}")
        if status == 400 and missing:
            text = f"{text}: {', '.join(missing)} missing"
        # Runtimes repeat a 500 at once, five times.
        return {"code": 503 if status == 500 else status, "description": text}


def _reports(reporter: Any, session: Session) -> bool:
    """
    Is the reporter of an object the session's own, and nobody whom it only listens to?
    """
    return isinstance(reporter, str) and bool(session.bindings.get(reporter, 0) & (OWNED | LEARNT))


def _status(call: Call) -> Any:
    """
    The status that the call writes; None: it leaves that alone.
    """
    return call.body.get("status") if call.body else LIVE


def _nobody(message: Message, session: Session) -> str:
    return ""


def _names(session: Session) -> set[str]:
    """
    By which of them the session's user registers.
    """
    proof, names = session.proof, {session.identity, session.identity.rpartition("/")[2]}
    # The registry finds users by what stands behind the last slash, which may be another's address.
    if proof is not None and proof.user == session.identity and "/" not in proof.username:
        names.add(proof.username)
    return names
