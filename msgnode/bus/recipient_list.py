"""
Recipient list: a message whose `to` is a list; a copy for each recipient is routed and logged separately.
"""

from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from time import time_ns

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.bus.components import ForeignDomains, Reply
from msgnode.bus.fanout import JOURNAL_COST, Fanout
from msgnode.bus.receipts import Receipts, wants_answer
from msgnode.bus.refusals import note_refusal
from msgnode.bus.routing_table import RoutingTable
from msgnode.config.schema import Limits
from msgnode.protocol.address import Domain
from msgnode.protocol.errors import Malformed, NoRoute, Rejected, TooLarge, failure_code
from msgnode.protocol.message import Message
from msgnode.sessions.counters import Counters
from msgnode.sessions.history.refusals import RefusalRing
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import TrafficRecorder

log = Logger()

TIMES = 8  # the lines of one list in the traffic log have at most this many times its bytes,
ROOM = 4096  # plus this many; the copies beyond share a line
LINE_BYTES = 400  # bytes of one line, about, without the sender's texts


class Lines:
    """
    The traffic-log lines of `number` copies: one for each within `room` bytes, then one for each outcome.
    """

    def __init__(self, number: int, room: int, write: Callable[[Message, Session], None]) -> None:
        self._left = number
        self._room = room
        self._write = write
        self._rest: dict[tuple[str, int, str], Message] = {}

    def add(self, one: Message, session: Session) -> None:
        self._left -= 1
        self._room -= LINE_BYTES + len(one.from_) + len(one.type) + len(str(one.to)) + len(str(one.id))
        self._room -= 0 if one.transaction is None else len(str(one.transaction))
        if self._room >= 0:
            self._write(one, session)
        else:
            self._add_to_rest(one)
        if not self._left:
            for rest in self._rest.values():
                self._write(rest, session)

    def _add_to_rest(self, one: Message) -> None:
        assert isinstance(one.to, str)
        key = one.outcome, one.code, one.reason
        rest = self._rest.get(key)
        if rest is None:
            rest = self._rest[key] = copy(one)
            rest.to = [one.to]
        else:
            assert isinstance(rest.to, list)
            rest.to.append(one.to)
            rest.recipients += one.recipients
            rest.waiting += one.waiting
            rest.handling_us = max(rest.handling_us, one.handling_us)


class RecipientList:
    """
    The router of messages whose `to` is a list (the EIP pattern of that name).

    `route_copy` is Router.route; its argument is the number of addresses.
    """

    def __init__(
        self,
        route_copy: Callable[[Message, Session, int], Reply],
        domain: Domain,
        routes: RoutingTable,
        receipts: Receipts,
        traffic_recorder: TrafficRecorder,
        counts: Counters,
        fanout: Fanout,
        limits: Limits,
        ring: RefusalRing,
    ) -> None:
        self._ring = ring
        # Applies the policies to a reply of the node's own; None: the reply is suppressed.
        self.filter_reply: Callable[[Message, Session], Message | None] | None = None
        self.foreign: ForeignDomains | None = None
        self._route_copy = route_copy
        self._domain = domain
        self._routes = routes
        self._receipts = receipts
        self._traffic_recorder = traffic_recorder
        self._counts = counts
        self._fanout = fanout
        self._limits = limits

    def route(self, message: Message, to: list[str], session: Session) -> Reply:
        """
        Routes a copy to each of several addresses.
        """
        if len(to) == 1:  # a message like any other
            message.data = message.copy_to(to[0]).data
            message.to = to[0]
            return self._route_copy(message, session, 1)
        for address in to:
            if self._domain.owns(address) and not self._is_foreign(address, session):
                own = f"{address} is the node's own address; send to it alone"
                raise Malformed(own, message.id, message.from_)
        addresses = list(dict.fromkeys(to))
        resolve = self._routes.resolve
        number = sum(len(resolve(address)) for address in addresses)
        if number <= self._fanout.most_now:
            self._route_each(message, addresses, session, len(to))
            self._fanout.spend(message.origin, JOURNAL_COST * number)
            return None
        most = self._limits.list_deliveries
        if number > most:
            far = (
                f"a message to a list goes to at most {most} sessions in all, not {number}; send it to fewer"
            )
            raise TooLarge(far, message.id, message.from_)
        with self._fanout.gather(message.origin) as batch:
            self._route_each(message, addresses, session, len(to))
        return self._fanout.finish(batch)  # type: ignore[return-value]

    def _is_foreign(self, address: str, session: Session) -> bool:
        return self.foreign is not None and self.foreign.decides(address, session)

    def _route_each(self, message: Message, addresses: list[str], session: Session, count: int) -> None:
        with self.foreign.together() if self.foreign is not None else nullcontext():
            self._route_copies(message, addresses, session, count)

    def _route_copies(self, message: Message, addresses: list[str], session: Session, count: int) -> None:
        lines = Lines(len(addresses), TIMES * len(message.data) + ROOM, self._traffic_recorder.message)
        for one in message.copies(addresses):
            try:
                reply = self._route_copy(one, session, count)
                if isinstance(reply, Deferred):
                    reply.addCallback(self._sent, one, session, lines)
                    reply.addErrback(self._not_sent, one, session, lines)
                else:
                    self._sent(reply, one, session, lines)
            except Exception:
                self._not_sent(Failure(), one, session, lines)

    def _sent(self, reply: Reply, one: Message, session: Session, lines: Lines) -> None:
        if isinstance(reply, Message) and self.filter_reply is not None:
            reply = self.filter_reply(reply, session)
        if isinstance(reply, Message):  # each copy has its own
            session.answer(reply, one.origin)
        self._write_down(one, session, lines)

    def _not_sent(self, why: Failure, one: Message, session: Session, lines: Lines) -> None:
        """
        Handles one copy that failed; the others are still routed.
        """
        if isinstance(why.value, NoRoute):
            one.outcome, one.code, one.reason = "no-route", why.value.code, why.value.reason
            note_refusal(self._ring, why.value, one, session)
            if session.is_node:  # a sender of another domain always learns it
                session.answer(one.reply(why.value.body()), one.origin)
        elif isinstance(why.value, Rejected):
            self._refuse(why.value, one, session)
        else:
            log.failure("a message to {to} could not be routed", why, to=str(one.to)[:200])
            sorry = "the node failed over this message; its log says why"
            self._refuse(Rejected(sorry, failure_code(one.to), "failed"), one, session)
        self._write_down(one, session, lines)

    def _refuse(self, why: Rejected, one: Message, session: Session) -> None:
        """
        Reports to the sender that its message to this one of the addresses was refused.
        """
        one.outcome, one.code, one.reason = "refused", why.code, why.reason
        self._counts.refuse(why.code, why.reason)
        note_refusal(self._ring, why, one, session)
        self._receipts.give(one, why.code, session, 0, why.reason, str(why))
        if wants_answer(one):
            session.answer(one.reply(why.body()), one.origin)

    @staticmethod
    def _write_down(one: Message, session: Session, lines: Lines) -> None:
        one.handling_us = (time_ns() - one.received_at) // 1000
        lines.add(one, session)
