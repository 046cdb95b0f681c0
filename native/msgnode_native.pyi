"""
The compiled data plane of msgnode.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

__version__: str

class Owner(Protocol):
    """
    A connection, as its port uses it.
    """

    def punted(self, data: bytes) -> object:
        """
        Decide on this message.
        """

    def foreign(self, data: bytes) -> bool:
        """
        Take these bytes, which begin where a message does.  True: the stream stands at such a place again.
        """

    def ended(self) -> object:
        """
        Nothing more comes, or something is wrong: read by yourself from now on.
        """

    def rest(self, data: bytes) -> bool:
        """
        Send this.  True: what comes next may go straight to the socket.
        """

    def read_on(self) -> object:
        """
        Nothing is left over of what was fed: feed again. Asked of the owners of ports without a descriptor.
        """

    def traffic(self) -> object:
        """
        Something came, after `watch`.
        """

    def heard(self, count: int) -> object:
        """
        So many messages of a client that acknowledges were carried.
        """

    def numbers(self, count: int) -> tuple[int, int, int]:
        """
        The session's number, and key and number of the first of so many messages for its outbox.
        """

    def kept(self, key: int, messages: list[bytes], offsets: list[int]) -> tuple[int, int]:
        """
        The outbox owes these messages, from this key on, each at this offset in the records.  How many
        messages and bytes more it takes.
        """

    def cut_off(self, is_lost: bool) -> object:
        """
        Abort.  `is_lost`: the session has not counted what was carried from its client, or to it.
        """

class Ledger(Protocol):
    """
    The batch of the spool that is not written yet.
    """

    def begin(self) -> int:
        """
        How long the batch is, once all is in it that happened before.
        """

    def append(self, records: bytes, live: int) -> object:
        """
        Add records about messages of so many bytes.
        """

class Cork(Protocol):
    """
    Holds back what goes out while a round lasts.
    """

    def __enter__(self) -> object: ...
    def __exit__(self, kind: None, value: None, trace: None) -> object: ...

class Plane:
    """
    The data plane of one node, and its poller.  Ports and buckets are numbers that never mean another.
    """

    def __init__(self, cork: Cork, ledger: Ledger, failed: Callable[[BaseException], object]) -> None: ...

    # -- the poller: as select.epoll ---------------------------------------------

    def fileno(self) -> int: ...
    def register(self, fd: int, events: int) -> None: ...
    def modify(self, fd: int, events: int) -> None: ...
    def unregister(self, fd: int) -> None: ...
    def poll(self, timeout: float = -1.0, maxevents: int = -1) -> list[tuple[int, int]]: ...
    def round(self) -> bool: ...

    # -- ports -------------------------------------------------------------------

    def add(
        self, fd: int, owner: Owner, framing: Literal["websocket", "lines"], longest: int, host: str
    ) -> int: ...
    def remove(self, port: int) -> bool: ...
    def pause(self, port: int) -> None: ...
    def resume(self, port: int) -> None: ...
    def set_ready(self, port: int, ready: bool, room: tuple[int, int] | None = None) -> None: ...
    def set_room(self, port: int, room: tuple[int, int]) -> None: ...
    def set_border(self, port: int, at_border: bool) -> None: ...
    def set_direct(self, port: int, direct: bool) -> None: ...
    def block(self, port: int) -> None: ...
    def unblock(self, port: int) -> None: ...
    def watch(self, port: int) -> None: ...
    def feed(self, port: int, data: bytes) -> bool: ...
    def take_pending(self, port: int) -> bytes: ...
    def take_outgoing(self, port: int) -> bytes: ...
    def held(self, port: int) -> int: ...
    def set_partial_limits(self, most: int, most_of_host: int) -> None: ...
    def charge_partial(self, host: str, more: int) -> None: ...
    def partial_bytes(self, host: str) -> tuple[int, int, int]: ...
    def late(self, before: int, most: int) -> list[int]: ...

    # -- counts --------------------------------------------------------------------

    def take_traffic(self, port: int) -> tuple[int, int, int, int, int]: ...

    # -- decisions -----------------------------------------------------------------

    def install(
        self,
        port: int,
        from_: str,
        to: str,
        type_: str,
        recipients: Sequence[int],
        *,
        line: tuple[str, str, str, str] | None = None,
        counted: bool = False,
        refused: Sequence[str] = (),
        member: bytes | None = None,
        buckets: Sequence[int] = (),
        tallies: Sequence[int] = (),
        samples: int = 0,
        permit_line: tuple[bytes, bytes, bytes] | None = None,
    ) -> bool: ...
    def has_flow(self, port: int, from_: str, to: str, type_: str) -> bool: ...
    def renew(self, port: int) -> None: ...
    def change(self, address: str) -> None: ...
    def change_name(self, name: str) -> None: ...
    def change_all(self) -> None: ...
    def flows(self) -> int: ...
    def flow_bytes(self) -> int: ...
    def set_flow_limit(self, bytes: int) -> None: ...
    def await_response(self, address: str, id: int | str) -> None: ...
    def forget_response(self, address: str, id: int | str) -> None: ...

    # -- limits, counts and logs -----------------------------------------------------

    def set_limits(
        self, unsent_bytes: int, round_bytes: int, round_microseconds: int, gather_microseconds: int
    ) -> None: ...
    def add_bucket(self, messages: float, bytes: float) -> int: ...
    def remove_bucket(self, bucket: int) -> None: ...
    def draw(self, buckets: Sequence[int], size: int) -> bool: ...
    def wait(self, bucket: int) -> float: ...
    def is_idle(self, bucket: int, seconds: float) -> bool: ...
    def stop_clock(self, now: float) -> None: ...
    def add_tally(self) -> int: ...
    def forget_tallies(self) -> None: ...
    def take_tallies(self) -> list[tuple[int, int, int]]: ...
    def set_sample_share(self, share: float) -> None: ...
    def is_sample_due(self) -> bool: ...
    def take_counts(self) -> dict[str, Any]: ...
    def log(self, time: int, line: bytes) -> None: ...
    def lines(self) -> int: ...
    def take_log(self) -> tuple[int, list[tuple[int, bytes]]]: ...
    def log_decision(self, time: int, line: bytes) -> int: ...
    def decision_lines(self) -> int: ...
    def take_decision_log(self) -> tuple[int, int, list[tuple[int, bytes]]]: ...

# -- parts by themselves, for tests ----------------------------------------------------

def scan(data: bytes) -> tuple[str, str, str, str, bytes, list[str], str] | None: ...
def frames(data: bytes, longest: int) -> tuple[list[bytes], bytes]: ...
def traffic_line(
    node: str,
    session: str,
    connector: str,
    peer: str,
    kind: str,
    from_: str,
    to: str,
    recipients: int,
    time: int,
    id: str,
    size: int,
    micros: int,
    transaction: str,
) -> bytes: ...
def spool_records(
    base: int,
    sent: Sequence[tuple[bytes, Sequence[int]]],
    numbers: Sequence[tuple[int, tuple[int, int, int]]],
) -> tuple[bytes, list[tuple[int, list[tuple[int, int]]]]]: ...
