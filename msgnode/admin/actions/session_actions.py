"""
Actions on sessions: kick, purge, expire-token, unbind.
"""

from collections.abc import Generator, Iterator
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.task import deferLater

from msgnode.admin.actions.audited import MAX_SHOWN, Audited, Plan, check_reason
from msgnode.admin.actions.ban_actions import BanActions, BanRequest, check_seconds
from msgnode.admin.api.endpoint import EXACTLY, Call, Reason
from msgnode.admin.reads.inspector import Inspector
from msgnode.admin.reads.session_list import SessionQuery, matching
from msgnode.admin.survey import in_slices
from msgnode.protocol.close_codes import REMOVED
from msgnode.protocol.errors import Rejected
from msgnode.sessions.access.bans import RUNTIME, closing_for
from msgnode.sessions.routing import ALLOCATED
from msgnode.sessions.session import Session

MAX_KICKED = 100_000
MAX_WAIT_SECONDS, LOOK_SECONDS = 10.0, 0.2
MAX_RETURN_SECONDS = 86400.0
MAX_AGE_SECONDS = 1e9
BACK_SECONDS = 5.0  # until a client that was kicked for no time may come back


class Kick(Reason, kw_only=True):
    """
    The body of a kick. `end`: the session ends, too, with its addresses and messages. `retry_after`:
    seconds until the client may come back; -1: it must not by itself. `ban_seconds`: its name is banned so
    long. With `wait_seconds`, at most 10, the answer says when the client came back.
    """

    end: bool = False
    retry_after: float = BACK_SECONDS
    ban_seconds: float = 0.0
    wait_seconds: float = 0.0


class KickMany(Kick, kw_only=True):
    """
    The body of a kick of all sessions that a filter matches.
    """

    filter: SessionQuery


class Purge(Reason, kw_only=True):
    """
    The body of a purge; `older_than_s`: only messages that wait for longer. Messages of before a restart, or
    that came from another node, count as old.
    """

    older_than_s: float = 0.0


class Unbind(Reason, kw_only=True):
    """
    The body of an unbind: the session that loses the address; "" for the one that it is allocated to.
    """

    session: str = ""


