"""
The compiled data plane of one node: what Python tells it, and what it tells Python.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Protocol

from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.transport.cork import Cork
from msgnode.transport.data_plane import PLAIN, DataPlane, FlowTerms, KeptTaker
from msgnode.transport.native_ports import DecryptedPort, Framing, Port, PortOutlet, is_decrypting

log = Logger()

MAX_LATE = 100  # of them in one look
ROUND_BYTES = 1024 * 1024
ROUND_MICROSECONDS = 5000
# Where the reads of the last round held two messages or more, each, the next round begins so much later, so
# that fewer system calls carry more.  The kernel's timers are late by about 50 more.
GATHER_MICROSECONDS = 10


class Counts(Protocol):
    """
    The node's counters of messages (msgnode/sessions/counters.py).
    """

    received: int
    received_bytes: int
    received_by: defaultdict[str, int]
    sent: int
    sent_bytes: int
    handed_over: list[int]


class Journal(Protocol):
    """
    The delivery journal (msgnode/sessions/journal.py).
    """

    def carried_offset(self) -> int: ...
    def append_carried(self, records: bytes, live: int) -> None: ...


class NativePlane(DataPlane):
    """
    The compiled data plane, with the connections that it reads.

    `gather`: wait a little for more where reads hold several messages.
    """

    is_native = True

    def __init__(
        self, module: ModuleType, *, gather: bool = False, round_microseconds: int = ROUND_MICROSECONDS
    ) -> None:
        super().__init__("")
        self._gather_microseconds = GATHER_MICROSECONDS if gather else 0
        self._round_microseconds = round_microseconds
        self.poller: Any = module.Plane(self, self, self._failed)
        self._take_traffic = getattr(self.poller, "take_traffic", None)  # absent from an older build
        self._lost_lines = 0
        self._cork: Cork | None = None
        self._counts: Counts | None = None
        self._journal: Journal | None = None
        self._take_kept: KeptTaker = lambda records, entries, micros: None
        self._carried = 0
        self._punted: Counter[str] = Counter()
        self._ports: dict[Any, Port] = {}
        self._connections: dict[int, Any] = {}

    def use(self, cork: Cork, counts: Counts, journal: Journal) -> None:
        self._cork, self._counts, self._journal = cork, counts, journal

    def set_limits(
        self, unsent_bytes: int, partial_bytes: int, partial_bytes_of_host: int, flow_bytes: int
    ) -> None:
        """
        Bytes held for one connection; of all partial input, and of that of one host (0: any number); and of
        all flows.
        """
        limits = ROUND_BYTES, self._round_microseconds, self._gather_microseconds
        self.poller.set_limits(unsent_bytes, *limits)
        self.poller.set_partial_limits(partial_bytes, partial_bytes_of_host)
        self.poller.set_flow_limit(flow_bytes)
        self.change_all()

    # -- connections ---------------------------------------------------------------

    def open_port(
        self, connection: Any, outlet: PortOutlet, framing: Framing, longest: int, host: str
    ) -> None:
        """
        Read this connection from now on; its partial input counts for `host` ("": for the node only).
        """
        kind = DecryptedPort if is_decrypting(connection.transport) else Port
        port = kind(self.poller, connection, outlet, framing, longest, host, self._forget)
        self._ports[connection] = outlet.port = port
        self._connections[port.number] = connection
        connection.read_by_port(port)

    def _forget(self, connection: Any, number: int) -> None:
        carried = self.take_traffic(connection)
        if carried is not None and connection.session is not None:
            connection.session.add_carried(*carried)
        del self._ports[connection]
        del self._connections[number]

    def port(self, connection: Any) -> int:
        port = self._ports.get(connection)
        return 0 if port is None else port.number

    def ready_changed(self, connection: Any, is_ready: bool, room: tuple[int, int] | None) -> None:
        port = self._ports.get(connection)
        if port is not None:
            self.poller.set_ready(port.number, is_ready, room)

    def room_changed(self, connection: Any, room: tuple[int, int]) -> None:
        port = self._ports.get(connection)
        if port is not None:
            self.poller.set_room(port.number, room)

    def session_changed(self, connection: Any) -> None:
        self.poller.renew(self.port(connection))

    def block(self, connection: Any) -> None:
        self.poller.block(self.port(connection))

    def unblock(self, connection: Any) -> None:
        self.poller.unblock(self.port(connection))

    def release(self, which: Callable[[Any], bool]) -> None:
        """
        Let these connections be read by Twisted again.
        """
        for connection, port in list(self._ports.items()):
            if which(connection):
                port.ended()

    def late(self, patience: float) -> list[Any]:
        """
        The connections whose messages began longer ago than that, in seconds, and have not ended; MAX_LATE of
        them at most.
        """
        before = time.time_ns() - int(patience * 1e9)
        return [self._connections[number] for number in self.poller.late(max(before, 0), MAX_LATE)]

    # -- decisions -------------------------------------------------------------------

    def install(
        self,
        port: int,
        from_: str,
        to: str,
        type_: str,
        recipients: Sequence[int],
        line: tuple[str, str, str, str] | None,
        terms: FlowTerms = PLAIN,
    ) -> None:
        given = terms._asdict()
        if terms.kept is None:
            del given["kept"]  # which an older build does not know
        self.poller.install(port, from_, to, type_, recipients, line=line, **given)

    def has_flow(self, port: int, from_: str, to: str, type_: str) -> bool:
        found: bool = self.poller.has_flow(port, from_, to, type_)
        return found

    def change(self, address: str) -> None:
        self.poller.change(address)

    def change_name(self, name: str) -> None:
        self.poller.change_name(name)

    def change_all(self) -> None:
        self.poller.change_all()

    def expect_response(self, address: str, id: int | str) -> None:
        self.poller.await_response(address, id)

    def forget_response(self, address: str, id: int | str) -> None:
        self.poller.forget_response(address, id)

    # -- kept objects ------------------------------------------------------------------

    def keep(self, taker: KeptTaker) -> None:
        self._take_kept = taker
        if hasattr(self.poller, "forget_kept"):
            self.poller.forget_kept()

    def add_kept(self, address: str) -> int:
        number: int = self.poller.add_kept(address)
        return number

    def set_version(self, object: int, version: int, micros: int) -> None:
        self.poller.set_version(object, version, micros)

    @property
    def keeps_objects(self) -> bool:
        return hasattr(self.poller, "forget_kept")  # absent from an older build

    # -- rate limits -----------------------------------------------------------------

    def add_bucket(self, messages: int, size: int) -> int:
        bucket: int = self.poller.add_bucket(messages, size)
        return bucket

    def remove_bucket(self, bucket: int) -> None:
        self.poller.remove_bucket(bucket)

    def draw(self, buckets: Sequence[int], size: int) -> bool:
        is_drawn: bool = self.poller.draw(buckets, size)
        return is_drawn

    def bucket_wait(self, bucket: int) -> float:
        seconds: float = self.poller.wait(bucket)
        return seconds

    def is_bucket_idle(self, bucket: int, seconds: float) -> bool:
        is_idle: bool = self.poller.is_idle(bucket, seconds)
        return is_idle

    # -- policies ----------------------------------------------------------------------

    def add_tally(self) -> int:
        tally: int = self.poller.add_tally()
        return tally

    def take_tallies(self) -> list[tuple[int, int, int]]:
        counted: list[tuple[int, int, int]] = self.poller.take_tallies()
        return counted

    def forget_tallies(self) -> None:
        self.poller.change_all()
        self.poller.forget_tallies()

    def set_sample_share(self, share: float) -> None:
        self.poller.set_sample_share(share)

    def is_sample_due(self) -> bool:
        is_due: bool = self.poller.is_sample_due()
        return is_due

    def log_decision(self, time: int, line: bytes) -> int:
        lines: int = self.poller.log_decision(time, line)
        return lines

    @property
    def decision_lines(self) -> int:
        lines: int = self.poller.decision_lines()
        return lines

    def take_decision_log(self) -> tuple[int, int, list[tuple[int, bytes]]]:
        found: tuple[int, int, list[tuple[int, bytes]]] = self.poller.take_decision_log()
        return found

    # -- partial input ---------------------------------------------------------------

    def charge_partial(self, host: str, more: int) -> None:
        self.poller.charge_partial(host, more)

    def partial_bytes(self, host: str) -> tuple[int, int, int]:
        found: tuple[int, int, int] = self.poller.partial_bytes(host)
        return found

    # -- numbers -----------------------------------------------------------------------

    def update_counts(self) -> None:
        counts = self._counts
        if counts is None:
            return
        found = self.poller.take_counts()
        counts.received += found["received"]
        counts.received_bytes += found["received_bytes"]
        lines = found.get("received_lines", 0)
        for connector, number in (("line", lines), ("websocket", found["received"] - lines)):
            if number:
                counts.received_by[connector] += number
        counts.sent += found["sent"]
        counts.sent_bytes += found["sent_bytes"]
        for bits, number in enumerate(found["handed_over"]):
            counts.handed_over[bits] += number
        self._carried += found["received"]
        self._punted.update(found["punted"])
        self._lost_lines += found["lost_lines"]

    def take_traffic(self, connection: Any) -> tuple[int, int, int, int, int] | None:
        port = self._ports.get(connection)
        if port is None or self._take_traffic is None:
            return None
        traffic: tuple[int, int, int, int, int] = self._take_traffic(port.number)
        return traffic

    def log(self, time: int, line: bytes) -> None:
        self.poller.log(time, line)

    def take_log(self) -> tuple[int, list[tuple[int, bytes]]]:
        found: tuple[int, list[tuple[int, bytes]]] = self.poller.take_log()
        return found

    def take_lost_lines(self) -> int:
        self.update_counts()
        lost, self._lost_lines = self._lost_lines, 0
        return lost

    @property
    def flows(self) -> int:
        flows: int = self.poller.flows()
        return flows

    @property
    def flow_bytes(self) -> int:
        size: int = self.poller.flow_bytes()
        return size

    @property
    def carried(self) -> int:
        return self._carried

    @property
    def punted(self) -> dict[str, int]:
        return self._punted

    # -- what the compiled module calls ------------------------------------------------

    def __enter__(self) -> None:
        if self._cork is not None:
            self._cork.__enter__()

    def __exit__(self, kind: None, value: None, trace: None) -> None:
        if self._cork is not None:
            self._cork.__exit__(kind, value, trace)

    def begin(self) -> int:
        """
        The offset in the journal's batch at which the next records begin.
        """
        assert self._journal is not None
        return self._journal.carried_offset()

    def append(self, records: bytes, live: int) -> None:
        """
        Give the journal records of messages whose sizes add up to `live`.
        """
        assert self._journal is not None
        self._journal.append_carried(records, live)

    def keep_records(self, records: bytes, entries: list[tuple[int, int, int]], micros: int) -> None:
        """
        Give the journal of objects the records of messages that were carried.
        """
        self._take_kept(records, entries, micros)

    @staticmethod
    def _failed(why: BaseException) -> None:
        log.failure("a connection of the data plane failed", Failure(why))
