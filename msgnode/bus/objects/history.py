"""
The history of kept objects: the object as it was, or its changes.

Readers are those who may subscribe to the changes of the object. A child is shown to those who may subscribe
to the addresses at which it was published, and each message as the policies at `out` would show it to them
now.
"""

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, cast

import msgspec
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.python.failure import Failure

from msgnode.bus.objects.channels import CHANGES
from msgnode.bus.objects.history_request import (
    MAX_PAGE_BYTES,
    AsItWas,
    Change,
    HistoryRequest,
    Missing,
    Page,
    Point,
    micros_of,
    read_request,
    time_text,
)
from msgnode.policy.enforcement.points import OUT, SUBSCRIBE, Policy
from msgnode.protocol.errors import Blocked, NotOffered, Rejected
from msgnode.protocol.message import Message, part, recall
from msgnode.sessions.session import Session
from msgnode.storage.objects.journal import Entry, ObjectJournal
from msgnode.storage.objects.object_index import Gap, ObjectIndex
from msgnode.storage.objects.reduction import ReducedObject, Reduction
from msgnode.structures.time_slices import Slices

READ_STEP = 100  # entries that are read in one slice
DECIDED_STEP = 20  # if policies decide on each
MAX_DECIDED = 10_000  # entries from which an object is reduced for a reader, if policies decide on each

_pages = msgspec.json.Decoder(Page)
_states = msgspec.json.Decoder(AsItWas)
Shown = Callable[[bytes], bytes | None]
Permitted = Callable[[str], bool]


