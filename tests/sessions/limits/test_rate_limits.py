"""
How fast a session, and an address, may send.
"""

import random
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.loader import check
from msgnode.config.schema import Config
from msgnode.protocol.peer_address import peer_host
from msgnode.sessions.limits.rate_limits import RateLimiter
from tests.support.fakes import MemoryNode

A, B = "192.0.2.1:1", "192.0.2.2:1"


def session(name: str = "a") -> Any:
    return SimpleNamespace(runtime=f"runtime://example.org/{name}", is_ephemeral=False)


def visitor(number: int, identity: str = "") -> Any:
    return SimpleNamespace(runtime=f"runtime://example.org/{number}", is_ephemeral=True, identity=identity)


class RatesCase(SynchronousTestCase):
    """
    A clock that tests turn, and limits that they set.
    """

    now = 1000.0

    def rates(self, **limits: int) -> RateLimiter:
        self.config: Config = check({"limits": limits}, "test")
        return RateLimiter(self.config, lambda: self.now)

    def taken(self, rates: RateLimiter, times: int, session: Any = None, peer: str = A, size: int = 1) -> int:
        """
        How many of so many messages may come in.
        """
        return sum(rates.acquire(session, peer, size) for _ in range(times))


class SessionTests(RatesCase):
    """
    `session_rate_messages` and `session_rate_bytes`.
    """

    def test_without_limits_nobody_need_ask(self) -> None:
        """
        Without limits nobody need ask.
        """
        rates = self.rates()

        self.assertFalse(rates.on)
        self.assertTrue(rates.acquire(session(), A, 10**9))
        self.assertEqual(0, len(rates))

    def test_one_second_worth_may_come_at_once_then_so_many(self) -> None:
        """
        One second's worth may come at once, then so many a second.
        """
        rates = self.rates(session_rate_messages=10)

        self.assertTrue(rates.on)
        self.assertEqual(10, self.taken(rates, 20, session()))
        self.now += 0.5
        self.assertEqual(5, self.taken(rates, 20, session()))
        self.now += 3600
        self.assertEqual(10, self.taken(rates, 20, session()))

    def test_bytes_are_counted_likewise(self) -> None:
        """
        Bytes are counted likewise.
        """
        rates = self.rates(session_rate_bytes=1000)

        self.assertEqual(10, self.taken(rates, 20, session(), size=100))
        self.now += 0.25
        self.assertEqual(3, self.taken(rates, 20, session(), size=100))

    def test_message_of_more_than_a_second_worth_passes(self) -> None:
        """
        A message of more than a second's worth passes, and is paid off before the next.
        """
        rates = self.rates(session_rate_bytes=1000)

        self.assertTrue(rates.acquire(session(), A, 10_000))
        self.now += 8.9
        self.assertFalse(rates.acquire(session(), A, 1))
        self.now += 0.2
        self.assertTrue(rates.acquire(session(), A, 1))

    def test_each_its_own(self) -> None:
        """
        Sessions do not share, and who opens a session anew does not gain.
        """
        rates = self.rates(session_rate_messages=3)

        self.assertEqual(3, self.taken(rates, 5, session("a")))
        self.assertEqual(3, self.taken(rates, 5, session("b")))
        self.assertEqual(0, self.taken(rates, 5, session("a")))

    def test_visitors_share_the_rate_of_user_or_address(self) -> None:
        """
        Who sends without a session shares a session's rate with all of its user, else of its address.
        """
        rates = self.rates(session_rate_messages=2)

        self.assertEqual([True, True, False], [rates.acquire(visitor(n), A, 1) for n in range(3)])
        self.assertEqual([True, True, False], [rates.acquire(visitor(n), B, 1) for n in range(3)])
        self.assertEqual([True, True, False], [rates.acquire(visitor(n, "user://x"), A, 1) for n in range(3)])
        self.assertTrue(rates.acquire(visitor(3), "unix", 1))

    def test_wait_for_the_next_message_is_known(self) -> None:
        """
        It is known when the next may come, which costs nothing to ask.
        """
        rates = self.rates(session_rate_messages=2, ip_rate_bytes=100)
        a = session()

        self.assertEqual(0, rates.wait(a, A))
        self.taken(rates, 2, a)
        self.assertEqual(0.5, rates.wait(a, A))
        self.assertTrue(rates.acquire(session("b"), A, 398))
        self.assertAlmostEqual(3.01, rates.wait(a, A))
        self.now += 3.02
        self.assertEqual(0, rates.wait(a, A))
        self.assertTrue(rates.acquire(a, A, 1))

    def test_without_a_session_only_the_address_counts(self) -> None:
        """
        Without a session only the address counts.
        """
        self.assertEqual(20, self.taken(self.rates(session_rate_messages=1), 20))
        self.assertEqual(1, self.taken(self.rates(session_rate_messages=9, ip_rate_messages=1), 20))


