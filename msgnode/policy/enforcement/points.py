"""
The points at which policies are asked, and whom the node asks there.

`connect`: a runtime opens a session, or comes back to it.  `in`: a message
came, and nothing has been done about it yet; asked for each address in its
`to`, so there is no point of its own for routing.  `subscribe`: a session
wants to hear an address.  `out`: a message is handed to a session, or kept for
it; what the node itself answers and publishes too.

One call form serves them all, and it either returns or raises Blocked.
"""

from typing import Protocol

from twisted.internet.defer import Deferred

from msgnode.protocol.message import Message
from msgnode.sessions.session import Session

CONNECT, IN, SUBSCRIBE, OUT = "connect", "in", "subscribe", "out"
POINTS = (CONNECT, IN, SUBSCRIBE, OUT)


class Policy(Protocol):
    """
    The port to the policies (PolicyEnforcement).  `outward`: have its policies a say in what goes out?
    """

    outward: bool

    def check(
        self, point: str, message: Message, session: Session | None, count: int = 1
    ) -> Deferred[None] | None:
        """
        Blocked, unless the message may go on: now, or when the Deferred fires.  It may be changed.

        `session` is who sends, at `out` who gets it.  `count`: of addresses the message is sent to.
        """
