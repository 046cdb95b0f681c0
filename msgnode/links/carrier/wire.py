"""
The seam between a connection and the WebSocket below it, and the codes of close entries.
"""

from typing import Protocol

CLOSE_SECONDS = 5.0  # until a WebSocket that is closing is aborted

# Codes of close entries, as in HTTP. ACCEPTED answers a hello with the feature CHECK.
ACCEPTED = 200
BAD_REQUEST, FORBIDDEN, TIMEOUT, CONFLICT, TOO_MANY, STOPPING = 400, 403, 408, 409, 429, 503


class Wire(Protocol):
    """
    A WebSocket as a connection sees it: whole messages, and flow control.
    """

    def send_message(self, message: bytes) -> None: ...

    def set_limit(self, max_bytes: int) -> None:
        """
        Set the size of the largest message that may come.
        """

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def lose(self) -> None:
        """
        Close after what was sent has left, or CLOSE_SECONDS later.
        """

    def abort(self) -> None:
        """
        Close at once.
        """


class Refused(Exception):
    """
    A hello that is not accepted: the code, reason and retry_after of the close entry.
    """

    def __init__(self, code: int, reason: str, retry_after: float = 30.0) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.retry_after = retry_after
