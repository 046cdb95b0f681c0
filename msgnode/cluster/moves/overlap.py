"""
The copies of messages that two members hold of one session, while it moves from one to the other.

Both are bound to its addresses then, so that no publication is lost, and most come to both. All copies of a
message have one id. The copy that came to the new holder by itself counts, for its order among the other
messages of its sender is right there.

The same holds while the earlier holder of a session is away, where copies wait for it at their senders.
"""

from collections.abc import Callable

from msgnode.protocol.message import Message
from msgnode.sessions.mailbox import Mailbox
from msgnode.sessions.queue import QueuedMessage

CopyId = tuple[bytes, int]


class SessionOverlap:
    """
    The copies of one session's messages at one member (sessions/mailbox.py, Overlap). `id_of` gives the id of
    a message's copies; `collected` is called when there is a message more. `most` says how many ids may be
    remembered: beyond, the oldest are forgotten.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        id_of: Callable[[Message], CopyId | None],
        collected: Callable[[], None],
        most: Callable[[], int],
    ) -> None:
        self._mailbox = mailbox
        self._id_of = id_of
        self._collected = collected
        self._most = most
        self._here: dict[CopyId, None] = {}
        self._late: dict[CopyId, QueuedMessage] = {}  # that came by the other member

    def admits(self, message: Message) -> bool:
        id = self._id_of(message)
        if id is None:
            return True
        late = self._late.pop(id, None)
        if late is not None:
            self._mailbox.withdraw(late)
        return id not in self._here

    def note(self, id: CopyId | None) -> None:
        if id is not None:
            self._here[id] = None
            while len(self._here) > max(1, self._most()):
                del self._here[next(iter(self._here))]
        self._collected()

    def is_new(self, id: CopyId) -> bool:
        """
        Is this message of the other member not here yet?
        """
        return id not in self._here and id not in self._late

    def note_early(self, id: CopyId) -> None:
        """
        Notes a message of the other member that it had before it released the session.
        """
        self._here[id] = None

    def note_late(self, id: CopyId, kept: QueuedMessage) -> None:
        """
        Notes a message that came by the other member, and to that after it had released the session.
        """
        self._late[id] = kept
