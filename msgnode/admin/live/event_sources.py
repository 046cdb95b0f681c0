"""
Event sources: they look at what the node keeps anyway, so that nothing that a message passes pays for events.

Events of sessions are the exception: they are noted when they happen.
"""

from collections.abc import Callable
from typing import Any

from msgnode.admin.live.event_ring import EventRing
from msgnode.admin.node_facts import NodeFacts
from msgnode.admin.reads.remedies import remedy
from msgnode.node import Node
from msgnode.protocol.close_codes import SLOW
from msgnode.sessions.history.connection_records import ConnectionRecord
from msgnode.sessions.history.refusals import Refusal
from msgnode.sessions.session import Session
from msgnode.storage.json_lines import cut


class EventSources:
    """
    The sources of the ring. `look` adds what happened since the last call.
    """

    def __init__(self, node: Node, facts: NodeFacts, ring: EventRing) -> None:
        self._node = node
        self._facts = facts
        self._ring = ring
        self._refusals = node.sessions.refusals.last_number
        self._closed = node.sessions.connections.closed.by.total()
        self._shed = node.counts.shed
        self._down = {each.name: bool(each.down) for each in node.back_ends}
        self._reload = facts.last_reload
        self._version = node.enforcement.version
        self._told = node.sessions.on_event
        node.sessions.on_event = self._session

    def _session(self, event: str, session: Session) -> None:
        connection = session.connection
        fields: dict[str, Any] = {"event": event, "session": cut(session.runtime)}
        if session.identity:
            fields["user"] = cut(session.identity)
        if connection is not None:
            fields |= {"connector": connection.connector, "peer": connection.peer}
        self._ring.add("session", fields)
        self._told(event, session)

    def look(self) -> None:
        for source in (self._look_at_refusals, self._look_at_connections, self._look_at_node):
            source()

    def _look_at_refusals(self) -> None:
        found = self._node.sessions.refusals
        before, self._refusals = self._refusals, found.last_number
        if before == found.last_number:
            return
        fresh = []
        for refusal in reversed(found):
            if refusal.number <= before:
                break
            fresh.append(refusal)
        for refusal in reversed(fresh):
            self._ring.add("refusal", refusal_fields(refusal), refusal.time)

    def _look_at_connections(self) -> None:
        closed = self._node.sessions.connections.closed
        number = closed.by.total()
        fresh = number - self._closed
        self._closed = number
        if not fresh:
            return
        records: list[ConnectionRecord] = []
        for record in reversed(closed):
            if len(records) == fresh:
                break
            records.append(record)
        for record in reversed(records):
            if record.code == SLOW.code:
                self._ring.add("slow", slow_fields(record), record.closed)

    def _look_at_node(self) -> None:
        node = self._node
        if node.counts.shed != self._shed:
            self._ring.add("shed", {"messages": node.counts.shed - self._shed})
            self._shed = node.counts.shed
        for each in node.back_ends:
            if bool(each.down) != self._down.get(each.name, False):
                self._down[each.name] = bool(each.down)
                self._ring.add("backend", {"name": each.name, "state": "open" if each.down else "closed"})
        verdict = self._facts.last_reload
        if verdict is not None and verdict is not self._reload:
            self._reload = verdict
            fields = {"ok": verdict.ok, "text": verdict.text, "by": verdict.by}
            self._ring.add("config", fields, verdict.time)
        version = node.enforcement.version
        if version != self._version:
            self._version = version
            self._ring.add("policy", {"version": version})


def refusal_fields(refusal: Refusal) -> dict[str, Any]:
    """
    A refusal as its event tells it. Empty fields are left out.
    """
    found = {
        "code": refusal.code,
        "reason": refusal.reason,
        "text": refusal.text,
        "outcome": refusal.outcome,
        "remedy": remedy(refusal),
        "rule": refusal.rule,
        "session": refusal.session,
        "user": refusal.user,
        "peer": refusal.peer,
        "connector": refusal.connector,
        "type": refusal.type,
        "id": refusal.id,
        "from": refusal.from_,
        "to": refusal.to,
        "count": refusal.count,
    }
    return {key: value for key, value in found.items() if value != ""}


def slow_fields(record: ConnectionRecord) -> dict[str, Any]:
    return {
        "session": cut(record.session),
        "user": cut(record.user),
        "connector": record.connector,
        "peer": record.peer,
        "out_messages": record.out_messages,
        "out_bytes": record.out_bytes,
    }


class TrafficSample:
    """
    A TrafficRecorder that keeps at most so many lines a second, and counts the others.

    `flush` takes what is kept, and how many lines were left out since the last call.
    """

    def __init__(self, most: int, now: Callable[[], float]) -> None:
        self._most = most
        self._now = now
        self._second = 0
        self._used = self._dropped = 0
        self._lines: list[dict[str, Any]] = []

    def message(self, message: Any, session: Session | None) -> None:
        second = int(self._now())
        if second != self._second:
            self._second, self._used = second, 0
        if self._used >= self._most:
            self._dropped += 1
            return
        if not message.log:
            return
        self._used += 1
        to = message.to
        self._lines.append(
            {
                "kind": "traffic",
                "time": message.received_at / 1e9,
                "session": cut(session.runtime) if session is not None else "",
                "connector": message.origin.connector,
                "peer": message.origin.peer,
                "type": cut(message.type),
                "from": cut(message.from_),
                "to": cut(to) if isinstance(to, str) else f"{cut(to[0])} and {len(to) - 1} more",
                "bytes": len(message.data),
                "outcome": message.outcome,
                "recipients": message.recipients,
                "code": message.code,
                "micros": message.handling_us,
            }
        )

    def session(self, event: str, session: Session, connection: Any) -> None:
        """
        Events of sessions have a kind of their own.
        """

    def carried(self, number: int) -> None:
        """
        Counts messages that the data plane carried, and that are not shown.
        """
        self._dropped += number

    def take(self) -> tuple[list[dict[str, Any]], int]:
        lines, self._lines = self._lines, []
        dropped, self._dropped = self._dropped, 0
        return lines, dropped
