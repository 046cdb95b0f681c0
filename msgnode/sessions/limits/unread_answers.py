"""
Backpressure for unread answers: a client that sends requests and reads no answers is not read from.

Messages of others wait in its session's queue, which is bounded. Answers of the node go directly to the
connection, past the queue. Pausing the client bounds them; nothing is lost, and the order is kept.
"""

from msgnode.sessions.counters import Counters
from msgnode.sessions.session import Connection

MAX_UNREAD_BYTES = 64 * 1024  # bytes of answers buffered for a client whose transport takes no more


class Unread:
    """
    The bytes of unread answers by connection.

    A polling connection is bounded by its connector, and is not counted here.
    """

    def __init__(self, counts: Counters) -> None:
        self._counts = counts
        self._sizes: dict[Connection, int] = {}

    def add(self, connection: Connection, size: int) -> None:
        """
        Counts an answer of `size` bytes. Beyond MAX_UNREAD_BYTES, reading from the client is paused.
        """
        if connection.acks_by_request:
            return
        before = self._sizes.get(connection, 0)
        self._sizes[connection] = before + size
        if before <= MAX_UNREAD_BYTES < before + size:
            self._counts.unread_answers += 1
            connection.pause_reading()

    def read(self, connection: Connection) -> None:
        """
        The client has read its answers: resume reading from it.
        """
        if self._sizes.pop(connection, 0) > MAX_UNREAD_BYTES:
            connection.resume_reading()

    def gone(self, connection: Connection) -> None:
        self._sizes.pop(connection, None)
