"""
The relay: requests of clients that came to this node, and belong to a session at another member.

A session is where its client opened it. A poller behind a balancer reaches any member, and its requests go to
the holder of its session, which answers as if they had come there: the session does not move.
"""

from collections.abc import Callable

import msgspec
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.cluster.membership import Members
from msgnode.cluster.relay.bodies import ComingBodies, LeavingBodies, TooLong
from msgnode.cluster.relay.wire import (
    Cancel,
    Part,
    Read,
    RelayedRequest,
    RelayedResponse,
    decode,
)
from msgnode.protocol.errors import FAILED, Rejected, error_body

RETRY_SECONDS = 1
QUEUED_BYTES = 64 * 1024 * 1024  # of bodies that wait for one member, and of incomplete ones from it

log = Logger()

Serve = Callable[[str, RelayedRequest], Deferred[RelayedResponse]]


class NotRelayed(Rejected):
    """
    The refusal of a request that did not reach the holder of its session, or whose response did not come:
    then it may have been carried out.
    """

    code = 503
    reason = "no-path"
    retry_after = RETRY_SECONDS


class RelayCounts(msgspec.Struct):
    """
    The counts of relayed requests since the node started.

    `relayed` were sent to other members, and `answered` by them; `unanswered` are those whose holder went
    away, or said nothing in time; `refused` those for which there was no room. `served` came from others.
    """

    relayed: int = 0
    answered: int = 0
    unanswered: int = 0
    cancelled: int = 0
    refused: int = 0
    served: int = 0
    malformed: int = 0


class RelayLimits(msgspec.Struct, frozen=True):
    """
    The limits of the relay: requests under way to one member, and from one; the bytes of one body; and the
    bytes that were sent to a member and not read yet.
    """

    requests: int = 10_000
    body_bytes: int = 16 * 1024 * 1024
    window_bytes: int = 1024 * 1024


class _Link:
    """
    The relay's part of the link to a member.
    """

    def __init__(self, members: Members, node: str, limits: RelayLimits) -> None:
        self.leaving = LeavingBodies(members, node, limits.window_bytes)
        self.coming = ComingBodies(limits.body_bytes, QUEUED_BYTES)
        self.asked: dict[int, _Asked] = {}  # by number
        self.serving: dict[int, Deferred[RelayedResponse]] = {}


class _Asked(msgspec.Struct, eq=False):
    """
    A request of this node that has no response yet.
    """

    answered: Deferred[RelayedResponse]
    timer: IDelayedCall


