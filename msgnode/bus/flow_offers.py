"""
Flow offers: the node shows the data plane what it decided, so that the decision can be repeated.

Only what is offered is ever repeated.  Whatever is new or unusual is not, and is decided again each time.
"""

from collections.abc import Callable

from msgnode.bus.delivery import DeliveryObserver
from msgnode.config.schema import Config
from msgnode.policy.enforcement.points import Policy
from msgnode.protocol.message import Message
from msgnode.sessions.limits.rate_limits import RateLimiter
from msgnode.sessions.session import Session
from msgnode.transport.data_plane import DataPlane, FlowTerms


class FlowOffers:
    """
    Offers the plain deliveries of messages.

    A delivery is plain if it went at once, and not in slices, to others that the plane all reads and writes.
    `is_logged`: does the traffic log write messages down?  `refused` has the body keys with which the node
    decides on each message by itself.
    """

    def __init__(self, config: Config, data_plane: DataPlane, rates: RateLimiter, is_logged: bool) -> None:
        self.refused: tuple[str, ...] = ()
        # Does the session wait for an answer of an address that was at another node when it asked? Then it is
        # noted.
        self.awaits: Callable[[Session, str], bool] = lambda session, address: False
        self.observer: DeliveryObserver | None = None  # what it wants to see is not offered
        self._config = config
        self._data_plane = data_plane
        self._rates = rates
        self._is_logged = is_logged

    def offer(
        self,
        message: Message,
        session: Session,
        recipients: tuple[Session, ...],
        policy: Policy | None,
        kept: int | None = None,
    ) -> None:
        """
        The message of this session was permitted by the policies, if there are any, and delivered to these;
        `from` is an address that it may send from. `kept`: the number of its object at the data plane.
        """
        origin, to = message.origin, message.to
        port = self._data_plane.port(origin)
        if not port or message.outcome != "delivered" or not isinstance(to, str):
            return
        if self._data_plane.has_flow(port, message.from_, to, message.type):
            return  # which left only this message to Python
        if origin.session is not session:
            return
        inbox = session.mailbox.inbox if session.connection is origin else None
        if inbox is not None and not inbox.is_current:
            return
        if message.receipt or message.forward or message.waiting:
            return
        if message.type.lower() == "response" and self.awaits(recipients[0], message.from_):
            return
        if len(recipients) > self._config.limits.recipients_at_once:
            return
        if self.observer is not None and self.observer.observes(message, session, recipients):
            return
        ports = self._ports(session, recipients)
        terms = self._terms(message, session, policy) if ports else None
        if terms is not None:
            line = None
            if self._is_logged:
                line = self._config.node, session.runtime, origin.connector, origin.peer
            if inbox is not None:
                terms = terms._replace(counted=True)
            if kept is not None:
                terms = terms._replace(kept=kept)
            self._data_plane.install(port, message.from_, to, message.type, ports, line, terms)

    def _terms(self, message: Message, session: Session, policy: Policy | None) -> FlowTerms | None:
        """
        The terms on which each such message is carried; None if the policies decide on each by itself.
        """
        if self._rates.on and self._rates.is_shared:
            return None  # Python counts them, for other nodes, too
        buckets = self._rates.shared(session, message.origin.peer) if self._rates.on else ()
        if policy is None:
            return FlowTerms(self.refused, buckets=buckets)
        decision = policy.repeatable(message, session)
        if decision is None:
            return None
        terms = FlowTerms(self.refused, decision.mark, buckets, (decision.tally,), samples=1)
        return terms._replace(permit_line=decision.line)

    def _ports(self, session: Session, recipients: tuple[Session, ...]) -> list[int]:
        """
        The ports of all of these; none if one has no port, or waits, or is the sender itself.
        """
        ports = []
        for recipient in recipients:
            port = self._data_plane.port(recipient.connection)
            if not port or recipient.ready is None or recipient is session:
                return []
            ports.append(port)
        return ports
