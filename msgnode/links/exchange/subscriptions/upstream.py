"""
Upstream subscriptions: what sessions of this node are subscribed to in other domains.

Each session is asked for with its own identity; what is published travels once to this node, for all of them.
"""

from collections.abc import Callable, Generator, Iterable, Iterator

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.links.exchange.counts import ExchangeCounts
from msgnode.links.exchange.domains import Gateways, HomeDomains
from msgnode.links.exchange.envelopes import MessageIds, identity_of
from msgnode.links.exchange.node_parts import ExchangeOptions, NodeParts
from msgnode.links.exchange.status import TEXTS, refusal
from msgnode.links.exchange.subscriptions.entries import (
    Answer,
    AnyEntry,
    Ask,
    Begin,
    BeginDomain,
    End,
    EndDomain,
    Missed,
    Permit,
    Release,
    Revoke,
    in_parts,
)
from msgnode.links.exchange.subscriptions.member_subscriber import MemberSubscriber
from msgnode.links.exchange.subscriptions.pending import Asking, PendingAnswers, Request
from msgnode.links.exchange.subscriptions.snapshot_pace import SnapshotPace
from msgnode.links.exchange.subscriptions.upstream_table import Subscriber, UpstreamTable
from msgnode.links.stream.streams import NoRoom
from msgnode.links.wire.node_name import domain_of
from msgnode.policy.decision.addresses import split
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.routing import ALLOCATED, SUBSCRIBED
from msgnode.sessions.session import Session
from msgnode.structures.time_slices import ADDRESSES

log = Logger()

RETRY_SECONDS = 5.0  # after a subscription was not delivered, everything is asked for again
ASKED = 100  # subscriptions that are asked for again in one slice
RENEWALS = 2  # in the time of a lease
MIN_LEASE_SECONDS = 30.0  # of another domain; one that grants less is not asked more often
MAX_HOMELESS = 10_000  # hosts that no node reaches, which clients have subscribed to
SESSION_SHARE = 4  # one session may have a quarter of the subscriptions in a domain

Send = Callable[[str, AnyEntry, dict[str, str], Callable[[], None]], None]
Tell = Callable[[str, Answer | Revoke | Permit | Missed], None]


