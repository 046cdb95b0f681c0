"""
One client of Socket.IO, over whatever carries it at the moment.

It begins by polling and mostly goes on by WebSocket; its session does not
notice.  While it polls, what an answer carries is kept in the session's outbox
until the next poll shows that the answer came, else it is sent again when the
runtime opens its session anew.  The protocol has no better acknowledgement.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from secrets import token_urlsafe
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.connectors.socketio import codec
from msgnode.connectors.socketio.acks import Acks
from msgnode.connectors.socketio.polling import MAX_HANDED_OUT, Events, ParkedPoll, Polls
from msgnode.node import Node
from msgnode.protocol.close_codes import OPEN_TIMEOUT, OVER_CAPACITY, SLOW, Closing
from msgnode.sessions.outbox import Outbox
from msgnode.sessions.resume import negotiate
from msgnode.sessions.session import Session
from msgnode.structures.time_slices import MESSAGES, SIZE
from msgnode.transport.cork import Cork

log = Logger()

PATIENCE = {3: 60.0, 4: 20.0}  # seconds after the next ping is due until a client counts as lost
PING = 25.0  # seconds between pings where the operator wants none on WebSocket
NUDGE = 0.1  # seconds a poll is held while the client changes to WebSocket
PROBING = 10.0  # seconds for that change

TOO_LONG = Closing(1009, "too long")


class ClientWebSocket(Protocol):
    """
    The WebSocket of a client.
    """

    def sendText(self, payload: bytes) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def part(self, why: Closing) -> None: ...
    def cut(self) -> None: ...


class SocketClient:
    """
    A Connection of session.py.  `way` is None while it polls.

    Then it is full whenever no GET waits, so that its session keeps what comes.
    """

    connector = "socketio"

    def __init__(
        self,
        node: Node,
        cork: Cork,
        clock: IReactorTime,
        events: Events,
        version: int,
        forget: Callable[["SocketClient"], None],
        linger: Callable[["SocketClient"], None],
    ) -> None:
        self.sid = token_urlsafe(15)
        self.version = version
        self.peer = self.identity = self.bearer = ""
        self.session: Session | None = None
        self.full = True
        self.counted = True
        self.ended = False
        self._pauses = 0  # wishes that it be not read from
        self.posting = False  # what it posted takes more than one turn
        self.refusal: Closing | None = None
        self.way: ClientWebSocket | None = None
        self.probing: ClientWebSocket | None = None
        self._node = node
        self._cork = cork
        self._clock = clock
        self._events = events
        self._forget = forget
        self._linger = linger
        self.polls = Polls(self, cork, events, node.sessions.journal)
        flooded = partial(node.sessions.part, self, OVER_CAPACITY)
        self._acks = Acks(self._answer, flooded, node.message_log, cork, clock)
        self._heard_at = clock.seconds()
        self._beat: IDelayedCall | None = None
        self._nudge: IDelayedCall | None = None
        self._trial: IDelayedCall | None = None

    def begin(self, way: ClientWebSocket | None, upgrades: list[str]) -> None:
        """
        The client is there; tell it how it is spoken with.
        """
        if way is not None:
            self._take_way(way)
        self._node.sessions.arrived(self)
        if self.ended:
            return  # one too many
        told = {
            "sid": self.sid,
            "upgrades": upgrades,
            "pingInterval": round(self._interval * 1000),
            "pingTimeout": round(PATIENCE[self.version] * 1000),
            "maxPayload": 2 * self._node.config.limits.message_bytes,
        }
        self._put(codec.OPEN + codec.encode(told))
        self._beat = self._clock.callLater(self._interval, self._beaten)

    def greet(self) -> None:
        """
        Connect it to the namespace `/`, which a client of version 4 asks for.
        """
        if self.version == 3 and not self.ended:
            self._put(codec.CONNECTED)

    # -- what comes ----------------------------------------------------------

    def take(self, packets: list[bytes], taken: Callable[[], object]) -> bool:
        """
        Carry the packets of a POST.  False: it takes more than one turn, and `taken` is called at the end.
        """
        work = self._carry(packets)
        for step in work:
            self.posting = True
            over = self._node.slices.work(chain([step], work))
            over.addErrback(partial(log.failure, "carrying what a client of Socket.IO posted"))
            over.addCallback(self._posted, taken)
            return False
        return True

    def _carry(self, packets: list[bytes]) -> Iterator[Deferred[None] | None]:
        """
        As many at once as a read of a socket would bring.
        """
        held, at = self._node.input_order.held, 0
        while at < len(packets) and not self.ended:
            if at:
                yield None
            begin, size = at, 0
            self._unbound()
            with self._cork:
                while at < min(len(packets), begin + MESSAGES) and size < SIZE and self not in held:
                    size += len(packets[at])
                    self.heard(packets[at])
                    at += 1
            settled = self._node.input_order.settled(self)
            if settled is not None:
                yield settled
        if self.way is None and self.polls.waiting is None:
            self._pause()

    def _posted(self, done: object, taken: Callable[[], object]) -> None:
        self.posting = False
        taken()

    def heard(self, packet: bytes) -> None:
        """
        One packet, which is valid UTF-8.
        """
        if self.ended:
            return
        self._heard_at = self._clock.seconds()
        if packet.startswith(b"42["):
            self._event(packet[2:])
            return
        kind = packet[:1]
        if kind == codec.PING:
            # Who does not read would be answered without end.
            if self.way is None or not self.full:
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
        Say that the message was taken, once the node's work on it is done.
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
            self._node.sessions.part(self, TOO_LONG)
            return False
        outbox = self.outbox
        if outbox is not None and self.counted and not outbox.asked:
            outbox.at = outbox.received  # it repeats nothing
        self._node.receive(data, self)
        return not self.ended

    # -- Connection ----------------------------------------------------------

    @property
    def outbox(self) -> Outbox | None:
        """
        The session's, while this is the session's connection.
        """
        session = self.session
        if session is None or session.connection is not self or self.ended:
            return None
        return session.outbox

    def send(self, data: bytes) -> None:
        self._put(self._events.of(data))

    def fetch(self) -> None:
        outbox = self.outbox
        if outbox is not None and self.polls.waiting is not None:
            self.full = outbox.sent_bytes >= MAX_HANDED_OUT
            self.polls.flush_soon()

    def lose(self, why: Closing) -> None:
        if self.ended:
            return
        self.refusal = why
        told: dict[str, Any] = {"code": why.code, "reason": why.word}
        if why.retry_after is not None:
            told["retry_after"] = why.retry_after
        with self._cork:
            self._put(codec.event("close", told))
            # Its library comes back by itself, unless it is told that it is wanted no more.
            # Who had nothing to say would do that for ever.
            if why.retry_after is None or why.code == OPEN_TIMEOUT.code:
                self._put(codec.DISCONNECTED)
            self.ended = True
            self._stop_timers()
            if self.way is not None:
                self._forget(self)
                self.way.part(why)
                return
            if not self._node.draining:
                self._linger(self)
        if self.probing is not None:
            self.probing.cut()
        self._node.sessions.lost(self)

    def drop(self) -> None:
        if self.way is not None:
            self.way.cut()
        else:
            self.lose(OVER_CAPACITY)

    def pause_reading(self) -> None:
        """
        A client that polls is not answered meanwhile.
        """
        self._pauses += 1
        if self.way is not None:
            self.way.pause_reading()

    def resume_reading(self) -> None:
        self._pauses -= 1
        if self.way is not None:
            self.way.resume_reading()

    def unreadable(self, text: str, code: int) -> None:
        """
        A stub would hand such an answer to its application; it is counted instead.
        """

    def gone(self) -> None:
        """
        The client is gone, without a word or with one.
        """
        way, self.ended = self.way, True
        self._stop_timers()
        self._forget(self)
        self.polls.take_beside()
        self.polls.release()
        self._node.sessions.lost(self)
        for wire in (way, self.probing):
            if wire is not None:
                wire.cut()

    # -- polling -------------------------------------------------------------

    def poll(self, poll: ParkedPoll) -> None:
        """
        Answer this GET with what there is, or when something comes.
        """
        self._heard_at = self._clock.seconds()
        polls = self.polls
        polls.waiting = poll
        with self._cork:
            if not self.ended:
                polls.acknowledge()
                self._node.sessions.ready(self)
            elif not polls.size:
                # Not before the reason has come: today's clients would not read that.
                polls.put(codec.CLOSE)
                self._stop_timers()
                self._forget(self)
            self._cork.add(polls)
        if polls.waiting is poll and self.probing is not None:
            self._nudge = self._clock.callLater(NUDGE, polls.release)

    def _put(self, packet: bytes) -> None:
        if self.way is not None:
            self.way.sendText(packet)
            return
        self.polls.put(packet)

    def _answer(self, packet: bytes) -> None:
        """
        Send what waits in no session.
        """
        self._put(packet)
        if self.full:
            self._node.sessions.unread.add(self, len(packet))

    def answered(self) -> None:
        """
        No GET waits any more.
        """
        self._stop(self._nudge)
        self._pause()

    def hung_up(self, poll: ParkedPoll) -> None:
        """
        A GET was cut.  A client gives up over one, so it will not ask again.
        """
        if self.polls.waiting is poll:
            self.polls.waiting = None
            self.gone()

    def _pause(self) -> None:
        """
        No GET waits: what comes waits in the session.
        """
        if self.outbox is not None:
            self._node.sessions.paused(self)
        else:
            self._unbound()

    def _unbound(self) -> None:
        # What is answered past the session cannot wait there.
        if self.way is None:
            size = self.polls.size
            self.full = size >= MAX_HANDED_OUT
            if size >= 2 * MAX_HANDED_OUT:
                self._node.sessions.part(self, SLOW)

    # -- WebSocket -----------------------------------------------------------

    def probe(self, way: ClientWebSocket) -> None:
        """
        The client tries a WebSocket; an older attempt is given up.
        """
        older, self.probing = self.probing, way
        if older is not None:
            older.cut()
        self._stop(self._trial)
        self._trial = self._clock.callLater(PROBING, self._probed_long, way)

    def probed(self, way: ClientWebSocket) -> None:
        """
        It works.  The client polls no more once its last poll is answered.
        """
        way.sendText(codec.PROBED)
        self.polls.release()

    def upgrade(self, way: ClientWebSocket) -> None:
        """
        From now on this is the client's WebSocket.  Its last poll was answered, and the answer came.
        """
        self.probing = None
        self._stop(self._trial)
        polls, outbox, session = self.polls, self.outbox, self.session
        polls.acknowledge()
        packets = polls.take_beside()
        polls.release()
        if outbox is not None and outbox.asked:
            while owed := polls.owed():
                packets += owed
        self._take_way(way)
        for packet in packets:
            way.sendText(packet)
        if outbox is not None and session is not None and not outbox.asked:
            negotiate(session, False, False, fresh=True)
            session.go_on()
        self._node.sessions.ready(self)

    def _probed_long(self, way: ClientWebSocket) -> None:
        if self.probing is way:
            self.probing = None
            way.cut()

    def _take_way(self, way: ClientWebSocket) -> None:
        self.way = way
        self.counted = self.full = False
        for _ in range(self._pauses):
            way.pause_reading()

    # -- heartbeats ----------------------------------------------------------

    @property
    def _interval(self) -> float:
        return self._node.config.websocket.ping_seconds or PING

    def _beaten(self) -> None:
        silent = self._clock.seconds() - self._heard_at
        interval = self._interval
        if silent >= interval + PATIENCE[self.version]:
            self.gone()
            return
        if self.version == 4 and (self.way is None or not self.full):
            self._put(codec.PING)
        self._beat = self._clock.callLater(interval, self._beaten)

    def _stop_timers(self) -> None:
        self._acks.stop()
        for timer in (self._beat, self._nudge, self._trial):
            self._stop(timer)

    @staticmethod
    def _stop(timer: IDelayedCall | None) -> None:
        if timer is not None and timer.active():
            timer.cancel()
