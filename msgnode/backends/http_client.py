"""
The HTTP client for back ends, with one deadline, retries, a concurrency limit and a circuit breaker.

The deadline covers everything: the wait for a slot, connecting, every attempt, and the whole body. All
failures become a Rejected with the code for the sender, and are counted. No other exception leaves this
module.
"""

from collections import Counter, deque
from collections.abc import Mapping
from http.cookiejar import DefaultCookiePolicy
from typing import Any, NamedTuple

import msgspec
from treq.client import HTTPClient
from treq.cookies import IndexableCookieJar
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent

from msgnode.backends.call_outcomes import in_words, is_worth_repeating, outcome_of
from msgnode.backends.circuit_breaker import CircuitBreaker
from msgnode.backends.http_body import BoundedBody, RequestBody
from msgnode.config.sections import BackEndOptions
from msgnode.protocol.errors import Rejected
from msgnode.structures.log_limits import FailureLog
from msgnode.transport.endpoints import Dial, IdentityEncodingAgent, agent_for

log = Logger()

JSON = {"Content-Type": "application/json"}
SAFE = ("GET", "HEAD")
LATEST = 500  # calls whose time is kept


class Unanswered(Rejected):
    """
    A call that failed or had an unusable response. `outcome` is the word under which it is counted.
    """

    reason = "back-end"

    def __init__(self, text: str, code: int, outcome: str) -> None:
        super().__init__(text, code)
        self.outcome = outcome

    @property
    def may_be_carried_out(self) -> bool:
        """
        Can the back end have carried out the request? False if it was never sent.
        """
        return self.outcome not in ("busy", "paused", "untrusted")


