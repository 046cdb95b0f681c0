"""
The client's counters, so that no message is lost or doubled: docs/protocol.md, "Acknowledged resume".

They count the messages received, and the messages sent that are unacknowledged.
Numbers are not on the wire; both sides count.
"""

from collections import deque
from typing import Any


class ResumeState:
    """
    The client's side of acknowledged resume: both counters, and the unacknowledged messages.

    `counting` is true while the node counts too; otherwise messages are only kept until it connects.

    `missed` is the number of messages that are lost, as the node reports it.
    """

    def __init__(self) -> None:
        self.epoch = ""
        self.counting = False
        self.received = self.acked = self.sent = 0
        self.missed = 0
        self.kept: deque[bytes] = deque()  # the last has the number `sent`
        self.size = 0  # bytes of the kept messages
        self.total = 0  # messages ever kept, in all epochs

    @property
    def request(self) -> Any:
        """
        The value of `resume` in the request that opens the session.
        """
        return {"epoch": self.epoch, "received": self.received} if self.epoch else True

    @property
    def gone(self) -> int:
        """
        The number of messages out of `total` that are no longer kept.
        """
        return self.total - len(self.kept)

    def keep(self, data: bytes) -> None:
        self.sent += 1
        self.total += 1
        self.kept.append(data)
        self.size += len(data)

    def negotiate(self, told: dict[str, Any] | None, first: list[bytes]) -> None:
        """
        Use the node's answer; `first` are the messages that a new session needs before all others.

        All that is kept after this must be sent again.
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
        self.acked = self.received

    def forget(self, number: int) -> None:
        """
        The node has acknowledged all messages up to this number.
        """
        while self.kept and self.sent - len(self.kept) < number:
            self.size -= len(self.kept.popleft())

    def drop_first(self) -> bytes:
        """
        Drop the first unacknowledged message, because the node refuses it.
        """
        data = self.kept.popleft()
        self.size -= len(data)
        self.sent -= 1
        return data

    def released(self) -> list[bytes]:
        """
        The messages kept for a node that does not count: they are sent once, and forgotten.
        """
        waiting = list(self.kept)
        self.kept.clear()
        self.size = 0
        return waiting
