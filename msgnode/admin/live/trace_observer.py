"""
The trace observer: tells the running traces what becomes of the messages that they show.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from msgnode.admin.live import trace_lines
from msgnode.admin.live.trace_filter import TraceFilter
from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import Message, decode
from msgnode.sessions.session import Connection, Session
from msgnode.storage.json_lines import cut

MAX_OPEN = 1000  # messages that were delivered to a traced session, and have no outcome yet
MAX_UNACKNOWLEDGED = 10_000
MAX_NAMED = 20  # recipients of one message that a trace names


class ObservedTrace(Protocol):
    """
    A trace, as the observer fills it.
    """

    filter: TraceFilter
    bodies: bool
    forbidden: bool
    hidden: int

    def add(self, line: dict[str, Any]) -> None: ...


class TraceObserver:
    """
    The MessageObserver of all running traces; `now` gives nanoseconds since 1970.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self.traces: list[Any] = []
        self._now = now
        # Messages that a trace shows for the sake of a recipient.
        self._open: deque[tuple[Message, ObservedTrace]] = deque(maxlen=MAX_OPEN)
        self._unacknowledged: deque[tuple[Session, str, int, ObservedTrace, dict[str, Any]]] = deque(
            maxlen=MAX_UNACKNOWLEDGED
        )

    def forget(self) -> None:
        self._open.clear()
        self._unacknowledged.clear()

    def _add(self, trace: ObservedTrace, step: str, line: dict[str, Any]) -> None:
        trace.add({"time": self._now(), "step": step, **line})

    def _shows(self, trace: ObservedTrace, message: Message) -> bool:
        """
        May the trace show it? A sender can forbid that its message is logged.
        """
        return message.log or trace.forbidden

    # -- deliveries -----------------------------------------------------------

    def observes(self, message: Message, session: Session, recipients: tuple[Session, ...]) -> bool:
        """
        Must Python route every such message?
        """
        return any(
            trace.filter.id
            or trace.filter.takes(message, session)
            or any(trace.filter.takes_for(message, recipient) for recipient in recipients)
            for trace in self.traces
        )

    def delivering(self, message: Message, recipients: tuple[Session, ...]) -> None:
        """
        Notes to whom the message is sent now, and for whom it is queued.
        """
        origin = message.origin
        sender = getattr(origin, "session", None)
        for trace in list(self.traces):
            taken = trace.filter.takes(message, sender)
            shown = recipients
            if not taken:
                shown = tuple(each for each in recipients if trace.filter.takes_for(message, each))
                if not shown:
                    continue
            if not self._shows(trace, message):
                continue
            if not taken:
                self._open.append((message, trace))
            for recipient in shown[:MAX_NAMED]:
                self._delivering_to(recipient, trace, message)
            if len(shown) > MAX_NAMED:
                line = trace_lines.header(message) | {"more": len(shown) - MAX_NAMED}
                self._add(trace, "handed-over", line)

    def _delivering_to(self, recipient: Session, trace: ObservedTrace, message: Message) -> None:
        line = trace_lines.header(message) | {"recipient": cut(recipient.runtime)}
        if recipient.ready is None:
            line |= {"queued": recipient.mailbox.queued}
            self._add(trace, "waits", line)
            return
        connection = recipient.connection
        line |= {"connector": getattr(connection, "connector", ""), "peer": getattr(connection, "peer", "")}
        outbox = recipient.mailbox.outbox
        if outbox is not None and outbox.client_requested:
            line["number"] = outbox.last + 1
            self._unacknowledged.append((recipient, outbox.epoch, outbox.last + 1, trace, line))
        self._add(trace, "handed-over", line)

    def sent_late(self, data: bytes, session: Session) -> None:
        """
        Notes that a message is sent that was queued for the session.
        """
        try:
            message = decode(bytes(data))
        except Malformed:
            return
        for trace in list(self.traces):
            taken = trace.filter.takes_for(message, session) or trace.filter.takes(message, None)
            if taken and self._shows(trace, message):
                line = trace_lines.header(message) | {"recipient": cut(session.runtime)}
                self._add(trace, "handed-over-late", line)

    def look_for_acknowledgements(self) -> None:
        """
        Notes which of the messages the clients have acknowledged by now.
        """
        for _ in range(len(self._unacknowledged)):
            session, epoch, number, trace, line = self._unacknowledged.popleft()
            outbox = session.mailbox.outbox
            if outbox is None or outbox.epoch != epoch:
                continue
            if outbox.acknowledged >= number:
                keys = ("id", "type", "from", "to", "recipient", "number")
                self._add(trace, "acknowledged", {key: line[key] for key in keys})
            else:
                self._unacknowledged.append((session, epoch, number, trace, line))

    # -- decisions and outcomes -------------------------------------------------

    def decided(
        self, point: str, message: Message, session: Session | None, effect: str, rule: str, micros: int
    ) -> None:
        """
        Notes a decision of the policies.
        """
        for trace in list(self.traces):
            if trace.filter.takes(message, session) and self._shows(trace, message):
                line = trace_lines.header(message)
                line |= {"point": point, "effect": effect, "rule": rule, "micros": micros}
                self._add(trace, "policy", line)

    def message(self, message: Message, session: Session | None) -> None:
        """
        Notes what became of the message.
        """
        for trace in list(self.traces):
            is_open = any(known is message and shown is trace for known, shown in self._open)
            if not is_open and not trace.filter.takes(message, session):
                continue
            if not self._shows(trace, message):
                trace.hidden += 1
                continue
            line = trace_lines.outcome(message, session)
            if trace.bodies and message.log:
                line["body"] = trace_lines.body(bytes(message.data))
            self._add(trace, "outcome", line)

    def session(self, event: str, session: Session, connection: Connection | None) -> None:
        """
        Notes an event of a traced session.
        """
        for trace in list(self.traces):
            filter = trace.filter
            if not filter.id and not filter.address and filter.takes_session(session, connection):
                line: dict[str, Any] = {"session": cut(session.runtime), "event": event}
                if connection is not None:
                    line |= {"connector": connection.connector, "peer": connection.peer}
                self._add(trace, "session", line)