class PeerTests(RatesCase):
    """
    `ip_rate_messages` and `ip_rate_bytes`.
    """

    def test_all_sessions_and_ports_of_one_address_share(self) -> None:
        """
        All sessions and ports of one address share its rate; another address has its own.
        """
        rates = self.rates(ip_rate_messages=10)

        self.assertEqual(6, self.taken(rates, 6, session("a"), "192.0.2.1:1"))
        self.assertEqual(4, self.taken(rates, 6, session("b"), "192.0.2.1:2"))
        self.assertEqual(6, self.taken(rates, 6, session("c"), B))

    def test_costs_nothing_when_refused(self) -> None:
        """
        What the address may not send is not charged to the session, nor the other way round.
        """
        rates = self.rates(session_rate_messages=4, ip_rate_messages=6)

        self.assertEqual(4, self.taken(rates, 9, session("a"), A))
        self.assertEqual(2, self.taken(rates, 9, session("b"), A))
        self.assertEqual(2, self.taken(rates, 9, session("b"), B))

    def test_unix_socket_and_a_trusted_proxy_are_nobody_address(self) -> None:
        """
        A UNIX socket and a trusted proxy are nobody's address.
        """
        rates = self.rates(ip_rate_messages=1)
        self.config.trusted_proxies = ["192.0.2.1"]

        self.assertEqual(5, self.taken(rates, 5, peer="unix"))
        self.assertEqual(5, self.taken(rates, 5, peer=A))
        self.assertEqual(1, self.taken(rates, 5, peer=B))

    def test_host_of_a_peer_is_without_port_and_half_of_ipv6(self) -> None:
        """
        The host is what stands before the port; half of it, if it is of IPv6.
        """
        for peer, host in (
            ("192.0.2.1:51234", "192.0.2.1"),
            ("192.0.2.1", "192.0.2.1"),
            ("[2001:db8:1:2:3::4]:51234", "2001:db8:1:2::/64"),
            ("2001:db8:1:2:9::9", "2001:db8:1:2::/64"),
            ("[::ffff:192.0.2.1]:1", "192.0.2.1"),
            ("[fe80::1%eth0]:1", "fe80::/64"),
            ("unix", ""),
            ("a:b:c", "a:b:c"),
            ("[::1", "::/64"),
            ("", ""),
        ):
            self.assertEqual(host, peer_host(peer), peer)


class NodeTests(SynchronousTestCase):
    """
    What a client sees of it.
    """

    def test_rate_is_429_until_there_is_room(self) -> None:
        """
        What is too much is answered 429 and not carried; a second later there is room again.
        """
        node = MemoryNode(limits={"session_rate_messages": 2})
        fast, other = node.client("runtime://example.org/a"), node.client("runtime://example.org/b")

        for _ in range(3):
            fast.post(other.runtime, "ping")

        self.assertEqual(2, len(other.take()))
        self.assertEqual([429], [answer["body"]["code"] for answer in fast.take()])
        node.clock.advance(1)
        fast.post(other.runtime, "ping")
        self.assertEqual(1, len(other.take()))

    def test_not_the_session(self) -> None:
        """
        `mn:/session` is spoken to at any rate.
        """
        node = MemoryNode(limits={"session_rate_messages": 1})
        client = node.client("runtime://example.org/a")

        for _ in range(5):
            client.open("runtime://example.org/a")


class MemoryTests(RatesCase):
    """
    Buckets that are full again are forgotten.
    """

    def test_while_messages_come_in_the_buckets_of_those(self) -> None:
        """
        While messages come in, the buckets of those who are silent go away.
        """
        rates = self.rates(session_rate_messages=10, ip_rate_messages=1000)
        for number in range(1000):
            rates.acquire(session(str(number)), f"198.51.100.{number % 250}:1", 1)
        self.assertEqual(1250, len(rates))

        self.now += 1
        self.taken(rates, 9, session("0"))
        self.now += 1
        self.taken(rates, 700, session("0"))

        self.assertLess(len(rates), 5)

    def test_debt_is_not_forgotten(self) -> None:
        """
        A bucket that is not full is kept, however many come after it.
        """
        rates = self.rates(session_rate_bytes=100)
        rates.acquire(session("debtor"), A, 100_000)

        for number in range(500):
            self.now += 1
            rates.acquire(session(str(number)), A, 1)

        self.assertFalse(rates.acquire(session("debtor"), A, 1))
        self.now += 500
        self.assertTrue(rates.acquire(session("debtor"), A, 1))

    def test_limits_that_change_hold_at_once_and_may_be_switched(self) -> None:
        """
        Limits that change hold at once, and may be switched off.
        """
        rates = self.rates(session_rate_messages=1)
        self.assertEqual(1, self.taken(rates, 9, session()))

        self.config.limits.session_rate_messages = 5
        rates.apply()
        self.assertEqual(5, self.taken(rates, 9, session()))
        self.config.limits.session_rate_messages = 0
        rates.apply()
        self.assertFalse(rates.on)

    def test_never_more_than_the_rate(self) -> None:
        """
        However it is spread, nobody sends more than the rate allows and one second's worth beside it.
        """
        chance = random.Random(7)
        rates = self.rates(session_rate_messages=50, session_rate_bytes=4000)
        began, messages, size = self.now, 0, 0
        for _ in range(3000):
            self.now += chance.expovariate(100)
            one = chance.randrange(200)
            if rates.acquire(session(), A, one):
                messages, size = messages + 1, size + one

            passed = self.now - began + 1
            self.assertLessEqual(messages, 50 * passed + 1e-6)
            self.assertLessEqual(size, 4000 * passed + 200)
        self.assertGreater(messages, 30 * (self.now - began))
