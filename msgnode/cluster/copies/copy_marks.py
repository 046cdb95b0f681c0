"""
How far the copies of publications have come: of each member the last one, by priority.

The copies that a member sends to another one keep their order within a priority. So all up to the mark have
come to the node, and to each session there that was bound to their addresses. A node to which such a session
moves may get its own copies of them much later: they are not for that session. A session that has just come
to a node itself has no marks of that node: copies may be on their way to it that came there before.
"""

MAX_MARKS = 1000  # the newest ones: each start of a member has an instance of its own

CopyId = tuple[bytes, int]
Marks = dict[tuple[bytes, int], int]  # the last number, by instance and priority


def later(first: Marks, second: Marks) -> Marks:
    """
    The later mark of each place; those of the second last.
    """
    found = dict(first)
    for place, number in second.items():
        found[place] = max(number, found.pop(place, 0))
    return found


class CopyMarks:
    """
    The marks of the copies that came to this node, or that it sent itself.
    """

    def __init__(self) -> None:
        self._marks: Marks = {}

    def note(self, id: CopyId, priority: int) -> None:
        """
        A copy with that id came, or was sent to members.
        """
        instance, number = id
        place = instance, priority
        self._marks[place] = max(number, self._marks.pop(place, 0))
        if len(self._marks) > MAX_MARKS:
            del self._marks[next(iter(self._marks))]

    def all(self) -> Marks:
        return dict(self._marks)
