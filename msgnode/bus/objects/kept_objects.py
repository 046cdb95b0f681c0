"""
Kept objects: the router hands their publications to the journal before it delivers them.

Each gets the object's next version, as `version` in its header.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Protocol

from twisted.logger import Logger

from msgnode.bus.objects.channels import CHANGES, CHILDREN, HISTORY, SUBSCRIPTION, object_of
from msgnode.config.objects import ObjectsOptions, compiled
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message, part
from msgnode.storage.objects.journal import ObjectJournal
from msgnode.storage.objects.object_index import ObjectIndex
from msgnode.structures.bounded_cache import BoundedCache
from msgnode.structures.time_slices import Slices
from msgnode.transport.data_plane import NO_DATA_PLANE, DataPlane

log = Logger()

MAX_KNOWN = 10_000  # addresses that were compared with the patterns
MAX_KNOWN_CHARS = 512
MAX_NUMBERS = 10_000  # objects that the data plane knows
KEPT_TYPES = ("create", "update", "delete")
_ENDS = (CHANGES, HISTORY)


class OtherKeepers(Protocol):
    """
    The other nodes of this domain, each of which keeps some of its objects (cluster/ownership).
    """

    def keeper(self, object: str) -> str:
        """
        The member that keeps the object; empty if it is this node.
        """

    def is_away(self, keeper: str) -> bool:
        """
        Can this member not be reached now?
        """

    def note_missed(self, keeper: str, object: str) -> None:
        """
        Notes that a message of the object was delivered without its keeper.
        """


class KeptObjects:
    """
    The objects that this node keeps. `before_write` has a function called before the node's output leaves.
    """

    def __init__(
        self,
        options: ObjectsOptions,
        journal: ObjectJournal,
        before_write: Callable[[Callable[[], object]], None],
        slices: Slices,
        data_plane: DataPlane = NO_DATA_PLANE,
    ) -> None:
        self.options = options
        self.journal = journal
        self.others: OtherKeepers | None = None  # None: the node is alone in its domain
        self._before_write = before_write
        self._slices = slices
        self._known: BoundedCache[str, str] = BoundedCache(MAX_KNOWN)
        self._patterns: re.Pattern[str] = compiled(options.keep)
        self._data_plane = data_plane
        self._numbers: dict[str, int] = {}  # of objects at the data plane
        self._by_number: list[str] = []
        self._is_flush_due = False
        self._reducing: set[str] = set()  # objects of which a snapshot is being made
        self._begin_numbers()

    def apply(self) -> None:
        """
        Applies other patterns. What was kept before is kept until it is too old, but not continued.
        """
        self._patterns = compiled(self.options.keep)
        self._known = BoundedCache(MAX_KNOWN)

    # -- what the data plane carries -----------------------------------------------------

    def number(self, object: str, message: Message) -> int | None:
        """
        The number of the object at the data plane, which may carry updates like this one from now on; None:
        Python records each.
        """
        index = self.journal.index(object)
        if index is None or message.type != "update" or not self._data_plane.keeps_objects:
            return None
        found = self._numbers.get(object)
        if found is None:
            if len(self._numbers) >= MAX_NUMBERS:
                self._begin_numbers()
            found = self._numbers[object] = self._data_plane.add_kept(object)
            self._by_number.append(object)
        self._data_plane.set_version(found, index.version, self.journal.micros)
        return found

    def _begin_numbers(self) -> None:
        self._numbers, self._by_number = {}, []
        self._data_plane.keep(self._take_carried)

    def _take_carried(self, records: bytes, entries: list[tuple[int, int, int]], micros: int) -> None:
        self.journal.record_carried(records, entries, self._by_number, micros)
        self._flush_later()

    # -- publications --------------------------------------------------------------------

    def is_kept(self, object: str) -> bool:
        return self._patterns.fullmatch(object) is not None

    def object(self, to: str) -> str:
        """
        The kept object whose channel or history this is; empty if there is none.
        """
        found = self._known.get(to)
        if found is None:
            name = to[: -len(HISTORY)] if to.endswith(HISTORY) else object_of(to)
            found = name if name and self.is_kept(name) else ""
            if len(to) <= MAX_KNOWN_CHARS:
                self._known.put(to, found)
        return found

    def keeper(self, object: str) -> str:
        """
        The other member that keeps the object; empty if it is this node.
        """
        return self.others.keeper(object) if self.others is not None else ""

    def note_missed(self, object: str) -> None:
        """
        Notes that a message of the object was delivered while this node was away.
        """
        if self.is_kept(object) and self.journal.miss(object):
            self._flush_later()

    def concerned(self, message: Message) -> str:
        """
        The kept object whose channel or history the message is for; empty if there is none. An invitation
        that creates an object is recorded.
        """
        to = message.to
        assert isinstance(to, str)
        if to.endswith(_ENDS) or CHILDREN in to:
            return self.object(to)
        if message.from_.endswith(SUBSCRIPTION) and message.type.lower() == "create":
            self._record_invitation(message)
        return ""

    def _record_invitation(self, message: Message) -> None:
        """
        Records what creates an object; it goes to its first observer, as it is.
        """
        object = message.from_[: -len(SUBSCRIPTION)]
        if not self.is_kept(object):
            return
        index = self.journal.index(object)
        if index is None or not index.has_value:
            version = self.journal.next_version(object)
            if version:
                self._append(object, version, message.data, "create", False)

    def record(self, object: str, message: Message) -> bool:
        """
        Records a publication, and puts its version into it; False if it is not kept. Raises Rejected if its
        sender has put one there.
        """
        kind = message.type.lower()
        if kind not in KEPT_TYPES:
            return False
        if b'"version"' in message.data and part(message.data, "version") is not None:
            raise Rejected("'version' in the header is given by the node; put yours into the body")
        version = self.journal.next_version(object)
        if version:
            assert isinstance(message.to, str)
            message.data = with_version(message.data, version)
            self._append(object, version, message.data, kind, message.to.startswith(object + CHILDREN))
        return bool(version)

    def _append(self, object: str, version: int, data: bytes, kind: str, is_child: bool) -> None:
        self.journal.record(object, version, data, kind, is_child)
        number = self._numbers.get(object)
        if number is not None:
            self._data_plane.set_version(number, version, self.journal.micros)
        self._flush_later()

    def _flush_later(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._before_write(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        self.journal.flush()
        for index in self.journal.grown():
            if index.address not in self._reducing:
                self._reduce(index)

    def _reduce(self, index: ObjectIndex) -> None:
        """
        Makes a snapshot, from which the object is reduced faster.
        """
        self._reducing.add(index.address)
        work = self._slices.work(self.journal.snapshot(index, index.version))
        work.addErrback(partial(log.failure, "{object} could not be reduced", object=index.address))
        work.addBoth(lambda done: self._reducing.discard(index.address))


def with_version(data: bytes, version: int) -> bytes:
    """
    The message with its version at the end of the header.
    """
    return b'%b,"version":%d}' % (data.rstrip()[:-1], version)
