"""
The members of a cluster, as the directory and session moves see them, and their seam to the links between
members.

A member is a node of the same domain, and its name is `mn://<domain>/<node>`.
"""

from collections.abc import Iterable
from typing import Protocol

MemberName = str  # "mn://<domain>/<node>"


class Members(Protocol):
    """
    The other nodes of the cluster.
    """

    max_payload: int  # bytes of one `send`

    @property
    def node(self) -> str:
        """
        The name of this node.
        """
        ...

    @property
    def epoch(self) -> tuple[bytes, int]:
        """
        This start of this node, (instance, start counter): a later start has a higher counter.
        """
        ...

    def up(self) -> Iterable[str]:
        """
        The members with a link now.
        """
        ...

    def send(self, node: str, payload: bytes) -> bool:
        """
        Sends to a member, in order, and without loss while the link to that start of the node is up.

        Returns False if there is no room or no link: the member then needs a snapshot of the directory.
        """
        ...


class MembersListener(Protocol):
    """
    A listener to members: the directory.
    """

    def member_up(self, node: str, epoch: tuple[bytes, int]) -> None:
        """
        A link to a member is up, with its start.
        """
        ...

    def member_down(self, node: str) -> None:
        """
        The link to a member is down.
        """
        ...

    def member_heard(self, node: str, payload: bytes) -> None:
        """
        A member sent this.
        """
        ...

    def has_room(self, node: str) -> None:
        """
        `Members.send` returned False for this member, and would succeed now.
        """
        ...