class Relay:
    """
    The relay to and from all members (MembersListener). `serve` answers what others relay; its Deferred is
    cancelled when the client is gone.
    """

    def __init__(self, members: Members, clock: IReactorTime, limits: RelayLimits) -> None:
        self.counts = RelayCounts()
        self.serve: Serve = not_served
        self.on_up: list[
            Callable[[str, tuple[bytes, int]], None]
        ] = []  # called with each member and its start
        self._members = members
        self._clock = clock
        self._limits = limits
        self._links: dict[str, _Link] = {}
        self._number = 0
        self._logged: set[str] = set()

    @property
    def under_way(self) -> int:
        """
        The number of requests of this node that have no response yet.
        """
        return sum(len(link.asked) for link in self._links.values())

    def request(
        self, node: str, request: RelayedRequest, body: bytes, seconds: float
    ) -> Deferred[RelayedResponse]:
        """
        The response of a member. Fails with NotRelayed if it is away, or says nothing for so many seconds;
        to cancel it tells the member that the client is gone.
        """
        link = self._links.get(node)
        if link is None:
            return self._refused(f"{node}, which holds this session, is not reached")
        if len(link.asked) >= self._limits.requests:
            return self._refused(f"{len(link.asked)} requests wait for {node}, which holds this session")
        if link.leaving.size + len(body) > QUEUED_BYTES:
            return self._refused(f"{link.leaving.size} bytes wait for {node}, which holds this session")
        if len(body) > self._limits.body_bytes:
            most = self._limits.body_bytes
            return self._refused(f"a body for another node has at most {most} bytes", 413, "too-long")
        self._number += 1
        number = request.number = self._number
        answered: Deferred[RelayedResponse] = Deferred(lambda _: self._cancel(node, number))
        why = f"{node}, which holds this session, did not answer in {seconds:g} s"
        timer = self._clock.callLater(seconds, self._expire, node, number, why)
        link.asked[number] = _Asked(answered, timer)
        self.counts.relayed += 1
        link.leaving.put(request, body)
        return answered

    def _refused(self, why: str, code: int = 503, reason: str = "limit") -> Deferred[RelayedResponse]:
        self.counts.refused += 1
        refused: Deferred[RelayedResponse] = Deferred()
        refused.errback(NotRelayed(why, code, reason))
        return refused

    def _cancel(self, node: str, number: int) -> None:
        link = self._links.get(node)
        asked = None if link is None else link.asked.pop(number, None)
        if link is not None and asked is not None:
            asked.timer.cancel()
            self.counts.cancelled += 1
            self._forget_response(link, number)

    def _expire(self, node: str, number: int, why: str) -> None:
        link = self._links[node]
        asked = link.asked.pop(number)
        self.counts.unanswered += 1
        self._forget_response(link, number)
        asked.answered.errback(NotRelayed(why))

    @staticmethod
    def _forget_response(link: _Link, number: int) -> None:
        link.coming.drop(number, True)
        if not link.leaving.drop(number, False):
            link.leaving.say(Cancel(number))

    def stop(self) -> None:
        for node in list(self._links):
            self.member_down(node)

    # -- MembersListener ------------------------------------------------------------------

    def member_up(self, node: str, epoch: tuple[bytes, int]) -> None:
        self.member_down(node)
        self._links[node] = _Link(self._members, node, self._limits)
        for call in self.on_up:
            call(node, epoch)

    def member_down(self, node: str) -> None:
        link = self._links.pop(node, None)
        if link is None:
            return
        for serving in list(link.serving.values()):
            serving.cancel()
        for asked in link.asked.values():
            asked.timer.cancel()
            self.counts.unanswered += 1
            asked.answered.errback(NotRelayed(f"{node}, which holds this session, went away"))

    def has_room(self, node: str) -> None:
        link = self._links.get(node)
        if link is not None:
            link.leaving.go_on()

    def member_heard(self, node: str, payload: bytes) -> None:
        link = self._links.get(node)
        if link is None:
            return
        try:
            said = decode(payload)
            if isinstance(said, Read):
                link.leaving.was_read(said.size)
                return
            if isinstance(said, Cancel):
                self._cancelled(link, said.number)
                return
            self._read(link, len(payload))
            whole = link.coming.part(said) if isinstance(said, Part) else link.coming.begun(said)
        except TooLong as why:
            self._too_long(node, link, said, str(why))
        except ValueError as why:  # also msgspec.DecodeError
            self._malformed(node, str(why)[:200])
        else:
            if isinstance(whole, RelayedRequest):
                self._serve(node, link, whole)
            elif whole is not None:
                self._answered(link, whole)

    @staticmethod
    def _read(link: _Link, size: int) -> None:
        read = link.coming.read(size)
        if read:
            link.leaving.say(Read(read))

    def _malformed(self, node: str, why: str) -> None:
        self.counts.malformed += 1
        if node not in self._logged:
            self._logged.add(node)
            log.warn("{node} sent a malformed relayed request: {why}", node=node, why=why)

    def _too_long(self, node: str, link: _Link, said: msgspec.Struct, why: str) -> None:
        if isinstance(said, RelayedRequest):
            self.counts.refused += 1
            link.leaving.put(*refusal(said.number, 503, f"{self._members.node}: {why}", RETRY_SECONDS))
        elif isinstance(said, RelayedResponse) and said.number in link.asked:
            asked = link.asked.pop(said.number)
            asked.timer.cancel()
            self.counts.refused += 1
            asked.answered.errback(NotRelayed(f"the response of {node} is too long here: {why}"))
        else:
            self._malformed(node, why)

    # -- responses --

    def _answered(self, link: _Link, response: RelayedResponse) -> None:
        asked = link.asked.pop(response.number, None)
        if asked is not None:  # else it came too late
            asked.timer.cancel()
            self.counts.answered += 1
            asked.answered.callback(response)

    # -- requests of others --

    def _serve(self, node: str, link: _Link, request: RelayedRequest) -> None:
        number = request.number
        if number in link.serving:
            self._malformed(node, f"request {number} came twice")
            return
        if len(link.serving) >= self._limits.requests or link.leaving.size > QUEUED_BYTES:
            self.counts.refused += 1
            why = f"{self._members.node}, which holds this session, has too many requests of other nodes"
            link.leaving.put(*refusal(number, 503, why, RETRY_SECONDS))
            return
        self.counts.served += 1
        serving = link.serving[number] = self.serve(node, request)
        serving.addCallbacks(
            self._reply, self._failed, (node, link, number), errbackArgs=(node, link, number)
        )

    def _reply(self, response: RelayedResponse, node: str, link: _Link, number: int) -> None:
        del link.serving[number]
        if self._links.get(node) is link:
            body, response.data, response.number = response.data, b"", number
            link.leaving.put(response, body)

    def _failed(self, why: Failure, node: str, link: _Link, number: int) -> None:
        del link.serving[number]
        if why.check(CancelledError):
            return
        log.failure("a request that {node} relayed could not be handled", why, node=node)
        if self._links.get(node) is link:
            link.leaving.put(*refusal(number, 500, FAILED))

    @staticmethod
    def _cancelled(link: _Link, number: int) -> None:
        link.coming.drop(number, False)
        serving = link.serving.get(number)
        if serving is not None:
            serving.cancel()
        else:
            link.leaving.drop(number, True)


def refusal(
    number: int, status: int, text: str, retry_after: int | None = None
) -> tuple[RelayedResponse, bytes]:
    """
    A response without the session, and its body.
    """
    headers = [("Content-Type", "application/json")]
    if retry_after is not None:
        headers.append(("Retry-After", str(retry_after)))
    return RelayedResponse(number, status, headers), msgspec.json.encode(error_body(status, text)) + b"\n"


def not_served(node: str, request: RelayedRequest) -> Deferred[RelayedResponse]:
    """
    The answer to what is relayed to a node without HTTP listeners.
    """
    return succeed(whole_refusal(503, "this node serves no clients yet", RETRY_SECONDS))


def whole_refusal(status: int, text: str, retry_after: int | None = None) -> RelayedResponse:
    response, body = refusal(0, status, text, retry_after)
    response.data = body
    return response