class History:
    """
    The reader of the journal. `policy` is that of the router, or None.
    """

    def __init__(self, journal: ObjectJournal, slices: Slices, policy: Callable[[], Policy | None]) -> None:
        self.reads = 0
        self.keeper: Callable[[str], str] = lambda object: ""  # the other member that keeps an object
        # Asks that member for what a client wants; the answer's body is not checked by policies.
        self.ask: Callable[[str, str, Message, Session], Deferred[Any]] | None = None
        self._journal = journal
        self._slices = slices
        self._policy = policy

    def respond(self, object: str, message: Message, session: Session) -> Deferred[Message]:
        """
        The answer to a request for the history. Raises Rejected.
        """
        request = read_request(message)
        self._check_reader(object, message, session)
        self.reads += 1
        keeper = self.keeper(object)
        if keeper and self.ask is not None:
            return self._ask_keeper(keeper, object, request, message, session)
        permitted = self._permitted(object, message, session)
        if request.at is not None:
            shown = self._shown(session, permitted) if self._is_outward else None
            found: Deferred[Any] = self._at(self._index(object), request.at, shown)
            found.addCallback(self._as_permitted, permitted)
        else:
            found = self.page(object, request, self._shown(session, permitted))
        return found.addCallback(lambda value: message.reply({"code": 200, "value": value}))

    def answer_member(self, object: str, message: Message) -> Deferred[Message]:
        """
        The answer to a member that has checked the reader, and shows what the policies permit. Never fails
        with Rejected.
        """

        def refused(why: Failure) -> Message:
            why.trap(Rejected)
            refusal = cast(Rejected, why.value)
            return message.reply({**refusal.body(), "reason": refusal.reason})

        def read() -> Deferred[Any]:
            request = read_request(message)
            if request.at is not None:
                return self._at(self._index(object), request.at)
            return self.page(object, request)

        answered = maybeDeferred(read).addCallback(lambda value: message.reply({"code": 200, "value": value}))
        return answered.addErrback(refused)

    def _ask_keeper(
        self, keeper: str, object: str, request: HistoryRequest, message: Message, session: Session
    ) -> Deferred[Message]:
        assert self.ask is not None
        if request.at is not None and self._is_outward:
            raise NotOffered("where policies decide on each message, read the changes of the object")
        permitted = self._permitted(object, message, session)
        shown = self._shown(session, permitted)

        def answer(found: Message) -> Deferred[Message]:
            value = msgspec.Raw(part(bytes(found.body), "value") or b"null")
            shown_value: Deferred[Any] = succeed(value)
            if request.at is not None:
                shown_value = self._as_permitted(_states.decode(value), permitted)
            elif shown is not None:
                shown_value = self._as_shown(_pages.decode(value), shown)
            return shown_value.addCallback(lambda value: message.reply({"code": 200, "value": value}))

        return self.ask(keeper, object, message, session).addCallback(answer)

    def _index(self, object: str) -> ObjectIndex:
        index = self._journal.index(object)
        if index is None:
            raise Rejected(f"nothing is kept of {object}"[:300], 404)
        return index

    def _check_reader(self, object: str, message: Message, session: Session) -> None:
        self._check_channel(object + CHANGES, message, session)

    def _check_channel(self, channel: str, message: Message, session: Session) -> None:
        """
        Raises Blocked, unless the session may subscribe to this address.
        """
        policy = self._policy()
        if policy is not None:
            topic = copy(message)
            topic.type, topic.to = "subscribe", channel
            policy.check(SUBSCRIBE, topic, session)

    @property
    def _is_outward(self) -> bool:
        policy = self._policy()
        return policy is not None and policy.outward

    def _permitted(self, object: str, message: Message, session: Session) -> Permitted | None:
        """
        A function that decides whether the reader may subscribe to an address; None if there are no policies.
        """
        if self._policy() is None:
            return None
        decided = {object + CHANGES: True}  # as _check_reader has found

        def permitted(channel: str) -> bool:
            if channel not in decided:
                try:
                    self._check_channel(channel, message, session)
                    decided[channel] = True
                except Blocked:
                    decided[channel] = False
            return decided[channel]

        return permitted

    def _shown(self, session: Session, permitted: Permitted | None) -> Shown | None:
        """
        A function for what the policies show the session of a message; None if they show all.
        """
        policy = self._policy()
        if policy is None or permitted is None:
            return None
        outward = policy.outward

        def shown(data: bytes) -> bytes | None:
            message = recall(data)
            if not isinstance(message.to, str) or not permitted(message.to):
                return None
            if not outward:
                return data
            try:
                policy.check(OUT, message, session)
            except Blocked:
                return None
            return message.data

        return shown

    def _as_shown(self, page: Page, shown: Shown) -> Deferred[Page]:
        """
        A page of another member, with what the policies show.
        """

        def decide() -> Iterator[None]:
            changes, page.changes = page.changes, []
            for done, change in enumerate(changes, 1):
                data = shown(bytes(change.message))
                if data is None:
                    page.hidden += 1
                else:
                    page.changes.append(Change(change.version, change.time, msgspec.Raw(data)))
                if done % DECIDED_STEP == 0:
                    yield

        return self._in_slices(decide(), page)

    def _as_permitted(self, found: AsItWas, permitted: Permitted | None) -> Deferred[AsItWas]:
        """
        The children that the reader may see, without the addresses at which they were published.
        """

        def decide() -> Iterator[None]:
            for done, (key, child) in enumerate(list(found.children.items()), 1):
                channels = child.pop("channels", ())
                if permitted is not None and not all(map(permitted, channels)):
                    del found.children[key]
                if done % DECIDED_STEP == 0:
                    yield

        return self._in_slices(decide(), found)

    def _in_slices(self, steps: Iterator[None], result: Any) -> Deferred[Any]:
        done = self._slices.begin(steps)
        return succeed(result) if done is None else done.addCallback(lambda over: result)

    # -- changes -----------------------------------------------------------------------

    def page(self, object: str, request: HistoryRequest, shown: Shown | None = None) -> Deferred[Page]:
        """
        The changes from a version or a time on. Raises Rejected.
        """
        index = self._journal.index(object)
        if index is None:
            return succeed(Page(self._journal.floor, self._journal.floor + 1))
        self._journal.flush()
        first = self._first(index, request.from_)
        page = Page(index.version, index.oldest)
        return self._in_slices(self._collect(index, first, request.limit, page, shown), page)

    def _first(self, index: ObjectIndex, from_: Point | None) -> int:
        if from_ is None:
            return index.oldest
        if not isinstance(from_, int):
            return max(index.oldest, self._journal.version_at(index, micros_of(from_) - 1) + 1)
        if from_ < index.oldest and not (index.is_whole and from_ <= 1):
            raise Rejected(
                f"version {from_} of {index.address} is not kept any more; the oldest one is {index.oldest}"[
                    :400
                ],
                410,
                "not-kept",
            )
        return max(from_, index.oldest)

    def _collect(
        self, index: ObjectIndex, first: int, limit: int, page: Page, shown: Shown | None
    ) -> Iterator[None]:
        at, size, step = first, 0, DECIDED_STEP if shown is not None else READ_STEP
        for done in range(1, limit + 1):
            number = index.find(at)
            if number >= len(index):
                at = page.version + 1
                break
            entry = self._journal.read(index, number)
            found = index.version_of(number)
            if found > page.version:
                at = page.version + 1
                break
            if entry is not None and size and size + len(entry.data) > MAX_PAGE_BYTES:
                break
            at = found + 1
            size += self._add(page, found, entry, shown)
            if done % step == 0:
                yield
                if at < index.oldest:
                    break  # the next messages were removed meanwhile
        page.missing[:0] = _missing(index.missing(first, at - 1))
        page.next = at if at <= page.version else 0

    def _add(self, page: Page, version: int, entry: Entry | None, shown: Shown | None) -> int:
        """
        Adds one entry; returns its size.
        """
        if entry is None:
            page.missing.append(Missing(version, version, "damaged"))
            return 0
        data = entry.data if shown is None else shown(entry.data)
        if data is None:
            page.hidden += 1
            return 0
        page.changes.append(Change(version, time_text(entry.micros), msgspec.Raw(data)))
        return len(data)

    # -- the object as it was ------------------------------------------------------------

    def _at(self, index: ObjectIndex, at: Point, shown: Shown | None = None) -> Deferred[AsItWas]:
        version = self._version(index, at)
        made: list[Reduction] = []
        if shown is not None and len(index) > MAX_DECIDED:
            text = f"policies decide on each message of {index.address}, and it has more than {MAX_DECIDED}"
            raise Rejected(f"{text}; read its changes"[:400], 413, "limit")
        done = self._slices.begin(self._journal.reduce(index, version, made, shown))

        def answer(over: object) -> AsItWas:
            if not made:
                raise self._gone(index, version, shown is not None)
            return _as_it_was(made[0].state, version)

        return (succeed(None) if done is None else done).addCallback(answer)

    def _version(self, index: ObjectIndex, at: Point) -> int:
        self._journal.flush()
        if not isinstance(at, int):
            at = self._journal.version_at(index, micros_of(at))
        if at > index.version:
            raise Rejected(f"{index.address} has versions up to {index.version}, not {at}"[:400], 404)
        if at < index.oldest - 1:
            raise self._gone(index, at, False)
        return at

    @staticmethod
    def _gone(index: ObjectIndex, version: int, is_decided: bool) -> Rejected:
        why = "not kept any more"
        if is_decided:
            why = (
                "not given, because policies decide on each message, and the first ones are not kept any more"
            )
        text = f"{index.address} as it was at version {version} is {why}; the oldest one is {index.oldest}"
        return Rejected(text[:400], 410, "not-kept")


def _missing(gaps: list[Gap]) -> list[Missing]:
    return [Missing(*gap) for gap in gaps]


def _as_it_was(state: ReducedObject, version: int) -> AsItWas:
    if state.too_large:
        raise Rejected(
            f"the object is larger than this node reduces, since version {state.too_large}; read its changes",
            413,
            "limit",
        )
    children = {
        key: {**child, "time": time_text(child["time"])} if "time" in child else child
        for key, child in state.children.items()
    }
    return AsItWas(
        version,
        time_text(state.time) if state.time else "",
        state.exists,
        state.value,
        children,
        _missing(state.missing),
        state.skipped,
        not state.missing and not state.skipped,
    )
