"""
Outgoing messages: what clients here send to addresses of other domains.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import copy
from functools import partial
from time import time_ns
from typing import Any

import msgspec
from msgspec import Raw
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.bus.router import Router
from msgnode.bus.routing_table import RoutingTable
from msgnode.links.exchange.allocations import Allocations
from msgnode.links.exchange.awaited import AwaitedAnswers, MovedRequest, Sent
from msgnode.links.exchange.counts import ExchangeCounts
from msgnode.links.exchange.deliveries import Deliveries
from msgnode.links.exchange.domains import Gateways, HomeDomains
from msgnode.links.exchange.envelopes import MessageIds, envelope_of, identity_of, without_via
from msgnode.links.exchange.gathering import Gathering
from msgnode.links.exchange.node_parts import ExchangeOptions
from msgnode.links.exchange.node_sessions import NodeSessions
from msgnode.links.exchange.passing.origins import Origins, Passed
from msgnode.links.exchange.passing.passing_on import PassingOn
from msgnode.links.exchange.receipts import AskedReceipts, Path, RemoteReceipt
from msgnode.links.exchange.status import (
    ACKNOWLEDGED,
    GRACE_SECONDS,
    TEXTS,
    UNCONFIRMED,
    response_body,
    text_of,
)
from msgnode.links.overlay.network import Network
from msgnode.links.stream.streams import Envelope, IfReplaced, Outcome, Streams
from msgnode.links.wire.node_name import domain_of
from msgnode.policy.enforcement.points import OUT
from msgnode.protocol import lossless_json
from msgnode.protocol.errors import Malformed, Rejected
from msgnode.protocol.message import Message, compose, decode, recall
from msgnode.sessions.routing import ALLOCATED
from msgnode.sessions.session import Session

MAX_ID_CHARS = 1024  # of a message, unless it is an answer, which has the id of the request
TOO_MANY = "too many requests wait for an answer; it may be delivered"
LOOK_SECONDS = 1.0  # between two looks at deadlines


class Outgoing:
    """
    The sender of clients' messages to other domains, and of what became of them to the clients.

    Output to clients in a later turn is sent within the `cork`. `is_open`: is this turn's output collected?
    `before_write` is that of the journal (sessions/journal.py).
    The copies of a message to a list are collected in `_together`, by domain.
    """

    def __init__(
        self,
        streams: Streams,
        network: Network,
        router: Router,
        routes: RoutingTable,
        homes: HomeDomains,
        nodes: NodeSessions,
        gateways: Gateways,
        ids: MessageIds,
        origins: Origins,
        receipts: AskedReceipts,
        allocations: Allocations,
        deliveries: Deliveries,
        cork: Callable[[], AbstractContextManager[Any]],
        is_open: Callable[[], bool],
        before_write: Callable[[Callable[[], object]], None],
        options: ExchangeOptions,
        counts: ExchangeCounts,
        clock: IReactorTime,
    ) -> None:
        # Sends an answer to the other node of this domain to which the session that asked has moved.
        self.send_elsewhere: Callable[[Message], object] = lambda answer: None
        # Has the session with this address come here, with what was sent to it at its earlier node?
        self.came_here: Callable[[str], bool] = lambda address: False
        # Has this node the session with this address, perhaps with another one that hands it over?
        self.is_here: Callable[[str], bool] = lambda address: False
        self._clock = clock
        self._look: IDelayedCall | None = None
        self._look_at = 0.0
        self._was_late = False
        self._streams = streams
        self._network = network
        self._router = router
        self._routes = routes
        self._homes = homes
        self._nodes = nodes
        self._gateways = gateways
        self._ids = ids
        self._origins = origins
        self._receipts = receipts
        self._allocations = allocations
        self._cork = cork
        self._options = options
        self._counts = counts
        self.awaited = AwaitedAnswers(network.has_route, clock.seconds)
        self._passing_on = PassingOn(
            network.node,
            streams,
            origins,
            deliveries,
            lambda header, outcome: self._fail(Sent(header, 0, header.receipt), outcome),
            cork,
            options,
            counts,
            clock.seconds,
        )
        self._gathering = Gathering(
            self,
            streams,
            network,
            router,
            homes.own,
            self._may_gather,
            ids,
            is_open,
            before_write,
            options,
            counts,
            "move",
        )
        self._together: list[tuple[Message, Session]] | None = None

    def start(self) -> None:
        """
        Watches for messages of which the other domain says nothing.
        """
        self._look_in(LOOK_SECONDS)

    def stop(self) -> None:
        if self._look is not None and self._look.active():
            self._look.cancel()

    def send(self, message: Message, session: Session) -> None:
        """
        Sends a message to the home domain of its address. Raises Rejected if it cannot leave.
        """
        if self._together is None and self._gathering.join(message, session):
            return
        try:
            node, far, passed = self._check(message, session)
        except Rejected as why:
            if message.receipt and not session.is_node:
                message.receipt = False  # this is the final one
                self._receipts.finish(
                    message, why.code, str(why), why.reason, self._here(message.received_at)
                )
            raise
        if passed is not None:
            self._gathering.leave()
            self._passing_on.send(passed, message, session, domain_of(node), node)
            return
        if self._together is not None:
            self._together.append((message, session))
            message.outcome, message.recipients = "delivered", 1
            return
        if not self._gathering.begin(message, session, node, far):
            self.send_alone(message, session, node)

    def _check(self, message: Message, session: Session) -> tuple[str, Session, Passed | None]:
        """
        The gateway of the domain, its session, and what is known of a message that another domain sent first.
        Raises Rejected if the message may not leave.
        """
        assert isinstance(message.to, str)
        if (
            isinstance(message.id, str)
            and len(message.id) > MAX_ID_CHARS
            and message.type.lower() != "response"
        ):
            text = f"the 'id' of a message to another domain has at most {MAX_ID_CHARS} characters"
            raise Rejected(f"{text}, not {len(message.id)}", 413, "too-long")
        domain, sender = self._homes.home(message.to), self._homes.home(message.from_)
        is_given = sender == domain and bool(session.bindings.get(message.from_, 0) & ALLOCATED)
        passed = None
        if (sender != self._homes.own and not is_given) or self._is_foreign(session):
            passed = self._passing_on.find(message, session)
        node = self._gateways.choose(domain)
        far = self._nodes.find(node) if node else None
        if far is None:
            raise Rejected(f"{TEXTS['no-path']}: {domain}", 502, "no-path")
        policy = self._router.policy
        if policy is not None and policy.between_nodes:
            policy.check(OUT, message, far)
        if self._allocations.is_service(message.to):
            self._allocations.check(message, session)
        return node, far, passed

    def _is_foreign(self, session: Session) -> bool:
        """
        Is it the session of a node of another domain?
        """
        return session.is_node and domain_of(session.runtime) != self._homes.own

    def _identity(self, message: Message, session: Session) -> dict[str, str]:
        """
        The identity of the sender, also if another node of this domain has verified it.
        """
        if not session.is_node:
            return identity_of(session, self._homes.own)
        found: dict[str, str] = getattr(message.origin, "sender_fields", {})
        return found

    def _may_gather(self, message: Message, node: str) -> bool:
        is_own = self._homes.home(message.from_) == self._homes.own and not isinstance(
            getattr(message.origin, "sender_fields", None), dict
        )
        return (
            is_own
            and not Allocations.is_service(message.to)
            and not self._origins.may_be_passed_on(message, node)
        )

    def send_alone(
        self, message: Message, session: Session, node: str, id: tuple[bytes, int] | None = None
    ) -> None:
        """
        Sends one message, after those that are gathered (Sending).
        """
        self._gathering.leave()
        envelope = envelope_of(message, id or self._ids.next(), self._options)
        envelope.identity = self._identity(message, session)
        payload = without_via(message)
        sid = 0 if payload is message.data else session.sid  # the stub of the sender would hear it
        self._origins.sign(envelope, message, payload, sid, node, domain_of(node))
        self.send_to(message, session, node, envelope, payload, "move")

    def send_to(
        self,
        message: Message,
        session: Session,
        node: str,
        envelope: Envelope,
        payload: bytes,
        if_replaced: IfReplaced,
    ) -> None:
        """
        Sends one message to a node; its sender learns what became of it. Raises Rejected.
        """
        asked, message.receipt = message.receipt, False  # which the exchange gives
        until = self._clock.seconds() + envelope.ttl_millis / 1000
        if asked:
            self._receipts.ask(message, session, node, until)
        sent = Sent(message, session.sid, asked, node, until)
        try:
            done = partial(self._done, sent)
            is_service, kind = self._allocations.is_service(message.to), message.type.lower()
            # Addresses are given back while the domain is drained, too.
            is_answer = kind == "response" or (is_service and kind == "delete")
            self._streams.send(node, envelope, payload, done, session.runtime, if_replaced, is_answer)
        except Rejected as why:  # NoRoom, or a domain that is drained
            self._counts.note(node, why.reason)
            if asked:
                self._receipts.finish(
                    message, why.code, str(why), why.reason, self._here(message.received_at)
                )
            raise
        self._counts.note(node, "sent")
        if is_service:
            self._allocations.sent(message, session)
        if sent.awaited:
            self._evicted(self.awaited.put(sent))
        if self._network.has_route(node):
            message.outcome, message.recipients = "delivered", 1
            return
        message.outcome, message.waiting, message.reason = "waiting", 1, "no-path"
        if asked:
            self._receipts.wait(message, session)

    def _evicted(self, requests: list[tuple[Sent, str]]) -> None:
        """
        Answers requests that are watched no more, because there are too many.
        """
        for sent, to in requests:
            self._answer_for(sent, to, UNCONFIRMED.code, TOO_MANY, "limit")
            sent.answered(to)

    # -- sessions that move within the domain ------------------------------------------

    def awaited_of(self, session: Session) -> list[MovedRequest]:
        """
        The requests of the session that are not answered yet.
        """
        return self.awaited.of(session.sid)

    def adopt_awaited(self, requests: list[MovedRequest], session: Session) -> None:
        """
        Watches the requests of a session that came here from another node of this domain.
        """
        for request in requests:
            if request.node != self._network.node:
                self._evicted(self.awaited.adopt(request, session.sid))

    def told_to(self, session: Session) -> list[bytes]:
        """
        The requests of the session that were answered in place of their recipients.
        """
        return self.awaited.in_place.of(session.sid)

    def adopt_told(self, told: list[bytes], session: Session) -> None:
        """
        Notes such requests of a session that came here from another node of this domain.
        """
        for digest in told:
            self.awaited.in_place.add(digest, session.sid)

    def is_expected(self, data: bytes) -> bool:
        """
        False if a message that came with a session is an answer to a request that was answered in its place,
        or such a request; an answer is not waited for any more.
        """
        if b"response" not in data and not self.awaited.in_place:
            return True
        try:
            return self.awaited.answered(recall(data))
        except Malformed:
            return True

    def forget_awaited(self, session: Session) -> None:
        """
        Another node of this domain has the session, and watches its requests.
        """
        self.awaited.forget(session.sid)

    # -- lists -----------------------------------------------------------------------

    @contextmanager
    def together(self) -> Iterator[None]:
        """
        Sends the copies made within as one message for each domain.
        """
        if self._together is not None:
            yield
            return
        collected: list[tuple[Message, Session]] = []
        self._together = collected
        try:
            yield
        finally:
            self._together = None
            for message, session in self._merged(collected):
                domain = self._homes.home(message.to[0] if isinstance(message.to, list) else message.to)
                try:
                    self.send_alone(message, session, self._gateways.choose(domain))
                except Rejected as why:
                    self.refused(message, session.sid, why)

    def _merged(self, collected: list[tuple[Message, Session]]) -> Iterator[tuple[Message, Session]]:
        groups: dict[tuple[Any, ...], list[tuple[Message, Session]]] = {}
        for message, session in collected:
            assert isinstance(message.to, str)
            rest = message.data.replace(msgspec.json.encode(message.to), b"", 1)
            groups.setdefault((self._homes.home(message.to), session, rest), []).append((message, session))
        for group in groups.values():
            message, session = group[0]
            yield (message if len(group) == 1 else _with_list(message, [one.to for one, _ in group])), session

    # -- outcomes --------------------------------------------------------------------

    def refused(self, message: Message, sid: int, why: Rejected) -> None:
        """
        Answers a message that was not sent after all (Sending).
        """
        self._answer(Sent(message, sid, False), why.code, str(why), why.reason)

    def lost(self, message: Message, sid: int, outcome: Outcome) -> None:
        """
        Tells the sender that one of several messages was lost (Sending).
        """
        with self._cork():
            self._fail(Sent(message, sid, False), outcome)

    def _done(self, sent: Sent, envelope: Envelope, outcome: Outcome) -> None:
        if outcome.reason == ACKNOWLEDGED:
            sent.acknowledged_at = self._clock.seconds()
            if sent.receipt:
                self._receipts.passed(sent.header(), outcome.path)
            return
        self.awaited.drop(sent)
        if self._allocations.is_service(sent.to):
            self._allocations.not_delivered(sent.header())
        with self._cork():
            self._fail(sent, outcome)

    def _look_again(self) -> None:
        """
        Tells the senders of messages whose time has ended, and of which nothing is known.

        After this process was stopped for a while, what came meanwhile is read first.
        """
        self._was_late = not self._was_late and self._clock.seconds() > self._look_at + GRACE_SECONDS
        if self._was_late:
            self._look_in(LOOK_SECONDS)
            return
        with self._cork():
            for sent, to in self.awaited.overdue(self.is_here):
                if self.came_here(to):
                    continue  # within a node, only a client can leave a request without an answer
                self._counts.note(sent.node, UNCONFIRMED.reason)
                self._answer_for(sent, to, UNCONFIRMED.code, text_of(UNCONFIRMED), UNCONFIRMED.reason)
                sent.answered(to)
            self._receipts.end_overdue(self._network.has_route, self._here(0))
            self._passing_on.end_overdue()
        is_due = self.awaited.is_due or self._receipts.is_due or self._passing_on.is_due
        self._look_in(0 if is_due else LOOK_SECONDS)

    def _look_in(self, seconds: float) -> None:
        self._look_at = self._clock.seconds() + seconds
        self._look = self._clock.callLater(seconds, self._look_again)

    def answer_lost(self, node: str, answer: Message, outcome: Outcome) -> None:
        """
        Takes back what an answer of this node gave, which the node has not got; an asker that still waits
        gets another one.
        """
        self._allocations.lost(node, answer)
        if outcome.reason == "stale":
            self._replace(Sent(answer, 0, False), text_of(outcome))

    def ended(self, node: str, envelope: Envelope, payload: bytes, outcome: Outcome) -> None:
        """
        Tells the sender of a message from before a restart what became of it.
        """
        if outcome.reason == ACKNOWLEDGED:
            return
        if envelope.origin is not None and envelope.origin.hops:
            self._passing_on.ended(envelope.origin, payload, outcome)
        else:
            message = recall(payload)
            self._allocations.lost(node, message)
            self._allocations.not_delivered_before(message)
            self._fail(Sent(message, 0, message.receipt), outcome)

    def passed_on(self, receipt: RemoteReceipt, envelope: Envelope) -> bool:
        """
        Takes a receipt for a message that this node passed on; False if it is for another one.
        """
        return self._passing_on.receive(receipt, envelope)

    def _fail(self, sent: Sent, outcome: Outcome) -> None:
        to = sent.to if isinstance(sent.to, str) else sent.to[0]
        self._counts.note(self._homes.home(to), outcome.reason)
        text = text_of(outcome)
        if sent.receipt and (not sent.sid or self._receipts.is_asked(sent.header())):
            path = outcome.path or self._here(sent.received_at)
            self._receipts.finish(sent.header(), outcome.code, text, outcome.reason, path)
        self._answer(sent, outcome.code, text, outcome.reason)
        if outcome.reason == "stale" and sent.is_answer:
            self._replace(sent, text)

    def _replace(self, answer: Sent, text: str) -> None:
        """
        Sends a short answer in the place of one that went stale, for its asker still waits.
        """
        assert isinstance(answer.to, str)
        body = response_body(404, text, "stale")
        message = compose(answer.id, "response", answer.from_, answer.to, body, answer.transaction)
        wait = int(1000 * self._options.max_wait_seconds)
        envelope = Envelope("message", self._ids.next(), wait, message.effective_priority, log=answer.log)
        home = self._homes.home(answer.to)
        node = answer.node if home in ("", self._homes.own) else self._gateways.choose(home)
        if node:
            with suppress(Rejected):  # then it is counted only
                self._streams.send(node, envelope, message.data, is_answer=True)

    def _here(self, received_at: int) -> Path:
        """
        The path of a message that did not get further than this node.
        """
        return ((self._network.node, max(0, time_ns() - received_at) // 1000 if received_at else 0),)

    def _answer(self, sent: Sent, code: int, text: str, reason: str) -> None:
        """
        Answers a request that did not reach the other domain.
        """
        for address in sent.awaited:
            self._answer_for(sent, address, code, text, reason)

    def _answer_for(self, sent: Sent, address: str, code: int, text: str, reason: str) -> None:
        message = sent.header(address)
        if code == UNCONFIRMED.code:  # the other domain may have it all the same
            self.awaited.told(sent, address)
        session = self._routes.listener(message.from_, sent.sid) if sent.sid else None
        found = (session,) if session is not None else self._routes.resolve(message.from_)
        reply = message.reply(response_body(code, text, reason))
        waiting = self._router.expected_responses
        if found:
            found[0].deliver(reply)
        elif not (waiting.waiting and waiting.deliver(decode(reply.data), None)):
            self.send_elsewhere(reply)


def _with_list(message: Message, addresses: list[Any]) -> Message:
    """
    The message with all these addresses in `to`.
    """
    merged = copy(message)
    merged.to = addresses
    try:
        fields: dict[str, Any] = msgspec.json.decode(message.data, type=dict[str, Raw])
        merged.data = msgspec.json.encode({**fields, "to": addresses})
    except msgspec.DecodeError:  # a lone surrogate, which msgspec refuses
        merged.data = lossless_json.dumps({**lossless_json.loads(message.data), "to": addresses})
    return merged
