"""
A tap on the traffic recorder, at which operators' traces and event streams listen.
"""

from msgnode.protocol.message import Message
from msgnode.sessions.session import Connection, Session
from msgnode.sessions.session_table import TrafficRecorder


class TrafficTap:
    """
    The TrafficRecorder of a node's parts. Without listeners, `message` and `session` are methods of the
    recorder itself, so that the tap costs nothing; else each listener is called first.
    """

    def __init__(self, recorder: TrafficRecorder) -> None:
        self.recorder = recorder
        self.message = recorder.message
        self.session = recorder.session
        self._listeners: list[TrafficRecorder] = []

    def listen(self, listener: TrafficRecorder) -> None:
        self._listeners.append(listener)
        self.message, self.session = self._message, self._session

    def leave(self, listener: TrafficRecorder) -> None:
        self._listeners.remove(listener)
        if not self._listeners:
            self.message, self.session = self.recorder.message, self.recorder.session

    def _message(self, message: Message, session: Session | None) -> None:
        for listener in self._listeners:
            listener.message(message, session)
        self.recorder.message(message, session)

    def _session(self, event: str, session: Session, connection: Connection | None) -> None:
        for listener in self._listeners:
            listener.session(event, session, connection)
        self.recorder.session(event, session, connection)
