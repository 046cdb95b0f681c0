"""
Requests of operators to all nodes of the domain: one node asks the others by a verb, and says which of them
did not answer.

The operator's name and roles travel with each request. An answer may be longer than one payload between
members: the node that answers keeps it for the one that asks, which gets it in parts.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec
from twisted.internet.defer import (
    CancelledError,
    Deferred,
    DeferredList,
    fail,
    inlineCallbacks,
    maybeDeferred,
)
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.cluster.member_requests import MemberRequests
from msgnode.protocol.errors import FAILED, Rejected, error_body

VERB, REST = "operator.verb", "operator.rest"
ANY_ROLE = "*"
DEFAULT_SECONDS = 2.0
MAX_SECONDS = 30.0
MAX_VERB_CHARS = 64
MAX_NAME_CHARS = 256
MAX_ROLES = 16
MAX_REQUEST_BYTES = 24 * 1024
MAX_ANSWER_BYTES = 8 * 1024 * 1024  # of one node
PART_BYTES = 24 * 1024
MAX_ASKING = 32  # requests of this node at a time
MAX_ANSWERING = 32  # requests of other nodes at a time
MAX_KEPT = 16  # long answers of which other nodes have not got all parts
KEEP_SECONDS = 10.0
log = Logger()


class Operator(msgspec.Struct, frozen=True):
    """
    An operator: the name and roles that the node has verified to which the operator is connected. `node` is
    that node, or empty for this one. The role `*` stands for all.
    """

    name: str
    roles: tuple[str, ...]
    node: str = ""

    def has_role(self, *wanted: str) -> bool:
        return not wanted or ANY_ROLE in self.roles or not set(wanted).isdisjoint(self.roles)


class NodeAnswer(msgspec.Struct, frozen=True):
    """
    The answer of one node: `code` 200 with `value`, or `code`, `text` and `reason` of a refusal.

    A node that did not answer has code 503 and the reason `no-path`; it may have done what was asked.
    """

    code: int
    value: Any = None
    text: str = ""
    reason: str = ""

    @property
    def has_answered(self) -> bool:
        return self.reason != "no-path"

    def report(self) -> Any:
        """
        The value; in its place `{"code", "description", "reason"}` of a refusal.
        """
        if self.code == 200:
            return self.value
        return {**error_body(self.code, self.text), "reason": self.reason}


# Takes the parameters and the operator; returns what becomes JSON, or a Deferred of it; raises Rejected.
Handler = Callable[[dict[str, Any], Operator], Any]


class _Verb(msgspec.Struct, array_like=True):
    verb: str
    params: dict[str, Any]
    name: str
    roles: tuple[str, ...]


class _Part(msgspec.Struct, array_like=True):
    """
    A part of an answer: the bytes that follow it, and the number by which the next part is asked for.
    """

    left: int
    number: int
    data: bytes


class _Rest(msgspec.Struct, array_like=True):
    number: int
    at: int


class _Kept(msgspec.Struct, eq=False):
    node: str
    data: bytes
    timer: IDelayedCall


_verb = msgspec.msgpack.Decoder(_Verb)
_part = msgspec.msgpack.Decoder(_Part)
_rest = msgspec.msgpack.Decoder(_Rest)
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.decode


class OperatorRequests:
    """
    The verbs of this node, and requests by verb to it and the other nodes of its domain. A node that is alone
    asks itself only.

    `node` is the full name of this node.
    """

    def __init__(self, node: str, clock: IReactorTime) -> None:
        self.node = node
        self.on_up: list[Callable[[str], object]] = []  # called with each other node that comes up
        self._clock = clock
        self._requests: MemberRequests | None = None
        self._known: Callable[[], Iterable[str]] = tuple
        self._handlers: dict[str, tuple[Handler, tuple[str, ...]]] = {}
        self._asking = self._answering = self._number = 0
        self._kept: dict[int, _Kept] = {}

    def join(self, requests: MemberRequests, known: Callable[[], Iterable[str]]) -> None:
        """
        Has other members asked, too; `known` gives all that there should be.
        """
        self._requests, self._known = requests, known
        requests.offer(VERB, self._take)
        requests.offer(REST, self._take_rest)
        requests.on_up.append(self._up)

    def _up(self, node: str) -> None:
        for call in self.on_up:
            call(node)

    def offer(self, verb: str, handler: Handler, *roles: str) -> None:
        """
        Answer requests by this verb of operators with one of these roles; without roles, of all.
        """
        self._handlers[verb] = handler, roles

    def nodes(self) -> list[str]:
        """
        The nodes that `ask_all` asks, this one first.
        """
        return [self.node, *sorted(set(self._known()) - {self.node})]

    def ask_all(
        self, verb: str, params: dict[str, Any], operator: Operator, seconds: float = DEFAULT_SECONDS
    ) -> Deferred[dict[str, NodeAnswer]]:
        """
        The answers of all nodes by name, after `seconds` at most; never fails. Raises Rejected if the request
        is too long, or too many are under way. If it is cancelled, it fires with the answers so far.
        """
        nodes, request = self.nodes(), self._encoded(verb, params, operator)
        asked = DeferredList([self._ask(node, request, verb, params, operator, seconds) for node in nodes])
        self._asking += 1
        return asked.addBoth(self._done).addCallback(
            lambda answers: {node: answer for node, (_, answer) in zip(nodes, answers, strict=True)}
        )

    def ask(
        self,
        node: str,
        verb: str,
        params: dict[str, Any],
        operator: Operator,
        seconds: float = DEFAULT_SECONDS,
    ) -> Deferred[NodeAnswer]:
        """
        The answer of one node, as for `ask_all`.
        """
        request = self._encoded(verb, params, operator)
        self._asking += 1
        return self._ask(node, request, verb, params, operator, seconds).addBoth(self._done)

    def _encoded(self, verb: str, params: dict[str, Any], operator: Operator) -> bytes:
        if self._asking >= MAX_ASKING:
            raise Rejected(f"{MAX_ASKING} requests to other nodes are under way; try again", 503, "limit")
        request = _encode(_Verb(verb, params, operator.name, operator.roles))
        if len(request) > MAX_REQUEST_BYTES:
            text = f"what nodes ask each other has at most {MAX_REQUEST_BYTES} bytes, not {len(request)}"
            raise Rejected(text, 413, "too-long")
        return request

    def _done(self, result: Any) -> Any:
        self._asking -= 1
        return result

    def _ask(
        self,
        node: str,
        request: bytes,
        verb: str,
        params: dict[str, Any],
        operator: Operator,
        seconds: float,
    ) -> Deferred[NodeAnswer]:
        """
        The answer of a node; never fails, unless it is cancelled.
        """
        seconds = min(max(seconds, 0.1), MAX_SECONDS)
        if node == self.node:
            asked = self._answer(verb, params, operator).addCallback(_decode)
        elif self._requests is None:
            asked = fail(Rejected(f"{node} is not a node of this domain", 404))
        else:
            # One second more: the timeout below ends the wait, and says for how long it was.
            asked = self._ask_member(self._requests, node, request, self._clock.seconds() + seconds + 1)
        asked.addTimeout(seconds, self._clock, lambda result, wait: _late(node, wait))
        return asked.addCallbacks(lambda value: NodeAnswer(200, value), partial(_as_answer, node))

    @inlineCallbacks
    def _ask_member(self, requests: MemberRequests, node: str, request: bytes, until: float) -> Any:
        def left() -> float:
            return max(0.05, until - self._clock.seconds())

        part = _part.decode((yield requests.ask(node, VERB, request, left())))
        parts, size = [part.data], len(part.data)
        while part.left:
            if size + part.left > MAX_ANSWER_BYTES:
                raise Rejected(_too_long(size + part.left), 413, "too-long")
            part = _part.decode((yield requests.ask(node, REST, _encode(_Rest(part.number, size)), left())))
            if not part.data:
                raise ValueError("an empty part")
            parts.append(part.data)
            size += len(part.data)
        return _decode(b"".join(parts))

    # -- as the node that answers ------------------------------------------------------------

    def _answer(self, verb: str, params: dict[str, Any], operator: Operator) -> Deferred[bytes]:
        handler, roles = self._handlers.get(verb, (None, ()))
        if handler is None:
            text = f"this node does not know {verb[:MAX_VERB_CHARS]!r}; it may have another release"
            return fail(Rejected(text, 501, "not-handled"))
        if not operator.has_role(*roles):
            return fail(Rejected(f"{verb} needs the role {' or '.join(roles)}", 403, "policy"))
        return maybeDeferred(handler, params, operator).addCallback(_encoded_answer)

    def _take(self, node: str, body: bytes) -> Deferred[bytes]:
        asked = _verb.decode(body)
        if max(len(asked.verb), len(asked.name)) > MAX_NAME_CHARS or len(asked.roles) > MAX_ROLES:
            raise ValueError("a name that is too long, or too many roles")
        if self._answering >= MAX_ANSWERING:
            text = f"this node answers {MAX_ANSWERING} operators of other nodes at a time"
            raise Rejected(text, 503, "limit")
        self._answering += 1
        operator = Operator(asked.name, asked.roles, node)
        answered = self._answer(asked.verb, asked.params, operator).addBoth(self._answered)
        return answered.addCallback(partial(self._first_part, node))

    def _answered(self, result: Any) -> Any:
        self._answering -= 1
        return result

    def _first_part(self, node: str, data: bytes) -> bytes:
        if len(data) <= PART_BYTES:
            return _encode(_Part(0, 0, data))
        if len(self._kept) >= MAX_KEPT:
            raise Rejected(f"this node keeps {MAX_KEPT} long answers at a time", 503, "limit")
        self._number += 1
        timer = self._clock.callLater(KEEP_SECONDS, self._kept.pop, self._number)
        self._kept[self._number] = _Kept(node, data, timer)
        return self._part_at(self._number, 0)

    def _take_rest(self, node: str, body: bytes) -> bytes:
        rest = _rest.decode(body)
        kept = self._kept.get(rest.number)
        if kept is None or kept.node != node:
            raise Rejected("the rest of this answer is not kept any more", 503, "failed")
        if not 0 < rest.at < len(kept.data):
            raise ValueError("a part that the answer does not have")
        return self._part_at(rest.number, rest.at)

    def _part_at(self, number: int, at: int) -> bytes:
        kept = self._kept[number]
        data = kept.data[at : at + PART_BYTES]
        left = len(kept.data) - at - len(data)
        if not left:
            kept.timer.cancel()
            del self._kept[number]
        return _encode(_Part(left, number, data))

    def stop(self) -> None:
        for kept in self._kept.values():
            kept.timer.cancel()
        self._kept.clear()


def _encoded_answer(value: Any) -> bytes:
    data = _encode(value)
    if len(data) > MAX_ANSWER_BYTES:
        raise Rejected(_too_long(len(data)), 413, "too-long")
    return data


def _too_long(size: int) -> str:
    return f"the answer of one node has at most {MAX_ANSWER_BYTES} bytes, not {size}; ask for less"


def _late(node: str, seconds: float) -> Any:
    raise Rejected(f"{node} did not answer in {seconds:g} s", 503, "no-path")


def _as_answer(node: str, why: Failure) -> NodeAnswer:
    if isinstance(why.value, Rejected):
        return NodeAnswer(why.value.code, None, str(why.value), why.value.reason)
    if isinstance(why.value, CancelledError):
        return NodeAnswer(503, None, f"{node} was not waited for", "no-path")
    if isinstance(why.value, ValueError):  # also msgspec.DecodeError
        return NodeAnswer(502, None, f"{node} sent a malformed answer: {why.value}"[:300], "malformed")
    log.failure("a request of an operator could not be answered", why)
    return NodeAnswer(500, None, FAILED, "failed")
