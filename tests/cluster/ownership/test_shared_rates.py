"""
Rates that all nodes of a domain count together: what passes at one is drawn at the others.
"""

from types import SimpleNamespace
from typing import Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cluster.ownership.shared_rates import EXCHANGE_SECONDS, MAX_BUCKETS, SharedRates, Taken
from msgnode.config.loader import check
from msgnode.policy.decision.attributes import find
from msgnode.policy.decision.context import Context
from msgnode.policy.decision.obligations import RateLimit
from msgnode.policy.decision.rates import RateLimits
from msgnode.sessions.limits.rate_limits import RateLimiter
from tests.support.cluster_members import MemoryCluster
from tests.support.policy_case import message

A, B, C = (f"mn://example.com/{name}" for name in "abc")
PEER = "192.0.2.1:1"


class RateNode:
    """
    One start of a node: its limits, and those of its policies.
    """

    def __init__(self, cluster: MemoryCluster, name: str, **limits: Any) -> None:
        members = cluster.start(name)
        self.shared = members.listener = SharedRates(members, cluster.clock)
        config = check({"limits": {"shared": True, **limits}}, "test")
        self.config = config
        self.limiter = RateLimiter(config, cluster.clock.seconds)
        self.limiter.share(self.shared.share)
        self.policies = RateLimits(cluster.clock.seconds)
        self.policies.share(self.shared.share)

    def passing(self, count: int = 10_000, name: str = "s", size: int = 1) -> int:
        """
        How many of so many messages of a session pass now; those that do not are not tried again.
        """
        session: Any = SimpleNamespace(runtime=f"runtime://example.com/{name}", is_ephemeral=False)
        passed = 0
        while passed < count and self.limiter.acquire(session, PEER, size):
            passed += 1
        return passed

    def decide(self, limit: RateLimit, count: int = 10_000) -> int:
        """
        How many of so many messages pass a limit of a policy.
        """
        context = Context(message())
        passed = 0
        while passed < count and self.policies.take_all((limit,), context)[0] is None:
            passed += 1
        return passed


class RateCase(SynchronousTestCase):
    """
    Three members.
    """

    def start(self, **limits: Any) -> list[RateNode]:
        self.cluster = MemoryCluster(max_payload=32 * 1024)
        nodes = [RateNode(self.cluster, name, **limits) for name in (A, B, C)]
        self.cluster.connect()
        return nodes


class LimitTests(RateCase):
    """
    The rates of `[limits]`.
    """

    def test_what_passes_at_one_node_is_drawn_at_the_others(self) -> None:
        """
        A session that has used up its rate at one node has none left at another, once they have told each
        other; and it had the whole rate at one.
        """
        one, two, _ = self.start(session_rate_messages=100)

        self.assertEqual(100, one.passing())
        self.cluster.run(EXCHANGE_SECONDS + 0.05)

        self.assertLess(two.passing(), 8)
        self.assertEqual(100, two.passing(name="other"))

    def test_never_more_than_promised(self) -> None:
        """
        Clients that send as fast as they can at three nodes get T x rate + 3 x burst at most in any time, and
        in the long run the rate.
        """
        nodes = self.start(ip_rate_messages=100)
        passed: list[int] = []

        for _ in range(60):
            passed.append(sum(node.passing() for node in nodes))
            self.cluster.run(1)

        for seconds in (1, 5, 20):
            most = max(sum(passed[at : at + seconds]) for at in range(len(passed) - seconds + 1))
            self.assertLessEqual(most, seconds * 100 + 3 * 100)
        self.assertLessEqual(sum(passed), 60 * 100 + 3 * 100)
        self.assertGreater(sum(passed), 60 * 100 * 0.7)

    def test_bytes_are_shared_likewise(self) -> None:
        """
        A message of many seconds' worth is paid off at all nodes.
        """
        one, two, _ = self.start(session_rate_bytes=1000)

        self.assertEqual(1, one.passing(1, size=5000))
        self.cluster.run(1)
        self.assertEqual(0, two.passing())
        self.cluster.run(4)

        self.assertLess(0, two.passing())

    def test_client_of_one_node_is_not_starved_by_another(self) -> None:
        """
        While a client floods one node, one that shares its IP address gets messages through at another.
        """
        flooded, other, _ = self.start(ip_rate_messages=100)
        got = 0

        for _ in range(200):
            flooded.passing()
            got += other.passing(1)
            self.cluster.run(0.1)

        self.assertGreater(got, 20)

    def test_limits_that_are_not_shared_count_for_each_node(self) -> None:
        """
        Without `limits.shared` each node has its own rate, also when that is changed while it runs.
        """
        one, two, _ = self.start(session_rate_messages=100)
        for node in (one, two):
            node.config.limits.shared = False
            node.limiter.apply()

        self.assertEqual(100, one.passing())
        self.cluster.run(1)

        self.assertEqual(100, two.passing())

    def test_member_that_is_away_counts_by_itself(self) -> None:
        """
        A member without links lets its own rate pass; when it is back, they share again.
        """
        one, two, _ = self.start(session_rate_messages=100)
        for other in (B, C):
            self.cluster.cut(A, other)
        self.assertEqual(100, one.passing())
        self.cluster.run(2)
        self.assertEqual(100, two.passing())

        self.cluster.restore(A, B)
        self.cluster.run(2)
        self.assertEqual(100, one.passing())
        self.cluster.run(EXCHANGE_SECONDS + 0.05)

        self.assertLess(two.passing(), 40)


