"""
The objects with a history, of one node: those that it keeps, and the subscribers that catch up with any.
"""

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from msgnode.bus.delivery import ExpectedResponses
from msgnode.bus.objects.catch_up import CatchUps
from msgnode.bus.objects.history import History
from msgnode.bus.objects.history_pages import HistoryPages
from msgnode.bus.objects.kept_objects import KeptObjects, OtherKeepers
from msgnode.bus.router import Router
from msgnode.config.schema import Config
from msgnode.protocol.message import Message
from msgnode.sessions.session import Session
from msgnode.storage.objects.journal import JournalCounts, ObjectJournal
from msgnode.structures.time_slices import Slices
from msgnode.transport.data_plane import DataPlane


class Objects:
    """
    Connects the journal of objects to the router. `before_write` has a function called before the node's
    output leaves.

    `kept`, `history` and `journal` are None while this node keeps no objects. `gather_output` lets output
    leave together with that of other sockets that are ready (Cork.gather).
    """

    def __init__(
        self,
        config: Config,
        router: Router,
        expected_responses: ExpectedResponses,
        before_write: Callable[[Callable[[], object]], None],
        slices: Slices,
        clock: IReactorTime,
        data_plane: DataPlane,
    ) -> None:
        self.gather_output: Callable[[], object] = lambda: None
        self.kept: KeptObjects | None = None
        self.history: History | None = None
        self.journal: ObjectJournal | None = None
        self._config = config
        self._router = router
        self._before_write = before_write
        self._slices = slices
        self._clock = clock
        self._data_plane = data_plane
        self._keepers: OtherKeepers | None = None  # None: the node is alone in its domain
        self._pages = HistoryPages(router.route, expected_responses, clock)
        self._pages.is_elsewhere = self._is_elsewhere
        options = config.objects
        self.catch_ups = CatchUps(
            self._pages, router.deliver_again, slices, clock, lambda: options.max_replay
        )
        self.catch_ups.changed = self._catching_changed

    def _is_elsewhere(self, address: str, session: Session) -> bool:
        foreign = self._router.foreign
        return foreign is not None and foreign.decides(address, session)

    def _catching_changed(self) -> None:
        self._router.catching = self.catch_ups if len(self.catch_ups) else None

    def keep(self, journal: ObjectJournal | None) -> None:
        """
        Keeps the objects of the configuration in this journal; None: no more.
        """
        self.journal = journal
        if journal is None:
            self.kept = self.history = None
        else:
            self.kept = KeptObjects(
                self._config.objects,
                journal,
                self._before_write,
                self._slices,
                self._clock,
                self._data_plane,
                self.gather_output,
                lambda: self._config.trusted_proxies,
            )
            self.history = History(journal, self._slices, lambda: self._router.policy)
            self._pages.is_here = self.kept.is_kept
            if self._keepers is not None:
                self._share(self._keepers, self.kept, self.history)
        self._pages.history = self._router.history = self.history
        self._router.kept = self.kept
        self._data_plane.change_all()

    def share(self, keepers: OtherKeepers) -> None:
        """
        Shares the kept objects with the other nodes of this domain: each of them keeps some.
        """
        self._keepers = keepers
        if self.kept is not None and self.history is not None:
            self._share(keepers, self.kept, self.history)

    def _share(self, keepers: OtherKeepers, kept: KeptObjects, history: History) -> None:
        kept.others = keepers
        kept.journal.is_shared = True
        history.keeper, history.ask = keepers.keeper, self._pages.ask_member
        self._pages.send = self._send_to_keeper

    def _send_to_keeper(self, message: Message, session: Session, keeper: str) -> None:
        if self._router.cluster is not None:
            self._router.cluster.send(message, session, keeper)

    def events(self) -> dict[str, int]:
        """
        The counts of what became of kept objects since the node started, by event.
        """
        counts = self.journal.counts if self.journal is not None else JournalCounts()
        catch_ups = self.catch_ups.counts
        return {
            "written": counts.written,
            "lost": counts.lost,
            "refused": counts.refused,
            "damaged": counts.damaged,
            "snapshot": counts.snapshots,
            "segment-removed": counts.segments_removed,
            "read": self.history.reads if self.history is not None else 0,
            "catch-up": catch_ups.begun,
            "catch-up-refused": catch_ups.refused,
            "catch-up-ended": catch_ups.ended,
            "replayed": catch_ups.replayed,
        }
