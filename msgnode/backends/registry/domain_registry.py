"""
The responder for the domain registry at `domain://registry.<domain>`: create, read, update and delete of
entries.

Every request gets a reply, even an `update`, for runtimes wait for it. Subscribers of
`<address>/registration` are notified when the entry of the address becomes live or disconnected.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.backends.http_client import BackendClient, Response, Unanswered
from msgnode.backends.registry import requests
from msgnode.backends.registry.registrations import OtherNodes
from msgnode.backends.registry.requests import Call
from msgnode.backends.registry.status import DISCONNECTED, LIVE, StatusNotifications
from msgnode.config.sections import RegistryOptions
from msgnode.protocol.errors import FAILED, Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.routing import LEARNED, OWNED
from msgnode.sessions.session import Session
from msgnode.structures.log_limits import FailureLog

log = Logger()

UNAVAILABLE = "Temporarily Unavailable"
PAYER = "X-Msgnode-Payer"  # the header that tells an embedded registry who owns an entry
PHRASES = {400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}


class Registrations(Protocol):
    """
    The table of the registrations of each session (registrations.py).
    """

    others: OtherNodes | None

    def __contains__(self, url: str) -> bool: ...
    def add(self, url: str, session: Session, anew: bool) -> bool: ...
    def drop(self, url: str) -> None: ...
    def owner(self, url: str) -> str: ...


class DomainRegistry:
    """
    The responder for the domain registry. `publish` sends a message of the node to all subscribers.
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
        self._is_refused = False  # and the log has said so
        self._failures = FailureLog(log)
        # The owner of the entry that a message creates; set in the wiring if the registry limits entries by
        # owner.
        self.payer: Callable[[Message, Session], str] = _nobody
        # Called for a session that ended meanwhile; set by the Disconnector.
        self.late: Callable[[str, Session], None] = lambda url, session: None

    def respond(self, message: Message, session: Session) -> Deferred[Message] | None:
        """
        The reply, which is always sent, also for errors. Only a response gets none.
        """
        kind = message.type.lower()
        if kind == "response":
            raise Rejected("the domain registry sends no requests, so it accepts no responses")
        return Deferred.fromCoroutine(self._answered(self._carry_out(kind, message, session), message))

    async def _answered(self, doing: Coroutine[Any, Any, dict[str, Any]], message: Message) -> Message:
        try:
            body = await doing
        except Rejected as why:
            body = {"code": why.code, "description": str(why)}
            message.reason = why.reason
        except Exception:  # the ingress would not answer an update
            self._failures.note(
                "a request of {who} to the domain registry failed unexpectedly",
                Failure(),
                who=message.from_[:200],
            )
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
            await self._check_owner(call.url, session)
            return await self._create(call._replace(payer=self.payer(message, session)), session)
        if kind == "update":
            call = requests.update(body, self._domain)
            await self._check_owner(call.url, session)
            call = call._replace(payer=self.payer(message, session))
            return await self._update(call, session, body.get("method") == "refresh")
        if kind == "delete":
            found, name = requests.delete(body)
            self._check_user(body, session)
            if found is not None:
                await self._check_owner(found.url, session)
            return await self._delete(found, name, session)
        raise Rejected(
            f"the domain registry understands create, read, update and delete, not {message.type!r}"
        )

    @staticmethod
    def _check_user(body: dict[str, Any], session: Session) -> None:
        """
        An authenticated user may register only as itself.
        """
        value = body.get("value")
        user = value.get("user") if isinstance(value, dict) else None
        if session.identity and isinstance(user, str) and user not in _names(session):
            raise Rejected(
                f"you are {session.identity}; you cannot register for {user!r}"[:300], 403, "identity"
            )

    async def _check_owner(self, url: str, session: Session) -> None:
        """
        The entry of an authenticated user may be changed only by that user, at whichever node it was
        registered.
        """
        others, owner = self._registered.others, self._registered.owner(url)
        if others is not None and url not in self._registered:
            owner = await others.owner(url)
        if owner not in ("", session.identity):
            raise Rejected(f"{url} was registered by another user"[:300], 403, "identity")

    def _is_anothers(self, url: str, session: Session) -> bool:
        return self._registered.owner(url) not in ("", session.identity)

    async def _check_record(self, url: str, session: Session) -> None:
        """
        Ask the registry who owns an entry of a hyperty that the node has no owner for.
        """
        if not session.identity or self._registered.owner(url) or not requests.is_hyperty(url):
            return
        user = ((await self._ask(requests.by_url(url))).object() or {}).get("userID")
        if isinstance(user, str) and user not in _names(session):
            raise Rejected(f"{url} was registered by another user"[:300], 403, "identity")

    # -- reading -----------------------------------------------------------------

    async def find(self, resource: str, deadline: float | None = None) -> dict[str, Any]:
        """
        The body of the reply to a read of this resource, for an operator. Raises Rejected.
        """
        return await self._read(requests.reads({"resource": resource}, self._domain), deadline)

    async def _read(self, calls: list[Call], deadline: float | None = None) -> dict[str, Any]:
        for number, call in enumerate(calls, 1):
            answer = await self._ask(call, deadline)
            if answer.status != 404 or number == len(calls):
                break
        if answer.status not in (200, 408):
            return self._failure(answer)
        value = answer.object()
        if answer.status == 408 and value is None:
            return {"code": self._options.unavailable_code, "description": UNAVAILABLE}
        if value is None:
            answer.json()  # raises an error if it is not JSON
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
        return {"code": 200}  # subscribers are notified by the next poll

    async def _own_object(self, name: str, session: Session) -> str | None:
        """
        The address of the session's own data object of that name, or None.
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
        Set an entry to disconnected. Rejected if the registry fails.
        """
        call = requests.write(url, {"status": DISCONNECTED})
        answer = await self._write(call)
        if answer.status == 200:
            self._announce_change(call, answer, DISCONNECTED, refresh=False)
        elif answer.status != 404:  # 404: there is no such entry
            raise Rejected(f"The registry said {answer.status}", 502)

    async def _write(self, call: Call) -> Response:
        """
        Write an entry. If the outcome is unknown, its status is noted as in doubt.
        """
        try:
            answer = await self._ask(call)
        except Exception as why:
            if not isinstance(why, Unanswered) or why.may_be_carried_out:
                self._status_notifications.doubt(call.url, _status(call))
            raise
        if answer.status == 200:
            self._is_refused = False
        if answer.status >= 500:  # also from a load balancer after its timeout
            self._status_notifications.doubt(call.url, _status(call))
        return answer

    def _remember(self, url: str, session: Session, status: str, anew: bool) -> None:
        if status == DISCONNECTED:
            self._registered.drop(url)
        elif not self._registered.add(url, session, anew):
            self.late(url, session)  # the session ended during the call

    # -- notifications -----------------------------------------------------------

    def _announce_change(self, call: Call, answer: Response, status: str, refresh: bool) -> None:
        again = self._status_notifications.settle(call.url, status) or answer.attempts > 1
        is_gone = self._status_notifications.is_gone(call.url)
        if requests.is_hyperty(call.url):
            changed = (answer.object() or {}).get("statusChanged") == "true"
            # If an earlier attempt wrote the status, the registry says that nothing changed.
            if status == LIVE:
                changed = changed or is_gone or (again and bool(call.body) and not refresh)
            else:
                changed = changed or (again and not is_gone)
        elif status == LIVE:  # a keep-alive; the registry does not say whether the status changed
            changed = is_gone
        else:
            changed = bool(call.body) and not refresh
        if changed:
            self._status_notifications.announce(call.url, status)

    def changed(self, url: str, status: object) -> None:
        """
        Notify subscribers of a change that the poll found.
        """
        if status == DISCONNECTED and not self._registered.owner(
            url
        ):  # an entry with an owner may be revived only by its owner
            self._registered.drop(url)
        self._status_notifications.announce(url, status)

    # -- the registry --------------------------------------------------------------

    def _ask(self, call: Call, deadline: float | None = None) -> Deferred[Response]:
        headers = {PAYER: call.payer} if call.payer else None
        safe = call.method != "DELETE"
        return self._rest.request(call.method, call.path, call.body, headers, safe=safe, deadline=deadline)

    def _failure(self, answer: Response, missing: list[str] | None = None) -> dict[str, Any]:
        """
        The body of the reply for a status that is no success.
        """
        status = answer.status
        if 300 <= status < 400 or status == 401:
            if not self._is_refused:  # once, until a write succeeds
                log.warn(
                    "the domain registry refuses the node's requests with status {status}; "
                    "is [registry] cert set, and does its LOAD_BALANCER_IP allow the node?",
                    status=status,
                )
            self._is_refused = True
            return {"code": 401, "description": PHRASES[401]}
        said = (answer.object() or {}).get("message")
        text = said if isinstance(said, str) and said else PHRASES.get(status, f"The registry said {status}")
        if status == 400 and missing:
            text = f"{text}: {', '.join(missing)} missing"
        # Runtimes repeat a request at once, five times, after a 500.
        return {"code": 503 if status == 500 else status, "description": text}


def _reports(reporter: Any, session: Session) -> bool:
    """
    Is the reporter of a data object an address of the session itself, not one it only subscribed?
    """
    return isinstance(reporter, str) and bool(session.bindings.get(reporter, 0) & (OWNED | LEARNED))


def _status(call: Call) -> Any:
    """
    The status that a call writes; None if it leaves the status alone.
    """
    return call.body.get("status") if call.body else LIVE


def _nobody(message: Message, session: Session) -> str:
    return ""


def _names(session: Session) -> set[str]:
    """
    The names under which the session's user may register.
    """
    proof, names = session.proof, {session.identity, session.identity.rpartition("/")[2]}
    # The registry finds users by the part after the last slash, which may equal another address.
    if proof is not None and proof.user == session.identity and "/" not in proof.username:
        names.add(proof.username)
    return names
