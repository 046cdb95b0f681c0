"""
What a sender is told when its message is not carried.

Raised where it is known, answered in one place: Reception.  A bug is
not one of these; it reaches the log.
"""

from typing import Any


class Rejected(Exception):
    """
    A message the node does not carry, with the code its sender is told.

    The codes are those of docs/protocol.md: 400 malformed, 401 no session,
    403 refused, 404 nobody there, 413 too large, 429 too many, 501 not
    offered, 503 not now.
    """

    code = 400

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        if code is not None:
            self.code = code

    def body(self) -> dict[str, Any]:
        """
        What the sender is told.
        """
        text = str(self)
        return {"code": self.code, "desc": text, "description": text}


class Malformed(Rejected):
    """
    Not a message at all; answered by mn:/validator.

    `id` and `from_` are what could be read of it, for the answer.
    """

    def __init__(
        self, text: str, id: int | str | None = None, from_: str | None = None, code: int | None = None
    ) -> None:
        super().__init__(text, code)
        self.id = id
        self.from_ = from_


class TooLarge(Malformed):
    """
    A message that comes to too much; answered by mn:/validator.
    """

    code = 413


class Claimed(Rejected):
    """
    The sender says it is the node; answered by mn:/validator.
    """

    code = 403


class Blocked(Rejected):
    """
    A policy says no: 403, 429 with `retry_after` in seconds, 500 where it could not be decided.
    """

    code = 403

    def __init__(self, text: str, code: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(text, code)
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        body = super().body()
        if self.retry_after is not None:
            body["retryAfter"] = self.retry_after
        return body


class TooFast(Rejected):
    """
    More than the operator lets a session or an address send; `retry_after` in seconds, where it is known.
    """

    code = 429

    def __init__(self, retry_after: float | None = None) -> None:
        super().__init__("more messages than this node takes from you; slow down")
        self.retry_after = retry_after


class NoSession(Rejected):
    """
    A message before `open`; answered by mn:/validator.
    """

    code = 401


class NoRoute(Rejected):
    """
    Nobody is bound to the address.
    """

    code = 404


class NotOffered(Rejected):
    """
    A node address that nothing here answers for.
    """

    code = 501


# Where clients repeat a 500 ten times at once, they are told 503.
_REPEATED = ("/sm", "-allocation", "domain://registry.", "global://registry")


def failure_code(to: object) -> int:
    """
    What a sender is told when the node itself failed over its message.
    """
    return 503 if isinstance(to, str) and any(part in to for part in _REPEATED) else 500
