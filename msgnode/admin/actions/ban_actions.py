"""
Bans: made and lifted by operators, and kept across a restart.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from twisted.application.service import Service
from twisted.internet.defer import Deferred

from msgnode.admin.actions.audited import MAX_SHOWN, Audited, Plan, check_reason, not_kept
from msgnode.admin.actions.state_file import StateFile
from msgnode.admin.api.endpoint import AT_MOST, Call, Reason
from msgnode.admin.reads.inspector import Inspector
from msgnode.admin.survey import each_of, in_slices
from msgnode.protocol.errors import Rejected
from msgnode.sessions.access.bans import ORIGIN, PEER, Ban, check
from msgnode.sessions.session import Session

FILE = "bans.json"
MAX_OPERATOR_SECONDS = 86400.0  # a longer ban needs the role admin
MAX_SECONDS = 1e9


def check_seconds(call: Call, seconds: float) -> None:
    """
    Raises Rejected if the operator may not ban for so long; 0 is for good.
    """
    if not 0 <= seconds < MAX_SECONDS:
        raise Rejected("seconds: expected 0 for a ban for good, or how long it lasts")
    if (not seconds or seconds > MAX_OPERATOR_SECONDS) and not call.operator.has_role("admin"):
        raise Rejected("a ban of more than 24 hours needs the role admin", 403, "policy")


def id_of(kind: str, value: str) -> str:
    """
    The id of a ban or a limit; the same at all nodes of a domain.
    """
    return sha256(f"{kind} {value}".encode("utf-8", "replace")).hexdigest()[:12]


class BanRequest(Reason, kw_only=True):
    """
    The body of a ban: `kind` is runtime, user, peer (an IP address or a network), origin or device;
    `seconds` is how long, 0: for good. `done` in the answer is the number of clients that it disconnects.
    """

    kind: str
    value: str
    seconds: float = 3600.0


class BanList(msgspec.Struct):
    """
    The bans that are not over; `refused` counts the clients that bans have kept out since the node started.
    """

    refused: int
    bans: list[Ban]


class BanActions(Service):
    """
    The bans of a node. `path` is None without a state directory.
    """

    def __init__(self, inspector: Inspector, audited: Audited, path: Path | None) -> None:
        self._inspector = inspector
        self._node = inspector.node
        self._audited = audited
        clock, wall = inspector.clock, inspector.facts.wall
        self._file = StateFile(path, "bans", self._node.bans.all, audited.audit, clock, wall)

    def startService(self) -> None:
        """
        Restores the bans of before a restart. ConfigError if the disk does not give them.
        """
        super().startService()
        self._node.bans.restore(self._file.read(list[Ban]) or [])

    def stopService(self) -> Deferred[None]:
        super().stopService()
        return self._file.stop()

    def save(self) -> Deferred[None]:
        """
        Writes the bans. Fails with NotKept (503) if they cannot be written; they are in effect all the same,
        and written as soon as the disk takes them.
        """
        return self._file.save().addErrback(not_kept)

    # -- the verbs ----------------------------------------------------------------------

    def bans(self, call: Call) -> BanList:
        return BanList(self._node.bans.refused, self._node.bans.all())

    def ban(self, call: Call) -> Any:
        """
        Bans, and disconnects whom the ban concerns.
        """
        body: BanRequest = call.body
        check_reason(body.reason)
        check(body.kind, body.value)
        check_seconds(call, body.seconds)
        ban = self._make(call, body.kind, body.value, body.seconds, body.reason)
        found: list[Session] = []

        def look(session: Session) -> None:
            user = session.identity or (session.proof.user if session.proof is not None else "")
            if session.connection is not None and self._node.bans.matches(
                ban, session.runtime, user, session.connection
            ):
                found.append(session)

        def banned() -> Deferred[dict[str, Any]]:
            self._node.bans.add(ban)
            found.clear()  # clients came and went since they were counted
            done = self._node.slices.work(in_slices(self._disconnecting(ban, look, found)))

            def details(saved: object) -> dict[str, Any]:
                return {"ban": msgspec.to_builtins(ban), "disconnected": len(found)}

            return done.addCallback(lambda over: self.save()).addCallback(details)

        def planned(done: Any) -> Any:
            targets = [f"{ban.kind} {ban.value}", *(session.runtime for session in found[:MAX_SHOWN])]
            before = [each for each in self._node.bans.all() if each.id == ban.id]
            plan = Plan(
                "ban",
                targets,
                banned,
                confirms=AT_MOST,
                before=msgspec.to_builtins(before[0]) if before else None,
                number=len(found),
            )
            return self._audited.run(call, plan, body.reason)

        steps = each_of(self._node.sessions, look)
        return self._inspector.walk_to_act(steps).addCallback(planned)

    def _disconnecting(
        self, ban: Ban, look: Callable[[Session], None], found: list[Session]
    ) -> Iterator[None]:
        """
        Disconnects the sessions that the ban concerns, which `look` adds to `found`, and connections that
        have opened no session yet.
        """
        closing, sessions = ban.closing(self._inspector.facts.wall()), self._node.sessions
        for session in list(sessions):
            known = len(found)
            look(session)
            if len(found) > known:
                sessions.suspend(session, closing)
            yield
        if ban.kind not in (PEER, ORIGIN):
            return
        for connection in list(sessions.connections):
            if connection in sessions.connections and self._node.bans.matches(ban, "", "", connection):
                sessions.connections.close(connection, closing)
            yield

    def put(self, call: Call, kind: str, value: str, seconds: float, reason: str) -> None:
        """
        Adds a ban as part of another action; the caller saves it.
        """
        self._node.bans.add(self._make(call, kind, value, seconds, reason))

    def _make(self, call: Call, kind: str, value: str, seconds: float, reason: str) -> Ban:
        now = self._inspector.facts.wall()
        until = now + seconds if seconds else None
        return Ban(id_of(kind, value), kind, value, until, reason, call.operator.name, now)

    def unban(self, call: Call) -> Any:
        """
        Lifts a ban.
        """
        id = call.path["id"]
        known = {ban.id: ban for ban in self._node.bans.all()}
        if id not in known:
            raise Rejected(f"there is no ban {id[:80]!r}", 404, "not-found")

        def lifted() -> Deferred[dict[str, Any]]:
            details = {"ban": msgspec.to_builtins(self._node.bans.remove(id))}
            return self.save().addCallback(lambda saved: details)

        target = f"{known[id].kind} {known[id].value}"
        plan = Plan("unban", [target], lifted, before=msgspec.to_builtins(known[id]))
        return self._audited.run(call, plan, call.body.reason)
