"""
The copies of messages that two members hold of one session, while it moves from one to the other.

Both are bound to its addresses then, so that no publication is lost, and most come to both. All copies of a
message have one id. The copy that came to the new holder by itself counts, for its order among the other
messages of its sender is right there.
"""

from collections.abc import Callable

from msgnode.protocol.message import Message
from msgnode.sessions.mailbox import Mailbox
from msgnode.sessions.queue import QueuedMessage

CopyId = tuple[bytes, int]


class SessionOverlap:
    """
    The copies of one session's messages at one member (sessions/mailbox.py, Overlap). `id_of` gives the id of
    a message's copies; `collected` is called when there is a message more.
    """

    def __init__(
        self, mailbox: Mailbox, id_of: Callable[[Message], CopyId | None], collected: Callable[[], None]
    ) -> None:
        self.by_key: dict[int, CopyId] = {}  # of messages that are queued here
        self._mailbox = mailbox
        self._id_of = id_of
        self._collected = collected
        self._direct: set[CopyId] = set()
        self._late: dict[CopyId, QueuedMessage] = {}  # that came by the other member

    def admits(self, message: Message) -> bool:
        id = self._id_of(message)
        if id is None:
            return True
        late = self._late.pop(id, None)
        if late is not None:
            self._mailbox.withdraw(late)
        return id not in self._direct

    def note(self, message: Message, key: int) -> None:
        id = self._id_of(message)
        if id is not None:
            self.by_key[key] = id
            self._direct.add(id)
        self._collected()

    def is_new(self, id: CopyId) -> bool:
        """
        Is this message of the other member not here yet?
        """
        return id not in self._direct and id not in self._late

    def note_late(self, id: CopyId, kept: QueuedMessage) -> None:
        """
        Notes a message that came by the other member, and to that after it had released the session.
        """
        self.by_key[kept.key] = id
        self._late[id] = kept
