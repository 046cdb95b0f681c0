"""
Responders: who answers at an address of the node's own.
"""

from typing import Protocol

from twisted.internet.defer import Deferred

from msgnode.protocol.message import Message
from msgnode.sessions.session import Session

Reply = Message | Deferred[Message] | None


class Responder(Protocol):
    """
    Code of the node that answers at one of the node's addresses.
    """

    def respond(self, message: Message, session: Session) -> Reply:
        """
        The reply, which the node delivers.  Raises Rejected to refuse.
        """
