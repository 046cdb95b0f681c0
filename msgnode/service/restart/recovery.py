"""
Recovery: restores sessions, addresses and undelivered messages at the start, and closes the spool at the end.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec
from twisted.application.service import Service
from twisted.logger import Logger

from msgnode.bus.session_merge import forget_absorbed
from msgnode.config.schema import ConfigError
from msgnode.node import Node
from msgnode.service.restart.stream_state import Recovering, without_streams
from msgnode.sessions.allocation_keys import Keys
from msgnode.sessions.inbox import Inbox
from msgnode.sessions.mailbox import ARRIVING_KEYS
from msgnode.sessions.persistence import SessionMove
from msgnode.sessions.principal import read_proof
from msgnode.sessions.queue import QueuedMessage
from msgnode.sessions.session import Session
from msgnode.storage.session_store import Store
from msgnode.storage.spool import Spool
from msgnode.storage.spool_recovery import CorruptSegment, NewerSegment

log = Logger()


class Restart(Service):
    """
    The service that restores sessions before the first client connects, and closes the spool at the end.
    """

    def __init__(self, node: Node, store: Store, spool: Spool, streams: Recovering | None = None) -> None:
        self._node = node
        self._streams = streams
        self._store = store
        self._spool = spool

    def startService(self) -> None:
        super().startService()
        directory = self._node.config.state
        rows = self._store.open()
        try:
            owed = self._spool.open()
        except NewerSegment as why:
            raise ConfigError(f"state: {why}") from why
        except CorruptSegment as why:
            raise ConfigError(f"state: {why}; 'msgnode state repair {directory}' moves it aside") from why
        except OSError as why:
            where = f"state: cannot write in {directory}"
            raise ConfigError(f"{where}: {why.strerror}; name another directory, or none") from why
        restore(self._node, rows, without_streams(owed, self._streams))
        if self._spool.incomplete:
            log.warn(
                "state in {directory}: records are missing; every session is notified",
                directory=directory,
            )
            doubt(self._node, self._spool)
        log.info(
            "state in {directory}: {sessions} sessions, {addresses} addresses",
            directory=directory,
            sessions=len(self._node.sessions),
            addresses=len(self._node.routes),
        )

    def stopService(self) -> None:
        super().stopService()
        self._node.sessions.journal.settle(now=True)
        if self._spool.failing is not None:
            log.error("undelivered messages could not be written to disk: {why}", why=self._spool.failing)
        self._spool.close()


class Owed(Protocol):
    """
    The records of a session in the spool (storage/spool_records.py, SessionRecovery).
    """

    state: bytes | None
    kept: list[Any]
    acknowledged: int
    received: int
    pending: list[int]
    missed: int
    sent: int
    next_key: int
    copies: dict[int, tuple[bytes, int]]


class Rows(Protocol):
    """
    The rows of the database (storage/database.py, Loaded).  Each can be iterated once.
    """

    @property
    def sessions(self) -> Iterable[tuple[int, str, bytes, bool, bool, str, float | None]]: ...
    @property
    def bindings(self) -> Iterable[tuple[int, str, int]]: ...
    @property
    def keys(self) -> Iterable[tuple[int, str, str]]: ...
    @property
    def registered(self) -> Iterable[tuple[int, str]]: ...
    @property
    def proofs(self) -> Iterable[tuple[int, str]]: ...
    @property
    def hosts(self) -> Iterable[tuple[int, str]]: ...


def restore(node: Node, rows: Rows, owed: Mapping[int, Owed]) -> None:
    """
    Give an empty node the sessions of the database, each with its records in the spool.
    """
    states = {sid: msgspec.json.decode(owing.state) for sid, owing in owed.items() if owing.state}
    found, left_at = _sessions(node, rows)
    released = _released(node, found, states, owed)
    _go_on(node, found, states, owed, released)
    moved = _absorbed(node, found, states)
    for session in found.values():
        node.sessions.restore(session)
    for _, session in sorted(released.items(), reverse=True):  # the name is that of the last to leave
        node.sessions.restore_released(session)
        found[session.sid] = session
    for session in node.sessions:
        node.identity_expiry.resume(session)
        node.budget.settle(session)
    _bind(node, found, moved, rows)
    for session in node.sessions:
        node.sessions.start_grace_period(session, left_at.get(session.sid))
    node.sessions.journal.limit_disk(node.config.storage.max_spool_bytes)


def _sessions(node: Node, rows: Rows) -> tuple[dict[int, Session], dict[int, float | None]]:
    """
    Returns the sessions of the database by sid, and the time when each lost its connection.
    """
    found: dict[int, Session] = {}
    left_at: dict[int, float | None] = {}
    for sid, runtime, token_hash, anonymous, used, identity, left in rows.sessions:
        session = found[sid] = Session(runtime, node.sessions, sid)
        session.token_hash, session.anonymous = bytes(token_hash), bool(anonymous)
        session.used, session.identity = bool(used), identity
        left_at[sid] = left
    for sid, proof in rows.proofs:
        if sid in found:
            found[sid].proof = read_proof(proof)
        else:
            node.sessions.reserve_sid(sid)
    for sid, host in rows.hosts:
        if sid in found:
            found[sid].host = host
    return found, left_at


def _go_on(
    node: Node,
    found: dict[int, Session],
    states: Mapping[int, dict[str, Any]],
    owed: Mapping[int, Owed],
    released: Mapping[int, Session],
) -> None:
    """
    Restore the state of each session from the spool, and find the sessions that are only in the spool.
    """
    newest = _newest(found, states)
    for sid, session in list(found.items()):
        if newest.get(session.runtime, sid) not in found:
            # The database has neither its end nor the session that its runtime opened after it.
            del found[sid]
            node.session_store.ended(session)
            _release(node, sid, owed.get(sid))
    known = {session.runtime for session in found.values()}
    for sid, owing in owed.items():
        state = states.get(sid)
        if sid in released:
            continue
        if sid not in found:
            # An older session of that runtime, which had ended; the spool lacks the record of its end.
            if state is None or state["runtime"] in known or newest.get(state["runtime"]) != sid:
                _release(node, sid, owing)
                continue
            known.add(state["runtime"])
            found[sid] = Session(state["runtime"], node.sessions, sid)
            found[sid].host = state.get("host", "")
            found[sid].anonymous = state["anonymous"]
            node.session_store.opened(found[sid])
        elif state is not None and found[sid].anonymous and not state["anonymous"]:
            if state["runtime"] in known:
                state["anonymous"] = True
            else:
                # The node stopped before the database had the new name of the session.
                known.add(state["runtime"])
                found[sid].runtime, found[sid].anonymous = state["runtime"], False
                node.session_store.opened(found[sid])
        _owe(node, found[sid], state, owing)


def _released(
    node: Node,
    found: dict[int, Session],
    states: dict[int, dict[str, Any]],
    owed: Mapping[int, Owed],
) -> dict[int, Session]:
    """
    Takes out the sessions that had been released to other nodes, with what is still here of each.
    """
    released: dict[int, Session] = {}
    for sid in [sid for sid, state in states.items() if state.get("move", {}).get("to")]:
        state = states.pop(sid)
        session = found.pop(sid, None)
        if session is None:
            session = Session(state["runtime"], node.sessions, sid)
        _owe(node, session, state, owed[sid])
        released[sid] = session
    return released


def _newest(found: Mapping[int, Session], states: Mapping[int, Mapping[str, Any]]) -> dict[str, int]:
    """
    Returns the newest session of each runtime, by sid: sids are given out in ascending order.

    A session that was merged into another one is none.
    """
    runtimes = {sid: session.runtime for sid, session in found.items()}
    runtimes |= {sid: state["runtime"] for sid, state in states.items()}
    absorbed = {sid for state in states.values() for sid in state.get("absorbed", ())}
    return {runtimes[sid]: sid for sid in sorted(runtimes.keys() - absorbed)}


def _release(node: Node, sid: int, owing: Owed | None) -> None:
    """
    Free the spool of a session that is not restored; the next with its sid must not get its messages.
    """
    if owing is None:
        return
    node.sessions.journal.forget(sid)
    for note in owing.kept:
        node.sessions.journal.message_log.release(note.size)


def _bind(node: Node, found: Mapping[int, Session], moved: Mapping[int, int], rows: Rows) -> None:
    """
    Give addresses, their keys, and registrations to the sessions that have them now.
    """
    bind = node.routes.restore
    for sid, address, kinds in rows.bindings:
        sid = moved.get(sid, sid)
        if sid in found and not node.is_reserved(address):
            if address in found[sid].bindings:
                node.routes.bind(address, found[sid], kinds & 0xFF, kinds >> 8)
            else:
                bind(address, found[sid], kinds)
            found[sid].used = True
        else:
            node.sessions.reserve_sid(sid)
    for sid, key, address in rows.keys:
        sid = moved.get(sid, sid)
        if sid in found:
            keys = found[sid].keys
            if keys is None:
                keys = found[sid].keys = Keys(found[sid].account)
            keys.add(key, [address])
        else:
            node.sessions.reserve_sid(sid)
    for sid, url in rows.registered:
        sid = moved.get(sid, sid)
        if sid in found:
            # The owner stays known when the proof of its identity has expired.
            shown = found[sid].proof
            node.registered.restore(found[sid], url, shown.user if shown is not None else found[sid].identity)
        else:
            node.registered.add_leftover(sid, url)


def _absorbed(
    node: Node, found: dict[int, Session], states: Mapping[int, Mapping[str, Any]]
) -> dict[int, int]:
    """
    Finish merges that the node began just before it stopped; returns the sid of each merged session and of
    the session that it was merged into.
    """
    moved: dict[int, int] = {}
    for sid, state in states.items():
        absorbed = state.get("absorbed", ())
        if not absorbed or sid not in found:
            continue
        for gone in absorbed:
            # Until the database has the merge, a newer session with that sid would be mistaken for this one.
            node.sessions.reserve_sid(gone)
            moved[gone] = sid
            node.session_store.moved(gone, sid)
            session = found.pop(gone, None)
            if session is not None:
                node.session_store.ended(session)
                node.sessions.journal.forget(gone)
        heir = found[sid]
        heir.absorbed = list(absorbed)
        heir.write_state()
        forget_absorbed(heir, heir.absorbed, node.session_store)
    return moved


def doubt(node: Node, spool: Spool) -> None:
    """
    Notify every session: after a repair, or a power loss, the node cannot know which messages are missing.
    """
    journal = node.sessions.journal
    for session in list(node.sessions):
        session.mailbox.mark_uncertain()
        if journal.bytes_in_memory > journal.most >> 1:
            journal.settle()
    spool.accept()
    journal.settle(now=True)


def _owe(node: Node, session: Session, state: dict[str, Any] | None, owing: Owed) -> None:
    """
    Restore the state, the outbox and the queue of a session from its records in the spool.
    """
    mailbox = session.mailbox
    mailbox.last_key = owing.next_key
    agreed, behind = None, 0
    if state is not None:
        session.generation = state.get("generation", 1)
        if "move" in state:
            session.move = msgspec.convert(state["move"], SessionMove)
            behind = session.move.behind
        session.token_hash = bytes.fromhex(state["token"])
        session.anonymous = session.anonymous and state["anonymous"]
        session.identity = state["identity"]
        session.host = state.get("host", session.host)
        # Spools of early versions have no proofs.
        session.proof = read_proof(state.get("proof")) or session.proof
        mailbox.missed = state["missed"] + owing.missed
        mailbox.uncertain = state.get("unsure", False)
        agreed = state["outbox"]
    journal = node.sessions.journal
    outbox = None
    if agreed is not None:
        outbox, inbox = node.sessions.make_outbox(mailbox, agreed["asked"]), Inbox(mailbox)
        mailbox.outbox, mailbox.inbox = outbox, inbox
        outbox.restore(agreed, owing.acknowledged)
        inbox.restore(owing.received, set(owing.pending))
    waiting = []
    for note in owing.kept:
        until = journal.by_clock(note.until)
        kept = QueuedMessage(note.key, None, note.size, until, note.priority, note.asker, note.place)
        kept.copy = owing.copies.get(note.key)
        journal.recover(kept)
        if outbox is None or not note.number:
            waiting.append(kept)
        else:
            outbox.restore_sent(kept, note.number)
    if outbox is not None:
        outbox.finish_restore(owing.sent)
    if behind:
        before = [note.key for note in owing.kept if note.key <= behind - ARRIVING_KEYS // 2]
        mailbox.last_key = max(before, default=behind - ARRIVING_KEYS)
    if owing.copies:
        node.sessions.copies[session.sid] = owing.copies
    mailbox.restore_queue(waiting, behind)
