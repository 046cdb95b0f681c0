"""
The first thing a node does, and the last: what there was before is there again, and the spool is closed.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec
from twisted.application.service import Service
from twisted.logger import Logger

from msgnode.config.schema import ConfigError
from msgnode.node import Node
from msgnode.sessions.allocation_keys import Keys
from msgnode.sessions.outbox import Outbox
from msgnode.sessions.principal import read_proof
from msgnode.sessions.queue import QueuedMessage
from msgnode.sessions.session import Session
from msgnode.storage.session_store import Store
from msgnode.storage.spool import Spool
from msgnode.storage.spool_recovery import CorruptSegment

log = Logger()


class Restart(Service):
    """
    The service that restores sessions before anybody connects, and closes the spool at the end.
    """

    def __init__(self, node: Node, store: Store, spool: Spool) -> None:
        self._node = node
        self._store = store
        self._spool = spool

    def startService(self) -> None:
        super().startService()
        directory = self._node.config.state
        rows = self._store.open()
        try:
            owed = self._spool.open()
        except CorruptSegment as why:
            raise ConfigError(f"state: {why}; 'msgnode state repair {directory}' moves it aside") from why
        except OSError as why:
            where = f"state: cannot write in {directory}"
            raise ConfigError(f"{where}: {why.strerror}; name another directory, or none") from why
        restore(self._node, rows, owed)
        if self._spool.incomplete:
            log.warn(
                "state in {directory}: something is missing; all sessions are told",
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
            log.error("what waits is not on disk: {why}", why=str(self._spool.failing))
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


class Rows(Protocol):
    """
    The rows of the database (storage/database.py, Loaded).  Each can be gone through once.
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
    Fill an empty node.
    """
    states = {sid: msgspec.json.decode(owing.state) for sid, owing in owed.items() if owing.state}
    found, left_at = _sessions(node, rows)
    _go_on(node, found, states, owed)
    moved = _absorbed(node, found, states)
    for session in found.values():
        node.sessions.restore(session)
        node.identity_expiry.go_on(session)
        node.budget.settle(session)
    _bind(node, found, moved, rows)
    for session in found.values():
        node.sessions.expect(session, left_at.get(session.sid))
    node.sessions.journal.limit_disk(node.config.storage.max_spool_bytes)


def _sessions(node: Node, rows: Rows) -> tuple[dict[int, Session], dict[int, float | None]]:
    """
    Those that the database knows, by sid; and when each lost its connection.
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
            node.sessions.retire(sid)
    for sid, host in rows.hosts:
        if sid in found:
            found[sid].host = host
    return found, left_at


def _go_on(
    node: Node,
    found: dict[int, Session],
    states: Mapping[int, dict[str, Any]],
    owed: Mapping[int, Owed],
) -> None:
    """
    Each goes on where the spool left it; those that it alone knows are found, too.
    """
    known = {session.runtime for session in found.values()}
    for sid, owing in owed.items():
        state = states.get(sid)
        if sid not in found:
            if state is None or state["runtime"] in known:
                # Who gets that number next must not get what lies there.
                node.sessions.journal.forget(sid)
                for note in owing.kept:
                    node.sessions.journal.message_log.release(note.size)
                continue
            found[sid] = Session(state["runtime"], node.sessions, sid)
            found[sid].host = state.get("host", "")
            found[sid].anonymous = state["anonymous"]
            node.session_store.opened(found[sid])
        elif state is not None and found[sid].anonymous and not state["anonymous"]:
            if state["runtime"] in known:
                state["anonymous"] = True
            else:
                # It was given its name in the last moment before the end.
                known.add(state["runtime"])
                found[sid].runtime, found[sid].anonymous = state["runtime"], False
                node.session_store.opened(found[sid])
        _owe(node, found[sid], state, owing)


