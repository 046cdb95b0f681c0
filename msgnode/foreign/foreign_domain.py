"""
One foreign domain that is reached by its stub: what goes there, what comes, and the stub's lifecycle.
"""

from collections.abc import Iterator
from typing import Any

from twisted.internet.defer import Deferred

from msgnode.foreign.given_addresses import GivenAddresses
from msgnode.foreign.host_names import HostNames
from msgnode.foreign.inbound import Inbound, Taker
from msgnode.foreign.lifecycle.lifecycle import Lifecycle
from msgnode.foreign.lifecycle.start_options import limits_of
from msgnode.foreign.lifecycle.stub_instance import StubInstance
from msgnode.foreign.lifecycle.stub_record import StubRecord
from msgnode.foreign.lifecycle.surroundings import Surroundings
from msgnode.foreign.outbound import Outbound
from msgnode.foreign.stub_session import make_session
from msgnode.foreign.subscriptions import Subscriptions
from msgnode.links.exchange.envelopes import without_via
from msgnode.links.exchange.node_parts import NodeParts
from msgnode.policy.enforcement.points import OUT
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message, recall
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import TrafficRecorder

STOPPING = "this node stops, or no longer runs the stub of this domain"


class ForeignDomain:
    """
    A foreign domain. `takers` take messages of its stub before the bus does.
    """

    def __init__(
        self,
        domain: str,
        node: NodeParts,
        names: HostNames,
        around: Surroundings,
        traffic_recorder: TrafficRecorder,
    ) -> None:
        self.domain = domain
        self.record = StubRecord(domain, around.wall)
        self.takers: list[Taker] = []
        self._speaking: StubInstance | None = None
        self._node = node
        self._names = names
        self._around = around
        self.session = make_session(domain, node.sessions, self._carry)
        self.lifecycle = Lifecycle(domain, around, self.record, self)
        self.subscriptions = Subscriptions(
            domain, self.post, self._me, self._decided, around.clock, lambda: around.options.max_addresses
        )
        self.outbound = Outbound(
            domain,
            f"mn://{node.config.domain}/{node.config.node}",
            node.router,
            node.routes,
            self.post,
            self.subscriptions.is_decided,
            lambda: self.lifecycle.is_live,
            self._note,
            lambda header: self.given.undelivered(header),
            self._bounds,
            around.clock,
        )
        self.given = GivenAddresses(
            node,
            names,
            self.subscriptions,
            self.post,
            lambda: self._me().removesuffix("/sm"),
            self.lifecycle.want,
            self._note,
            around.clock,
        )
        self._inbound = Inbound(
            domain,
            node,
            self.session,
            names,
            traffic_recorder,
            self._all_takers,
            self._note,
            around.clock.seconds,
        )
        self.apply()

    def apply(self) -> None:
        """
        Applies a changed configuration.
        """
        limits = limits_of(self._around.options, self._around.table(self.domain))
        self.max_bytes = limits.message_bytes
        self.lifecycle.apply()

    def _bounds(self) -> tuple[int, int, float]:
        options = self._around.options
        return options.queue_messages, options.queue_bytes, options.max_wait_seconds

    def _note(self, word: str) -> None:
        self.record.counts[word] += 1

    # -- from clients here ---------------------------------------------------------------

    def send(self, message: Message, session: Session) -> None:
        """
        Sends a message of a client here. Raises Rejected if it cannot leave.
        """
        self._check(message, session)
        policy = self._node.router.policy
        if policy is not None and policy.between_nodes:
            policy.check(OUT, message, self.session)
        self.lifecycle.want()
        why = self.lifecycle.refusal()
        if why is not None:
            self._note(why.reason)
            raise why
        if self._names.home(message.from_) == self._names.own:
            self.subscriptions.send_from(message.from_, session)
        if self.given.is_service(message.to):
            self._send_to_service(message, session)
        else:
            self.outbound.send(message, session)
        self.lifecycle.needs_connection()
        self._deliver_here(message, session)

    def _send_to_service(self, message: Message, session: Session) -> None:
        self.given.sent(message, session)
        try:
            self.outbound.send(message, session)
        except Rejected:
            self.given.undelivered(message)
            raise

    def _deliver_here(self, message: Message, session: Session) -> None:
        """
        Delivers what is published there to the clients here that listen, for the stub drops its echo.
        """
        assert isinstance(message.to, str)
        found = self._node.routes.resolve(message.to)
        listening = tuple(each for each in found if each.bindings.get(message.to))
        if listening:
            self._node.router.deliver_also(message, session, listening)

    def _check(self, message: Message, session: Session) -> None:
        if len(message.data) > self.max_bytes:
            text = f"a message to {self.domain} has at most {self.max_bytes} bytes, not {len(message.data)}"
            raise Rejected(text, 413, "too-long")
        if self.given.is_service(message.to):
            self.given.check(message, session)
        home = self._names.home(message.from_)
        is_answer = home == self.domain and bool(session.bindings.get(message.from_))  # of an observer
        if home != self._names.own and not is_answer:
            text = f"only senders of {self._names.own} may send to {self.domain}, not {message.from_!r}"
            raise Rejected(text[:300], 403, "peer")

    def observe(self, addresses: list[str], session: Session) -> Deferred[None]:
        """
        Subscribes a client here to addresses there. Raises Rejected.
        """
        self.lifecycle.want()
        why = self.lifecycle.refusal()
        if why is not None:
            raise why
        asked = self.subscriptions.observe(addresses, session)
        self.lifecycle.needs_connection()
        return asked

    # -- Traffic -------------------------------------------------------------------------

    def is_needed(self) -> bool:
        is_listened_for = self.subscriptions.observed > 0 or len(self.given) > 0
        return self.outbound.is_needed or is_listened_for or bool(self.record.connectors)

    def became_live(self) -> None:
        with self._node.ingress.together:
            self.subscriptions.up()
            self.outbound.flush()

    def was_lost(self) -> None:
        with self._node.ingress.together:
            self.subscriptions.down()
            self.outbound.lost()

    def may_send(self) -> None:
        with self._node.ingress.together:
            self.subscriptions.flush()
            self.outbound.may_send()

    def received(self, message: bytes, process: StubInstance) -> int:
        self.lifecycle.used()
        if process is not self._speaking:
            self._speaking = process
            self._inbound.started_again()
        return self._inbound.receive(message)

    def gave_up(self, why: Rejected) -> None:
        with self._node.ingress.together:
            self.outbound.refuse_all(why)

    def prod(self) -> None:
        self.subscriptions.prod()

    # -- the stub ------------------------------------------------------------------------

    def post(self, data: bytes) -> bool:
        """
        Gives a message to the stub; False if it takes none now.
        """
        process = self.lifecycle.current
        return process is not None and process.post(data)

    def _me(self) -> str:
        process = self.lifecycle.current
        return f"{process.start_options.runtime_url}/sm" if process is not None else ""

    def _decided(self, addresses: list[str]) -> None:
        with self._node.ingress.together:
            self.outbound.released(addresses)

    def _all_takers(self) -> list[Taker]:
        return [self.subscriptions.answered, self.given.take, *self.takers, self._answered]

    def _answered(self, message: Message) -> bool:
        """
        Notes an answer; one that comes too late is taken, for its request was answered in its place.
        """
        if self._names.home(message.from_) != self.domain:
            return False
        if not self.outbound.awaited.answered(message):
            self._note("old-answer")
            self.given.refuse(message)
            return True
        self.given.answered(message)
        return False

    def _carry(self, node: str, data: bytes) -> None:
        """
        Posts what the bus has delivered to the domain's session: answers of this node, receipts, and
        publications that a policy lets the domain subscribe.
        """
        if not self.lifecycle.is_live or not self.post(without_via(recall(data))):
            self._note("overflow")

    # -- operators -----------------------------------------------------------------------

    def to_builtins(self) -> dict[str, Any]:
        """
        The entry in the registry of stubs and connectors.
        """
        self.record.waiting, self.record.addresses = len(self.outbound), len(self.subscriptions)
        return self.record.to_builtins()

    def sweep(self) -> Iterator[None]:
        """
        Drops what sessions that have ended leave behind, in slices.
        """
        return self.subscriptions.sweep()

    def stop(self) -> Deferred[Any]:
        """
        Ends the stub; senders of what waits are answered.
        """
        stopped = self.lifecycle.stop()
        self.outbound.stop(Rejected(STOPPING, 502, "no-path"))
        self.subscriptions.stop()
        self.given.stop()
        self.session.ended = True
        return stopped
