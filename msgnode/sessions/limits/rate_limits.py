"""
Rate limits of sessions and IP addresses, by token buckets.

A bucket holds one second's allowance. A message larger than the bucket is accepted once, and the debt must be
refilled before the next one.
"""

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol

from msgnode.config.schema import Config
from msgnode.protocol.peer_address import peer_host
from msgnode.sessions.limits.shared_buckets import SharedBuckets
from msgnode.sessions.limits.temporary_limits import TemporaryLimit, TemporaryLimits
from msgnode.structures.token_bucket import BucketRates, Share, Take, refilled
from msgnode.transport.data_plane import NO_DATA_PLANE, DataPlane

FOREVER = 1e9  # seconds; not infinity, which no zero may be multiplied by
MAX_DEBT_SECONDS = 60.0  # of a bucket that other nodes draw from as well
KEY_BYTES = 8  # of the hash that names a shared bucket
EXAMINED_PER_USE = 2  # old buckets examined for each one used, so that full ones do not accumulate


class TokenBucket:
    """
    A token bucket of messages and bytes; its content is that at the time `then`.
    """

    __slots__ = ("messages", "size", "then")

    def __init__(self, messages: float, size: float, then: float) -> None:
        self.messages = messages
        self.size = size
        self.then = then


class TokenBuckets(BucketRates):
    """
    Token buckets by name, the most recently used last.
    """

    def __init__(self) -> None:
        super().__init__()
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def clear(self) -> None:
        self._buckets.clear()

    def find(self, name: str, now: float) -> TokenBucket | None:
        """
        The bucket of that name, refilled up to now; None if it is empty.
        """
        bucket = self._buckets.pop(name, None)
        if bucket is None:
            bucket = TokenBucket(self.messages, self.size, now)
        else:
            self._fill(bucket, now)
        self._forget_full(now)
        self._buckets[name] = bucket
        if (self.messages and bucket.messages < 1) or (self.size and bucket.size <= 0):
            return None
        return bucket

    def draw(
        self, name: str, size: float, now: float, messages: float = 0, most_seconds: float = FOREVER
    ) -> None:
        """
        Takes `size` bytes and `messages` from a bucket, even if it goes below zero, but not below what
        `most_seconds` refill.
        """
        self.find(name, now)
        bucket = self._buckets[name]
        bucket.size = max(bucket.size - size, -self.size * most_seconds)
        bucket.messages = max(bucket.messages - messages, -self.messages * most_seconds)

    def wait(self, name: str, now: float) -> float:
        """
        Seconds until the bucket of that name is not empty any more.
        """
        bucket = self._buckets.get(name)
        if bucket is None:
            return 0.0
        self._fill(bucket, now)
        messages = (1 - bucket.messages) / self.messages if self.messages else 0.0
        # Any positive number of bytes is enough.
        size = (1 - bucket.size) / self.size if self.size and bucket.size <= 0 else 0.0
        return max(messages, size, 0.0)

    def _fill(self, bucket: TokenBucket, now: float) -> bool:
        """
        Refills a bucket. Returns whether it is full.
        """
        passed, bucket.then = now - bucket.then, now
        bucket.messages = refilled(bucket.messages, passed, self.messages, self.messages)
        bucket.size = refilled(bucket.size, passed, self.size, self.size)
        return (bucket.messages >= self.messages or not self.messages) and (
            bucket.size >= self.size or not self.size
        )

    def _forget_full(self, now: float) -> None:
        """
        Examines the buckets used least recently. A full one is removed, for it has no state.
        """
        for _ in range(min(EXAMINED_PER_USE, len(self._buckets))):
            name, bucket = self._buckets.popitem(last=False)
            if not self._fill(bucket, now):
                self._buckets[name] = bucket


class Sender(Protocol):
    """
    A session, as seen by the rate limits.

    `identity` is its user, or "".
    """

    runtime: str
    identity: str

    @property
    def is_ephemeral(self) -> bool:
        """
        Is this the ephemeral session of a single request?
        """


