"""
A superseded connection of another member, at the member that holds its session.
"""

from collections.abc import Callable

from msgnode.cluster.relay.connection_link import ConnectionLink
from msgnode.cluster.relay.connection_wire import Attach, Close, Pause
from msgnode.protocol.close_codes import STOPPING, SUPERSEDED, Closing
from msgnode.sessions.session import Session


class RemoteConnection:
    """
    A Connection of session.py whose client is at another member. `detached` is called with whether its
    session has ended, when it belongs to the session no more; `settle` writes what must be on disk before
    a message leaves.
    """

    acks_by_request = False
    bearer = ""
    is_open = True

    def __init__(
        self,
        attach: Attach,
        link: ConnectionLink,
        settle: Callable[[], object],
        detached: Callable[["RemoteConnection", bool], None],
    ) -> None:
        self.number = attach.number
        self.connector, self.peer, self.identity = attach.connector, attach.peer, attach.identity
        self.write_paused = link.is_crowded
        self.message = bytearray()  # the pieces of one that is not complete
        self._link = link
        self._settle = settle
        self._detached = detached
        self._session: Session | None = None
        self._pauses = 0

    @property
    def session(self) -> Session | None:
        """
        The session, which it is never the connection of.
        """
        return self._session

    @session.setter
    def session(self, session: Session | None) -> None:
        before, self._session = self._session, session
        if before is not None and session is None:
            self._detached(self, before.ended)

    def send(self, data: bytes) -> None:
        if self.is_open:
            self._settle()
            self._link.send(self.number, True, data)

    def outbox_ready(self) -> None:
        """
        Never called: this connection has no outbox.
        """

    def lose(self, why: Closing) -> None:
        if not self.is_open:
            return
        if why.code in (SUPERSEDED.code, STOPPING.code):  # its session has moved on, or may do so
            self._detached(self, False)
        else:
            self.is_open = False
            self._link.say(Close(self.number, why.code, why.word, why.retry_after))
            self._detached(self, True)

    def abort(self) -> None:
        self.lose(SUPERSEDED)

    def pause_reading(self) -> None:
        self._pauses += 1
        if self._pauses == 1 and self.is_open:
            self._link.say(Pause(self.number, True))

    def resume_reading(self) -> None:
        self._pauses -= 1
        if not self._pauses and self.is_open:
            self._link.say(Pause(self.number, False))

    def report_undecodable(self, text: str, code: int) -> None:
        """
        Does nothing: the member that has the connection passes on messages only.
        """
