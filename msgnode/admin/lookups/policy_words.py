"""
The word of the policies on messages that are not sent: at `connect`, `subscribe` and `in`.
"""

from collections.abc import Iterator

import msgspec

from msgnode.policy.enforcement.enforcement import PolicyEnforcement
from msgnode.policy.enforcement.points import CONNECT, IN, SUBSCRIBE
from msgnode.protocol.address import SESSION
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.session import Session

UNDECIDED = "indeterminate"


class PolicyWord(msgspec.Struct):
    """
    The word of the policies on a message at one point: its type and address, the effect, the rule that
    decides ("" if none does), and whether the message would pass, which depends on the defaults and on
    `policy.enforce`, too.
    """

    point: str
    type: str
    to: str
    effect: str
    rule: str
    passes: bool


def words_about(
    session: Session, enforcement: PolicyEnforcement, to: str, type: str = "create"
) -> Iterator[PolicyWord]:
    """
    Yields the word of the policies if the session opens, subscribes the address, and sends a message of this
    type to it. There is nothing without live policies.
    """
    if enforcement.program is None:
        return
    for point, kind, address in ((CONNECT, "open", SESSION), (SUBSCRIBE, "subscribe", to), (IN, type, to)):
        yield word_at(point, kind, address, session, enforcement)


def word_at(point: str, kind: str, to: str, session: Session, enforcement: PolicyEnforcement) -> PolicyWord:
    """
    The word of the live policies at one point.
    """
    message = Message(1, kind, to, session.runtime)
    try:
        decision, _, passes = enforcement.judge(point, message, session)
    except Rejected:
        return PolicyWord(point, kind, to, UNDECIDED, "", False)
    return PolicyWord(point, kind, to, decision.effect, decision.path, passes)


def effect_at(point: str, to: str, session: Session, enforcement: PolicyEnforcement) -> str:
    """
    The effect of the live policies at one point; "" if there are none.
    """
    return "" if enforcement.program is None else word_at(point, point, to, session, enforcement).effect
