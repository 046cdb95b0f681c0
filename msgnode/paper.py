"""
What the ledger writes on: the spool's files, or nothing at all.
"""

from collections.abc import Sequence
from typing import Protocol

from msgnode.waiting import Kept


class Paper(Protocol):
    """
    Where it is written: a Spool, or Air.
    """

    live: int  # bytes of messages still owed
    anew: bool  # all is being written anew, and what was written before counts until then

    @property
    def failing(self) -> OSError | MemoryError | None: ...

    def keep(
        self, sid: int, key: int, data: bytes, until: float, priority: int, asker: int, number: int
    ) -> int: ...
    def keep_sent(self, sent: list[tuple[int, Kept, int]]) -> None: ...
    def left(self, sid: int, key: int, number: int) -> None: ...
    def gone(self, sid: int, key: int, missed: bool) -> None: ...
    def acknowledged(self, sid: int, number: int) -> None: ...
    def heard(self, sid: int, received: int, pending: Sequence[int]) -> None: ...
    def state(self, sid: int, state: bytes, fresh: bool = False) -> None: ...
    def forget(self, sid: int) -> None: ...
    def settle(self) -> bool: ...
    def holds(self, place: int, size: int) -> bool: ...
    def read(self, place: int, size: int) -> bytes: ...
    def release(self, size: int) -> None: ...


class Air:
    """
    A node that keeps nothing on disk.
    """

    failing: OSError | MemoryError | None = None
    live = 0
    anew = False

    def keep(
        self, sid: int, key: int, data: bytes, until: float, priority: int, asker: int, number: int
    ) -> int:
        return 0

    def keep_sent(self, sent: list[tuple[int, Kept, int]]) -> None:
        pass

    def left(self, sid: int, key: int, number: int) -> None:
        pass

    def gone(self, sid: int, key: int, missed: bool) -> None:
        pass

    def acknowledged(self, sid: int, number: int) -> None:
        pass

    def heard(self, sid: int, received: int, pending: Sequence[int]) -> None:
        pass

    def state(self, sid: int, state: bytes, fresh: bool = False) -> None:
        pass

    def forget(self, sid: int) -> None:
        pass

    def settle(self) -> bool:
        return True

    def holds(self, place: int, size: int) -> bool:
        return False

    def read(self, place: int, size: int) -> bytes:
        raise LookupError("nothing is kept on disk")

    def release(self, size: int) -> None:
        pass
