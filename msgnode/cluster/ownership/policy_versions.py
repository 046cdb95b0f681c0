"""
The policies of a domain: pushed to any of its nodes, they are live at all.

The owner decides, one change after another, so that the precondition of an operator (If-Match) holds for the
domain. It sends each version to the other members, and to one that comes back.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec
from twisted.internet.defer import Deferred, DeferredList, fail, inlineCallbacks
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.cluster.member_requests import MemberRequests, NoAnswer
from msgnode.cluster.ownership.owners import Owners
from msgnode.policy.administration.document_edit import Files
from msgnode.policy.administration.policy_store import PolicyRejected, PolicyStore
from msgnode.policy.administration.versions import Version
from msgnode.protocol.errors import Rejected

KEY = "policy"  # whose owner it is
PART, LIVE = "policy.part", "policy.live"
MAX_BYTES = 32 * 1024 * 1024  # of one document
PART_OVERHEAD_BYTES = 256
ANSWER_SECONDS = 30.0  # to the last part: to compile it takes seconds
AGAIN_SECONDS = 30.0  # until a member that could not take a version is asked again
MAX_PROBLEMS = 50
log = Logger()


class Push(msgspec.Struct, array_like=True, tag="push"):
    """
    A push of an operator at another member.
    """

    files: Files
    who: str
    if_match: str | None
    force: bool


class Follow(msgspec.Struct, array_like=True, tag="follow"):
    """
    A version that is live at the owner.
    """

    version: Version


class Outcome(msgspec.Struct, array_like=True):
    """
    The outcome: 200, or the code, text and problems of a refusal; and the revision that is live.
    """

    code: int
    text: str = ""
    problems: list[str] = []
    revision: str = ""


class Part(msgspec.Struct, array_like=True):
    """
    A part of what is sent; parts come in order, and `left` is 0 for the last one.
    """

    number: int
    left: int
    data: bytes


_sent = msgspec.msgpack.Decoder(Push | Follow)
_part = msgspec.msgpack.Decoder(Part)
_outcome = msgspec.msgpack.Decoder(Outcome)
_encode = msgspec.msgpack.encode


class _Coming(msgspec.Struct, eq=False):
    """
    The parts that have come from a member.
    """

    number: int
    parts: list[bytes] = []
    size: int = 0


class DomainPolicies:
    """
    The policies of the domain at this node (PolicyDomain).
    """

    def __init__(
        self,
        own: str,
        owners: Owners,
        requests: MemberRequests,
        up: Callable[[], Iterable[str]],
        most_bytes: int,
        policies: PolicyStore,
        clock: IReactorTime,
    ) -> None:
        self._own = own
        self._owners = owners
        self._requests = requests
        self._up = up
        self._most = most_bytes - PART_OVERHEAD_BYTES
        self._policies = policies
        self._clock = clock
        self._number = 0
        self._coming: dict[str, _Coming] = {}
        self._behind: set[str] = set()  # members whose refusal was logged
        self._again: dict[str, IDelayedCall] = {}
        requests.offer(PART, self._take_part)
        requests.offer(LIVE, self._tell_live)
        requests.on_up.append(self._compare)
        requests.on_down.append(self._drop_parts)

    # -- PolicyDomain ------------------------------------------------------------------------

    def push(self, files: Files, who: str, if_match: str | None, force: bool) -> Deferred[Version]:
        """
        Replaces the policies of the domain; they are live at all members that are up. Fails with
        PolicyRejected.
        """
        owners = self._owners.of(KEY)
        if len(owners) > 1:
            text = "nodes have different lists of cluster.members; make them equal, then push again"
            return fail(PolicyRejected(text, 503))
        if owners[0] == self._own:
            return self._push_as_owner(files, who, if_match, force)
        sent = self._send(owners[0], Push(files, who, if_match, force))
        return sent.addCallbacks(self._pushed, partial(self._not_pushed, owners[0]))

    def _pushed(self, outcome: Outcome) -> Version:
        if outcome.code != 200:
            raise PolicyRejected(outcome.text, outcome.code, list(outcome.problems))
        live = self._policies.live
        if live is None or live.revision != outcome.revision:
            text = "the policies are live at the node that decides about them, but not here yet"
            raise PolicyRejected(text, 503)
        return live

    def _not_pushed(self, owner: str, why: Failure) -> Version:
        assert isinstance(why.value, Rejected), why
        if not isinstance(why.value, NoAnswer):
            raise PolicyRejected(str(why.value), why.value.code) from None
        text = f"{owner} decides about the policies of the domain and cannot be asked: {why.value}"
        raise PolicyRejected(text, 503) from None

    def stop(self) -> None:
        for call in self._again.values():
            call.cancel()
        self._again.clear()

    # -- as the owner ------------------------------------------------------------------------

    @inlineCallbacks
    def _push_as_owner(self, files: Files, who: str, if_match: str | None, force: bool) -> Any:
        version: Version = yield self._policies.push_here(files, who, if_match, force)
        yield DeferredList([self._show(node, version) for node in self._up()])
        return version

    def _show(self, node: str, version: Version) -> Deferred[None]:
        """
        Sends a version to a member; never fails: it is sent again later, or when its link comes up.
        """
        sent = self._send(node, Follow(version))
        return sent.addCallbacks(partial(self._shown, node), partial(self._not_shown, node))

    def _shown(self, node: str, outcome: Outcome) -> None:
        if outcome.code == 200:
            self._behind.discard(node)
            return
        if outcome.code >= 500:  # as while its disk is full
            self._ask_again(node)
        if node not in self._behind:
            self._behind.add(node)
            log.error(
                "{node} refuses the policies of the domain, and keeps its own: {why}",
                node=node,
                why=outcome.text[:500],
            )

    def _not_shown(self, node: str, why: Failure) -> None:
        why.trap(Rejected)
        self._ask_again(node)
        log.warn("{node} does not have the policies of the domain yet: {why}", node=node, why=str(why.value))

    def _ask_again(self, node: str) -> None:
        if node not in self._again:
            self._again[node] = self._clock.callLater(AGAIN_SECONDS, self._compare_again, node)

    def _compare_again(self, node: str) -> None:
        del self._again[node]
        if node in self._up():
            self._compare(node)

    def _compare(self, node: str) -> None:
        """
        Asks a member that came up which policies it has, if this node decides about them.
        """
        if self._owners.of(KEY) == [self._own]:
            asked = self._requests.ask(node, LIVE)
            asked.addCallback(partial(self._compared, node)).addErrback(partial(self._not_shown, node))

    def _compared(self, node: str, body: bytes) -> Deferred[None] | None:
        live = self._policies.live
        if live is None or body == live.revision.encode():
            return None
        return self._show(node, live)

    def _tell_live(self, node: str, body: bytes) -> bytes:
        live = self._policies.live
        return live.revision.encode() if live is not None else b""

    # -- parts -----------------------------------------------------------------------------

    def _send(self, node: str, what: Push | Follow) -> Deferred[Outcome]:
        try:
            data = _encode(what)
        except UnicodeEncodeError:
            return fail(Rejected("the policies have text that is not UTF-8"))
        if len(data) > MAX_BYTES:
            text = f"the policies of a domain have at most {MAX_BYTES} bytes, not {len(data)}"
            return fail(Rejected(text, 413, "too-long"))
        self._number += 1
        return self._send_parts(node, self._number, data)

    @inlineCallbacks
    def _send_parts(self, node: str, number: int, data: bytes) -> Any:
        for at in range(0, len(data), self._most):
            left = max(0, len(data) - at - self._most)
            part = _encode(Part(number, left, data[at : at + self._most]))
            answer: bytes = yield self._requests.ask(node, PART, part, ANSWER_SECONDS)
        try:
            return _outcome.decode(answer)
        except ValueError:  # also msgspec.DecodeError
            raise NoAnswer(f"{node} sent no outcome") from None

    def _take_part(self, node: str, body: bytes) -> bytes | Deferred[bytes]:
        part = _part.decode(body)
        coming = self._coming.get(node)
        if coming is None or coming.number != part.number:
            coming = self._coming[node] = _Coming(part.number, [])
        coming.parts.append(part.data)
        coming.size += len(part.data)
        if coming.size + part.left > MAX_BYTES:
            del self._coming[node]
            raise Rejected(f"the policies of a domain have at most {MAX_BYTES} bytes", 413, "too-long")
        if part.left:
            return b""
        del self._coming[node]
        return self._take(node, b"".join(coming.parts)).addCallback(_encode)

    def _drop_parts(self, node: str) -> None:
        """
        Forgets what has come from a member whose link is down: it sends all of it again.
        """
        self._coming.pop(node, None)

    @property
    def unfinished_bytes(self) -> int:
        """
        The bytes of parts whose last one has not come yet.
        """
        return sum(coming.size for coming in self._coming.values())

    def _take(self, node: str, data: bytes) -> Deferred[Outcome]:
        sent = _sent.decode(data)
        if isinstance(sent, Follow):
            if node not in self._owners.of(KEY):
                raise Rejected(f"{node} does not decide about the policies of this domain", 403, "peer")
            done: Deferred[Any] = self._policies.follow(sent.version)
        elif self._owners.of(KEY) != [self._own]:
            raise Rejected("this node does not decide about the policies of the domain", 503, "no-path")
        else:
            done = self._push_as_owner(sent.files, f"{sent.who} at {node}"[:300], sent.if_match, sent.force)
        return done.addCallbacks(self._live_now, self._refused)

    def _live_now(self, done: object) -> Outcome:
        live = self._policies.live
        return Outcome(200, revision=live.revision if live is not None else "")

    def _refused(self, why: Failure) -> Outcome:
        refused = why.value
        if not isinstance(refused, PolicyRejected):
            why.raiseException()
        problems = [str(problem)[:500] for problem in refused.problems[:MAX_PROBLEMS]]
        return Outcome(refused.code, str(refused)[:2000], problems)