class RateLimiter:
    """
    The rate limits of sessions and IP addresses. While `on` is false, callers can skip it.

    A compiled data plane keeps the buckets, because it draws from them as well. Those that are shared with
    other nodes of the domain (`limits.shared`) are Python's, and the plane carries nothing that draws from
    them.
    """

    _sessions: TokenBuckets | SharedBuckets
    _peers: TokenBuckets | SharedBuckets

    def __init__(
        self, config: Config, now: Callable[[], float], data_plane: DataPlane = NO_DATA_PLANE
    ) -> None:
        self.on = self.is_shared = False
        self.temporary = TemporaryLimits()
        self._temporary_buckets: dict[tuple[int, int], TokenBuckets | SharedBuckets] = {}
        self._data_plane = data_plane
        self._config = config
        self._now = now
        self._session_taken: Take | None = None
        self._peer_taken: Take | None = None
        self._make_buckets()
        self.apply()

    def share(self, share: Share) -> None:
        """
        Lets the buckets be shared with other nodes, if `limits.shared` says so.
        """
        self._session_taken = share("session", lambda *taken: self._take_elsewhere(self._sessions, *taken))
        self._peer_taken = share("ip", lambda *taken: self._take_elsewhere(self._peers, *taken))
        self.apply()

    def _new_buckets(self) -> TokenBuckets | SharedBuckets:
        if self._data_plane.is_native and not self.is_shared:
            return SharedBuckets(self._data_plane)
        return TokenBuckets()

    def _make_buckets(self) -> None:
        self._sessions, self._peers = self._new_buckets(), self._new_buckets()

    def _take_elsewhere(
        self, buckets: TokenBuckets | SharedBuckets, name: str, messages: float, size: float
    ) -> None:
        """
        Takes what another node let pass.
        """
        if self.is_shared and buckets.on and isinstance(buckets, TokenBuckets):
            buckets.draw(name, size, self._now(), messages, MAX_DEBT_SECONDS)

    def __len__(self) -> int:
        return len(self._sessions) + len(self._peers)

    def apply(self) -> None:
        """
        Applies a changed configuration.
        """
        limits = self._config.limits
        is_shared = limits.shared and self._session_taken is not None
        if is_shared != self.is_shared:
            self.is_shared = is_shared
            for each in (self._sessions, self._peers, *self._temporary_buckets.values()):
                each.clear()
            self._temporary_buckets.clear()
            self._make_buckets()
        self._sessions.set(limits.session_rate_messages, limits.session_rate_bytes)
        self._peers.set(limits.ip_rate_messages, limits.ip_rate_bytes)
        self.on = self._sessions.on or self._peers.on or bool(self.temporary)
        rates = {(each.rate_messages, each.rate_bytes) for each in self.temporary.all()}
        for rate in self._temporary_buckets.keys() - rates:
            self._temporary_buckets.pop(rate).clear()

    def acquire(self, session: Sender | None, peer: str, size: int) -> bool:
        """
        Takes one message of `size` bytes from the buckets of session and peer. False if one is empty; then
        none is charged.

        The bucket belongs to the runtimeURL, so opening the session again does not refill it.
        """
        if self._data_plane.is_native and not self.is_shared:
            return self._data_plane.draw(self.shared(session, peer), size)
        now = self._now()
        payers = self._payers(session, peer)
        found = [buckets.find(name, now) for buckets, name in payers if isinstance(buckets, TokenBuckets)]
        paying = [bucket for bucket in found if bucket is not None]
        if len(paying) < len(found):
            return False
        for bucket in paying:
            bucket.messages -= 1
            bucket.size -= size
        if self.is_shared:
            for buckets, name in payers:
                if buckets is self._sessions:
                    taken = self._session_taken
                else:  # a limit of an operator is one of this node
                    taken = self._peer_taken if buckets is self._peers else None
                if taken is not None:
                    taken(name, 1, size)
        return True

    def shared(self, session: Sender | None, peer: str) -> tuple[int, ...]:
        """
        The numbers of the data plane's buckets that messages of session and peer draw from.
        """
        return tuple(
            buckets.number(name)
            for buckets, name in self._payers(session, peer)
            if isinstance(buckets, SharedBuckets)
        )

    def wait(self, session: Sender, peer: str) -> float:
        """
        Seconds until the session may send again; 0 if it may now.
        """
        now = self._now()
        return max((buckets.wait(name, now) for buckets, name in self._payers(session, peer)), default=0.0)

    def _payers(self, session: Sender | None, peer: str) -> list[tuple[TokenBuckets | SharedBuckets, str]]:
        """
        The buckets to charge. Ephemeral sessions share one bucket by user or, without a user, by IP address.
        """
        host = peer_host(peer, self._config.trusted_proxies)
        found: list[tuple[TokenBuckets | SharedBuckets, str]] = []
        if session is not None and self._sessions.on:
            if not session.is_ephemeral:
                found.append((self._sessions, session.runtime))
            elif session.identity or host:
                found.append((self._sessions, f"visitors: {session.identity or host}"))
        if host and self._peers.on:
            found.append((self._peers, host))
        if self.temporary and session is not None:
            for limit in self.temporary.of(session.runtime, session.identity, host):
                found.append((self._buckets_of(limit), f"{limit.kind} {limit.value}"))
        return [(buckets, _key(name)) for buckets, name in found] if self.is_shared else found

    def _buckets_of(self, limit: TemporaryLimit) -> TokenBuckets | SharedBuckets:
        rate = limit.rate_messages, limit.rate_bytes
        buckets = self._temporary_buckets.get(rate)
        if buckets is None:
            buckets = self._new_buckets()
            buckets.set(*rate)
            self._temporary_buckets[rate] = buckets
        return buckets


def _key(name: str) -> str:
    return blake2b(name.encode(errors="replace"), digest_size=KEY_BYTES).hexdigest()


class Peer(Protocol):
    """
    A connection, as seen by the limit of inflation.
    """

    peer: str


class Inflation:
    """
    The limit of decompression: inflated bytes per second for each host, or for a connection without a host.

    `total` counts the bytes, `pauses` how often reading was paused.
    """

    def __init__(self, config: Config, now: Callable[[], float]) -> None:
        self.total = self.pauses = 0
        self._buckets = TokenBuckets()
        self._config = config
        self._now = now
        self.apply()

    def __len__(self) -> int:
        return len(self._buckets)

    def apply(self) -> None:
        """
        Applies a changed configuration.
        """
        self._buckets.set(0, self._config.websocket.inflated_bytes_per_second)

    def who(self, connection: Peer) -> str:
        """
        The name of the bucket that a connection counts for.
        """
        return peer_host(connection.peer, self._config.trusted_proxies) or f"connection {id(connection)}"

    def count(self, size: int, who: str) -> None:
        self.total += size
        if self._buckets.on:
            self._buckets.draw(who, size, self._now())

    def wait(self, who: str) -> float:
        """
        Seconds until more may be decompressed.
        """
        return self._buckets.wait(who, self._now()) if self._buckets.on else 0.0
