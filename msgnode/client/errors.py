"""
The errors of a client, with texts that its user can act on.
"""

from typing import Any


class ClientError(Exception):
    """
    The base class of these errors.
    """


class CannotConnect(ClientError):
    """
    The error when no node was reached, or the peer is not a node.
    """


class NoToken(CannotConnect):
    """
    The error when there is no identity token: the function or file that should have it failed.
    """


class Refused(ClientError):
    """
    The error of a request that was answered with a code of 300 or more.  A handler raises it to send such an
    answer.
    """

    def __init__(self, code: int, text: str = "", body: dict[str, Any] | None = None) -> None:
        super().__init__(f"{code} {text}".rstrip())
        self.code = code
        self.text = text
        self.body = body or {}

    @property
    def reason(self) -> str:
        """
        One word for programs, as in docs/protocol.md; may be empty.
        """
        return str(self.body.get("reason") or "")


class TimedOut(ClientError):
    """
    The error of a request that got no answer in time.
    """


class Closed(ClientError):
    """
    The error of a session that has ended; the client does not reconnect by itself.
    """

    def __init__(self, code: int, word: str) -> None:
        super().__init__(f"the node closed the session: {code} {word}")
        self.code = code
        self.word = word


class Full(ClientError):
    """
    The error when too many messages are unacknowledged; wait for `flushed`.
    """
