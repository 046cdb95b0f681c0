"""
A replica: what this node has of one member's addresses, and how it follows their changes.
"""

from collections.abc import Callable

from msgnode.cluster.directory.address_table import AddressTable, View
from msgnode.cluster.directory.limits import DirectoryCounts, DirectoryLimits
from msgnode.cluster.directory.wire import SHARDS, Delta, HeldSession, Piece, Seen

REFILL = 0.9  # of a limit below which a truncated replica is asked for again


class Replica:
    """
    One member's addresses in the table. A gap in the numbers, or in a snapshot, is repaired from where it is.

    A snapshot fills a view of its own. While it is under way lookups find the addresses of the earlier view,
    too; at its end the earlier one is dropped.
    """

    def __init__(
        self,
        node: str,
        table: AddressTable,
        limits: DirectoryLimits,
        counts: DirectoryCounts,
        session_added: Callable[[str], None],
    ) -> None:
        self.epoch = (b"", 0)
        self.is_truncated = False  # addresses were refused, because a limit was reached
        self._node = node
        self._table = table
        self._limits = limits
        self._counts = counts
        self._session_added = session_added
        self._number = 0
        self._position = 0
        self._views: list[View] = []  # the complete one, and that of a snapshot under way
        self._asked_at: tuple[int, int] | None = None  # number and position when it asked to continue

    @property
    def count(self) -> int:
        return sum(view.count for view in self._views)

    @property
    def is_complete(self) -> bool:
        return self._position == SHARDS

    def begin(self, epoch: tuple[bytes, int]) -> None:
        """
        Follow that start of the member. If it has the memory of an earlier start, the addresses of that one
        stay until its snapshot is whole, because what is published meanwhile goes only to the members that
        the table names; else they end at once.
        """
        if epoch[0] == self.epoch[0] and epoch != self.epoch:
            self.restart()
        elif epoch != self.epoch:
            self.drop()
        self.epoch = epoch
        self._asked_at = None

    def drop(self) -> None:
        """
        Drop everything; `Seen` then asks for a snapshot.
        """
        for view in self._views:
            self._table.drop(view)
        self._views = []
        self._number = self._position = 0
        self.is_truncated = False
        self._asked_at = None

    def seen(self, again: bool, copied: int = 0) -> Seen:
        """
        The acknowledgement; with `again` it asks to continue.
        """
        return Seen(*self.epoch, self._number, self._position, again, copied)

    def must_ask(self) -> bool:
        """
        After a gap: is it to be repaired by asking, once for each gap?
        """
        now = (self._number, self._position)
        if self._asked_at == now:
            return False
        self._asked_at = now
        self._counts.gaps += 1
        return True

    def restart(self) -> None:
        """
        Forget the position, so that `Seen` asks for a whole snapshot; the addresses stay meanwhile.
        """
        self._number = self._position = 0
        self.is_truncated = False

    # -- statements ----------------------------------------------------------------

    def apply_delta(self, delta: Delta) -> bool:
        """
        Apply the changes. False if earlier ones are missing.
        """
        if delta.upto <= self._number:
            return True
        if delta.after > self._number or not self._views:
            return False
        for address in delta.unbound:
            for view in self._views:
                self._table.remove(address, view)
        self._add(delta.bound, delta.sessions)
        self._number = delta.upto
        return True

    def apply_piece(self, piece: Piece) -> bool:
        """
        Apply a piece of a snapshot. False if earlier ones are missing.
        """
        if piece.begins:
            self._begin_view(piece.base)
        elif piece.first < self._position:
            return True
        elif piece.first > self._position or not self._views:
            return False
        self._add(piece.bound, piece.sessions)
        self._position = piece.position
        if self.is_complete:
            for view in self._views[:-1]:
                self._table.drop(view)
            del self._views[:-1]
            self._counts.snapshots_received += 1
        return True

    def _begin_view(self, base: int) -> None:
        if len(self._views) == 2:  # an earlier snapshot that was not finished
            self._table.drop(self._views.pop())
        self._views.append(self._table.make_view(self._node))
        self._number, self._position = base, 0
        self.is_truncated = False

    def _add(self, bound: list[str], sessions: list[HeldSession]) -> None:
        view = self._views[-1]
        for address in bound:
            if self._has_room(view):
                self._table.add(address, view)
        for session in sessions:
            if self._has_room(view):
                self._table.add_session(session, view)
                self._session_added(session.name)

    def _has_room(self, view: View) -> bool:
        limits, table = self._limits, self._table
        if (
            view.count < limits.addresses_per_member
            and table.count < limits.addresses
            and table.size < limits.table_bytes
        ):
            return True
        self.is_truncated = True
        self._counts.refused += 1
        return False

    def may_refill(self) -> bool:
        """
        Was the replica truncated, and is there room again?
        """
        limits, table = self._limits, self._table
        return (
            self.is_truncated
            and self.count < REFILL * limits.addresses_per_member
            and table.count < REFILL * limits.addresses
            and table.size < REFILL * limits.table_bytes
        )
