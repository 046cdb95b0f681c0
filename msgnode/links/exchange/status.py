"""
Statuses: which code the sender of a message gets in a response, and which in a receipt.

Responses never have 408 or 500, because deployed runtimes repeat a request ten times at once after those. A
foreign sender gets 404 for unknown and for refused alike.
"""

import re
from typing import Any

from msgnode.links.stream.streams import Outcome
from msgnode.protocol.errors import Rejected, error_body
from msgnode.structures.log_limits import printable

GRACE_SECONDS = 3.0  # after the time to live: what was sent just before its end is acknowledged by then
HELD_SECONDS = 60.0  # after which a reachable domain is not waited for any more
AGAIN_SECONDS = 5.0  # between two looks at what a reachable domain has taken and not answered
MAX_TEXT_CHARS = 1000  # that a client gets of what another domain says
_WORD = re.compile(r"[a-z][a-z0-9-]{0,63}")
ACKNOWLEDGED = "acknowledged"  # the reason of an outcome that is no failure
DELIVERED = (200, 202)  # the codes of a final receipt for a message that arrived
WAITING = "waiting for a route"
UNKNOWN = "no session is bound to this address"

TEXTS = {
    "stale": "its time to live ended before it reached the other domain",
    "in-doubt": "the other node has lost its memory of this message; it may have been delivered",
    "no-path": "no path leads to the other domain",
    "no-key": "it must be encrypted, and there is no key of the other domain",
    "overflow": "there is no room for more messages to this domain",
    "peer": "the other domain does not accept this sender from here",
}
# The outcome of a message of which the other domain says nothing when its time to live has ended.
UNCONFIRMED = Outcome(
    504, "in-doubt", "the other domain has not confirmed this message in time; it may have been delivered"
)
_IN_RESPONSE = {408: 404, 410: 404, 413: 413, 429: 429, 500: 502, 503: 507}
_NOT_TOLD = frozenset({401, 403, 404, 410, 500, 501})  # to a foreign sender these look alike


def said(text: str, reason: str) -> tuple[str, str]:
    """
    The text and the reason that another domain gives, as clients and logs here may have them: without control
    characters, and not too long. A reason is one word.
    """
    word = reason if not reason or _WORD.fullmatch(reason) else "refused"
    return printable(text[:MAX_TEXT_CHARS]), word


def in_response(code: int) -> int:
    """
    The code of a response for a receipt's code.
    """
    return _IN_RESPONSE.get(code, code)


def refusal(code: int, text: str, reason: str) -> Rejected:
    """
    The refusal of another domain, as a client here gets it: 502 if its code is none of a failure.
    """
    known = in_response(code) if 400 <= code <= 599 else 502
    text, reason = said(text, reason)
    return Rejected(text, known, reason)


def text_of(outcome: Outcome) -> str:
    return outcome.text or TEXTS.get(outcome.reason, "it was not delivered")


def response_body(code: int, text: str, reason: str) -> dict[str, Any]:
    return {**error_body(in_response(code), text), "reason": reason}


def told(code: int, text: str, reason: str, is_exposed: bool) -> tuple[int, str, str]:
    """
    The code, text and reason that a foreign sender gets.
    """
    if code in _NOT_TOLD and reason != "peer" and not is_exposed:
        return 404, UNKNOWN, "no-route"
    if code == 503 and reason == "overflow":
        return 507, text, "overflow"
    return code, text, reason
