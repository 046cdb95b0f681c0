"""
The reservations of relay bandwidth at the embedded QoS broker.
"""

from bisect import insort
from typing import ClassVar

import msgspec
from twisted.internet.defer import Deferred

from msgnode.admin.reads.inspector import Inspector, checked_limit
from msgnode.admin.survey import each_of
from msgnode.backends.qos.reservation import Reservation

MAX_PARTIES = 10  # in a row


class ReservationQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """
    Filters of reservations. `q` is a part of the id, session, user, application session or a party; `cursor`
    is `next` of the page before.
    """

    q: str = ""
    session: str = ""
    user: str = ""
    limit: int = 50
    cursor: str = ""


class ReservationRow(msgspec.Struct, kw_only=True):
    """
    A reservation: `up` and `down` in bits per second until `expires`, in seconds since 1970, made by
    `session` for the `application` session between `parties`, of which the first ten are here.
    """

    id: str
    session: str
    user: str
    application: str
    parties: list[str]
    number_of_parties: int
    up: int
    down: int
    expires: int


class ReservationList(msgspec.Struct):
    """
    Reservations in the order of their ids; `is_embedded` is false if the node has no QoS broker of its own.

    `capacity` and `left` are bits per second, `up` and `down`; `relay_failures` counts how often in a row the
    TURN server's command line did not answer. `next` is the cursor of the next page, if there is one.
    """

    rows_in: ClassVar[str] = "reservations"

    is_embedded: bool
    total: int
    matched: int
    capacity: dict[str, int]
    left: dict[str, int]
    relay_failures: int
    reservations: list[ReservationRow]
    next: str | None = None


def list_reservations(inspector: Inspector, query: ReservationQuery) -> Deferred[ReservationList]:
    """
    A page of reservations. Raises Rejected if the query is wrong, or too many lists are being made.
    """
    limit, reservations = checked_limit(query.limit), inspector.node.reservations
    found: list[tuple[str, Reservation]] = []
    matched = 0

    def look(each: Reservation) -> None:
        nonlocal matched
        if not _matches(each, query):
            return
        matched += 1
        if each.id > query.cursor:
            insort(found, (each.id, each), key=lambda entry: entry[0])
            del found[limit + 1 :]

    def result() -> ReservationList:
        rows = [_row_of(each) for _, each in found[:limit]]
        following = rows[-1].id if len(found) > limit else None
        if reservations is None:
            none = {"up": 0, "down": 0}
            return ReservationList(False, 0, 0, none, none, 0, [])
        capacity, left = reservations.capacity(), reservations.left()
        total, failures = len(reservations), reservations.failures
        return ReservationList(True, total, matched, capacity, left, failures, rows, following)

    return inspector.walk(each_of(reservations or (), look), result)


def _matches(each: Reservation, query: ReservationQuery) -> bool:
    if query.session and each.runtime != query.session:
        return False
    if query.user and each.user != query.user:
        return False
    if not query.q:
        return True
    part = query.q.lower()
    return any(
        part in text.lower() for text in (each.id, each.runtime, each.user, each.session, *each.parties)
    )


def _row_of(each: Reservation) -> ReservationRow:
    return ReservationRow(
        id=each.id,
        session=each.runtime,
        user=each.user,
        application=each.session,
        parties=each.parties[:MAX_PARTIES],
        number_of_parties=len(each.parties),
        up=each.up,
        down=each.down,
        expires=each.until,
    )
