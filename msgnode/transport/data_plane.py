"""
The data plane, as the rest of the node sees it: it repeats decisions of the node's until something changes.

A part of the node that changes what a decision depends on notifies the data plane here.  In Python alone no
decision is repeated, and the notifications do nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgnode.transport.cork import Turn


class PermitLine(NamedTuple):
    """
    A line of the decision log about a permit, without the time and the id of its message: what stands before,
    between and behind these. With nothing in it no line is written.
    """

    before_time: bytes = b""
    before_id: bytes = b""
    after_id: bytes = b""


# Records of the journal of objects, the number, version and length of each, and the time of the last one in
# microseconds since 1970.
KeptTaker = Callable[[bytes, list[tuple[int, int, int]], int], object]


class FlowTerms(NamedTuple):
    """
    The terms on which the messages of a flow are carried.

    Messages with a body key of `refused` are Python's. `member` is put first into the body. Each message
    draws from the `buckets`, is counted by the `tallies`, and uses up `samples` of the decision log's sample:
    `permit_line` is written about those that are due; None: they are Python's.
    `counted`: the inbox of the sender's session counts them. `kept`: the number of the object that gives each
    a version.
    """

    refused: tuple[str, ...] = ()
    member: bytes | None = None
    buckets: tuple[int, ...] = ()
    tallies: tuple[int, ...] = ()
    samples: int = 0
    counted: bool = False
    permit_line: PermitLine | None = None
    kept: int | None = None


PLAIN = FlowTerms()


class DataPlane:
    """
    A data plane that carries nothing: Python decides about each message.

    `why` says why it is this one and not the compiled one.
    """

    is_native = False
    turn: Turn | None = None  # of the reactor, where that says when one is over

    def __init__(self, why: str = "not asked for") -> None:
        self.why = why

    # -- connections ---------------------------------------------------------------

    def open_port(self, connection: Any, outlet: Any, framing: Any, longest: int, host: str) -> None:
        """
        Read this connection from now on; its partial input counts for `host` ("": for the node only).
        """

    def release(self, which: Callable[[Any], bool]) -> None:
        """
        Let these connections be read by Twisted again.
        """

    def port(self, connection: Any) -> int:
        """
        The number of the port that reads and writes this connection; 0: Twisted does.
        """
        return 0

    def ready_changed(self, connection: Any, is_ready: bool, room: tuple[int, int] | None) -> None:
        """
        The messages of its session may go to the connection at once, or no longer.

        `room`, of a client that acknowledges: the messages and bytes until its outbox is full.
        """

    def room_changed(self, connection: Any, room: tuple[int, int]) -> None:
        """
        The outbox of the connection's session has this room now.
        """

    def session_changed(self, connection: Any) -> None:
        """
        The connection speaks for another session, for none, or for one that is named otherwise: forget what
        was decided for its messages, and what leads to it.
        """

    def block(self, connection: Any) -> None:
        """
        Carry no message of the connection until `unblock`: an earlier one is being processed.
        """

    def unblock(self, connection: Any) -> None:
        """
        The earlier message is done.
        """

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
        """
        Repeat a decision: such messages of this port go to those ports.

        `line`: node, session, connector and peer in the traffic log; None: nothing is logged.
        """

    def has_flow(self, port: int, from_: str, to: str, type_: str) -> bool:
        """
        Is a decision about such messages of this port remembered, and nothing changed since?
        """
        return False

    def change(self, address: str) -> None:
        """
        Forget the decisions about this address: who is bound to it, or who may send from it, has changed.
        """

    def change_name(self, name: str) -> None:
        """
        Forget the decisions about this address, and about messages to what is below it at a `/`: another
        session, or none, has this runtimeURL.
        """

    def change_all(self) -> None:
        """
        Forget all decisions.
        """

    def expect_response(self, address: str, id: int | str) -> None:
        """
        Leave the response with this id to this address to Python: a connector waits for it.
        """

    def forget_response(self, address: str, id: int | str) -> None:
        """
        The connector waits no longer.
        """

    # -- kept objects: never asked in Python alone -------------------------------------

    def keep(self, taker: KeptTaker) -> None:
        """
        Give this the records of kept objects whose messages are carried; forget all of before.
        """

    @property
    def keeps_objects(self) -> bool:
        """
        Can it carry messages of kept objects?
        """
        return False

    def add_kept(self, address: str) -> int:
        """
        One more object whose messages are kept; its number.
        """
        return 0

    def set_version(self, object: int, version: int, micros: int) -> None:
        """
        Python has given this version of a kept object, at that time in microseconds since 1970.
        """

    # -- rate limits, by the plane's own clock: never asked in Python alone, which has buckets of its own --

    def add_bucket(self, messages: int, size: int) -> int:
        """
        Make a full token bucket of so many messages and bytes a second (0: any number); its number.
        """
        return 0

    def remove_bucket(self, bucket: int) -> None:
        """
        Forget the bucket; flows that draw from it end.
        """

    def draw(self, buckets: Sequence[int], size: int) -> bool:
        """
        Take one message of `size` bytes from all of these; False: one is empty, and nothing was taken.
        """
        return True

    def bucket_wait(self, bucket: int) -> float:
        """
        Seconds until something may be taken from it.
        """
        return 0.0

    def is_bucket_idle(self, bucket: int, seconds: float) -> bool:
        """
        Has nothing been taken for so many seconds, so that it is as good as a new one?
        """
        return False

    # -- policies: never asked in Python alone -----------------------------------------

    def add_tally(self) -> int:
        """
        One more number to count decisions by.
        """
        return 0

    def take_tallies(self) -> list[tuple[int, int, int]]:
        """
        Returns the counts since the last call: number, how often, and when last, in nanoseconds since 1970.
        """
        return []

    def forget_tallies(self) -> None:
        """
        Forget all these numbers, and all decisions.
        """

    def set_sample_share(self, share: float) -> None:
        """
        Set the share of permits that is written to the decision log.
        """

    def is_sample_due(self) -> bool:
        """
        Count one permit; must it be written to the decision log?
        """
        return False

    def log_decision(self, time: int, line: bytes) -> int:
        """
        Put a line of the decision log of that time, in nanoseconds since 1970, behind those of messages that
        were carried; how many wait now.
        """
        return 0

    @property
    def decision_lines(self) -> int:
        """
        How many lines of the decision log wait.
        """
        return 0

    def take_decision_log(self) -> tuple[int, int, list[tuple[int, bytes]]]:
        """
        How many lines were lost since the last call, because too many waited; how many there are, and their
        bytes by hours since 1970.
        """
        return 0, 0, []

    # -- partial input ---------------------------------------------------------------

    def charge_partial(self, host: str, more: int) -> None:
        """
        The node keeps so many bytes more of this host's partial input.
        """

    def partial_bytes(self, host: str) -> tuple[int, int, int]:
        """
        Bytes of partial input in the data plane and in Python: of all, of this host, of the host with most.
        """
        return 0, 0, 0

    # -- numbers -----------------------------------------------------------------------

    def update_counts(self) -> None:
        """
        Add what the data plane has counted to the node's counters.
        """

    @property
    def flows(self) -> int:
        """
        How many decisions it repeats.
        """
        return 0

    @property
    def flow_bytes(self) -> int:
        """
        About how many bytes these decisions take.
        """
        return 0

    @property
    def carried(self) -> int:
        """
        How many messages it has carried, by the last `update_counts`.
        """
        return 0

    @property
    def punted(self) -> dict[str, int]:
        """
        How many messages it has left to Python, by reason, by the last `update_counts`.
        """
        return {}

    def use(self, cork: Any, counts: Any, journal: Any) -> None:
        """
        Hold back output with this cork, add what is counted to these counters, and write what is sent to
        clients that acknowledge to this journal.
        """

    def take_traffic(self, connection: Any) -> tuple[int, int, int, int, int] | None:
        """
        Messages and bytes carried from the connection, those carried to it, and when the last one came, in
        nanoseconds since 1970 (0: none did); since the last call. None: it carries nothing of the connection.
        """
        return None

    def set_limits(
        self, unsent_bytes: int, partial_bytes: int, partial_bytes_of_host: int, flow_bytes: int
    ) -> None:
        """
        Bytes held for one connection; of all partial input, and of that of one host (0: any number); and of
        all flows.
        """

    # -- the traffic log -----------------------------------------------------------------

    def log(self, time: int, line: bytes) -> None:
        """
        Put a line of that time, in nanoseconds since 1970, behind those of messages that were carried.
        """

    def take_log(self) -> tuple[int, list[tuple[int, bytes]]]:
        """
        How many lines there are, and their bytes by hours since 1970.
        """
        return 0, []

    def take_lost_lines(self) -> int:
        """
        How many lines were lost since the last call, because too many waited.
        """
        return 0


NO_DATA_PLANE = DataPlane()
