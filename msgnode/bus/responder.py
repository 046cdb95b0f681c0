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
    Who answers at a node address.
    """

    def respond(self, message: Message, session: Session) -> Reply:
        """
        The reply, which the node delivers.  Raises Rejected to refuse.
        """
