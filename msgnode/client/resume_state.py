"""
What the client counts so that nothing is lost or doubled: docs/protocol.md, "Acknowledged resume".

How many messages it has received, and those it sent that the node has not
acknowledged.  Numbers are not on the wire; both sides count.
"""

from collections import deque
from typing import Any


class ResumeState:
    """
    The client's side of acknowledged resume: both counters, and what is not acknowledged.

    `counting` is true while the node counts too; else what is kept only waits for a connection.

    `missed` is how many messages the node said are gone for good.
    """

    def __init__(self) -> None:
        self.epoch = ""
        self.counting = False
        self.received = self.told = self.sent = 0
        self.missed = 0
        self.kept: deque[bytes] = deque()  # the last has the number `sent`
        self.size = 0  # bytes of them
        self.total = 0  # ever kept, whatever the epoch

    @property
    def wish(self) -> Any:
        """
        What to ask for when the session is opened.
        """
        return {"epoch": self.epoch, "received": self.received} if self.epoch else True

    @property
    def gone(self) -> int:
        """
        How many of `total` are kept no more.
        """
        return self.total - len(self.kept)

    def keep(self, data: bytes) -> None:
        self.sent += 1
        self.total += 1
        self.kept.append(data)
        self.size += len(data)

    def agree(self, told: dict[str, Any] | None, first: list[bytes]) -> None:
        """
        The node answered; `first` is what a new session must hear before anything else.

        Whatever is kept then must be sent again.
        """
        self.counting = told is not None
        if told is not None and told["epoch"] == self.epoch:
            missed = told["missed"] or 0
            self.missed += missed
            self.received += missed
            self.forget(told["received"])
        else:
            self.epoch = told["epoch"] if told is not None else ""
            self.received = 0
            self.sent = len(self.kept)
        for data in reversed(first):
            self.kept.appendleft(data)
            self.size += len(data)
            self.sent += 1
            self.total += 1
        self.told = self.received

    def forget(self, number: int) -> None:
        """
        The node has everything up to this number.
        """
        while self.kept and self.sent - len(self.kept) < number:
            self.size -= len(self.kept.popleft())

    def drop_first(self) -> bytes:
        """
        The node will not have the first one that it has not acknowledged.
        """
        data = self.kept.popleft()
        self.size -= len(data)
        self.sent -= 1
        return data

    def released(self) -> list[bytes]:
        """
        What was kept, for a node that does not count: it is sent once, and forgotten.
        """
        waiting = list(self.kept)
        self.kept.clear()
        self.size = 0
        return waiting
