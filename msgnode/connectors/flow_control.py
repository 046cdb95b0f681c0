"""
Flow control: a transport whose buffer is full pauses the messages of its session.
"""

from typing import Any

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from msgnode.sessions.session import Connection


@implementer(IPushProducer)
class PausedByTransport:
    """
    A mixin for connections: the transport pauses and resumes the session as an IPushProducer.
    """

    factory: Any

    def paused_connection(self) -> Connection | None:
        """
        The Connection whose session waits while the transport is full.
        """
        raise NotImplementedError

    def pauseProducing(self) -> None:
        connection = self.paused_connection()
        if connection is not None:
            self.factory.node.sessions.connections.write_paused(connection)

    def resumeProducing(self) -> None:
        connection = self.paused_connection()
        if connection is not None:
            self.factory.node.sessions.connections.write_resumed(connection)

    def stopProducing(self) -> None:
        """
        The end of the connection is notified by the transport in its own way.
        """
