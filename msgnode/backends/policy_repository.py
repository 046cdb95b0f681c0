"""
The HTTP policy repository, a source of policy documents.

Requests are conditional: they carry the ETag of the last response, so that unchanged documents are not sent
again. A response that is slow, too large or not JSON is a failed poll, with its reason.
"""

from typing import Any
from urllib.parse import urlsplit

from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from msgnode.backends.call_outcomes import in_words, outcome_of
from msgnode.backends.http_body import BoundedBody, TooLarge
from msgnode.config.schema import PolicyOptions
from msgnode.policy.administration.source import Documents, SourceFailed


class RepositorySource:
    """
    A policy document at one URL. Limits: `deadline_seconds` for a poll, `max_bytes` for the document.
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
        Poll the repository. The document, or None if it has not changed. Fails with SourceFailed.
        """
        deadline = self._options.deadline_seconds
        asked = Deferred.fromCoroutine(self._ask())
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
                raise SourceFailed(f"{self.name} did not answer within {deadline:g} s") from None
            if outcome == "failed":
                kind = type(why).__name__
                raise SourceFailed(f"{self.name} could not be polled: {kind}: {in_words(why)}") from why
            raise SourceFailed(f"{self.name} cannot be reached: {in_words(why)}") from None

        return asked.addBoth(explain)

    def forget(self) -> None:
        self._etag = None

    async def _ask(self) -> Documents | None:
        headers: dict[bytes | str, list[bytes | str]] = {b"Accept": [b"application/json"]}
        if self._etag is not None:
            headers[b"If-None-Match"] = [self._etag]
        response = await self._client.get(self._url, headers=headers, unbuffered=True)
        if response.code == 304 and self._etag is not None:
            await _read(response, self._options.max_bytes)
            return None
        kind = b"".join(response.headers.getRawHeaders(b"Content-Type", [])[:1]).partition(b";")[0].strip()
        wrong = ""
        if response.code != 200:
            wrong = f"{self.name} answered {response.code}, expected 200 with JSON"
        elif kind.lower().endswith((b"html", b"xml")):
            wrong = f"{self.name} answered with a page ({kind.decode('latin-1')}), expected JSON"
        body = await _read(response, 0 if wrong else self._options.max_bytes)
        if wrong:
            raise SourceFailed(wrong)
        if body is None:
            raise SourceFailed(f"{self.name} answered with more than {self._options.max_bytes} bytes")
        self._etag = next(iter(response.headers.getRawHeaders(b"ETag", [])), None)
        return [(self.name, body)]


async def _read(response: Any, most: int) -> bytes | None:
    """
    The body, or None if it is longer than `most` bytes.
    """
    body = BoundedBody(most)
    response.deliverBody(body)
    try:
        return await body.whole
    except TooLarge:
        return None


def without_secret(url: str) -> str:
    """
    The URL without user, password and query, for logs and replies.
    """
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
