"""
Negotiation of acknowledged resume when a client opens: are messages counted, and from which number.

docs/protocol.md, "Acknowledged resume".
"""

from typing import Any

from msgnode.protocol.message import Message
from msgnode.sessions.mailbox import Mailbox
from msgnode.sessions.outbox import Outbox
from msgnode.sessions.session import Session

# The request of a client that acknowledges: its epoch and its count, if it has them.
ResumeRequest = bool | tuple[str, int]


def resume_request(message: Message) -> ResumeRequest:
    """
    The value of `body.resume`: whether the client wants counted messages, and its epoch and count.
    """
    request = message.fields().get("resume")
    if isinstance(request, dict):
        epoch, received = request.get("epoch"), request.get("received")
        if isinstance(epoch, str) and type(received) is int and received >= 0:
            return epoch, int(received)
    # The only answer to an open is 200: any other value starts a new epoch.
    return request not in (None, False)


def negotiate(
    session: Session, request: ResumeRequest, counted: bool, fresh: bool, same_connection: bool = False
) -> dict[str, Any] | None:
    """
    Negotiates how the messages of a client that just opened are counted; returns `resume` of the answer.

    `counted`: its connector counts in any case. `fresh`: it opens a new session. `same_connection`: it opens
    again on the connection it has, where messages may be in flight.
    """
    mailbox = session.mailbox
    mailbox.expire()
    if not request and not counted:
        if mailbox.outbox is not None:
            mailbox.start_epoch(False)
        session.write_state()
        return None
    known = mailbox.outbox is not None and _is_known(request, mailbox.outbox)
    if fresh or not known:
        mailbox.start_epoch(True, bool(request))
        # The node cannot say what is missing of an unknown epoch.
        missed = None if isinstance(request, tuple) and not known else mailbox.missed
    else:
        missed = _continue_epoch(mailbox, request, same_connection)
    if mailbox.uncertain:
        missed = None
    outbox, inbox = mailbox.outbox, mailbox.inbox
    if not request or outbox is None or inbox is None:
        session.write_state()
        return None  # and it does not learn what it missed
    if missed is None or not same_connection or not known:
        mailbox.missed = 0
    mailbox.uncertain = False
    session.write_state()
    if missed != 0:
        mailbox.journal.require_flush(session.sid)  # sent only once, so it must be on disk before
    return {"epoch": outbox.epoch, "received": inbox.on_disk, "recovered": missed == 0, "missed": missed}


def must_wait(session: Session, request: ResumeRequest) -> bool:
    """
    Would the answer give a number of dropped messages, or a new epoch, that cannot be written to disk now?
    """
    mailbox, outbox = session.mailbox, session.mailbox.outbox
    if not request or outbox is None or not outbox.blocked_on_disk:
        return False
    mailbox.expire()
    ends = isinstance(request, tuple) and not _is_known(request, outbox)
    return ends or bool(mailbox.missed or outbox.gaps)


def _is_known(request: ResumeRequest, outbox: Outbox) -> bool:
    if isinstance(request, tuple):
        return request[0] == outbox.epoch and request[1] <= outbox.last
    return not request  # it polls, and gives a cursor with each request


def _continue_epoch(mailbox: Mailbox, request: ResumeRequest, same_connection: bool) -> int:
    """
    Continues the numbers of the epoch; returns how many messages were missed.
    """
    outbox, inbox, missed = mailbox.outbox, mailbox.inbox, 0
    assert outbox is not None and inbox is not None
    if isinstance(request, tuple):
        outbox.client_requested = True
        missed = outbox.reconcile(request[1], same_connection)
        if not same_connection:
            missed += mailbox.missed
            outbox.skip(mailbox.missed)
    inbox.expect_again()
    outbox.transition("reopened")
    return missed
