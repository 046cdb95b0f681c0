"""
How fast a session may send, and everybody at one address together: token buckets.

A bucket holds one second's worth.  What is larger than that passes while the
bucket is not empty, and is paid off before the next one does.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from msgnode.config.schema import Config
from msgnode.protocol.peer_address import peer_host
from msgnode.structures.token_bucket import refilled

LOOKED_AT = 2  # old buckets looked at for each one that is used, so that full ones do not pile up


class TokenBucket:
    """
    A token bucket: what is left of a second's messages and bytes, as it was at `then`.
    """

    __slots__ = ("messages", "size", "then")

    def __init__(self, messages: float, size: float, then: float) -> None:
        self.messages = messages
        self.size = size
        self.then = then


class TokenBuckets:
    """
    Buckets by name, the one used last at the end.  0 messages or bytes a second: any number.
    """

    def __init__(self) -> None:
        self.messages = self.size = 0
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    @property
    def on(self) -> bool:
        return self.messages > 0 or self.size > 0

    def set(self, messages: int, size: int) -> None:
        """
        So many messages and bytes a second from now on.
        """
        if (messages, size) != (self.messages, self.size):
            self.messages, self.size = messages, size
            self._buckets.clear()  # everybody begins anew

    def find(self, name: str, now: float) -> TokenBucket | None:
        """
        The bucket of that name, filled up to now, if something may be taken from it.
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

    def draw(self, name: str, size: int, now: float) -> None:
        """
        Take so many bytes, whatever is left.
        """
        self.find(name, now)
        self._buckets[name].size -= size

    def wait(self, name: str, now: float) -> float:
        """
        Seconds until something may be taken from the bucket of that name.
        """
        bucket = self._buckets.get(name)
        if bucket is None:
            return 0.0
        self._fill(bucket, now)
        messages = (1 - bucket.messages) / self.messages if self.messages else 0.0
        # A byte above nothing is enough, but nothing is not.
        size = (1 - bucket.size) / self.size if self.size and bucket.size <= 0 else 0.0
        return max(messages, size, 0.0)

    def _fill(self, bucket: TokenBucket, now: float) -> bool:
        """
        Put in what has come since; is it full again?
        """
        passed, bucket.then = now - bucket.then, now
        bucket.messages = refilled(bucket.messages, passed, self.messages, self.messages)
        bucket.size = refilled(bucket.size, passed, self.size, self.size)
        return (bucket.messages >= self.messages or not self.messages) and (
            bucket.size >= self.size or not self.size
        )

    def _forget_full(self, now: float) -> None:
        """
        Look at those that were not used for longest; a full one is as good as none.
        """
        for _ in range(min(LOOKED_AT, len(self._buckets))):
            name, bucket = self._buckets.popitem(last=False)
            if not self._fill(bucket, now):
                self._buckets[name] = bucket


class Sender(Protocol):
    """
    A session, as far as its messages are counted.

    `identity` is its user, as far as one is known.
    """

    runtime: str
    identity: str

    @property
    def visits(self) -> bool:
        """
        Does it last for one message only?
        """


class RateLimiter:
    """
    Sessions' and peers' buckets.  While `on` is false nobody need ask.
    """

    def __init__(self, config: Config, now: Callable[[], float]) -> None:
        self.on = False
        self._sessions = TokenBuckets()
        self._peers = TokenBuckets()
        self._config = config
        self._now = now
        self.apply()

    def __len__(self) -> int:
        return len(self._sessions) + len(self._peers)

    def apply(self) -> None:
        """
        The limits may have changed.
        """
        limits = self._config.limits
        self._sessions.set(limits.session_rate_messages, limits.session_rate_bytes)
        self._peers.set(limits.ip_rate_messages, limits.ip_rate_bytes)
        self.on = self._sessions.on or self._peers.on

    def take(self, session: Sender | None, peer: str, size: int) -> bool:
        """
        May a message of that size come in, from that session and that peer?  If not, it costs them nothing.

        A session is known by its runtimeURL: whoever opens it anew finds the same bucket.
        """
        now = self._now()
        found = [buckets.find(name, now) for buckets, name in self._payers(session, peer)]
        paying = [bucket for bucket in found if bucket is not None]
        if len(paying) < len(found):
            return False
        for bucket in paying:
            bucket.messages -= 1
            bucket.size -= size
        return True

    def wait(self, session: Sender, peer: str) -> float:
        """
        Seconds until they may send again; 0: now.
        """
        now = self._now()
        return max((buckets.wait(name, now) for buckets, name in self._payers(session, peer)), default=0.0)

    def _payers(self, session: Sender | None, peer: str) -> list[tuple[TokenBuckets, str]]:
        """
        Visitors, whose sessions last for one message, have one together: those of a user, else of an address.
        """
        host = peer_host(peer, self._config.trusted_proxies)
        found = []
        if session is not None and self._sessions.on:
            if not session.visits:
                found.append((self._sessions, session.runtime))
            elif session.identity or host:
                found.append((self._sessions, f"visitors: {session.identity or host}"))
        if host and self._peers.on:
            found.append((self._peers, host))
        return found


class Peer(Protocol):
    """
    A connection, as far as it has an address.
    """

    peer: str


class Inflation:
    """
    The limit of what compressed messages inflate to: so many bytes a second of one host, or of a connection
    without one.

    `total` counts them, `pauses` how often somebody had to wait.
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
        The limit may have changed.
        """
        self._buckets.set(0, self._config.websocket.inflated_bytes_per_second)

    def who(self, connection: Peer) -> str:
        """
        Whom it is counted for.
        """
        return peer_host(connection.peer, self._config.trusted_proxies) or f"connection {id(connection)}"

    def came(self, size: int, who: str) -> None:
        self.total += size
        if self._buckets.on:
            self._buckets.draw(who, size, self._now())

    def wait(self, who: str) -> float:
        """
        Seconds until they may send more.
        """
        return self._buckets.wait(who, self._now()) if self._buckets.on else 0.0
