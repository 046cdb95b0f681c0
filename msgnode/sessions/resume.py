"""
What a client and its session agree on when it opens: are messages counted, and from where.

docs/protocol.md, "Acknowledged resume".
"""

from typing import Any

from msgnode.protocol.message import Message
from msgnode.sessions.outbox import Outbox
from msgnode.sessions.session import Session

ResumeRequest = (
    bool | tuple[str, int]
)  # of a client that acknowledges: its epoch and its count, if it has them


def resume_request(message: Message) -> ResumeRequest:
    """
    `body.resume`: what the client wants to have counted, and since when.
    """
    wish = message.fields().get("resume")
    if isinstance(wish, dict):
        epoch, received = wish.get("epoch"), wish.get("received")
        if isinstance(epoch, str) and type(received) is int and received >= 0:
            return epoch, int(received)
    # An open is answered by nothing but 200: whatever else it says begins anew.
    return wish not in (None, False)


def negotiate(
    session: Session, wish: ResumeRequest, counted: bool, fresh: bool, stands: bool = False
) -> dict[str, Any] | None:
    """
    Settle with a client that just opened how its messages are counted; what it is told.

    `counted`: its connector counts in any case.  `fresh`: it opens anew.
    `stands`: it does on the connection it has, where more is on its way to it.
    """
    session.drop_stale()
    if not wish and not counted:
        if session.outbox is not None:
            session.start_epoch(False)
        session.note()
        return None
    known = session.outbox is not None and _is_known(wish, session.outbox)
    if fresh or not known:
        session.start_epoch(True, bool(wish))
        # Nothing can be said of an agreement the node knows nothing of.
        missed = None if isinstance(wish, tuple) and not known else session.missed
    else:
        missed = _go_on(session, wish, stands)
    if session.unsure:
        missed = None
    outbox = session.outbox
    if not wish or outbox is None:
        session.note()
        return None  # nor was it told what it misses
    if missed is None or not stands or not known:
        session.missed = 0
    session.unsure = False
    session.note()
    if missed != 0:
        session.journal.tells(session.sid)  # once only, so it has to be known after a kill
    return {"epoch": outbox.epoch, "received": outbox.on_disk, "recovered": missed == 0, "missed": missed}


def must_wait(session: Session, wish: ResumeRequest) -> bool:
    """
    Would its client be told now how many messages are gone, or of a new epoch, which cannot be written down?
    """
    outbox = session.outbox
    if not wish or outbox is None or not outbox.held:
        return False
    session.drop_stale()
    ends = isinstance(wish, tuple) and not _is_known(wish, outbox)
    return ends or bool(session.missed or outbox.holes)


def _is_known(wish: ResumeRequest, outbox: Outbox) -> bool:
    if isinstance(wish, tuple):
        return wish[0] == outbox.epoch and wish[1] <= outbox.last
    return not wish  # it polls, and names a cursor with each request


def _go_on(session: Session, wish: ResumeRequest, stands: bool) -> int:
    """
    The numbers go on where they were; how many messages were missed.
    """
    outbox, missed = session.outbox, 0
    assert outbox is not None
    if isinstance(wish, tuple):
        outbox.asked = True
        missed = outbox.reconcile(wish[1], stands)
        if not stands:
            missed += session.missed
            outbox.skip(session.missed)
    outbox.expect_again()
    outbox.step("reopened")
    return missed
