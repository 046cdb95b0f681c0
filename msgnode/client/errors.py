"""
What can go wrong for a client, in words its user can act on.
"""

from typing import Any


class ClientError(Exception):
    """
    Any of these.
    """


class CannotConnect(ClientError):
    """
    No node was reached, or what was reached is none.
    """


class NoToken(CannotConnect):
    """
    The function or program that was to give an identity token gave none.
    """


class Refused(ClientError):
    """
    A request was answered with a code from 300 on.  A handler raises it to answer so.
    """

    def __init__(self, code: int, text: str = "", body: dict[str, Any] | None = None) -> None:
        super().__init__(f"{code} {text}".rstrip())
        self.code = code
        self.text = text
        self.body = body or {}


class TimedOut(ClientError):
    """
    No answer came in time.
    """


class Closed(ClientError):
    """
    The session is over and the client does not come back by itself.
    """

    def __init__(self, code: int, word: str) -> None:
        super().__init__(f"the node closed the session: {code} {word}")
        self.code = code
        self.word = word


class Full(ClientError):
    """
    Too much is kept that the node has not acknowledged; wait for `flushed`.
    """
