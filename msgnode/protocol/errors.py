"""
What a sender is told when its message is not carried.

Raised where it is known, answered in one place: the ingress.  A bug is
not one of these; it reaches the log.
"""

from typing import Any

FAILED = "the node failed over this message; its log says why"

# What a code says by itself; any other needs a word with it.
_REASONS = {
    400: "malformed",
    404: "not-found",
    409: "conflict",
    412: "conflict",
    502: "back-end",
    504: "back-end",
}


def error_body(code: int, text: str) -> dict[str, Any]:
    """
    The body that tells of an error; `desc` is what older clients read.
    """
    return {"code": code, "desc": text, "description": text}


class Rejected(Exception):
    """
    A message the node does not carry, with the code its sender is told.

    The codes are those of docs/protocol.md: 400 malformed, 401 no session,
    403 refused, 404 nobody there, 413 too large, 429 too many, 501 not
    offered, 503 not now.  `reason` is one word for programs, which does not
    change; docs/protocol.md has them all.
    """

    code = 400
    reason = ""

    def __init__(self, text: str, code: int | None = None, reason: str = "") -> None:
        super().__init__(text)
        if code is not None:
            self.code = code
        self.reason = reason or self.reason or _REASONS.get(self.code, "failed")

    def body(self) -> dict[str, Any]:
        """
        What the sender is told.
        """
        return error_body(self.code, str(self))


class Malformed(Rejected):
    """
    Not a message at all; answered by mn:/validator.

    `id`, `from_` and `transaction` are what could be read of it, for the answer;
    `log` is false where it says that nothing is to be written down about it.
    """

    def __init__(
        self,
        text: str,
        id: int | str | None = None,
        from_: str | None = None,
        code: int | None = None,
        transaction: int | str | None = None,
        reason: str = "",
        log: bool = True,
    ) -> None:
        super().__init__(text, code, reason)
        self.id = id
        self.from_ = from_
        self.transaction = transaction
        self.log = log

    def is_of(self, id: int | str, from_: str) -> bool:
        """
        Is it this message that is none, and not one that stands in it?
        """
        return self.id == id and (self.from_ or "") == from_


class TooLarge(Malformed):
    """
    A message that comes to too much; answered by mn:/validator.
    """

    code = 413
    reason = "limit"


class Claimed(Rejected):
    """
    The sender says it is the node; answered by mn:/validator.
    """

    code = 403
    reason = "reserved-address"


class Blocked(Rejected):
    """
    A policy says no: 403, 429 with `retry_after` in seconds, 500 where it could not be decided.
    """

    code = 403
    reason = "policy"

    def __init__(
        self, text: str, code: int | None = None, retry_after: float | None = None, reason: str = ""
    ) -> None:
        super().__init__(text, code, reason)
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
    reason = "rate"

    def __init__(self, retry_after: float | None = None) -> None:
        super().__init__("more messages than this node takes from you; slow down")
        self.retry_after = retry_after


class NoSession(Rejected):
    """
    A message before `open`; answered by mn:/validator.
    """

    code = 401
    reason = "no-session"


class NoRoute(Rejected):
    """
    No session is bound to the address.
    """

    code = 404
    reason = "no-route"


class NotOffered(Rejected):
    """
    A node address that nothing here answers for.
    """

    code = 501
    reason = "not-handled"


# Where clients repeat a 500 ten times at once, they are told 503.
_REPEATED = ("/sm", "-allocation", "domain://registry.", "global://registry")


def failure_code(to: object) -> int:
    """
    What a sender is told when the node itself failed over its message.
    """
    return 503 if isinstance(to, str) and any(part in to for part in _REPEATED) else 500