class Response(NamedTuple):
    """
    The response of a back end, whatever its status.
    """

    status: int
    headers: Headers
    content: bytes
    asked: "BackendClient"
    attempts: int = 1  # more than 1 after a retry

    def json(self) -> Any:
        """
        The decoded JSON content. Rejected (502) if it is not JSON, whatever its content type.
        """
        try:
            return msgspec.json.decode(self.content)
        except (msgspec.DecodeError, RecursionError):
            self.asked.counts["nonsense"] += 1
            raise Rejected(f"Invalid response from the {self.asked.name}.", 502) from None

    def object(self) -> dict[str, Any] | None:
        """
        The content if it is a JSON object, else None.
        """
        try:
            value = msgspec.json.decode(self.content)
        except (msgspec.DecodeError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def check(self) -> "Response":
        """
        This response if it is a success. Else Rejected, with its status if that is 400 to 499, else 502.
        """
        if 200 <= self.status < 300:
            return self
        said = self.content[:200].decode("utf-8", "replace") or f"status {self.status}"
        code = self.status if 400 <= self.status < 500 else 502
        raise Rejected(f"The {self.asked.name} refused: {said}", code, "back-end")


class BackendClient:
    """
    The HTTP client of one back end. `name` is for people: "domain registry".

    `counts` counts the outcomes: "2xx" to "5xx" by status, "silent" (no response in time), "unreachable",
    "untrusted" (a TLS certificate was refused, theirs or ours), "large", "nonsense" (JSON was expected),
    "busy" (too many calls at once), "paused" (the circuit breaker is open), and "failed" (an unexpected
    exception). `latest` has the seconds that the latest calls took, answered or not.
    """

    def __init__(
        self,
        base: str,
        options: BackEndOptions,
        reactor: Any,
        name: str = "back end",
        agent: IAgent | None = None,
        dial: Dial | None = None,
    ) -> None:
        self.name = name
        self.counts: Counter[str] = Counter()
        self.latest: deque[float] = deque(maxlen=LATEST)
        self._reactor = reactor
        self._options = options
        self._base, made = agent_for(base, options, reactor, dial)
        self._said = base
        forgetful = IndexableCookieJar(DefaultCookiePolicy(allowed_domains=[]))
        self._http = HTTPClient(IdentityEncodingAgent(agent or made), forgetful, RequestBody)
        self._slots = DeferredSemaphore(options.in_flight)
        self._breaker = CircuitBreaker(reactor.seconds)
        self._pending = 0  # bytes of request bodies that are queued or in flight
        self._failures = FailureLog(log)

    @property
    def down(self) -> bool:
        """
        Is the circuit breaker open?
        """
        return self._breaker.open

    @property
    def url(self) -> str:
        """
        Its URL, without a user and password.
        """
        head, at, rest = self._said.rpartition("@")
        return f"{head.partition('://')[0]}://{rest}" if at and "://" in head else self._said

    @property
    def since(self) -> float:
        """
        When the circuit breaker last opened or closed, by the node's clock.
        """
        return self._breaker.since

    @property
    def queued(self) -> int:
        """
        The number of calls that wait for others.
        """
        return len(self._slots.waiting)

    @property
    def under_way(self) -> int:
        """
        The number of requests in flight.
        """
        return self._slots.limit - self._slots.tokens

    def request(
        self,
        method: str,
        path: str,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        safe: bool | None = None,
        data: Any = None,
        deadline: float | None = None,
    ) -> Deferred[Response]:
        """
        The response. Fails with Rejected: 504 without a response, 502 if it is too large, 503 if too many
        calls wait.

        `path` is percent-encoded and begins with `/`. `safe`: the request is idempotent, as GET is, so it is
        repeated if the connection breaks. `data` is a body that is used in place of `json`. `deadline` is in
        seconds.
        """
        if not self._breaker.admits():
            return self._refuse("paused")
        slots = self._slots
        if not slots.tokens and len(slots.waiting) >= self._options.queue:
            return self._refuse("busy")
        sent: dict[Any, Any] = dict(headers or {})
        if json is not None:
            sent, data = {**JSON, **sent}, msgspec.json.encode(json)
        size = len(data) if isinstance(data, bytes | str) else 0
        if 0 < self._options.max_pending_bytes < self._pending + size and self._pending:
            return self._refuse("busy")
        self._pending += size
        attempts = self._options.attempts if (method in SAFE if safe is None else safe) else 1
        late = self._reactor.callLater(deadline or self._options.deadline_seconds, lambda: answer.cancel())
        answer: Deferred[Response] = Deferred.fromCoroutine(
            self._call(method, self._base + path, sent, data, attempts, late)
        )
        return answer.addBoth(self._over, size).addBoth(_in_time, late)

    def _over(self, result: Any, size: int) -> Any:
        self._pending -= size
        return result

    async def _call(
        self, method: str, url: str, headers: dict[Any, Any], data: Any, attempts: int, late: IDelayedCall
    ) -> Response:
        try:
            await self._slots.acquire()
        except CancelledError:
            # Other calls used up the time; the back end got no request.
            raise self._rejected("paused" if self.down else "busy") from None
        began = self._reactor.seconds()
        try:
            answer = await self._attempts(method, url, headers, data, attempts, late)
        except Exception as why:
            # After the deadline it is a timeout, whatever exception ended it.
            outcome = outcome_of(why) if late.active() else "silent"
            if outcome == "failed":
                self._failures.note(
                    "a call to the {name} at {base} failed unexpectedly",
                    Failure(),
                    name=self.name,
                    base=self._said,
                )
            if outcome == "large":
                self._succeeded()
            else:
                self._failed(outcome, why)
            raise self._rejected(outcome) from None
        else:
            self._succeeded()
            self.counts[f"{answer.status // 100}xx"] += 1
            return answer
        finally:
            self.latest.append(self._reactor.seconds() - began)
            self._slots.release()

    async def _attempts(
        self, method: str, url: str, headers: dict[Any, Any], data: Any, attempts: int, late: IDelayedCall
    ) -> Response:
        most = attempts
        while True:
            attempts -= 1
            try:
                response = await self._http.request(
                    method,
                    url,
                    headers=headers,
                    data=data,
                    allow_redirects=False,
                    unbuffered=True,
                    reactor=self._reactor,
                )
                body = BoundedBody(self._options.max_response_bytes)
                response.deliverBody(body)
                content = await body.whole
                return Response(response.code, response.headers, content, self, most - attempts)
            except Exception as why:
                if not attempts or not late.active() or not is_worth_repeating(why):
                    raise

    def _succeeded(self) -> None:
        if self._breaker.succeeded():
            log.info(
                "the circuit breaker for the {name} at {base} is closed: it answers again",
                name=self.name,
                base=self._said,
            )

    def _failed(self, outcome: str, why: BaseException) -> None:
        if self._breaker.failed():
            log.warn(
                "the circuit breaker for the {name} at {base} is open: {outcome}, {why}",
                name=self.name,
                base=self._said,
                outcome=outcome,
                why=in_words(why),
            )
            for waiting in list(self._slots.waiting):
                waiting.cancel()

    def _refuse(self, outcome: str) -> Deferred[Response]:
        refused: Deferred[Response] = Deferred()
        refused.errback(self._rejected(outcome))
        return refused

    def _rejected(self, outcome: str) -> Unanswered:
        self.counts[outcome] += 1
        if outcome in ("large", "nonsense"):
            return Unanswered(f"Invalid response from the {self.name}.", 502, outcome)
        if outcome == "busy":
            return Unanswered(f"Too many requests to the {self.name}; try again later.", 503, outcome)
        return Unanswered(f"Error contacting the {self.name}.", 504, outcome)


def _in_time(result: Any, late: IDelayedCall) -> Any:
    if late.active():
        late.cancel()
    return result
