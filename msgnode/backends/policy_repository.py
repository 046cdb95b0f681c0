"""
A repository of policies, read over HTTP.

Asked with the ETag of what came last, so that what has not changed is not sent
again.  What is slow, too long, or no JSON gives a reason, and nothing else.
"""

from typing import Any
from urllib.parse import urlsplit

from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from msgnode.backends.call_outcomes import in_words, outcome_of
from msgnode.backends.http_body import Body, TooLarge
from msgnode.config.schema import PolicyOptions
from msgnode.policy.administration.source import Documents, SourceFailed


class RepositorySource:
    """
    One document at one address, asked for within `deadline_seconds`, with at most `max_bytes`.
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
                raise SourceFailed(f"{self.name} has not answered within {deadline:g} s") from None
            if outcome == "failed":
                kind = type(why).__name__
                raise SourceFailed(f"{self.name} cannot be asked: {kind}: {in_words(why)}") from why
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
            wrong = f"{self.name} answers {response.code}, expected 200 with JSON"
        elif kind.lower().endswith((b"html", b"xml")):
            wrong = f"{self.name} answers with a page ({kind.decode('latin-1')}), expected JSON"
        body = await _read(response, 0 if wrong else self._options.max_bytes)
        if wrong:
            raise SourceFailed(wrong)
        if body is None:
            raise SourceFailed(f"{self.name} answers with more than {self._options.max_bytes} bytes")
        self._etag = next(iter(response.headers.getRawHeaders(b"ETag", [])), None)
        return [(self.name, body)]


async def _read(response: Any, most: int) -> bytes | None:
    """
    The body; None as soon as it is longer than `most`.
    """
    body = Body(most)
    response.deliverBody(body)
    try:
        return await body.whole
    except TooLarge:
        return None


def without_secret(url: str) -> str:
    """
    The address without user and password, and without the query, for logs and answers.
    """
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
