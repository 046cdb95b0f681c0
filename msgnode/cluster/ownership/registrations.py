"""
Registrations in a domain of several nodes: the registry is called once when the last session that has an
address ends, at whichever node.

Each node disconnects what its own sessions registered. Before that it asks the others, because a runtime may
have come back at another node, or another session may have registered the address there.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta
from twisted.internet.defer import Deferred, DeferredList, succeed

from msgnode.cluster.member_requests import MemberRequests
from msgnode.protocol.errors import Rejected

CLAIM, OWNER = "registration.claim", "registration.owner"
MAX_URLS = 1000  # of one request
PART_BYTES = 24 * 1024

_claim = msgspec.msgpack.Decoder(tuple[str, Annotated[list[str], Meta(max_length=MAX_URLS)]])
_urls = msgspec.msgpack.Decoder(list[str])
_encode = msgspec.msgpack.encode


class Registered(Protocol):
    """
    The registrations of this node (Registrations).
    """

    def claim(self, runtime: str, urls: Iterable[str], is_first: bool) -> list[str]: ...
    def owner(self, url: str) -> str: ...


class DomainRegistrations:
    """
    The registrations of the other members (OtherNodes). `knows_users` says whether clients are authenticated.
    """

    def __init__(
        self,
        own: str,
        requests: MemberRequests,
        up: Callable[[], Iterable[str]],
        registered: Registered,
        knows_users: Callable[[], bool],
    ) -> None:
        self._own = own
        self._requests = requests
        self._up = up
        self._registered = registered
        self._knows_users = knows_users
        requests.offer(CLAIM, self._tell_claimed)
        requests.offer(OWNER, lambda node, body: registered.owner(body.decode()).encode())

    def claimed(self, runtime: str, urls: list[str]) -> Deferred[set[str]]:
        asked = [
            self._requests.ask(node, CLAIM, _encode((runtime, part))).addCallback(_urls.decode)
            for node in self._up()
            for part in _parts(urls)
        ]
        return self._answers(asked).addCallback(lambda found: {url for each in found for url in each})

    def owner(self, url: str) -> Deferred[str]:
        if not self._knows_users():
            return succeed("")
        asked = [
            self._requests.ask(node, OWNER, url.encode()).addCallback(bytes.decode) for node in self._up()
        ]
        return self._answers(asked).addCallback(lambda found: next(filter(None, found), ""))

    def _answers(self, asked: list[Deferred[Any]]) -> Deferred[list[Any]]:
        """
        The answers of the members that gave one.
        """
        for each in asked:
            each.addErrback(lambda why: why.trap(Rejected, ValueError) and None)
        return DeferredList(asked).addCallback(lambda all_: [answer for _, answer in all_ if answer])

    def _tell_claimed(self, node: str, body: bytes) -> bytes:
        runtime, urls = _claim.decode(body)
        return _encode(self._registered.claim(runtime, urls, self._own < node))


def _parts(urls: list[str]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for url in urls:
        size += len(url.encode(errors="replace")) + 5
        if part and (size > PART_BYTES or len(part) == MAX_URLS):
            yield part
            part, size = [], len(url.encode(errors="replace")) + 5
        part.append(url)
    if part:
        yield part
