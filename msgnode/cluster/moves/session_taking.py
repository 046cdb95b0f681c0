"""
The taking of sessions: a client opens a session here that another member holds.
"""

from collections.abc import Callable
from weakref import WeakKeyDictionary

import msgspec
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from msgnode.cluster.directory.directory import ReplicatedDirectory
from msgnode.cluster.moves.local_sessions import LocalSessions
from msgnode.cluster.moves.moves import Moves
from msgnode.cluster.moves.takes import GONE, REFUSED, TAKE_SECONDS, TAKEN, UNANSWERED, Outcome
from msgnode.protocol.close_codes import OVER_CAPACITY, TOKEN_REJECTED, Closing
from msgnode.sessions.access.open_checks import OpenChecks
from msgnode.sessions.input_order import InputOrder
from msgnode.sessions.principal import read_proof
from msgnode.sessions.session import Connection, Session, hashed

log = Logger()

RETRY_SECONDS = 5.0  # after which a client may try to begin its session again, whose holder is dead


class Claim(msgspec.Struct, array_like=True):
    """
    The proof that a client may have a session: the hash of the token that it gave, the principal of its own
    token, and the name in its certificate.
    """

    token_hash: bytes
    proof: str
    identity: str


_claim = msgspec.msgpack.Decoder(Claim)


class _Claimant:
    """
    A client at another member, in the place of a connection.
    """

    connector = "node"
    bearer = ""
    acks_by_request = False
    write_paused = False
    session: Session | None = None

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.peer = ""

    def send(self, data: bytes) -> None: ...
    def outbox_ready(self) -> None: ...
    def lose(self, why: Closing) -> None: ...
    def abort(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def report_undecodable(self, text: str, code: int) -> None: ...


class SessionTaking:
    """
    The requests of this node's clients for sessions of other members (OtherHolders of the handshake).

    `ready` is None while clients may be read, else it fires when they may.
    """

    def __init__(
        self,
        moves: Moves,
        local: LocalSessions,
        directory: ReplicatedDirectory,
        checks: OpenChecks,
        input_order: InputOrder,
        is_open: Callable[[], bool],
        ready: Callable[[], Deferred[None] | None],
    ) -> None:
        self._moves = moves
        self._local = local
        self._directory = directory
        self._checks = checks
        self._input_order = input_order
        self._is_open = is_open
        self._ready = ready
        self._outcomes: WeakKeyDictionary[Connection, tuple[str, int | Closing]] = WeakKeyDictionary()

    # -- of the handshake ---------------------------------------------------------------

    def take(self, runtime: str, token: str, connection: Connection, again: Callable[[], object]) -> bool:
        """
        Ask for the session, if another member may hold it. True: `again` is called when that is known.
        """
        if connection in self._outcomes and self._outcomes[connection][0] == runtime:
            return False
        ready = self._ready()
        if ready is not None:
            work = self._input_order.hold(connection)
            ready.addCallback(lambda done: self._input_order.release(work, again))
            return True
        claim = self._claim(token, connection)
        if self._moves.is_leaving(runtime) or self._directory.sessions(runtime):
            found = self._moves.take(runtime, msgspec.msgpack.encode(claim))
        elif token:
            # It had a session somewhere, of which this node has not heard yet.
            found = self._ask_all(runtime, claim)
        else:
            found = None
        if found is None:
            return False
        work = self._input_order.hold(connection)
        found.addCallback(self._taken, runtime, claim, connection)
        found.addErrback(lambda why: log.failure("{name} could not be taken", why, name=runtime))
        found.addCallback(lambda done: self._input_order.release(work, again))
        return True

    def outcome(self, connection: Connection, runtime: str) -> int | Closing:
        """
        The generation with which the session begins here, or why the client is refused.
        """
        name, outcome = self._outcomes.pop(connection, ("", 1))
        return outcome if name == runtime else 1

    def began(self, session: Session) -> None:
        """
        A session began here. If another member has it, too, one of them will let it go.
        """
        self._moves.compare_soon(session.runtime)
        if self._directory.sessions(session.runtime):
            members = {*self._directory.members(), *self._local.away()}
            self._local.began(session, self._directory.last_change(session.runtime), members)

    # -- what became of it ----------------------------------------------------------------

    def _claim(self, token: str, connection: Connection) -> Claim:
        shown = self._checks.shown(connection)
        return Claim(
            hashed(token) if token else b"",
            shown.encoded() if shown is not None else "",
            connection.identity,
        )

    def _ask_all(self, runtime: str, claim: Claim) -> Deferred[Outcome]:
        def take(nodes: tuple[str, ...] | None) -> Outcome | Deferred[Outcome]:
            found = self._moves.take(runtime, msgspec.msgpack.encode(claim), nodes or ())
            return Outcome(GONE, 1) if found is None else found

        return self._directory.ask(runtime, TAKE_SECONDS).addCallback(take)

    def _taken(self, outcome: Outcome, runtime: str, claim: Claim, connection: Connection) -> None:
        if outcome.kind == TAKEN:
            return
        if outcome.kind == REFUSED:
            self._outcomes[connection] = runtime, _closing(outcome)
            return
        if outcome.kind == UNANSWERED and not self._may_begin_again(runtime, claim):
            self._outcomes[connection] = runtime, TOKEN_REJECTED._replace(retry_after=RETRY_SECONDS)
            return
        assert outcome.kind in (GONE, UNANSWERED)
        known = [entry.generation + 1 for _, entry in self._directory.sessions(runtime)]
        self._local.leave_routes(runtime)
        self._outcomes[connection] = runtime, max([outcome.generation, 1, *known])

    def _may_begin_again(self, runtime: str, claim: Claim) -> bool:
        """
        May the client begin a session again whose holder is dead? Only the start of the hash of its token is
        known here.
        """
        if self._is_open():
            return True
        entries = self._directory.sessions(runtime)
        return not entries or entries[-1][1].token_hash == claim.token_hash[:16]

    # -- of other members -----------------------------------------------------------------

    def refused(self, session: Session, claim: bytes) -> Closing | None:
        """
        Why a client of another member may not have this session.
        """
        try:
            found = _claim.decode(claim)
        except msgspec.DecodeError:
            return TOKEN_REJECTED
        claimant = _Claimant(found.identity)
        return self._checks.claimed(session, claimant, read_proof(found.proof), found.token_hash)


def _closing(outcome: Outcome) -> Closing:
    """
    The closing that a member has sent as its code and its reason.
    """
    if outcome.code == OVER_CAPACITY.code:
        return OVER_CAPACITY
    word, _, after = outcome.reason.partition("; retry_after=")
    try:
        return Closing(outcome.code, word, float(after) if after else None)
    except ValueError:
        return Closing(outcome.code, word)
