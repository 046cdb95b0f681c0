"""
Kept objects: the router hands their publications to the journal before it delivers them.

Each gets the object's next version, as `version` in its header.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from msgnode.bus.objects.channels import CHANGES, CHILDREN, HISTORY, SUBSCRIPTION, object_of
from msgnode.config.objects import CHANNELS, ObjectsOptions, beginnings, compiled
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import NO_VERSION, Message
from msgnode.protocol.peer_address import peer_host
from msgnode.storage.objects.journal import ObjectJournal
from msgnode.storage.objects.object_index import ObjectIndex
from msgnode.structures.time_slices import Slices
from msgnode.transport.data_plane import NO_DATA_PLANE, DataPlane

log = Logger()

MAX_KNOWN = 10_000  # addresses that were compared with the patterns
MAX_KNOWN_CHARS = 512
PAUSE_SECONDS = 0.1  # between two slices, of a millisecond or two each, of making snapshots
MAX_NUMBERS = 10_000  # objects that the data plane knows
KEPT_TYPES = ("update", "create", "delete")
MAX_CREATOR_CHARS = 256
_TOO_MANY = "you have begun as many objects as the node keeps for one user or host"
_CLOSING = ord("}")
_ENDS = (CHANGES, HISTORY)


class Channel(NamedTuple):
    """
    A channel of a kept object, or its history.
    """

    object: str
    is_child: bool = False
    is_history: bool = False


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
    The objects that this node keeps. `before_write` has a function called before the node's output leaves;
    `gather` lets that leave together with the output of other sockets that are ready. `trusted` returns the
    trusted proxies. `channels` has what `channel` has found.
    """

    def __init__(
        self,
        options: ObjectsOptions,
        journal: ObjectJournal,
        before_write: Callable[[Callable[[], object]], None],
        slices: Slices,
        clock: IReactorTime,
        data_plane: DataPlane = NO_DATA_PLANE,
        gather: Callable[[], object] = lambda: None,
        trusted: Callable[[], list[str]] = lambda: [],
    ) -> None:
        self.options = options
        self.journal = journal
        self._indexes = journal.objects
        self.others: OtherKeepers | None = None  # None: the node is alone in its domain
        self._before_write = before_write
        self._slices = slices
        self._gather = gather
        self._trusted = trusted
        self.channels: dict[str, Channel | None] = {}  # some, by address; None: of no object that is kept
        self._patterns: re.Pattern[str] = compiled(options.keep)
        self.beginnings = beginnings(options.keep)  # of the addresses of all kept objects
        self._data_plane = data_plane
        self._numbers: dict[str, int] = {}  # of objects at the data plane
        self._by_number: list[str] = []
        self._is_flush_due = self._is_expiring = False
        self._expired_at = 0  # the number of the segment that was begun last then
        self._clock = clock
        self._to_reduce: dict[str, ObjectIndex] = {}  # objects of which snapshots are to be made
        self._is_reducing = False
        self._begin_numbers()

    def apply(self) -> None:
        """
        Applies other patterns. What was kept before is kept until it is too old, but not continued.
        """
        self._patterns = compiled(self.options.keep)
        self.beginnings = beginnings(self.options.keep)
        self.channels = {}

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
        """
        Is this the address of an object, and not of a part of one, for which the patterns ask?
        """
        return self._patterns.fullmatch(object) is not None and not any(
            channel in f"{object}/" for channel in CHANNELS
        )

    def channel(self, to: str) -> Channel | None:
        """
        The channel or the history of a kept object that has this address.
        """
        try:
            return self.channels[to]
        except KeyError:
            found = self._find_channel(to)
        if len(to) <= MAX_KNOWN_CHARS:
            if len(self.channels) >= MAX_KNOWN:
                self.channels = {}
            self.channels[to] = found
        return found

    def _find_channel(self, to: str) -> Channel | None:
        if to.endswith(HISTORY):
            object = to[: -len(HISTORY)]
            return Channel(object, is_history=True) if self.is_kept(object) else None
        object = object_of(to)
        if not object or not self.is_kept(object):
            return None
        return Channel(object, to.startswith(object + CHILDREN))

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

    def concerned(self, message: Message) -> Channel | None:
        """
        The channel or the history of a kept object that the message is for. An invitation that creates an
        object is recorded.
        """
        to = message.to
        assert isinstance(to, str)
        if to.endswith(_ENDS) or CHILDREN in to:
            return self.channel(to)
        if message.from_.endswith(SUBSCRIPTION) and message.type.lower() == "create":
            self._record_invitation(message)
        return None

    def _record_invitation(self, message: Message) -> None:
        """
        Records what creates an object; it goes to its first observer, as it is.
        """
        object = message.from_[: -len(SUBSCRIPTION)]
        if not self.is_kept(object):
            return
        index = self.journal.index(object)
        if index is None:
            creator = creator_of(message, self._trusted())
            index = self.journal.begin(object, creator) if self.journal.may_begin(creator) else None
        elif index.has_value:
            return
        if index is not None:
            self.journal.add(index, message.data, "create", False)
            self._recorded(index)

    def record(self, channel: Channel, message: Message) -> bool:
        """
        Records a publication, and puts its version into it; False if it is not kept. Raises Rejected if its
        sender has put one there.
        """
        kind, data = message.type, message.data
        if kind not in KEPT_TYPES:
            kind = kind.lower()
            if kind not in KEPT_TYPES:
                return False
        if message.version is not NO_VERSION:
            raise Rejected("'version' in the header is given by the node; put yours into the body")
        object, is_child, _ = channel
        index = self._indexes.get(object)
        if index is None:
            index = self._begin(object, message)
            if index is None:
                return False
        if data[-1] != _CLOSING:
            data = data.rstrip()
        # At the end of the header, the version costs least.
        message.data = data = data[:-1] + b',"version":%d}' % (index.version + 1)
        self.journal.add(index, data, kind, is_child)
        if self._numbers or not self._is_flush_due:
            self._recorded(index)
        return True

    def _recorded(self, index: ObjectIndex) -> None:
        number = self._numbers.get(index.address)
        if number is not None:
            self._data_plane.set_version(number, index.version, self.journal.micros)
        self._flush_later()

    def _begin(self, object: str, message: Message) -> ObjectIndex | None:
        """
        Begins the object of this message; None if too many are kept. Raises Rejected if its sender has too
        many.
        """
        creator = creator_of(message, self._trusted())
        if not self.journal.may_begin(creator):
            raise Rejected(_TOO_MANY, 429, "limit")
        return self.journal.begin(object, creator)

    def _flush_later(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._before_write(self._flush)
            self._gather()

    def _flush(self) -> None:
        self._is_flush_due = False
        self.journal.flush()
        for index in self.journal.grown():
            self._to_reduce[index.address] = index
        if self._to_reduce and not self._is_reducing:
            self._is_reducing = True
            work = self._slices.work(self._paced(self._reduce()))
            work.addErrback(partial(log.failure, "objects could not be reduced"))
            work.addBoth(self._reduced)
        segments = self.journal.segments
        if self.journal.is_too_large and segments.number != self._expired_at:
            self._expired_at = segments.number  # what cannot be removed now is not tried with each flush
            self.expire()

    def expire(self) -> None:
        """
        Removes what is too old or too much, in slices.
        """
        if not self._is_expiring:
            self._is_expiring = True
            work = self._slices.work(self._paced(self.journal.expire()))
            work.addErrback(partial(log.failure, "the journal of objects could not be shortened"))
            work.addBoth(self._expired)

    def _expired(self, done: Any) -> None:
        self._is_expiring = False

    def _reduce(self) -> Iterator[None]:
        """
        Makes snapshots, from which objects are reduced faster.
        """
        while self._to_reduce:
            index = self._to_reduce.pop(next(iter(self._to_reduce)))
            yield from self.journal.snapshot(index, index.version)
            yield

    def _reduced(self, done: Any) -> None:
        self._is_reducing = False

    def _paced(self, steps: Iterator[None]) -> Iterator[Deferred[Any] | None]:
        """
        Takes these steps with pauses, as long as the journal has room: publishing comes first.
        """
        for _ in steps:
            is_urgent = self.journal.segments.size > 2 * self.options.keep_bytes
            yield None if is_urgent else deferLater(self._clock, PAUSE_SECONDS)


def creator_of(message: Message, trusted: list[str]) -> str:
    """
    The one whose objects are counted: the user, else the host, or the other domain; empty if it is not known.
    """
    origin = message.origin
    session = getattr(origin, "session", None)
    if session is not None and session.is_node:
        sender, came_from = getattr(origin, "sender", None), getattr(origin, "came_from", None)
        found = came_from.domain if came_from is not None else sender.user if sender is not None else ""
    else:
        user = session.identity if session is not None else getattr(origin, "identity", "")
        found = user or peer_host(getattr(origin, "peer", "unix"), trusted)
    return str(found)[:MAX_CREATOR_CHARS]
