"""
Answers that clients do not read.

What others send a client waits in its session, which is bounded.  What the
node itself answers goes past that to the connection that asked.  A client that
asks and asks, and reads no answer, is not read from until it reads: nothing is
lost, and its order is kept.
"""

from msgnode.sessions.counters import Counters
from msgnode.sessions.session import Connection

MAX_UNREAD = 64 * 1024  # bytes of answers behind what the transport of a client does not take


class Unread:
    """
    The sizes of answers to connections whose transport takes no more.

    A connection that polls is bounded by its connector, and can be kept from nothing here.
    """

    def __init__(self, counts: Counters) -> None:
        self._counts = counts
        self._sizes: dict[Connection, int] = {}

    def add(self, connection: Connection, size: int) -> None:
        """
        So many bytes more; with too many of them the client is not read from.
        """
        if connection.counted:
            return
        before = self._sizes.get(connection, 0)
        self._sizes[connection] = before + size
        if before <= MAX_UNREAD < before + size:
            self._counts.unread_answers += 1
            connection.pause_reading()

    def read(self, connection: Connection) -> None:
        """
        The client has read; it is read from again.
        """
        if self._sizes.pop(connection, 0) > MAX_UNREAD:
            connection.resume_reading()

    def gone(self, connection: Connection) -> None:
        self._sizes.pop(connection, None)