class SessionActions:
    """
    The actions of a node on its sessions.
    """

    def __init__(self, inspector: Inspector, audited: Audited, bans: BanActions) -> None:
        self._inspector = inspector
        self._node = inspector.node
        self._audited = audited
        self._bans = bans

    def kick(self, call: Call) -> Any:
        """
        Closes the connection of one session.
        """
        self._check(call)
        session = self._inspector.session(call.path["runtime"])
        plan = Plan("kick", [session.runtime], partial(self._kick, [session], call))
        return self._audited.run(call, plan, call.body.reason)

    def kick_many(self, call: Call) -> Any:
        """
        Closes the connections of all sessions that a filter matches.
        """
        check_reason(call.body.reason)
        self._check(call)
        query: SessionQuery = call.body.filter
        if query == SessionQuery():
            raise Rejected("filter: name at least one filter; an empty one would kick every client")
        found: list[Session] = []
        steps = matching(self._inspector, query, found, MAX_KICKED)

        def planned(done: Any) -> Any:
            if call.body.ban_seconds and len(found) > self._node.bans.room:
                text = f"there is room for {self._node.bans.room} bans, not {len(found)}; kick without a ban"
                raise Rejected(text, 429, "limit")
            targets = [session.runtime for session in found[:MAX_SHOWN]]
            kick = partial(self._kick, found, call)
            plan = Plan("kick", targets, kick, confirms=EXACTLY, number=len(found))
            return self._audited.run(call, plan, call.body.reason)

        return self._inspector.walk_to_act(steps).addCallback(planned)

    @staticmethod
    def _check(call: Call) -> None:
        """
        Raises Rejected if the operator may not ban for so long, or the client could not come back.
        """
        body: Kick = call.body
        if body.ban_seconds:
            check_seconds(call, body.ban_seconds)
        if body.retry_after != -1 and not 0 <= body.retry_after <= MAX_RETURN_SECONDS:
            raise Rejected(f"retry_after: expected -1, or 0 to {MAX_RETURN_SECONDS:.0f} seconds")

    def _kick(self, found: list[Session], call: Call) -> Deferred[dict[str, Any]]:
        body: Kick = call.body
        closing = REMOVED._replace(retry_after=None if body.retry_after < 0 else body.retry_after)
        if body.ban_seconds > 0:
            closing = closing_for(body.ban_seconds)
        if body.ban_seconds > 0:
            for session in found:
                self._bans.put(call, RUNTIME, session.runtime, body.ban_seconds, body.reason)
        connections = 0

        def one(session: Session) -> None:
            nonlocal connections
            connections += session.connection is not None
            self._node.sessions.suspend(session, closing)
            if body.end and not session.ended:
                self._node.sessions.end(session, "removed")

        steps = in_slices(one(session) for session in found)  # type: ignore[func-returns-value]

        def kicked(finished: object) -> Any:
            details = {"connections": connections, "ended": body.end}
            if body.wait_seconds > 0 and len(found) == 1:
                return self._until_back(details, found[0].runtime, min(body.wait_seconds, MAX_WAIT_SECONDS))
            return details

        done = self._node.slices.work(steps)
        if body.ban_seconds > 0:
            done.addCallback(lambda finished: self._bans.save())
        return done.addCallback(kicked)

    @inlineCallbacks
    def _until_back(
        self, details: dict[str, Any], runtime: str, seconds: float
    ) -> Generator[Deferred[Any], Any, dict[str, Any]]:
        """
        Adds to the details after how many seconds the client came back; null if it did not in time.
        """
        clock = self._inspector.clock
        begin = clock.seconds()
        details["back_after"] = None
        while clock.seconds() - begin < seconds:
            yield deferLater(clock, LOOK_SECONDS)
            session = self._node.sessions.get(runtime)
            if session is not None and session.connection is not None:
                details["back_after"] = round(clock.seconds() - begin, 1)
                break
        return details

    def purge(self, call: Call) -> Any:
        """
        Drops the queued messages of a session.
        """
        body: Purge = call.body
        if not 0 <= body.older_than_s <= MAX_AGE_SECONDS:
            raise Rejected(f"older_than_s: expected 0 to {MAX_AGE_SECONDS:.0f} seconds")
        older = int((self._inspector.facts.wall() - body.older_than_s) * 1e9) if body.older_than_s else 0
        session = self._inspector.session(call.path["runtime"])
        mailbox = session.mailbox

        def purged() -> Deferred[dict[str, Any]]:
            dropped = [0, 0]

            def steps() -> Iterator[None]:
                while True:
                    gone = mailbox.purge(100, older)
                    if not gone:
                        return
                    dropped[0] += len(gone)
                    dropped[1] += sum(kept.size for kept in gone)
                    yield

            done = self._node.slices.work(steps())
            return done.addCallback(lambda over: {"messages": dropped[0], "bytes": dropped[1]})

        plan = Plan("purge", [session.runtime], purged)
        return self._audited.run(call, plan, call.body.reason)

    def expire_token(self, call: Call) -> Any:
        """
        Makes the token of a session void: its client must show an identity, or open the session as a
        stranger.
        """
        session = self._inspector.session(call.path["runtime"])
        plan = Plan("expire-token", [session.runtime], partial(self._node.sessions.void_token, session))
        return self._audited.run(call, plan, call.body.reason)

    def unbind(self, call: Call) -> Any:
        """
        Frees an address from a session; an address of a pool is free for others.
        """
        address, node = call.path["address"], self._node
        bound = [each for each in node.routes.resolve(address) if address in each.bindings]
        if call.body.session:
            bound = [each for each in bound if each.runtime == call.body.session]
        else:
            bound = [each for each in bound if each.bindings[address] & ALLOCATED] or bound
        if not bound:
            raise Rejected(f"no such session is bound to {address[:200]}", 404, "not-found")
        if len(bound) > 1:
            text = f"{len(bound)} sessions are bound to {address[:200]}; name one in session"
            raise Rejected(text, 409, "conflict")
        [session] = bound

        def unbound() -> dict[str, Any]:
            if session.bindings.get(address, 0) & ALLOCATED:
                node.allocation.lose(address, REMOVED.word)
            if address in session.bindings:
                node.routes.unbind(address, session)
            return {"address": address}

        plan = Plan("unbind", [session.runtime], unbound, before=address)
        return self._audited.run(call, plan, call.body.reason)

    def take_back(self, call: Call) -> Any:
        """
        Takes the lease of an address of a pool from its session, which gets a notice.
        """
        address, allocation = call.path["address"], self._node.allocation
        if not allocation.has(address.partition(":")[0], address):
            raise Rejected(f"{address[:200]} is not an address of a pool", 404, "not-found")
        session = allocation.holder(address)
        if session is None:
            raise Rejected(f"{address[:200]} is not leased", 404, "not-found")

        def taken() -> dict[str, Any]:
            if allocation.holder(address) is not session:
                raise Rejected(f"{session.runtime} has returned {address[:200]} meanwhile", 409, "conflict")
            allocation.lose(address, REMOVED.word)
            return {"address": address}

        plan = Plan("take-back", [session.runtime], taken, before=address)
        return self._audited.run(call, plan, call.body.reason)


def ban_of_kick(call: Call) -> tuple[str, BanRequest] | None:
    """
    The ban that a kick contains, for the other nodes: the client could go to one of them.
    """
    body: Kick = call.body
    if not body.ban_seconds:
        return None
    value = call.path["runtime"]
    return "bans", BanRequest(reason=body.reason, kind=RUNTIME, value=value, seconds=body.ban_seconds)
