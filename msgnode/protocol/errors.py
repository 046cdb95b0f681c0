"""
Errors that are reported to the sender of a message.

They are raised where they are detected, and answered in one place: the ingress. A bug raises another
exception, which is logged.
"""

import re
from typing import Any

FAILED = "the node failed over this message; its log says why"

_SLOT_NAME = re.compile(r"\w*", re.ASCII)

# Default reasons of the codes. An error with another code must give its reason.
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
    The body of an error reply. `desc` is for older clients, `description` for others.
    """
    return {"code": code, "desc": text, "description": text}


class Rejected(Exception):
    """
    An error that the node reports to the sender of a message, with a code.

    The codes are those of docs/protocol.md: 400 malformed, 401 no session, 403 refused, 404 no session at the
    address, 413 too large, 429 too many, 501 not offered, 503 temporarily unavailable. `reason` is a stable
    word for programs; docs/protocol.md lists all of them. Replies have it where older clients need not expect
    otherwise: `has_reason_in_reply`.
    """

    code = 400
    reason = ""
    has_reason_in_reply = False

    def __init__(self, text: str, code: int | None = None, reason: str = "") -> None:
        super().__init__(text)
        if code is not None:
            self.code = code
        self.reason = reason or self.reason or _REASONS.get(self.code, "failed")

    def body(self) -> dict[str, Any]:
        """
        The body of the error reply.
        """
        body = error_body(self.code, str(self))
        return {**body, "reason": self.reason} if self.has_reason_in_reply else body


class Malformed(Rejected):
    """
    Input that is not a message. The reply comes from mn:/validator.

    `id`, `from_` and `transaction` are what could be decoded, for the reply. `log` is false if the sender
    asked for no log line.
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
        Is this the message that is malformed, and not a message inside it?
        """
        return self.id == id and (self.from_ or "") == from_


class TooLarge(Malformed):
    """
    A message beyond a size limit. The reply comes from mn:/validator.
    """

    code = 413
    reason = "limit"


class Claimed(Rejected):
    """
    A sender address that only the node may use. The reply comes from mn:/validator.
    """

    code = 403
    reason = "reserved-address"


class Blocked(Rejected):
    """
    A refusal by a policy: 403, 429 with `retry_after` in seconds, or 500 if no decision was possible.

    `rule` is the path of the rule that decided, for operators; the sender does not learn it from this.
    """

    code = 403
    reason = "policy"

    def __init__(
        self,
        text: str,
        code: int | None = None,
        retry_after: float | None = None,
        reason: str = "",
        rule: str = "",
    ) -> None:
        super().__init__(text, code, reason)
        self.retry_after = retry_after
        self.rule = rule

    def body(self) -> dict[str, Any]:
        body = super().body()
        if self.retry_after is not None:
            body["retryAfter"] = self.retry_after
        return body


class TooFast(Rejected):
    """
    A refusal by a rate limit of a session or an IP address. `retry_after` is in seconds, if known.
    """

    code = 429
    reason = "rate"

    def __init__(self, retry_after: float | None = None) -> None:
        super().__init__("more messages than this node takes from you; slow down")
        self.retry_after = retry_after


class IllTyped(Rejected):
    """
    A body that does not fit the definition of its record. The reply comes from mn:/validator.

    `slot` is the path of the slot that is wrong, "" if it is the body or the record itself.
    """

    code = 400
    reason = "record"

    def __init__(self, text: str, slot: str = "", expected: str = "") -> None:
        super().__init__(text)
        self.slot = slot
        self.expected = expected

    def body(self) -> dict[str, Any]:
        return {**super().body(), "reason": self.reason, "slot": self.slot, "expected": self.expected}

    @property
    def slot_name(self) -> str:
        """
        The name of the slot of the record itself, without the rest of the path, which may have keys of maps.
        """
        return _SLOT_NAME.match(self.slot)[0]  # type: ignore[index]


class NoSession(Rejected):
    """
    A message before `open`. The reply comes from mn:/validator.
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
    A node address at which no responder answers.
    """

    code = 501
    reason = "not-handled"


# Deployed clients repeat a request ten times at once after a 500. To these addresses the node answers 503.
_REPEATED = ("/sm", "-allocation", "domain://registry.", "global://registry")


def failure_code(to: object) -> int:
    """
    The code of the error reply to `to` after an unexpected exception in the node.
    """
    return 503 if isinstance(to, str) and any(part in to for part in _REPEATED) else 500
