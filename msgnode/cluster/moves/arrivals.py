"""
The sessions that arrive from other members.
"""

from collections import Counter
from collections.abc import Callable

import msgspec
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger

from msgnode.cluster.moves.session_holder import Release, SessionHolder
from msgnode.cluster.moves.wire import (
    MAX_CLAIMS,
    AnyStatement,
    End,
    Fragment,
    Got,
    Messages,
    Offer,
    State,
    Want,
)

MAX_MESSAGE_BYTES = 64 * 1024 * 1024

log = Logger()


class _Arrival(msgspec.Struct, eq=False):
    """
    A handover to this node that is under way.
    """

    of: str
    release: Release
    parts: bytearray = msgspec.field(default_factory=bytearray)  # of the state, or of a large message
    is_writing: bool = False
    is_importing: bool = False


class Arrivals:
    """
    The handovers to this node. `send` sends an answer to a member; `imported` is called for each session that
    is held here from now on. `settled` fires when all members know what this node holds.
    """

    def __init__(
        self,
        node: str,
        holder: SessionHolder,
        send: Callable[[str, AnyStatement], None],
        imported: Callable[[Release], None],
        most: int,
        settled: Callable[[], Deferred[None]],
    ) -> None:
        self._settled = settled
        self._node = node
        self._holder = holder
        self._send = send
        self._imported = imported
        self._most = most
        self.put_off = 0  # offers beyond that
        self._under_way: dict[tuple[str, bytes], _Arrival] = {}
        self._importing: Counter[str] = Counter()  # names whose state is not on disk here

    def __len__(self) -> int:
        return len(self._under_way)

    def is_importing(self, name: str) -> bool:
        """
        Is the session's state on its way?
        """
        return name in self._importing

    def member_down(self, node: str) -> None:
        """
        Forget what is only in memory; the member offers it again.
        """
        for key in [key for key in self._under_way if key[0] == node]:
            if not self._under_way[key].is_writing:
                self._forget(key)

    def offered(self, of: str, offer: Offer) -> None:
        progress = self._holder.progress(of, offer.id)
        if progress is not None and progress[1]:
            self._send(of, Got(offer.id, progress[0], True))
            return
        arrival = self._under_way.get((of, offer.id))
        if arrival is None:
            if len(self._under_way) >= self._most:
                self.put_off += 1  # it is offered again later
                return
            release = Release(offer.id, offer.name, offer.generation, self._node)
            arrival = self._under_way[of, offer.id] = _Arrival(of, release)
            if progress is None:
                arrival.is_importing = True
                self._importing[offer.name] += 1
        if not arrival.is_writing:
            arrival.parts.clear()
            claims = self._holder.claims(offer.name)[:MAX_CLAIMS]
            self._send(of, Want(offer.id, -1 if progress is None else progress[0], claims))

    def state(self, of: str, state: State) -> None:
        arrival = self._find(of, state.id)
        if arrival is None or self._holder.progress(of, state.id) is not None:
            return
        if state.offset != len(arrival.parts):
            return
        arrival.parts += state.data
        if len(arrival.parts) >= state.size:
            data = bytes(arrival.parts)
            arrival.parts.clear()
            written = maybeDeferred(self._holder.import_state, of, arrival.release, data)
            written.addCallback(self._hold, arrival)
            self._write(arrival, written, Got(state.id, 0, False))

    def _hold(self, done: None, arrival: _Arrival) -> Deferred[None]:
        """
        The session is here. Its earlier holder hears of that when the other members know where it is: then
        what they still send there comes to an end.
        """
        self._imported_state(arrival)
        self._imported(arrival.release)
        return self._settled()

    def _imported_state(self, arrival: _Arrival) -> None:
        if arrival.is_importing:
            arrival.is_importing = False
            name = arrival.release.name
            self._importing[name] -= 1
            if not self._importing[name]:
                del self._importing[name]

    def _forget(self, key: tuple[str, bytes]) -> None:
        self._imported_state(self._under_way.pop(key))

    def fragment(self, of: str, fragment: Fragment) -> None:
        arrival = self._expected(of, fragment.id, fragment.after)
        if arrival is None or fragment.offset != len(arrival.parts):
            return
        if len(arrival.parts) + len(fragment.data) > MAX_MESSAGE_BYTES:
            arrival.parts.clear()
            return
        arrival.parts += fragment.data

    def messages(self, of: str, messages: Messages) -> None:
        arrival = self._expected(of, messages.id, messages.after)
        if arrival is None or messages.begun != len(arrival.parts):
            return
        data = messages.data
        if arrival.parts:
            data = [bytes(arrival.parts) + data[0], *data[1:]]
            arrival.parts.clear()
        written = self._holder.import_messages(of, messages.id, messages.key, data)
        self._write(arrival, written, Got(messages.id, messages.key, False))

    def end(self, of: str, end: End) -> None:
        arrival = self._expected(of, end.id, end.key)
        if arrival is None:
            arrival = self._find(of, end.id)
            if arrival is not None and arrival.is_importing:
                self._forget((of, end.id))  # its offer came late: the handover is over
            return
        if end.early:
            self._write(arrival, self._holder.wait_no_more(of, end.id), Got(end.id, end.key, False))
            return
        written = self._holder.finish(of, end.id)
        self._write(arrival, written, Got(end.id, end.key, True)).addCallback(self._ended, of, end.id)

    def _ended(self, is_written: bool, of: str, id: bytes) -> None:
        if is_written:
            self._forget((of, id))

    def _find(self, of: str, id: bytes) -> _Arrival | None:
        arrival = self._under_way.get((of, id))
        return None if arrival is None or arrival.is_writing else arrival

    def _expected(self, of: str, id: bytes, after: int) -> _Arrival | None:
        """
        The arrival whose next messages follow key `after`. A part that is missing is offered again.
        """
        arrival = self._find(of, id)
        return arrival if arrival is not None and self._holder.progress(of, id) == (after, False) else None

    def _write(self, arrival: _Arrival, written: Deferred[None], got: Got) -> Deferred[bool]:
        """
        Acknowledge what was written. If it was not, the member offers it again later.
        """
        arrival.is_writing = True

        def done(result: None) -> bool:
            arrival.is_writing = False
            self._send(arrival.of, got)
            return True

        def failed(why: object) -> bool:
            arrival.is_writing = False
            log.warn(
                "{name}, which arrives from {of}, could not be written: {why}",
                name=arrival.release.name,
                of=arrival.of,
                why=why,
            )
            return False

        return written.addCallbacks(done, failed)
