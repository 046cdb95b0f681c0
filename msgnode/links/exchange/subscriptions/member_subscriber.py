"""
A client of another member, for which this node subscribes in other domains.
"""


class MemberSubscriber:
    """
    One client of another member, in the place of a session: `number` is its sid there, and `asserted` its
    user's identity. `sid` is negative, so that no session here has it.

    `generations` has, by address, that of the entry that asked for it last. It ends at `until`.
    """

    former: tuple[int, ...] = ()
    successor = None

    def __init__(self, sid: int, node: str, number: int, from_: str, asserted: dict[str, str]) -> None:
        self.sid = sid
        self.node = node
        self.number = number
        self.runtime = from_
        self.asserted = asserted
        self.generations: dict[str, int] = {}
        self.until = 0.0

    def is_same_client(self, other: object) -> bool:
        """
        Is it the same client, whose session has moved from one member to another?
        """
        if not isinstance(other, MemberSubscriber) or other.asserted != self.asserted:
            return False
        return other.runtime == self.runtime or other.runtime.startswith(f"{self.runtime}/")
