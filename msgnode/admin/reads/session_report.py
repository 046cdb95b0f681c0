"""
The report on one session: its fields, its addresses, its outbox, and its last refusals.
"""

from itertools import islice
from typing import Any

import msgspec

from msgnode.admin.lookups.policy_words import PolicyWord, words_about
from msgnode.admin.reads.inspector import Inspector
from msgnode.admin.reads.refusal_list import RefusalRow, of_session
from msgnode.admin.reads.session_rows import SessionRow, row_of
from msgnode.sessions.mailbox import Mailbox
from msgnode.sessions.queue import QueuedMessage
from msgnode.sessions.routing import ALLOCATED, LEARNED, OWNED, SUBSCRIBED

MAX_ADDRESSES, MAX_WAITING, MAX_RECENT = 200, 50, 20
NAMES = ((ALLOCATED, "allocated"), (SUBSCRIBED, "subscribed"), (LEARNED, "learned"), (OWNED, "owned"))


class BoundAddress(msgspec.Struct):
    """
    An address that a session is bound to, and why.
    """

    address: str
    why: list[str]


class OutboxReport(msgspec.Struct):
    """
    The state of acknowledged delivery: numbers of messages since the epoch began.

    `behind` is by how many messages the client is behind: those that it has not acknowledged, with those that
    were dropped meanwhile, and those that wait.
    """

    epoch: str
    state: str
    last: int
    acknowledged: int
    unacked: int
    unacked_bytes: int
    received: int
    behind: int


class WaitingMessage(msgspec.Struct):
    """
    A queued message: its size, its priority, how long it waits (null if that is not known), and when it
    expires; never its body.
    """

    bytes: int
    priority: int
    age_s: float | None
    expires_at: float | None


class TLSReport(msgspec.Struct):
    """
    The TLS of a connection, with the subject of the client's certificate.
    """

    version: str
    cipher: str
    subject: str


class SessionReport(msgspec.Struct):
    """
    All about a session: at most 200 addresses, 50 queued messages, 20 refusals and 20 events, the newest
    first. `policy` is what the policies would say, empty without policies.
    """

    session: SessionRow
    tls: TLSReport | None
    addresses: list[BoundAddress]
    more_addresses: int
    keys: int
    former_names: list[str]
    outbox: OutboxReport | None
    queue: list[WaitingMessage]
    refusals: list[RefusalRow]
    events: list[dict[str, Any]]
    policy: list[PolicyWord]


class AddressPage(msgspec.Struct, forbid_unknown_fields=True):
    """
    The first address to show, by its place in the list; and about what to ask the policies: may it subscribe
    the address `to`, and send a message of this `type` to it? By default `to` is its first address.
    """

    addresses_from: int = 0
    to: str = ""
    type: str = "create"


def report_session(inspector: Inspector, runtime: str, query: AddressPage) -> SessionReport:
    """
    The report. Raises Rejected (404) if there is no such session.
    """
    session = inspector.session(runtime)
    first = max(0, query.addresses_from)
    shown = islice(session.bindings.items(), first, first + MAX_ADDRESSES)
    addresses = [BoundAddress(address, reasons(kinds)) for address, kinds in shown]
    return SessionReport(
        row_of(session, inspector),
        tls_of(session.connection),
        addresses,
        max(0, len(session.bindings) - first - len(addresses)),
        len(session.keys) if session.keys is not None else 0,
        list(session.names),
        _outbox(session.mailbox),
        [_waiting(kept, inspector) for kept in islice(session.mailbox.queued_messages(), MAX_WAITING)],
        of_session(inspector, runtime, MAX_RECENT),
        inspector.events(runtime, MAX_RECENT),
        list(
            words_about(
                session,
                inspector.node.enforcement,
                query.to or next(iter(session.bindings), session.runtime),
                query.type,
            )
        ),
    )


def _outbox(mailbox: Mailbox) -> OutboxReport | None:
    outbox, inbox = mailbox.outbox, mailbox.inbox
    if outbox is None:
        return None
    return OutboxReport(
        outbox.epoch,
        outbox.state,
        outbox.last,
        outbox.acknowledged,
        len(outbox.sent),
        outbox.sent_bytes,
        inbox.received if inbox is not None else 0,
        outbox.last - outbox.acknowledged + mailbox.queued,
    )


def _waiting(kept: QueuedMessage, inspector: Inspector) -> WaitingMessage:
    now = inspector.facts.wall()
    return WaitingMessage(
        kept.size,
        kept.priority,
        round(max(0.0, now - kept.came / 1e9), 3) if kept.came else None,
        None if kept.until > 1e300 else round(inspector.wall_of(kept.until), 3),
    )


def tls_of(connection: Any) -> TLSReport | None:
    """
    The TLS of a connection; None if it has none, or its transport does not say.
    """
    tls = getattr(getattr(connection, "transport", None), "getPeerCertificate", None)
    handle = getattr(getattr(connection, "transport", None), "getHandle", None)
    if tls is None or handle is None:
        return None
    state = handle()
    version = getattr(state, "get_protocol_version_name", None)
    if version is None:
        return None
    certificate = tls()
    subject = "" if certificate is None else certificate.to_cryptography().subject.rfc4514_string()
    return TLSReport(version(), state.get_cipher_name() or "", subject)


def reasons(kinds: int) -> list[str]:
    """
    The reasons of a binding in words.
    """
    return [name for flag, name in NAMES if kinds & flag]
