"""
Refused and dropped messages, newest first, with what to do about each.
"""

from collections.abc import Callable, Iterator
from typing import ClassVar

import msgspec
from twisted.internet.defer import Deferred

from msgnode.admin.reads.inspector import Inspector, checked_limit
from msgnode.admin.reads.remedies import remedy
from msgnode.admin.survey import in_slices
from msgnode.sessions.history.refusals import Refusal


class RefusalRow(msgspec.Struct, kw_only=True):
    """
    A refused or dropped message; `count` equal ones came within a second of it.

    `time` is in seconds since 1970; `outcome` is `refused`, `no-route` or `dropped`; `remedy` says what would
    change it.
    """

    number: int
    time: float
    count: int
    outcome: str
    code: int
    reason: str
    text: str
    rule: str
    session: str
    user: str
    peer: str
    connector: str
    type: str
    id: int | str
    from_: str = msgspec.field(name="from")
    to: str
    remedy: str


class RefusalQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """
    Filters of refusals. `since` is in seconds since 1970, `after` the number of one that is known;
    `session` also finds what was dropped for it; `peer` and `to` are parts; `id` is that of a message.
    """

    code: int = 0
    reason: str = ""
    session: str = ""
    peer: str = ""
    to: str = ""
    rule: str = ""
    id: str = ""
    since: float = 0
    after: int = 0
    limit: int = 100


class RefusalList(msgspec.Struct):
    """
    The newest refusals that match; the ring has `kept` entries, and `last_number` is that of the newest.
    """

    rows_in: ClassVar[str] = "refusals"

    kept: int
    last_number: int
    matched: int
    refusals: list[RefusalRow]


def row_of(found: Refusal) -> RefusalRow:
    return RefusalRow(
        number=found.number,
        time=round(found.time, 3),
        count=found.count,
        outcome=found.outcome,
        code=found.code,
        reason=found.reason,
        text=found.text,
        rule=found.rule,
        session=found.session,
        user=found.user,
        peer=found.peer,
        connector=found.connector,
        type=found.type,
        id=found.id,
        from_=found.from_,
        to=found.to,
        remedy=remedy(found),
    )


def of_session(inspector: Inspector, runtime: str, most: int) -> list[RefusalRow]:
    """
    The newest refusals of one session, at most so many.
    """
    found = []
    for each in reversed(inspector.node.sessions.refusals):
        if runtime in (each.session, each.to):
            found.append(row_of(each))
            if len(found) == most:
                break
    return found


def list_refusals(inspector: Inspector, query: RefusalQuery) -> Deferred[RefusalList]:
    """
    The refusals. Raises Rejected if the query is wrong, or too many lists are being made.
    """
    limit, ring = checked_limit(query.limit), inspector.node.sessions.refusals
    tests = list(_tests(query))
    rows: list[RefusalRow] = []
    matched = 0

    def look(found: Refusal) -> None:
        nonlocal matched
        if all(test(found) for test in tests):
            matched += 1
            if len(rows) < limit:
                rows.append(row_of(found))

    steps = in_slices(look(found) for found in list(reversed(ring)))  # type: ignore[func-returns-value]
    return inspector.walk(steps, lambda: RefusalList(len(ring), ring.last_number, matched, rows))


def _tests(query: RefusalQuery) -> Iterator[Callable[[Refusal], bool]]:
    if query.code:
        yield lambda found: found.code == query.code
    if query.reason:
        yield lambda found: found.reason == query.reason
    if query.session:
        yield lambda found: query.session in (found.session, found.to)
    if query.peer:
        yield lambda found: query.peer in found.peer
    if query.to:
        yield lambda found: query.to in found.to
    if query.rule:
        yield lambda found: query.rule in found.rule
    if query.id:
        yield lambda found: found.is_of(query.id)
    if query.since:
        yield lambda found: found.last >= query.since
    if query.after:
        yield lambda found: found.number > query.after
