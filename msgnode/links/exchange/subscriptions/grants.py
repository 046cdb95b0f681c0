"""
Grants: the subscriptions of other nodes to addresses of this domain.

A node's session is bound to an address while one of the node's subscribers is permitted to hear it. Each
subscriber is decided on with its own identity, again when the policies change.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.links.exchange.counts import ExchangeCounts
from msgnode.links.exchange.domains import HomeDomains
from msgnode.links.exchange.envelopes import MessageIds
from msgnode.links.exchange.node_parts import ExchangeOptions, NodeParts
from msgnode.links.exchange.node_sessions import NodeSessions
from msgnode.links.exchange.subscriptions.entries import (
    Answer,
    Ask,
    Begin,
    End,
    Release,
    Revoke,
    in_parts,
)
from msgnode.links.exchange.subscriptions.grant_table import Grant, GrantTable, Identity
from msgnode.links.exchange.subscriptions.permissions import PERMITTED, Permissions, Verdict
from msgnode.links.wire.node_name import domain_of
from msgnode.protocol.errors import Rejected
from msgnode.sessions.limits.memory_budget import binding_size
from msgnode.sessions.routing import ALLOCATED, SUBSCRIBED
from msgnode.sessions.session import Session
from msgnode.structures.log_limits import FailureLog
from msgnode.structures.time_slices import ADDRESSES

log = Logger()

DECIDED = 100  # grants that are decided on in one slice
RECHECK_SECONDS = 5.0  # after which changed policies are noticed
SWEEPS = 4  # in the time of a lease

Entry = Ask | Release | Begin | End
Send = Callable[[str, Answer | Revoke], None]


class Grants:
    """
    The owner of the grants: it takes the entries of other nodes, those of a node one after the other.
    """

    def __init__(
        self,
        node: NodeParts,
        homes: HomeDomains,
        nodes: NodeSessions,
        ids: MessageIds,
        send: Send,
        clock: IReactorTime,
        options: ExchangeOptions,
        counts: ExchangeCounts,
    ) -> None:
        self._node = node
        self._permissions = Permissions(node, homes, nodes, counts)
        self._nodes = nodes
        self._ids = ids
        self._send = send
        self._clock = clock
        self._options = options
        self._counts = counts
        self.table = GrantTable(self._charge)
        self._begun: dict[str, int] = {}  # the generation of the snapshot that a node is sending
        self._work: dict[str, deque[tuple[Entry, Identity, Callable[[], None]]]] = {}  # by node
        self._timers: list[IDelayedCall] = []
        self._failures = FailureLog(log)

    def __len__(self) -> int:
        return len(self.table)

    def start(self) -> None:
        """
        Takes the bindings of before a restart: their lease begins again.
        """
        until = self._clock.seconds() + self._options.lease_seconds
        for session in [session for session in self._node.sessions if session.is_node]:
            for address, kinds in session.bindings.items():
                if kinds & SUBSCRIBED:
                    self.table.hold(session.runtime, address, until)
        self._timers = [
            self._clock.callLater(self._options.lease_seconds / SWEEPS, self._sweep),
            self._clock.callLater(RECHECK_SECONDS, self._recheck),
        ]

    def stop(self) -> None:
        for timer in self._timers:
            if timer.active():
                timer.cancel()

    def forget(self, source: str) -> None:
        """
        Drops all that the node is subscribed to; its session ends with the bindings.
        """
        self.table.drop_all(source)
        self._begun.pop(source, None)
        for _, _, done in self._work.get(source, ()):
            done()
        if source in self._work:
            self._work[source].clear()

    def _charge(self, source: str, size: int) -> None:
        session = self._node.sessions.get(source)
        if session is not None:
            session.account.charge(size)

    # -- entries of other nodes ------------------------------------------------------

    def receive(self, source: str, entry: Entry, identity: dict[str, str], done: Callable[[], None]) -> None:
        """
        Takes an entry of the node, after those that came before; calls `done` when it is of no more use.
        """
        who = tuple(sorted(identity.items()))
        queue = self._work.get(source)
        if queue is not None:
            queue.append((entry, who, done))
            return
        self._work[source] = deque([(entry, who, done)])
        self._node.slices.begin(self._take_all(source))

    def _take_all(self, source: str) -> Iterator[None]:
        """
        Takes what the node sent, in slices, until there is no more. What comes in the same turn waits.
        """
        queue, spent = self._work[source], 0
        try:
            while queue:
                entry, who, done = queue.popleft()
                try:
                    spent = yield from self._take(source, entry, who, done, spent)
                except Exception:
                    self._counts.note(source, "failed")
                    self._failures.note("an entry of {node} could not be taken", Failure(), node=source)
                    done()
                if spent >= DECIDED or not queue:
                    spent = 0
                    yield
        finally:
            del self._work[source]

    def _take(
        self, source: str, entry: Entry, who: Identity, done: Callable[[], None], spent: int
    ) -> Generator[None, None, int]:
        """
        Takes one entry; the result is the work of this slice so far.
        """
        if isinstance(entry, Ask):
            return (yield from self._ask(source, entry, who, done, spent))
        if isinstance(entry, Release):
            self._release(source, entry)
        elif isinstance(entry, Begin):
            if source in self._nodes:
                self._begun[source] = entry.generation
        elif self._begun.pop(source, None) == entry.generation:
            yield from self._drop_older(source, entry.generation)
        done()
        return spent + 1

    def _ask(
        self, source: str, entry: Ask, who: Identity, done: Callable[[], None], spent: int
    ) -> Generator[None, None, int]:
        """
        Decides on each address; the answer leaves when the bindings are on disk.
        """
        grant = Grant(entry.generation, entry.from_, who)
        verdicts = []
        for address in entry.addresses:
            session = self._nodes.find(source)
            if session is None:
                done()
                return spent
            verdicts.append(self._grant(source, session, entry.subscriber, address, grant))
            spent += 1
            if spent % DECIDED == 0:
                yield
        refused = next((verdict for verdict in verdicts if verdict[0] != 200), PERMITTED)
        codes, lease = [code for code, _, _ in verdicts], self._options.lease_seconds
        answer = Answer(entry.generation, codes, refused[1], refused[2], lease)

        def written(result: object) -> None:
            self._send(source, answer)
            done()

        self._node.session_store.committed().addBoth(written)
        return spent

    def _release(self, source: str, entry: Release) -> None:
        for address in entry.addresses:
            held = self.table.get(source, address)
            grant = held.grants.get(entry.subscriber) if held is not None else None
            if held is None or (grant is not None and grant.generation > entry.generation):
                continue
            if self.table.remove(source, address, entry.subscriber):
                self._drop(source, address)

    def _drop_older(self, source: str, generation: int) -> Iterator[None]:
        """
        Drops what a snapshot did not ask for.
        """
        for done, (address, held) in enumerate(self.table.of(source), 1):
            if self.table.get(source, address) is held:
                for subscriber, grant in list(held.grants.items()):
                    if grant.generation < generation:
                        self.table.remove(source, address, subscriber)
                if not held.grants:
                    self._drop(source, address)
            if done % ADDRESSES == 0:
                yield

    def _grant(self, source: str, session: Session, subscriber: int, address: str, grant: Grant) -> Verdict:
        verdict = self._permissions.decide(source, address, grant)
        held = self.table.get(source, address)
        known = held.grants.get(subscriber) if held is not None else None
        if known is not None and known.generation > grant.generation:
            return verdict
        if verdict[0] == 200:
            verdict = self._check_room(source, session, subscriber, address, grant, known)
        if verdict[0] == 200:
            if held is None:
                self._node.routes.bind(address, session, SUBSCRIBED)
                self.table.hold(source, address, 0.0)
            self.table.put(source, address, subscriber, grant)
            entry = self.table.get(source, address)
            assert entry is not None, "it was added just now"
            entry.until = self._clock.seconds() + self._options.lease_seconds
        elif known is not None and self.table.remove(source, address, subscriber):
            self._drop(source, address)
        return verdict

    def _check_room(
        self, source: str, session: Session, subscriber: int, address: str, grant: Grant, known: Grant | None
    ) -> Verdict:
        domain = domain_of(source)
        most = self._options.limits_of(domain).max_grants
        if self.table.is_more(source, address, subscriber) and self.table.count(domain) >= most:
            self._counts.note(source, "limit")
            return 429, f"the clients of {domain} may have {most} subscriptions here", "limit"
        size = grant.size - (known.size if known is not None else 0)
        if address not in session.bindings:
            size += binding_size(address)
        try:
            self._node.budget.check(session.account, size)
        except Rejected as why:
            self._counts.note(source, why.reason)
            return why.code, f"the clients of {domain} use all the memory that they may use here", why.reason
        return PERMITTED

    def _drop(self, source: str, address: str) -> None:
        self.table.drop(source, address)
        session = self._node.sessions.get(source)
        if session is not None:
            self._node.routes.unbind(address, session, ~ALLOCATED)

    # -- in time ---------------------------------------------------------------------

    def _recheck(self) -> None:
        """
        Decides again on all grants if the policies have changed.
        """
        self._timers[1] = self._clock.callLater(RECHECK_SECONDS, self._recheck)
        if self._permissions.is_outdated:
            self._node.slices.work(self._revoke())

    def _revoke(self) -> Iterator[None]:
        done = 0
        for source in self.table.nodes():
            revoked: dict[int, list[str]] = {}
            for address, held in self.table.of(source):
                for subscriber, grant in list(held.grants.items()):
                    done += 1
                    if done % DECIDED == 0:
                        yield
                    if (
                        held.grants.get(subscriber) is not grant
                        or self.table.get(source, address) is not held
                    ):
                        continue  # it has changed meanwhile
                    if self._permissions.decide(source, address, grant)[0] != 200:
                        revoked.setdefault(subscriber, []).append(address)
                        if self.table.remove(source, address, subscriber):
                            self._drop(source, address)
            for subscriber, addresses in revoked.items():
                for some in in_parts(addresses):
                    self._send(source, Revoke(self._ids.next()[1], subscriber, some))

    def _sweep(self) -> None:
        """
        Drops what was not renewed in time, and the sessions of nodes that hold nothing any more.
        """
        self._timers[0] = self._clock.callLater(self._options.lease_seconds / SWEEPS, self._sweep)
        self._node.slices.work(self._drop_ended(self._clock.seconds()))

    def _drop_ended(self, now: float) -> Iterator[None]:
        for source in self.table.nodes():
            for done, (address, held) in enumerate(self.table.of(source), 1):
                if held.until <= now and self.table.get(source, address) is held:
                    self._counts.note(source, "lease-ended")
                    self._drop(source, address)
                if done % ADDRESSES == 0:
                    yield
        for source in self._nodes.end_idle():
            self.forget(source)
