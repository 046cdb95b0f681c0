"""
One Socket.IO client, by polling or by WebSocket.

It begins by polling and mostly changes to WebSocket; its session does not
notice.  While it polls, the messages of an answer stay in the session's outbox
until the next poll shows that the answer came.  Otherwise they are sent again
when the runtime opens its session again.  The protocol has no better
acknowledgement.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from secrets import token_urlsafe
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.connectors.http.requests import MAX_ANSWER_BYTES
from msgnode.connectors.socketio import codec
from msgnode.connectors.socketio.acks import Acks
from msgnode.connectors.socketio.heartbeat import Heartbeat
from msgnode.connectors.socketio.polling import Events, ParkedPoll, Polls
from msgnode.node import Node
from msgnode.protocol.close_codes import OPEN_TIMEOUT, OVER_CAPACITY, SLOW, Closing
from msgnode.sessions.outbox import Outbox
from msgnode.sessions.resume import negotiate
from msgnode.sessions.session import Session
from msgnode.structures.time_slices import MESSAGES, SLICE_BYTES
from msgnode.transport.cork import Cork

log = Logger()

HOLD_SECONDS = 0.1  # seconds that a poll is held while the client changes to WebSocket
PROBE_SECONDS = 10.0  # seconds for that change

TOO_LONG = Closing(1009, "too long")


class ClientWebSocket(Protocol):
    """
    The WebSocket of a Socket.IO client.
    """

    def sendText(self, payload: bytes) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close_with(self, why: Closing) -> None: ...
    def abort(self) -> None: ...


class SocketClient:
    """
    A Connection of session.py.  `websocket` is None while it polls.

    While it polls it is full whenever no GET waits, so that its messages wait in the session.
    """

    connector = "socketio"

    def __init__(
        self,
        node: Node,
        cork: Cork,
        clock: IReactorTime,
        events: Events,
        version: int,
        sid: str,
        forget: Callable[["SocketClient"], None],
        linger: Callable[["SocketClient"], None],
    ) -> None:
        self.sid = sid
        self.version = version
        self.peer = self.identity = self.bearer = self.origin = self.user_agent = ""
        self.session: Session | None = None
        self.write_paused = True
        self.acks_by_request = True
        self.ended = False
        self._pauses = 0  # how many have asked that it is not read from
        self.posting = False  # its POST takes more than one turn of the event loop
        self.refusal: Closing | None = None
        self.websocket: ClientWebSocket | None = None
        self.probing: ClientWebSocket | None = None
        self._node = node
        self._cork = cork
        self._clock = clock
        self._events = events
        self._forget = forget
        self._linger = linger
        self.polls = Polls(self, cork, events, node.sessions.journal)
        flooded = partial(node.sessions.connections.close, self, OVER_CAPACITY)
        self._acks = Acks(self._answer, flooded, node.message_log, cork, clock)
        self._heartbeat = Heartbeat(
            clock, version, lambda: node.config.websocket.ping_seconds, self._ping, self.gone
        )
        self._nudge: IDelayedCall | None = None
        self._trial: IDelayedCall | None = None

    def begin(self, websocket: ClientWebSocket | None, upgrades: list[str]) -> None:
        """
        Start a new client, and send it the parameters of its connection.
        """
        if websocket is not None:
            self._use_websocket(websocket)
        self._node.sessions.connections.made(self)
        if self.ended:
            return  # one too many
        told = {
            "sid": self.sid,
            "upgrades": upgrades,
            "pingInterval": round(self._heartbeat.interval * 1000),
            "pingTimeout": round(self._heartbeat.timeout * 1000),
            "maxPayload": 2 * self._node.config.limits.message_bytes,
        }
        self._put(codec.OPEN + codec.encode(told))
        self._heartbeat.start()

    def greet(self) -> None:
        """
        Connect it to the namespace `/`, which a client of version 4 asks for.
        """
        if self.version == 3 and not self.ended:
            self._put(codec.CONNECTED)

    # -- receiving -----------------------------------------------------------

    def take(self, packets: list[bytes], taken: Callable[[], object]) -> bool:
        """
        Handle the packets of a POST.  False: that takes more than one turn, and `taken` is called at the end.
        """
        work = self._carry(packets)
        for step in work:
            self.posting = True
            over = self._node.slices.work(chain([step], work))
            over.addErrback(partial(log.failure, "a POST of a Socket.IO client could not be handled"))
            over.addCallback(self._posted, taken)
            return False
        return True

    def _carry(self, packets: list[bytes]) -> Iterator[Deferred[None] | None]:
        """
        Handle the packets in slices, each about as long as one read of a socket.
        """
        pending, at = self._node.input_order.pending, 0
        while at < len(packets) and not self.ended:
            if at:
                yield None
            begin, size = at, 0
            self._unbound()
            with self._cork:
                while at < min(len(packets), begin + MESSAGES) and size < SLICE_BYTES and self not in pending:
                    size += len(packets[at])
                    self.heard(packets[at])
                    at += 1
            settled = self._node.input_order.settled(self)
            if settled is not None:
                yield settled
        if self.websocket is None and self.polls.waiting is None:
            self._pause()

    def _posted(self, done: object, taken: Callable[[], object]) -> None:
        self.posting = False
        taken()

    def heard(self, packet: bytes) -> None:
        """
        Handle one packet, which is valid UTF-8.
        """
        if self.ended:
            return
        self._heartbeat.heard()
        if packet.startswith(b"42["):
            self._event(packet[2:])
            return
        kind = packet[:1]
        if kind == codec.PING:
            # The answers to a client that does not read would use memory without limit.
            if self.websocket is None or not self.write_paused:
                self._put(codec.PONG + packet[1:])
        elif kind == codec.MESSAGE:
            self._socket(packet)
        elif kind == codec.CLOSE:
            self.gone()
        elif kind not in (codec.PONG, codec.NOOP):
            self._node.reject_undecodable(packet, f"no packet of Engine.IO: {packet[:40]!r}", self)

    def _socket(self, packet: bytes) -> None:
        try:
            found = codec.socket_packet(packet)
        except codec.Garbled as why:
            self._node.reject_undecodable(packet, str(why), self)
            return
        if found.namespace != b"/":
            if found.kind == b"0":
                self._answer(codec.no_namespace(found.namespace, self.version))
        elif found.kind == b"0":
            if self.version == 4:
                told = {"sid": token_urlsafe(15)}
                self._answer(codec.CONNECTED + codec.encode(told))
        elif found.kind == b"1":
            self.gone()
        elif found.kind == b"2":
            if self._event(found.payload) and found.ack:
                self._acknowledge(found.ack)
        else:
            self._node.reject_undecodable(packet, "a message is a text event without attachments", self)

    def _acknowledge(self, number: bytes) -> None:
        """
        Acknowledge the message once it is processed.
        """
        settled = self._node.input_order.settled(self)
        if settled is None:
            self._acks.owe(number)
            return
        settled.addCallback(lambda done: self._taken(number))

    def _taken(self, number: bytes) -> None:
        if not self.ended:
            with self._cork:
                self._acks.owe(number)

    def _event(self, payload: bytes) -> bool:
        try:
            data = codec.message_of(payload)
        except codec.Garbled as why:
            self._node.reject_undecodable(payload, str(why), self)
            return False
        if len(data) > self._node.config.limits.message_bytes:
            self._node.counts.unreadable += 1
            self._node.sessions.connections.close(self, TOO_LONG)
            return False
        outbox, session = self.outbox, self.session
        inbox = session.mailbox.inbox if session is not None else None
        if outbox is not None and inbox is not None and self.acks_by_request and not outbox.client_requested:
            inbox.position = inbox.received  # it repeats no messages
        self._node.receive(data, self)
        return not self.ended

    # -- Connection ----------------------------------------------------------

    @property
    def outbox(self) -> Outbox | None:
        """
        The session's outbox, while this is the session's connection.
        """
        session = self.session
        if session is None or session.connection is not self or self.ended:
            return None
        return session.mailbox.outbox

    def send(self, data: bytes) -> None:
        self._put(self._events.of(data))

    def outbox_ready(self) -> None:
        outbox = self.outbox
        if outbox is not None and self.polls.waiting is not None:
            self.write_paused = outbox.sent_bytes >= MAX_ANSWER_BYTES
            self.polls.flush_soon()

    def lose(self, why: Closing) -> None:
        if self.ended:
            return
        self.refusal = why
        told: dict[str, Any] = {"code": why.code, "reason": why.word}
        if why.retry_after is not None:
            told["retry_after"] = why.retry_after
        if why.node:
            told["node"] = why.node
        with self._cork:
            self._put(codec.event("close", told))
            # Its library reconnects by itself unless it gets DISCONNECTED.  A client that never opened a
            # session would reconnect for ever.
            if why.retry_after is None or why.code == OPEN_TIMEOUT.code:
                self._put(codec.DISCONNECTED)
            self.ended = True
            self._stop_timers()
            if self.websocket is not None:
                self._forget(self)
                self.websocket.close_with(why)
                return
            if not self._node.draining:
                self._linger(self)
        if self.probing is not None:
            self.probing.abort()
        self._node.sessions.connections.lost(self)

    def abort(self) -> None:
        if self.websocket is not None:
            self.websocket.abort()
        else:
            self.lose(OVER_CAPACITY)

    def pause_reading(self) -> None:
        """
        Stop reading; a polling client gets no answer meanwhile.
        """
        self._pauses += 1
        if self.websocket is not None:
            self.websocket.pause_reading()

    def resume_reading(self) -> None:
        self._pauses -= 1
        if self.websocket is not None:
            self.websocket.resume_reading()

    def report_undecodable(self, text: str, code: int) -> None:
        """
        Count the message, but send no error: a stub would pass it to its application.
        """

    def gone(self) -> None:
        """
        The client is disconnected, with or without a close.
        """
        websocket, self.ended = self.websocket, True
        self._stop_timers()
        self._forget(self)
        self.polls.take_beside()
        self.polls.release()
        self._node.sessions.connections.lost(self)
        for wire in (websocket, self.probing):
            if wire is not None:
                wire.abort()

    # -- polling -------------------------------------------------------------

    def poll(self, poll: ParkedPoll) -> None:
        """
        Answer this GET with the messages that wait, or with the next one.
        """
        self._heartbeat.heard()
        polls = self.polls
        polls.waiting = poll
        with self._cork:
            if not self.ended:
                polls.acknowledge()
                self._node.sessions.connections.write_resumed(self)
            elif not polls.size:
                # Not before the client has the reason: after CLOSE today's clients do not read it.
                polls.put(codec.CLOSE)
                self._stop_timers()
                self._forget(self)
            self._cork.add(polls)
        if polls.waiting is poll and self.probing is not None:
            self._nudge = self._clock.callLater(HOLD_SECONDS, polls.release)

    def _put(self, packet: bytes) -> None:
        if self.websocket is not None:
            self.websocket.sendText(packet)
            return
        self.polls.put(packet)

    def _answer(self, packet: bytes) -> None:
        """
        Send a packet that no session keeps.
        """
        self._put(packet)
        if self.write_paused:
            self._node.sessions.connections.unread.add(self, len(packet))

    def answered(self) -> None:
        """
        The waiting GET was answered.
        """
        self._stop(self._nudge)
        self._pause()

    def hung_up(self, poll: ParkedPoll) -> None:
        """
        The connection of a GET was lost.  A client gives up then, so it will not poll again.
        """
        if self.polls.waiting is poll:
            self.polls.waiting = None
            self.gone()

    def _pause(self) -> None:
        """
        No GET waits: messages wait in the session.
        """
        if self.outbox is not None:
            self._node.sessions.connections.write_paused(self)
        else:
            self._unbound()

    def _unbound(self) -> None:
        # Answers without a session cannot wait in one.
        if self.websocket is None:
            size = self.polls.size
            self.write_paused = size >= MAX_ANSWER_BYTES
            if size >= 2 * MAX_ANSWER_BYTES:
                self._node.sessions.connections.close(self, SLOW)

    # -- WebSocket -----------------------------------------------------------

    def probe(self, websocket: ClientWebSocket) -> None:
        """
        The client tries a WebSocket; an older attempt is closed.
        """
        older, self.probing = self.probing, websocket
        if older is not None:
            older.abort()
        self._stop(self._trial)
        self._trial = self._clock.callLater(PROBE_SECONDS, self._probed_long, websocket)

    def probed(self, websocket: ClientWebSocket) -> None:
        """
        The WebSocket works.  The client stops polling once its last poll is answered.
        """
        websocket.sendText(codec.PROBED)
        self.polls.release()

    def upgrade(self, websocket: ClientWebSocket) -> None:
        """
        Use the WebSocket from now on.  The client's last poll was answered, and the answer came.
        """
        self.probing = None
        self._stop(self._trial)
        polls, outbox, session = self.polls, self.outbox, self.session
        polls.acknowledge()
        packets = polls.take_beside()
        polls.release()
        if outbox is not None and outbox.client_requested:
            while owed := polls.owed():
                packets += owed
        self._use_websocket(websocket)
        for packet in packets:
            websocket.sendText(packet)
        if outbox is not None and session is not None and not outbox.client_requested:
            negotiate(session, False, False, fresh=True)
            session.redeliver()
        self._node.sessions.connections.write_resumed(self)

    def _probed_long(self, websocket: ClientWebSocket) -> None:
        if self.probing is websocket:
            self.probing = None
            websocket.abort()

    def _use_websocket(self, websocket: ClientWebSocket) -> None:
        self.websocket = websocket
        self.acks_by_request = self.write_paused = False
        for _ in range(self._pauses):
            websocket.pause_reading()

    # -- timers --------------------------------------------------------------

    def _ping(self) -> None:
        if self.version == 4 and (self.websocket is None or not self.write_paused):
            self._put(codec.PING)

    def _stop_timers(self) -> None:
        self._acks.stop()
        self._heartbeat.stop()
        for timer in (self._nudge, self._trial):
            self._stop(timer)

    @staticmethod
    def _stop(timer: IDelayedCall | None) -> None:
        if timer is not None and timer.active():
            timer.cancel()