def _bind(node: Node, found: Mapping[int, Session], moved: Mapping[int, int], rows: Rows) -> None:
    """
    Addresses, their keys, and what is registered, for whom each is now.
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
            node.sessions.retire(sid)
    for sid, key, address in rows.keys:
        sid = moved.get(sid, sid)
        if sid in found:
            keys = found[sid].keys
            if keys is None:
                keys = found[sid].keys = Keys(found[sid].account)
            keys.add(key, [address])
        else:
            node.sessions.retire(sid)
    for sid, url in rows.registered:
        sid = moved.get(sid, sid)
        if sid in found:
            # Whose it is stays known where the proof has ended.
            shown = found[sid].proof
            node.registered.restore(found[sid], url, shown.user if shown is not None else found[sid].identity)
        else:
            node.registered.left.append((sid, url))


def _absorbed(
    node: Node, found: dict[int, Session], states: Mapping[int, Mapping[str, Any]]
) -> dict[int, int]:
    """
    Sessions that had become one with another in the last moment before the end, and with which.
    """
    moved: dict[int, int] = {}
    for sid, state in states.items():
        absorbed = state.get("absorbed", ())
        if not absorbed or sid not in found:
            continue
        for gone in absorbed:
            # Until it is on disk that this is done, a newer session of that number would be taken for it.
            node.sessions.retire(gone)
            moved[gone] = sid
            node.session_store.moved(gone, sid)
            session = found.pop(gone, None)
            if session is not None:
                node.session_store.ended(session)
                node.sessions.journal.forget(gone)
        heir = found[sid]
        heir.absorbed = list(absorbed)
        heir.note()
        node.session_store.settled().addCallbacks(partial(_forget, heir, heir.absorbed), lambda why: None)
    return moved


def _forget(heir: Session, gone: list[int], done: None) -> None:
    """
    The database knows that they are one.
    """
    heir.absorbed = [sid for sid in heir.absorbed if sid not in gone]


def doubt(node: Node, spool: Spool) -> None:
    """
    After a repair nobody knows what is gone: every session is told so.
    """
    journal = node.sessions.journal
    for session in list(node.sessions):
        session.doubt()
        if journal.held > journal.most >> 1:
            journal.settle()
    spool.accept()
    journal.settle(now=True)


def _owe(node: Node, session: Session, state: dict[str, Any] | None, owing: Owed) -> None:
    """
    The session goes on where the spool left it.
    """
    session.last_key = owing.next_key
    agreed = None
    if state is not None:
        session.token_hash = bytes.fromhex(state["token"])
        session.anonymous = session.anonymous and state["anonymous"]
        session.identity = state["identity"]
        session.host = state.get("host", session.host)
        # A spool of before there were proofs says nothing of them.
        session.proof = read_proof(state.get("proof")) or session.proof
        session.missed = state["missed"] + owing.missed
        session.unsure = state.get("unsure", False)
        agreed = state["outbox"]
    journal = node.sessions.journal
    waiting = []
    if agreed is not None:
        session.outbox = outbox = node.sessions.make_outbox(session, agreed["asked"])
        outbox.epoch = agreed["epoch"]
        outbox.acknowledged = max(agreed["acknowledged"], owing.acknowledged)
        outbox.weeded = agreed.get("weeded", 0)
        outbox.stands = "gapped" if session.missed else "held"
        outbox.received = outbox.at = owing.received
        outbox.lost = set(owing.pending)
        outbox.on_disk = outbox.finished
        outbox.expect_again()
    for note in owing.kept:
        until = journal.by_clock(note.until)
        kept = QueuedMessage(note.key, None, note.size, until, note.priority, note.asker, note.place)
        journal.adopt(kept)
        if session.outbox is None or not note.number:
            waiting.append(kept)
        else:
            _was_sent(session.outbox, kept, note.number)
    if session.outbox is not None:
        outbox = session.outbox
        if not outbox.sent:
            outbox.holes = max(0, owing.sent - outbox.acknowledged)
        outbox.weeded = min(outbox.weeded, outbox.holes)
        outbox.last = outbox.acknowledged + outbox.holes + len(outbox.sent)
    session.adopt(waiting)


def _was_sent(outbox: Outbox, kept: QueuedMessage, number: int) -> None:
    if number > outbox.acknowledged:
        if not outbox.sent:
            outbox.holes = number - outbox.acknowledged - 1
        outbox.sent.append(kept)
        outbox.sent_bytes += kept.size
