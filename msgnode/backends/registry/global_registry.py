"""
The responder for the global registry at `global://registry`: the accounts of a GUID, in a record signed by
its owner.

Runtimes read the server's keys `Code`, `Value` and `Description`, but wait for a timeout unless there is a
`code` too; so the reply has both.
"""

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.backends.http_client import BackendClient, Response
from msgnode.backends.registry.global_record import WrongRecord, check_record, check_time, read_record
from msgnode.config.sections import GlobalRegistryOptions as Options
from msgnode.protocol.errors import FAILED, Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.session import Session
from msgnode.structures.log_limits import FailureLog

log = Logger()

ADDRESS = "global://registry"
MAX_GUID_CHARS = 2048  # characters of a GUID
CONCURRENCY, MAX_WAITING = 1, 100  # records that are verified at a time, and that wait for it
MUTE = (400, 413, 414, 431)  # statuses that a reverse proxy sends without a body
# The server's keys in several generations, the newest first.
CODE, VALUE = ("Code", "responseCode", "status"), ("Value", "data")
DESCRIPTION = ("Description", "message", "Message", "error")


class GlobalRegistry:
    """
    The responder for the global registry. `run` may use a thread; `wall` gives seconds since 1970.
    """

    def __init__(
        self,
        rest: BackendClient,
        options: Options,
        run: Callable[..., Deferred[None]],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._wall = wall
        self._rest = rest
        self._options = options
        self._run = run
        self._failures = FailureLog(log)
        self._verifying = DeferredSemaphore(CONCURRENCY)
        # The owner of the record that a message writes; set in the wiring if the registry limits records by
        # owner.
        self.payer: Callable[[Message, Session], str] = lambda message, session: ""

    def respond(self, message: Message, session: Session) -> Deferred[Message]:
        """
        The reply, which is always sent, also for errors. Only a response gets none.
        """
        if message.type.lower() == "response":
            raise Rejected("the global registry sends no requests, so it accepts no responses")
        return Deferred.fromCoroutine(self._answered(message, session))

    async def _answered(self, message: Message, session: Session) -> Message:
        try:
            body = in_both(await self._carry_out(message.type.lower(), message, session))
        except Exception as why:
            code, text = (why.code, str(why)) if isinstance(why, Rejected) else (503, FAILED)
            message.reason = why.reason if isinstance(why, Rejected) else "failed"
            if not isinstance(why, Rejected):
                self._failures.note(
                    "a request of {who} to the global registry failed unexpectedly",
                    Failure(),
                    who=message.from_[:200],
                )
            body = {"Code": code, "Description": text, "code": code, "description": text, "desc": text}
        message.code = body["code"]
        return message.reply(body)

    async def _carry_out(self, kind: str, message: Message, session: Session) -> Response:
        body = message.fields()
        guid = _guid(body)
        place = f"/guid/{quote(guid, safe='', errors='replace')}"
        if kind == "read":
            return await self._rest.request("GET", place)
        if kind in ("create", "update"):
            jwt = await self._checked(guid, body)
            plain = {"Content-Type": "text/plain"}
            payer = self.payer(message, session)
            if payer:
                plain["X-Msgnode-Payer"] = payer
            wait = self._options.write_deadline_seconds
            return await self._rest.request("PUT", place, data=jwt.encode(), headers=plain, deadline=wait)
        raise Rejected(f"the global registry understands read, create and update, not {message.type!r}"[:200])

    async def _verify(self, record: Any) -> None:
        """
        Verify a record in a thread, one at a time: it takes long, and holds the global interpreter lock.
        """
        if len(self._verifying.waiting) >= MAX_WAITING:
            raise Rejected("too many records wait to be checked; try again later", 503, "limit")
        await self._verifying.run(self._run, check_record, record)

    async def _checked(self, guid: str, body: dict[str, Any]) -> str:
        """
        The JWT to be written. Rejected unless it is a valid record of that GUID; its signature is checked if
        configured.
        """
        jwt = body.get("jwt") or body.get("value")
        if not isinstance(jwt, str):
            raise Rejected("give the signed record in 'jwt', or in 'value'")
        try:
            record = read_record(jwt)
            if record.data.get("guid") != guid:
                raise WrongRecord(f"it is the record of {record.data.get('guid')!r}, not of {guid!r}"[:300])
            check_time(record, self._wall())  # servers fail with an internal error over it
            if self._options.verify:
                await self._verify(record)
        except WrongRecord as why:
            raise Rejected(f"the record is refused: {why}", reason="record") from None
        return jwt


def in_both(answer: Response) -> dict[str, Any]:
    """
    The server's response with its own keys and the node's. Rejected if it is malformed.
    """
    said = answer.object()
    if said is None:
        if answer.status in MUTE and not answer.content:
            text = "The global registry refused the request without a reason."
            raise Rejected(text, answer.status, "back-end")
        answer.json()
        raise Rejected("Invalid response from the global registry.", 502)
    code = _first(said, CODE)
    if not isinstance(code, int) or isinstance(code, bool):
        code = answer.status
    description = _first(said, DESCRIPTION)
    told: dict[str, Any] = {"Code": code}
    if isinstance(description, str):
        told["Description"] = told["description"] = description
    value = _first(said, VALUE)
    if value is not None:
        told["Value"] = told["value"] = value
    # Runtimes repeat a request at once after a 500.
    body = {**told, **said, "code": 503 if code == 500 else code}
    if code != 200:
        body["desc"] = body.setdefault("description", f"The registry said {code}")
    return body


def _first(said: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((said[name] for name in names if name in said), None)


def _guid(body: dict[str, Any]) -> str:
    guid = body.get("guid") or body.get("resource")
    if not isinstance(guid, str) or not 0 < len(guid) <= MAX_GUID_CHARS:
        raise Rejected(f"name the GUID in 'guid', or in 'resource', not {guid!r}"[:200])
    guid = guid.removeprefix("user-guid://")
    # The GUID is one segment of a path.
    if guid in ("", ".", "..") or "/" in guid or "\\" in guid:
        raise Rejected(f"a GUID is base64url, without '/' and '\\', not {guid!r}"[:200])
    return guid
