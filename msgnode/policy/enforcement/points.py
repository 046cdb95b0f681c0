"""
The policy points: where on a message's path the policies decide.

`connect`: a runtime opens a session, or comes back to it. `in`: a message was received, and is not processed
yet; there is one decision for each address in its `to`, so routing has no point of its own. `subscribe`: a
session wants to subscribe to an address. `out`: a message is delivered to a session or queued for it,
including the node's own replies and notifications.

One method serves all of them; it either returns or raises Blocked.
"""

from typing import NamedTuple, Protocol

from twisted.internet.defer import Deferred

from msgnode.policy.decision.decision import Decision
from msgnode.protocol.message import Message
from msgnode.sessions.session import Session
from msgnode.transport.data_plane import PermitLine

CONNECT, IN, SUBSCRIBE, OUT = "connect", "in", "subscribe", "out"
POINTS = (CONNECT, IN, SUBSCRIBE, OUT)


class RepeatableDecision(NamedTuple):
    """
    A permit that the data plane may repeat: the member that it puts first into the body, if any, and the
    number by which it is counted. Each is a permit for the sample of the decision log, with this line; None:
    the line depends on more than the message's header.
    """

    mark: bytes | None
    tally: int
    line: PermitLine | None


class Judgement(NamedTuple):
    """
    A decision about a message that is not sent; whether it or the default permits the message; and whether
    the message would pass, as all do while policies are not enforced.
    """

    decision: Decision
    is_permitted: bool
    passes: bool


class Policy(Protocol):
    """
    The port to the policies (PolicyEnforcement). `outward`: does a rule apply at egress? `between_nodes`: or
    to what leaves for another domain, because it tests which one that is?
    """

    outward: bool
    between_nodes: bool

    def check(
        self, point: str, message: Message, session: Session | None, count: int = 1
    ) -> Deferred[None] | None:
        """
        Raises Blocked, unless the message may pass: now, or when the Deferred fires. The message may be
        changed.

        `session` is the sender's, at `out` the recipient's. `count`: the number of addresses it is sent to.
        """

    def repeatable(self, message: Message, session: Session) -> RepeatableDecision | None:
        """
        The decision that has just permitted this message of the session at `in`, if it is the same for all
        messages with its from, to and type until the policies or the configuration change.
        """
