"""
Members that are away: for which sessions here they may still have something.

A member that lost its link before a session began here was never told of it, so nothing waits there for that
session.
"""

from collections.abc import Callable, Collection


class AbsentMembers:
    """
    The members, and which sessions began while each was reached. `newest` gives the sid of the session that
    began here last; the sids of sessions rise.
    """

    def __init__(self, newest: Callable[[], int]) -> None:
        self._newest = newest
        self._first = 0
        self._instances: dict[str, bytes] = {}  # by member: how the ids of its copies begin
        self._lost: dict[str, int] = {}  # by member without a link: the newest session then

    def restored(self) -> None:
        """
        The sessions of before the start are here.
        """
        self._first = self._newest()

    def is_restored(self, sid: int) -> bool:
        """
        Was the session here before the start?
        """
        return sid <= self._first

    def up(self, node: str, instance: bytes) -> None:
        self._instances[node] = instance
        self._lost.pop(node, None)

    def down(self, node: str) -> None:
        if node in self._instances:
            self._lost[node] = self._newest()

    def is_up(self, node: str) -> bool:
        return node in self._instances and node not in self._lost

    def knew(self, node: str, sid: int) -> bool:
        """
        Was the member reached at any time since that session began here?
        """
        return self.is_up(node) or sid <= self._lost.get(node, self._first)

    def may_send(self, nodes: Collection[str], instance: bytes) -> bool:
        """
        May copies with such ids be of one of these members?
        """
        node = self._member(instance)
        if node is None:
            return any(each not in self._instances for each in nodes)
        return node in nodes

    def had_none(self, instance: bytes, sid: int) -> bool:
        """
        Can that session have had no copies with such ids, as their member was away?
        """
        node = self._member(instance)
        return node is not None and not self.knew(node, sid)

    def _member(self, instance: bytes) -> str | None:
        return next((node for node, start in self._instances.items() if instance.startswith(start)), None)