class PolicyTests(RateCase):
    """
    `rateLimit` with `"shared": true`.
    """

    def test_limit_of_a_policy_is_shared(self) -> None:
        """
        Shared limits are drawn at other nodes, also where nobody has used them yet; others are not.
        """
        one, two, _ = self.start()
        shared = RateLimit("rule", (find("msgFrom"),), 60.0, 60.0, 10.0, shared=True)
        own = RateLimit("other", (find("msgFrom"),), 60.0, 60.0, 10.0)

        self.assertEqual([10, 10], [one.decide(limit) for limit in (shared, own)])
        self.cluster.run(2 + EXCHANGE_SECONDS + 0.05)

        self.assertEqual([2, 10], [two.decide(limit) for limit in (shared, own)])

    def test_slow_limit_holds_for_its_whole_time(self) -> None:
        """
        A limit of two an hour lets two pass in the domain, however often the nodes are tried.
        """
        nodes = self.start()
        limit = RateLimit("rule", (), 2.0, 3600.0, 2.0, shared=True)
        passed = 0

        for _ in range(100):
            for node in nodes:
                passed += node.decide(limit, 1)
                self.cluster.run(1)

        self.assertEqual(2, passed)


class BoundTests(RateCase):
    """
    What members may send each other.
    """

    def test_buckets_of_one_exchange_are_bounded(self) -> None:
        """
        One exchange has so many buckets at most; each payload has room for its part, and they all arrive.
        """
        one, two, _ = self.start(session_rate_messages=1)

        for number in range(MAX_BUCKETS + 10):
            one.passing(1, str(number))
        self.cluster.run(EXCHANGE_SECONDS + 0.1)

        self.assertEqual((MAX_BUCKETS * 2, 10), (one.shared.counts.sent, one.shared.counts.unsent))
        self.assertEqual(MAX_BUCKETS, two.shared.counts.received)

    def test_nothing_is_sent_while_nothing_passes(self) -> None:
        """
        Nodes without limited messages send each other nothing.
        """
        self.start(session_rate_messages=1)

        self.cluster.run(10)

        self.assertEqual([], [each for node in self.cluster.nodes.values() for each in node.sent])

    def test_malformed_rates_are_counted(self) -> None:
        """
        What is malformed, infinite, negative or of an unknown kind changes nothing.
        """
        one, _, _ = self.start(session_rate_messages=100)
        encode = msgspec.msgpack.encode
        for bad in (
            b"\xc1",
            encode(["session"]),
            *(
                encode(Taken("session", {"x": (number, 0.0)}))
                for number in (-1.0, float("inf"), float("nan"))
            ),
        ):
            one.shared.member_heard(B, bad)
        one.shared.member_heard(B, encode(Taken("of a later release", {"x": (1.0, 0.0)})))

        self.assertEqual((5, 0), (one.shared.counts.malformed, one.shared.counts.received))
        self.assertEqual(100, one.passing())
