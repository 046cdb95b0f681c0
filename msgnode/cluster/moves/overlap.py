"""
The copies of messages that two members hold of one session, while it moves from one to the other.

Both are bound to its addresses then, so that no publication is lost, and most come to both. All copies of a
message have one id.
"""

from collections.abc import Callable

from msgnode.protocol.message import Message

CopyId = tuple[bytes, int]


class SessionOverlap:
    """
    The copies of one session's messages at one member (sessions/mailbox.py, Overlap). `id_of` gives the id of
    a message's copies; `collected` is called when there is a message more.
    """

    def __init__(self, id_of: Callable[[Message], CopyId | None], collected: Callable[[], None]) -> None:
        self.by_key: dict[int, CopyId] = {}  # of messages that are queued here
        self._id_of = id_of
        self._collected = collected
        self._direct: set[CopyId] = set()
        self._imported: set[CopyId] = set()

    def admits(self, message: Message) -> bool:
        id = self._id_of(message)
        return id is None or (id not in self._imported and id not in self._direct)

    def note(self, message: Message, key: int) -> None:
        id = self._id_of(message)
        if id is not None:
            self.by_key[key] = id
            self._direct.add(id)
        self._collected()

    def is_new(self, id: CopyId | None) -> bool:
        """
        Is this message of the other member not here yet?
        """
        if id is None:
            return True
        if id in self._direct or id in self._imported:
            return False
        self._imported.add(id)
        return True
