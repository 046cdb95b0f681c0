"""
A repository of policies, read over HTTP.

Asked with the ETag of what came last, so that what has not changed is not sent
again.  What is slow, too long, or no JSON gives a reason, and nothing else.
"""

from collections.abc import Generator
from typing import Any
from urllib.parse import urlsplit

from treq.client import HTTPClient
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol as BaseProtocol
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss

from msgnode.backends.call_outcomes import in_words, outcome_of
from msgnode.config.schema import PolicyOptions
from msgnode.policy.administration.source import Documents, SourceFailed


class RepositorySource:
    """
    One document at one address, asked for within `deadline` seconds and `most_bytes` bytes.
    """

    def __init__(self, url: str, options: PolicyOptions, client: HTTPClient, clock: IReactorTime) -> None:
        self.name = without_secret(url)
        self._url = url
        self._options = options
        self._client = client
        self._clock = clock
        self._etag: bytes | None = None

    def look(self) -> Deferred[Documents | None]:
        """
        What the repository has; None if it says that nothing changed.
        """
        deadline = self._options.deadline
        asked = self._ask()
        late = self._clock.callLater(deadline, asked.cancel)

        def explain(result: Any) -> Any:
            in_time = late.active()
            if in_time:
                late.cancel()
            if not isinstance(result, Failure) or result.check(SourceFailed):
                return result
            why: Any = result.value
            outcome = outcome_of(why) if in_time else "silent"
            if outcome == "silent":
                raise SourceFailed(f"{self.name} has not answered within {deadline:g} s") from None
            if outcome == "failed":
                kind = type(why).__name__
                raise SourceFailed(f"{self.name} cannot be asked: {kind}: {in_words(why)}") from why
            raise SourceFailed(f"{self.name} cannot be reached: {in_words(why)}") from None

        return asked.addBoth(explain)

    @inlineCallbacks
    def _ask(self) -> Generator[Deferred[Any], Any, Documents | None]:
        headers: dict[bytes | str, list[bytes | str]] = {b"Accept": [b"application/json"]}
        if self._etag is not None:
            headers[b"If-None-Match"] = [self._etag]
        response = yield self._client.get(self._url, headers=headers, unbuffered=True)
        if response.code == 304 and self._etag is not None:
            yield _read(response, self._options.most_bytes)
            return None
        kind = b"".join(response.headers.getRawHeaders(b"Content-Type", [])[:1]).partition(b";")[0].strip()
        wrong = ""
        if response.code != 200:
            wrong = f"{self.name} answers {response.code}, expected 200 with JSON"
        elif kind.lower().endswith((b"html", b"xml")):
            wrong = f"{self.name} answers with a page ({kind.decode('latin-1')}), expected JSON"
        body = yield _read(response, 0 if wrong else self._options.most_bytes)
        if wrong:
            raise SourceFailed(wrong)
        if body is None:
            raise SourceFailed(f"{self.name} answers with more than {self._options.most_bytes} bytes")
        self._etag = next(iter(response.headers.getRawHeaders(b"ETag", [])), None)
        return [(self.name, body)]


def _read(response: Any, most: int) -> Deferred[bytes | None]:
    """
    The body; None as soon as it is longer than `most`.
    """
    body = _Body(most)
    response.deliverBody(body)
    return body.whole


class _Body(BaseProtocol):
    transport: Any

    def __init__(self, most: int) -> None:
        self.whole: Deferred[bytes | None] = Deferred(self._stop)
        self._most = most
        self._came = bytearray()

    def _stop(self, whole: Any) -> None:
        # A server that says no more would hold the connection for ever.
        if self.transport is not None:
            self.transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        self._came += data
        if len(self._came) > self._most and not self.whole.called:
            self._stop(None)
            self.whole.callback(None)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.whole.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.whole.callback(bytes(self._came))
        else:
            self.whole.errback(reason)


def without_secret(url: str) -> str:
    """
    The address without user and password, and without the query, for logs and answers.
    """
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
