"""
The rates of other domains: how many messages, and how many bytes, each may send in a second.

A message beyond them is refused. Receipts and entries about subscriptions are counted with the messages and
never refused, because they would not be sent again.
"""

from collections.abc import Callable

from msgnode.links.exchange.node_parts import ExchangeOptions
from msgnode.sessions.limits.rate_limits import TokenBuckets

MAX_DEBT_SECONDS = 1.0


class DomainRates:
    """
    The token buckets of other domains; all nodes of a domain draw from one.
    """

    def __init__(self, options: ExchangeOptions, seconds: Callable[[], float]) -> None:
        self._options = options
        self._seconds = seconds
        self._others = TokenBuckets()
        self._own: dict[str, TokenBuckets] = {}  # of the domains with rates of their own
        self.apply()

    def apply(self) -> None:
        """
        Applies options that have changed. A bucket whose rate stays keeps its content.
        """
        own = self._options.limits_by_domain
        self._own = {domain: self._own.get(domain) or TokenBuckets() for domain in own}
        self._others.set(self._options.limits.rate_messages, self._options.limits.rate_bytes)
        for domain, buckets in self._own.items():
            buckets.set(own[domain].rate_messages, own[domain].rate_bytes)

    def acquire(self, domain: str, size: int) -> bool:
        """
        Takes one message of `size` bytes. False if the domain has sent too much; then nothing is taken.
        """
        buckets = self._own.get(domain, self._others)
        if not buckets.on:
            return True
        bucket = buckets.find(domain, self._seconds())
        if bucket is None:
            return False
        bucket.messages -= 1
        bucket.size -= size
        return True

    def count(self, domain: str, size: int) -> None:
        """
        Takes what is never refused. The debt is refilled in MAX_DEBT_SECONDS.
        """
        buckets = self._own.get(domain, self._others)
        if buckets.on:
            buckets.draw(domain, size, self._seconds(), 1, MAX_DEBT_SECONDS)
