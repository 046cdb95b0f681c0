"""
The statements about superseded connections on their way between this node and one member: in order, and the
messages within a window.
"""

from collections import deque
from collections.abc import Callable

from msgnode.cluster.membership import Members
from msgnode.cluster.relay.connection_wire import HEAD_BYTES, AnyStatement, Piece, Read, encode

WINDOW_BYTES = 256 * 1024  # of messages that were sent to a member, and not read yet
READ_BYTES = 16 * 1024  # after which they are reported as read
HIGH_BYTES, LOW_BYTES = 1024 * 1024, 256 * 1024  # of what waits: where clients are paused, and resumed


class ConnectionLink:
    """
    The queue of statements for a member. `crowded` is called with True when much waits, and with False when
    little does again.
    """

    def __init__(self, members: Members, node: str, crowded: Callable[[bool], None]) -> None:
        self.is_crowded = False
        self._members = members
        self._node = node
        self._crowded = crowded
        self._piece_bytes = members.max_payload - HEAD_BYTES
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._unread = 0
        self._unreported = 0

    def say(self, statement: AnyStatement) -> None:
        """
        Send a statement after those that wait; only the report of what was read overtakes them.
        """
        payload = encode(statement)
        if isinstance(statement, Read):
            self._waiting.appendleft(payload)
        else:
            self._waiting.append(payload)
        self._size += len(payload)
        self.go_on()

    def send(self, number: int, is_back: bool, data: bytes) -> None:
        """
        Send a message of the client with that number, or for it.
        """
        at = 0
        while not at or at < len(data):
            part = data[at : at + self._piece_bytes]
            at += self._piece_bytes
            payload = encode(Piece(number, is_back, at >= len(data), part))
            self._waiting.append(payload)
            self._size += len(payload)
        self.go_on()

    def go_on(self) -> None:
        """
        Send what waits, as far as there is room.
        """
        while self._waiting and self._unread < WINDOW_BYTES:
            if not self._members.send(self._node, self._waiting[0]):
                break
            size = len(self._waiting.popleft())
            self._size -= size
            self._unread += size
        if not self.is_crowded and self._size > HIGH_BYTES:
            self.is_crowded = True
            self._crowded(True)
        elif self.is_crowded and self._size < LOW_BYTES:
            self.is_crowded = False
            self._crowded(False)

    def was_read(self, size: int) -> None:
        self._unread = max(0, self._unread - size)
        self.go_on()

    def read(self, size: int) -> None:
        """
        Count so many bytes as read, and report them at times.
        """
        self._unreported += size
        if self._unreported >= READ_BYTES:
            unreported, self._unreported = self._unreported, 0
            self.say(Read(unreported))
