"""
Subscriptions in other domains that clients of other members have by this node, their gateway.

Each client is asked for at the home domain with its own identity, like those of this node. What is published
comes once to this node, which sends a copy to each member with subscribers that are permitted.
"""

from collections import deque
from collections.abc import Iterator

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.links.exchange.domains import HomeDomains
from msgnode.links.exchange.node_parts import ExchangeOptions
from msgnode.links.exchange.status import TEXTS
from msgnode.links.exchange.subscriptions.entries import (
    Answer,
    AnyEntry,
    Ask,
    BeginDomain,
    EndDomain,
    Release,
)
from msgnode.links.exchange.subscriptions.member_subscriber import MemberSubscriber
from msgnode.links.exchange.subscriptions.upstream import Tell, Upstream
from msgnode.structures.time_slices import ADDRESSES, Slices

RELEASE_SECONDS = 5.0  # a session that moves to another member is asked for there before it is released here
MAX_RELEASES = 10_000  # that wait
SWEEPS = 4  # in the time of a lease


class MemberSubscribers:
    """
    The table of other members' clients that are subscribed by this node. `tell` sends to a member.
    """

    def __init__(
        self,
        upstream: Upstream,
        homes: HomeDomains,
        slices: Slices,
        tell: Tell,
        clock: IReactorTime,
        options: ExchangeOptions,
    ) -> None:
        self._upstream = upstream
        self._homes = homes
        self._slices = slices
        self._tell = tell
        self._clock = clock
        self._options = options
        self._found: dict[tuple[str, int], MemberSubscriber] = {}  # by member and number
        self._begun: dict[tuple[str, str], int] = {}  # the generation of a snapshot, by member and domain
        self._released: deque[tuple[float, str, Release]] = deque()
        self._releasing: IDelayedCall | None = None
        self._sweeping: IDelayedCall | None = None
        self._last = 0

    def __len__(self) -> int:
        return len(self._found)

    def start(self) -> None:
        self._sweeping = self._clock.callLater(self._options.lease_seconds / SWEEPS, self._sweep)

    def stop(self) -> None:
        for timer in (self._sweeping, self._releasing):
            if timer is not None and timer.active():
                timer.cancel()

    def receive(self, source: str, entry: AnyEntry, identity: dict[str, str]) -> None:
        """
        Takes an entry of a member. Raises ValueError if no member sends such.
        """
        if isinstance(entry, Ask):
            self._ask(source, entry, identity)
        elif isinstance(entry, Release):
            self._released.append((self._clock.seconds() + RELEASE_SECONDS, source, entry))
            if len(self._released) > MAX_RELEASES:
                self._release(*self._released.popleft()[1:])
            if self._releasing is None:
                self._releasing = self._clock.callLater(RELEASE_SECONDS, self._release_due)
        elif isinstance(entry, BeginDomain):
            if self._homes.is_reached(entry.domain):
                self._begun[source, entry.domain] = entry.generation
        elif isinstance(entry, EndDomain):
            if self._begun.pop((source, entry.domain), None) == entry.generation:
                self._slices.work(self._drop_older(source, entry.domain, entry.generation))
        else:
            raise ValueError(f"no member sends {entry}")

    def _ask(self, source: str, entry: Ask, identity: dict[str, str]) -> None:
        domains = {self._homes.home(address) for address in entry.addresses}
        domain = domains.pop() if len(domains) == 1 else ""
        if not domain or not self._homes.is_reached(domain):
            codes = [502] * len(entry.addresses)
            text = f"{TEXTS['no-path']}: {domain}"
            self._tell(source, Answer(entry.generation, codes, text, "no-path"))
            return
        key = source, entry.subscriber
        subscriber = self._found.get(key)
        if subscriber is None:
            self._last -= 1
            subscriber = MemberSubscriber(self._last, source, entry.subscriber, entry.from_, identity)
            self._found[key] = subscriber
        is_known = subscriber.asserted == identity
        subscriber.asserted = identity
        subscriber.until = self._clock.seconds() + self._options.lease_seconds
        subscriber.generations.update(dict.fromkeys(entry.addresses, entry.generation))

        def report(answer: Answer) -> None:
            lease = answer.lease_seconds
            told = Answer(entry.generation, answer.codes, answer.text, answer.reason, lease)
            for address, code in zip(entry.addresses, answer.codes, strict=True):
                if code != 200 and subscriber.generations.get(address) == entry.generation:
                    del subscriber.generations[address]
            self._end_empty(subscriber)
            self._tell(source, told)

        self._upstream.ask_for(subscriber, domain, entry.addresses, entry.from_, report, is_known)

    def _end_empty(self, subscriber: MemberSubscriber) -> None:
        key = subscriber.node, subscriber.number
        if not subscriber.generations and self._found.get(key) is subscriber:
            del self._found[key]

    def _release_due(self) -> None:
        self._releasing = None
        now = self._clock.seconds()
        while self._released and self._released[0][0] <= now:
            self._release(*self._released.popleft()[1:])
        if self._released:
            self._releasing = self._clock.callLater(self._released[0][0] - now, self._release_due)

    def _release(self, source: str, entry: Release) -> None:
        subscriber = self._found.get((source, entry.subscriber))
        if subscriber is not None:
            for address in entry.addresses:
                if subscriber.generations.get(address, entry.generation) < entry.generation:
                    self._drop(subscriber, address)

    def _drop(self, subscriber: MemberSubscriber, address: str) -> None:
        subscriber.generations.pop(address, None)
        self._upstream.unbound(address, subscriber)
        self._end_empty(subscriber)

    def _drop_older(self, source: str, domain: str, generation: int) -> Iterator[None]:
        """
        Drops what the member no longer asks for.
        """
        done = 0
        for subscriber in [each for each in self._found.values() if each.node == source]:
            for address, asked in list(subscriber.generations.items()):
                if asked < generation and self._homes.home(address) == domain:
                    self._drop(subscriber, address)
                done += 1
                if done % ADDRESSES == 0:
                    yield

    def _sweep(self) -> None:
        self._sweeping = self._clock.callLater(self._options.lease_seconds / SWEEPS, self._sweep)
        self._slices.work(self._drop_ended(self._clock.seconds()))

    def _drop_ended(self, now: float) -> Iterator[None]:
        done = 0
        for subscriber in [each for each in self._found.values() if each.until <= now]:
            for address in list(subscriber.generations):
                if subscriber.until <= now:
                    self._drop(subscriber, address)
                done += 1
                if done % ADDRESSES == 0:
                    yield
            self._end_empty(subscriber)