class Upstream:
    """
    The asker for what clients here are subscribed to in other domains, and clients of other members by this
    node. `send` raises NoRoom; `tell` answers a member, and never raises.

    A member without links to a domain asks at the one that has them. `is_member`: other members may reach
    what no node reaches now.
    """

    def __init__(
        self,
        node: NodeParts,
        homes: HomeDomains,
        gateways: Gateways,
        ids: MessageIds,
        send: Send,
        tell: Tell,
        clock: IReactorTime,
        options: ExchangeOptions,
        counts: ExchangeCounts,
    ) -> None:
        self._node = node
        self._homes = homes
        self._gateways = gateways
        self._ids = ids
        self._send = send
        self._tell = tell
        self.is_member = False
        self._homeless: dict[str, bool] = {}  # hosts; were all subscriptions there before this start?
        self._clock = clock
        self._options = options
        self._counts = counts
        self._table = UpstreamTable()
        self.pending = PendingAnswers()
        self._paces: dict[str, SnapshotPace] = {}  # by domain
        self._asked_at: dict[str, str] = {}  # the node of a domain that has the subscriptions
        self._gaps: set[str] = set()  # domains where something may have been missed
        self._leases: dict[str, float] = {}  # by domain, where it grants less than this node would
        self._renewed_at: dict[str, float] = {}  # by domain
        self._released: dict[tuple[str, str, int], list[tuple[str, Subscriber]]] = {}  # domain, node, sid
        self._flush: IDelayedCall | None = None
        self._retries: dict[str, IDelayedCall] = {}  # by domain
        self._renewal: IDelayedCall | None = None
        self._watching: IDelayedCall | None = None

    def __len__(self) -> int:
        return len(self._table)

    def count(self, domain: str) -> int:
        """
        The number of subscriptions in a domain.
        """
        return self._table.count(domain)

    def start(self) -> None:
        """
        Takes the subscriptions of before a restart, and asks for all of them again.
        """
        for session in [session for session in self._node.sessions if not session.is_node]:
            for address, kinds in list(session.bindings.items()):
                if not kinds & SUBSCRIBED:
                    continue
                if self._homes.decides(address, session):
                    self._add(address, session, True)
                else:
                    self._note_homeless(address, True)
        self._renew()
        self._watch()

    def stop(self) -> None:
        for timer in (self._renewal, self._watching, self._flush, *self._retries.values()):
            if timer is not None and timer.active():
                timer.cancel()

    # -- what clients want -------------------------------------------------------------

    def subscribe(self, message: Message, addresses: list[str], session: Session) -> Deferred[None] | None:
        """
        Asks for those of the addresses that other domains decide about; None if there are none.
        """
        by_domain: dict[str, list[str]] = {}
        for address in dict.fromkeys(addresses):
            if self._homes.decides(address, session):
                by_domain.setdefault(self._homes.home(address), []).append(address)
            else:
                self._note_homeless(address, False)
        if not by_domain:
            return None
        request = Request(self._clock)
        for domain, wanted in by_domain.items():
            refusal = self._check_room(domain, wanted, session)
            if refusal is not None:
                request.left = 1
                request.answer(refusal)
                return request.answered
        parts = [(domain, some) for domain, all in by_domain.items() for some in in_parts(all)]
        request.left = len(parts)
        for domain, some in parts:
            for address in some:
                self._add(address, session, False)
            self._ask(domain, some, session, message.from_, request)
        return request.answered

    def adopt(self, session: Session, is_permitted: bool = True) -> Iterator[None]:
        """
        Asks for what a session is subscribed to that has come from another member, or whose domain was
        reached by none before; in slices. `is_permitted`: it was permitted before.
        """
        by_domain: dict[str, list[str]] = {}
        for done, (address, kinds) in enumerate(list(session.bindings.items()), 1):
            if kinds & SUBSCRIBED and session.sid not in self._table.sids(address):
                if self._homes.decides(address, session):
                    self._add(address, session, is_permitted)
                    by_domain.setdefault(self._homes.home(address), []).append(address)
                else:
                    self._note_homeless(address, is_permitted)
            if done % ADDRESSES == 0:
                yield
        for domain, found in by_domain.items():
            for some in in_parts(found):
                self._ask(domain, some, session, session.runtime, None)

    def _note_homeless(self, address: str, is_restored: bool) -> None:
        """
        Notes that no node reaches the domain of an address: it is asked for when a member does.
        """
        if self.is_member and len(self._homeless) < MAX_HOMELESS and not self._homes.home(address):
            host = split(address)[1]
            self._homeless[host] = is_restored and self._homeless.get(host, True)

    def _adopt_homeless(self, is_permitted: bool) -> Iterator[None]:
        for session in [session for session in self._node.sessions if not session.is_node]:
            if not session.ended:
                yield from self.adopt(session, is_permitted)
            yield

    def ask_for(
        self,
        subscriber: MemberSubscriber,
        domain: str,
        addresses: list[str],
        from_: str,
        report: Callable[[Answer], None],
        is_known: bool,
    ) -> None:
        """
        Asks for a client of another member; `report` gets the answer, if there is one. `is_known`: it has
        the identity with which it was asked for before, so what it has is not asked for again.
        """
        table, number, sid = self._table, len(addresses), subscriber.sid
        refusal = self._check_room(domain, addresses, subscriber)
        if refusal is not None:
            report(Answer(0, [refusal.code] * number, str(refusal), refusal.reason))
            return
        if is_known and all(table.sids(address).get(sid) for address in addresses):
            lease = self._leases.get(domain, self._options.lease_seconds)
            report(Answer(0, [200] * number, "", "", lease))
            return
        for address in addresses:
            has_moved = any(
                is_permitted and subscriber.is_same_client(table.session(other))
                for other, is_permitted in table.sids(address).items()
                if other < 0
            )
            self._add(address, subscriber, has_moved)
        self._ask(domain, addresses, subscriber, from_, None, report)

    def _check_room(self, domain: str, wanted: list[str], session: Subscriber) -> Rejected | None:
        """
        Why the session cannot have these subscriptions, too; None if it can.
        """
        table, most = self._table, self._options.limits_of(domain).max_upstream
        new = sum(session.sid not in table.sids(address) for address in wanted)
        if (
            table.count(domain) + new <= most
            and table.share(domain, session.sid) + new <= max(1, most // SESSION_SHARE)
            and self.pending.count(domain) + len(wanted) <= most
        ):
            return None
        self._counts.note(domain, "limit")
        text = f"the clients of this node may have {most} subscriptions in {domain}, one of them a quarter"
        return Rejected(text, 429, "limit")

    def _add(self, address: str, session: Subscriber, is_permitted: bool) -> None:
        self._table.add(address, self._homes.home(address), session, is_permitted)

    def _ask(
        self,
        domain: str,
        addresses: list[str],
        session: Subscriber,
        from_: str,
        request: Request | None,
        report: Callable[[Answer], None] | None = None,
    ) -> None:
        node = self._gateway(domain)
        if not node:
            self._retry(domain)
            if request is not None:
                request.answer(Rejected(f"{TEXTS['no-path']}: {domain}", 502, "no-path"))
            return
        self._asked_at.setdefault(domain, node)
        generation = self._ids.next()[1]
        entry = Ask(generation, session.sid, from_, addresses)
        now = self._clock.seconds()
        self.pending.add(generation, Asking(node, domain, now, session, addresses, request, report))
        try:
            self._send(node, entry, self._identity(session), lambda: self._lost(generation))
        except NoRoom as why:
            self.pending.pop(generation)
            self._retry(domain)
            if request is not None:
                request.answer(why)

    def _identity(self, session: Subscriber) -> dict[str, str]:
        if isinstance(session, MemberSubscriber):
            return session.asserted
        return identity_of(session, self._homes.own)

    def unbound(self, address: str, session: Subscriber) -> None:
        """
        The session is no longer bound to the address: the other domain learns it after this turn.
        """
        if address not in self._table:
            return
        for sid in (session.sid, *session.former):
            if self._table.remove(address, sid):
                domain = self._homes.home(address)
                node = self._gateway(domain)
                self._released.setdefault((domain, node, sid), []).append((address, session))
        if self._released and (self._flush is None or not self._flush.active()):
            self._flush = self._clock.callLater(0, self._release)

    def _release(self) -> None:
        released, self._released = self._released, {}
        for (domain, node, sid), left in released.items():
            gone = []
            for address, session in left:
                heir = session.successor
                if heir is not None and heir.bindings.get(address, 0) & SUBSCRIBED:
                    self._add(address, heir, True)
                    self._ask(self._homes.home(address), [address], heir, heir.runtime, None)
                if sid not in self._table.sids(address):
                    gone.append(address)
            for some in in_parts(gone if node else []):
                try:
                    self._send(node, Release(self._ids.next()[1], sid, some), {}, lambda: None)
                except NoRoom:
                    self._retry(domain)

    # -- what other domains say ----------------------------------------------------------

    def answer(self, source: str, entry: Answer) -> None:
        """
        Notes the answer to what was asked last; an older one is ignored.
        """
        asking = self.pending.get(entry.generation)
        if asking is None or asking.node != source or len(entry.codes) != len(asking.addresses):
            self._counts.note(source, "old-answer")
            return
        self.pending.pop(entry.generation)
        self._note_lease(asking.domain, entry.lease_seconds)
        session, refused, late = asking.session, 0, []
        for address, code in zip(asking.addresses, entry.codes, strict=True):
            if code == 200:
                if self._table.permit(address, session.sid):
                    late.append(address)
                continue
            refused = refused or code or 502
            self._refuse(address, session, is_known=asking.is_awaited)
        if asking.report is not None:
            asking.report(entry)
        elif late and isinstance(session, MemberSubscriber):
            self._tell(session.node, Permit(self._ids.next()[1], session.number, late))
        if asking.request is not None:
            asking.request.answer(refusal(refused, entry.text, entry.reason) if refused else None)

    def permit(self, source: str, entry: Permit) -> None:
        """
        Notes what the gateway says later than it was asked.
        """
        for address in entry.addresses:
            if self._speaks_for(source, self._homes.home(address)):
                self._table.permit(address, entry.subscriber)

    def missed(self, source: str, entry: Missed) -> None:
        """
        Notes that something published in the domain may not have come to the gateway.
        """
        if self._speaks_for(source, entry.domain) and entry.domain != domain_of(source):
            self._gaps.add(entry.domain)
            self._node.slices.work(self._note_all_gaps(entry.domain))

    def _note_all_gaps(self, domain: str) -> Iterator[None]:
        by_session = yield from self._by_session(domain)
        self._note_gaps(domain, by_session)

    def _is_asked_by_member(self, domain: str) -> bool:
        return domain_of(self._asked_at.get(domain, "")) == self._homes.own

    def _speaks_for(self, source: str, domain: str) -> bool:
        """
        Is it a node of that domain, or the member by which this node asks there?
        """
        return domain_of(source) == domain or self._asked_at.get(domain) == source

    def _note_lease(self, domain: str, seconds: float) -> None:
        """
        Notes for how long the other domain keeps the subscriptions: they are renewed at half of that.
        """
        if 0 < seconds < self._options.lease_seconds:
            self._leases[domain] = max(MIN_LEASE_SECONDS, seconds)
        else:
            self._leases.pop(domain, None)

    def revoke(self, source: str, entry: Revoke) -> None:
        session = self._table.session(entry.subscriber)
        if session is None:
            return
        for address in entry.addresses:
            if self._speaks_for(source, self._homes.home(address)):
                self._counts.note(source, "revoked")
                self._refuse(address, session)

    def _refuse(self, address: str, session: Subscriber, is_known: bool = False) -> None:
        """
        Ends a subscription. `is_known`: the client is answered; else it learns at its next `re-open` that it
        may have missed something.
        """
        if not self._table.remove(address, session.sid):
            return
        if isinstance(session, MemberSubscriber):
            if not is_known:
                session.generations.pop(address, None)
                self._tell(session.node, Revoke(self._ids.next()[1], session.number, [address]))
        else:
            self._node.routes.unbind(address, session, ~ALLOCATED)
            if not is_known:
                session.mailbox.note_gap()

    def permitted(self, address: str, found: tuple[Session, ...]) -> tuple[Session, ...]:
        """
        Those of the sessions that the home domain has permitted to hear the address.

        If only one ever asked, what is published counts although the answer is still under way; but not if
        another member asks, which may have others.
        """
        sids = self._table.sids(address)
        if not sids:
            return ()
        if all(sids.values()) and len(sids) == len(found):
            return found  # none of them is at another member
        is_only = len(sids) == 1 and not self._is_asked_by_member(self._homes.home(address))
        return tuple(
            session
            for session in found
            if any(
                sids.get(sid, False) or (is_only and sid in sids) for sid in (session.sid, *session.former)
            )
        )

    def members(self, address: str) -> set[str]:
        """
        The members with clients that are subscribed to the address by this node.
        """
        found = map(self._table.session, self._table.sids(address))
        return {each.node for each in found if isinstance(each, MemberSubscriber)}

    # -- again -----------------------------------------------------------------------

    def _lost(self, generation: int) -> None:
        """
        The entry did not reach the other node: everything is asked for again.
        """
        asking = self.pending.pop(generation)
        if asking is not None:
            self._retry(asking.domain)

    def _retry(self, domain: str, seconds: float = RETRY_SECONDS) -> None:
        if domain not in self._retries:
            self._retries[domain] = self._clock.callLater(seconds, self._snapshot, domain)

    def _renew(self) -> None:
        """
        Renews the leases. What was not answered since the last time never will be.
        """
        now, seconds = self._clock.seconds(), self._options.lease_seconds / RENEWALS
        self._renewal = self._clock.callLater(seconds, self._renew)
        self.pending.drop_older(now - seconds)
        self._paces = {domain: pace for domain, pace in self._paces.items() if not pace.is_over(now)}
        for domain in {self._homes.home(address) for address in self._table.addresses()} - {
            "",
            self._homes.own,
        }:
            self._snapshot(domain)

    def _gateway(self, domain: str) -> str:
        """
        The node that has the subscriptions in the domain, while there is a route to it; else its gateway.
        """
        node = self._asked_at.get(domain, "")
        return node if node and self._gateways.has_route(node) else self._gateways.choose(domain)

    def _watch(self) -> None:
        """
        Asks again in a domain that has moved to another node, or that grants short leases.
        """
        self._watching = self._clock.callLater(RETRY_SECONDS, self._watch)
        self._asked_at = {
            domain: node for domain, node in self._asked_at.items() if self._table.count(domain)
        }
        for domain, before in list(self._asked_at.items()):
            node = self._gateway(domain)
            if node != before and self._gateways.has_route(node):
                if domain_of(before) == self._homes.own:
                    self._gaps.add(domain)  # what came to the other member did not come here
                self._snapshot(domain)
        if any(self._homes.domain_of_host(host) for host in self._homeless):
            is_restored, self._homeless = all(self._homeless.values()), {}
            self._node.slices.work(self._adopt_homeless(is_restored))
        for kept in (self._leases, self._renewed_at):
            for domain in kept.keys() - self._asked_at.keys():
                del kept[domain]
        self._gaps &= self._asked_at.keys()
        now = self._clock.seconds()
        for domain, seconds in list(self._leases.items()):
            if now >= self._renewed_at.setdefault(domain, now) + seconds / RENEWALS:
                self._snapshot(domain)

    def restarted(self, source: str) -> None:
        """
        The other node began a new epoch: it gets all subscriptions again, and what was published meanwhile is
        lost.
        """
        domains = {domain_of(source)}
        if domains == {self._homes.own}:
            domains = {domain for domain, node in self._asked_at.items() if node == source}
        for domain in domains:
            self._gaps.add(domain)
            self._snapshot(domain)

    def _snapshot(self, domain: str) -> None:
        """
        Asks for all subscriptions in the domain again, which renews their lease; not too often.
        """
        timer = self._retries.pop(domain, None)
        if timer is not None and timer.active():
            timer.cancel()
        pace = self._paces.setdefault(domain, SnapshotPace())
        wait = pace.wait(self._clock.seconds())
        node = self._gateway(domain)
        if wait or not node:
            self._retry(domain, wait or RETRY_SECONDS)
            return
        pace.begin(self._clock.seconds())
        self._asked_at[domain] = node
        self._renewed_at[domain] = self._clock.seconds()
        self._node.slices.work(self._ask_again(domain, node, pace))

    def _ask_again(self, domain: str, node: str, pace: SnapshotPace) -> Iterator[None]:
        """
        A snapshot, in slices; what is asked for meanwhile has a higher generation and stays.
        """
        begun = self._ids.next()[1]
        self.pending.drop_asked_again(domain, begun)
        try:
            by_session = yield from self._by_session(domain)
            self._note_gaps(domain, by_session)
            is_member = domain_of(node) == self._homes.own
            begin = BeginDomain(begun, domain) if is_member else Begin(begun)
            self._send(node, begin, {}, lambda: None)
            asked = 0
            for sid, addresses in by_session.items():
                for some in in_parts(addresses):
                    wanted = [address for address in some if sid in self._table.sids(address)]
                    session = self._table.session(sid)
                    if wanted and session is not None:
                        self._ask(domain, wanted, session, session.runtime, None)
                    asked += len(some)
                    if asked >= ASKED:
                        asked = 0
                        yield
            end = EndDomain(begun, domain) if is_member else End(begun)
            self._send(node, end, {}, lambda: None)
        except NoRoom:
            self._retry(domain)
        finally:
            pace.end()

    def _note_gaps(self, domain: str, sids: Iterable[int]) -> None:
        if domain in self._gaps:
            self._gaps.discard(domain)
            members = set()
            for session in map(self._table.session, sids):
                if isinstance(session, MemberSubscriber):
                    members.add(session.node)
                elif session is not None:
                    session.mailbox.note_gap()
            for node in members:
                self._tell(node, Missed(self._ids.next()[1], domain))

    def _by_session(self, domain: str) -> Generator[None, None, dict[int, list[str]]]:
        found: dict[int, list[str]] = {}
        for done, address in enumerate(self._table.addresses(), 1):
            if self._homes.home(address) == domain:
                for sid in self._table.sids(address):
                    found.setdefault(sid, []).append(address)
            if done % ADDRESSES == 0:
                yield
        return found
