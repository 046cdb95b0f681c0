"""
The budget: how many sessions and how many bytes of state one host, one user and all together may have.
"""

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.protocol.close_codes import OVER_CAPACITY
from msgnode.sessions.limits.memory_budget import BINDING, KEY, KEYED, REGISTERED, SESSION
from tests.sessions.access.test_authentication import ANN, GateCase
from tests.support.durable import DurableNode
from tests.support.fakes import Client, MemoryNode, directory

RUNTIME = "runtime://example.org/"
SM = "domain://msg-node.example.org/sm"
ALLOCATION = "domain://msg-node.example.org/address-allocation"


class BudgetCase(SynchronousTestCase):
    """
    A node with limits, and clients from several hosts.
    """

    def start(self, **limits: Any) -> MemoryNode:
        trusted = limits.pop("trusted_proxies", [])
        self.node = MemoryNode(limits=limits, trusted_proxies=trusted)
        return self.node

    def come(self, name: str, host: str = "192.0.2.1", identity: str = "", type: str = "open") -> Client:
        """
        A client from that host says `open`.
        """
        client = Client(self.node)
        client.peer, client.identity = f"{host}:1" if host != "unix" else host, identity
        client.tell({"id": 1, "type": type, "from": RUNTIME + name, "to": "mn:/session"})
        client.runtime = RUNTIME + name
        return client

    def opened(self, *args: Any, **kwargs: Any) -> bool:
        client = self.come(*args, **kwargs)
        self.node.clock.advance(5)
        return client.lost is None and client.take()[0]["body"]["code"] == 200

    def subscribe(self, client: Client, *addresses: str) -> dict[str, Any]:
        return client.ask(type="subscribe", to=SM, body={"resources": addresses})["body"]


class SessionCountTests(BudgetCase):
    """
    How many sessions there may be of one host, and of one user.
    """

    def test_of_one_host(self) -> None:
        """
        One host has so many sessions, also while they are away; others do not mind, and an end makes room.
        """
        self.start(sessions_per_ip=2)
        first = self.come("1")
        first.drop()

        found = [self.opened(name) for name in "23"] + [self.opened("4", host="192.0.2.2")]

        self.assertEqual([True, False, True], found)
        self.assertEqual({"sessions_per_ip": 1}, dict(self.node.budget.refused))
        self.come("1").close()
        self.assertTrue(self.opened("3"))

    def test_whoever_is_one_too_many_hears_nothing_but_1013(self) -> None:
        """
        Whoever is one too many hears nothing but 1013 with a time, five seconds later.
        """
        self.start(sessions_per_ip=1)
        self.come("1")

        late = self.come("2")

        self.assertEqual(([], None), (late.got, late.lost))
        self.node.clock.advance(5)
        self.assertEqual(([], OVER_CAPACITY), (late.got, late.lost))
        self.assertIsNotNone(late.lost and late.lost.retry_after)

    def test_coming_back(self) -> None:
        """
        Whoever comes back to a session is let in, however full it is, from wherever it comes.
        """
        self.start(sessions_per_ip=1, sessions=2, new_sessions_per_minute_per_ip=1)
        self.come("1").drop()
        self.come("2", host="192.0.2.2").drop()

        found = [self.opened("1", host="192.0.2.2"), self.opened("2", type="re-open"), self.opened("1")]

        self.assertEqual([True, True, True], found)

    def test_nobodys(self) -> None:
        """
        UNIX sockets and trusted proxies are no host.
        """
        self.start(sessions_per_ip=1, trusted_proxies=["192.0.2.9"])

        found = [self.opened(f"u{n}", host="unix") for n in range(3)]
        found += [self.opened(f"p{n}", host="192.0.2.9") for n in range(3)]

        self.assertEqual([True] * 6, found)

    def test_network(self) -> None:
        """
        All addresses of an IPv6 network are one.
        """
        self.start(sessions_per_ip=1)

        found = [self.opened("1", host="[2001:db8::1]"), self.opened("2", host="[2001:db8::2]")]

        self.assertEqual([True, False], found)

    def test_new_sessions_of_one_host_have_a_rate_closed(self) -> None:
        """
        New sessions of one host have a rate, closed or not; a minute later there is room again.
        """
        self.start(new_sessions_per_minute_per_ip=2)

        found = []
        for n in range(3):
            client = self.come(str(n))
            found.append(client.lost is None and bool(client.take()))
            client.close()

        self.assertEqual([True, True, False], found)
        self.assertEqual({"new_sessions_per_minute_per_ip": 1}, dict(self.node.budget.refused))
        self.node.clock.advance(30)
        self.assertTrue(self.opened("9"))

    def test_a_thousand_at_once(self) -> None:
        """
        As they come, the limits let a thousand runtimes of one host open at once, several times over.
        """
        self.start(connections_per_ip=10_000)

        clients = [self.come(str(n)) for n in range(2500)]

        self.assertEqual([], [client for client in clients if not client.raw])

    def test_to_the_maximum(self) -> None:
        """
        One host does not get all the sessions there may be, though it keeps each with a subscription.
        """
        self.start(sessions=300, sessions_per_ip=100)

        for n in range(300):
            client = self.come(str(n))
            if client.take():
                self.subscribe(client, f"comm://example.org/{n}")
            client.drop()
            self.node.clock.advance(1)

        self.assertEqual(100, len(self.node.sessions))
        self.assertTrue(self.opened("other", host="192.0.2.2"))

    def test_holder_of_a_certificate_pays_for_itself(self) -> None:
        """
        Whoever a certificate names pays for itself, and not for its host.
        """
        self.start(sessions_per_ip=1, sessions_per_user=2)
        self.come("1")

        found = [self.opened(f"u{n}", identity="urn:ann") for n in range(3)]

        self.assertEqual([True, True, False], found)
        self.assertEqual({"sessions_per_user": 1}, dict(self.node.budget.refused))

    def test_limit_that_is_lowered_ends_no_session(self) -> None:
        """
        A limit that is lowered ends no session.
        """
        self.start(sessions_per_ip=3)
        here = [self.come(str(n)) for n in range(3)]

        self.node.config.limits.sessions_per_ip = 1
        self.node.apply()

        self.assertEqual(3, len(self.node.sessions))
        self.assertEqual([None] * 3, [client.lost for client in here])
        self.assertFalse(self.opened("4"))


class DelayTests(BudgetCase):
    """
    Whoever is refused is closed a little later, because stubs of today come back at once.
    """

    def test_so_many_wait(self) -> None:
        """
        So many wait for it; others are closed at once.
        """
        self.start(sessions=1, delayed_closes=2)
        self.come("1")

        late = [self.come(str(n)) for n in range(2, 6)]

        self.assertEqual([None, None, OVER_CAPACITY, OVER_CAPACITY], [client.lost for client in late])
        self.assertEqual(2, self.node.sessions.connections.delayed_closes)
        self.node.clock.advance(5)
        self.assertEqual([OVER_CAPACITY] * 4, [client.lost for client in late])
        self.assertEqual(0, self.node.sessions.connections.delayed_closes)

    def test_opens_without_a_token_wait_in_the_same_places(self) -> None:
        """
        Those who lack a token wait in the same places.
        """
        self.node = MemoryNode(session={"takeover": "token"}, limits={"delayed_closes": 1})
        self.come("1")

        late = [self.come("1") for _ in range(2)]

        self.assertEqual([None, 4401], [client.lost and client.lost.code for client in late])

    def test_client_that_goes_on_opening_on_the_same_connection(self) -> None:
        """
        A client that goes on opening on the same connection takes one place.
        """
        self.start(sessions=1)
        self.come("1")
        late = self.come("2")

        for _ in range(10):
            late.tell({"id": 1, "type": "open", "from": late.runtime, "to": "mn:/session"})

        self.assertEqual(1, self.node.sessions.connections.delayed_closes)

    def test_connection_that_is_lost_meanwhile_or_finds_room(self) -> None:
        """
        A connection that is lost meanwhile, or finds room after all, leaves its place.
        """
        self.start(sessions=1)
        first = self.come("1")
        self.come("2").drop()
        late = self.come("3")

        first.close()
        late.tell({"id": 1, "type": "open", "from": late.runtime, "to": "mn:/session"})

        self.assertEqual(0, self.node.sessions.connections.delayed_closes)
        self.node.clock.advance(5)
        self.assertIsNone(late.lost)
        self.assertEqual(200, late.got[0]["body"]["code"])


class BytesTests(BudgetCase):
    """
    How much the node remembers for a session, a host, a user, and all.
    """

    def test_sessions_addresses_and_keys_count_in_bytes(self) -> None:
        """
        Sessions, addresses, keys and what is registered count, and are given back.
        """
        self.start()
        client = self.come("1")
        name = len(client.runtime)
        address = "comm://example.org/1"

        self.subscribe(client, address, address + "é")
        bound = 2 * BINDING + len(address) + 4 * (len(address) + 1)
        self.assertEqual(SESSION + name + bound, self.node.budget.node.bytes)
        client.ask(type="unsubscribe", to=SM, body={"resources": [address, address + "é"]})
        body = {"scheme": "comm", "value": {"number": 2, "allocationKey": "key"}}
        client.ask(type="create", to=ALLOCATION, body=body)
        session = self.node.sessions.get(client.runtime)
        assert session is not None
        self.node.registered.add("hyperty://example.org/h", session, True)
        held = sum(BINDING + len(one) for one in session.bindings)
        keys = KEY + len("key") + 2 * KEYED
        registered = REGISTERED + len("hyperty://example.org/h")
        self.assertEqual(SESSION + name + held + keys + registered, self.node.budget.node.bytes)

        client.ask(type="delete", to=ALLOCATION, body={"resource": "key"})
        self.node.registered.drop("hyperty://example.org/h")
        self.assertEqual(SESSION + name, self.node.budget.node.bytes)
        client.close()
        self.assertEqual((0, 0), (self.node.budget.node.bytes, self.node.budget.node.sessions))
        self.assertEqual({}, self.node.budget.accounts)

    def test_beyond_its_bytes_a_session_is_answered_429(self) -> None:
        """
        Beyond its bytes a session is answered 429, with the limit's name, and nothing is bound.
        """
        self.start(state_bytes_per_session=10_000)
        client = self.come("1")
        long = [f"comm://example.org/{n}/" + "x" * 2000 for n in range(4)]

        answers = [self.subscribe(client, *long)] + [self.subscribe(client, one) for one in long]

        self.assertEqual([429, 200, 200, 200, 429], [answer["code"] for answer in answers])
        self.assertIn("limits.state_bytes_per_session", answers[0]["description"])
        self.assertLessEqual(self.node.budget.node.bytes, 10_000)

    def test_many_long(self) -> None:
        """
        As they come, the limits do not let one session have 30,000 addresses of 2 KB.
        """
        self.start()
        client = self.come("1")

        refused = 0
        for n in range(30):
            addresses = [f"comm://example.org/{n}/{m}/".ljust(2000, "x") for m in range(1000)]
            refused += self.subscribe(client, *addresses)["code"] == 429

        self.assertGreater(refused, 5)
        self.assertLessEqual(self.node.budget.node.bytes, self.node.config.limits.state_bytes_per_session)

    def test_all_sessions_of_a_host_share_its_bytes(self) -> None:
        """
        So it is for all sessions of a host; those of others have room.
        """
        self.start(state_bytes_per_ip=3 * (SESSION + 500))
        first, second = self.come("1"), self.come("2")
        other = self.come("3", host="192.0.2.2")

        answers = [self.subscribe(first, "comm://example.org/" + "x" * 2000)]
        answers += [self.subscribe(client, "comm://example.org/" + "y" * 2000) for client in (second, other)]

        self.assertEqual([200, 429, 200], [answer["code"] for answer in answers])
        self.assertIn("limits.state_bytes_per_ip", answers[1]["description"])
        self.assertEqual(1, self.node.budget.refused["state_bytes_per_ip"])
        self.assertFalse(self.opened("4"))

    def test_so_it_is_for_the_node(self) -> None:
        """
        So it is for the node: who is there stays, and may free what it has.
        """
        self.start(state_bytes=3 * (SESSION + 100))
        first, second = self.come("1"), self.come("2", host="192.0.2.2")

        self.subscribe(first, "comm://example.org/1")
        refused = self.subscribe(second, "comm://example.org/" + "x" * 2000)

        self.assertEqual(429, refused["code"])
        self.assertIn("limits.state_bytes)", refused["description"])
        self.assertFalse(self.opened("3", host="192.0.2.3"))
        first.ask(type="unsubscribe", to=SM, body={"resources": ["comm://example.org/1"]})
        first.close()
        self.assertTrue(self.opened("3", host="192.0.2.3"))

    def test_what_is_learnt_by_the_way_is_left_out_where_there(self) -> None:
        """
        What is learnt by the way is left out where there is no room; the message is carried.
        """
        self.start(state_bytes_per_session=SESSION + 400)
        first, second = self.come("1"), self.come("2")
        second.take()
        sender = "hyperty://example.org/" + "x" * 500

        first.tell({"id": 9, "type": "ping", "from": sender, "to": f"{second.runtime}/x"})

        self.assertEqual(1, len(second.take()))
        self.assertEqual((), self.node.routes.resolve(sender))

    def test_as_they_come_the_limits_let_one_session_hold_30_000(self) -> None:
        """
        As they come, the limits let one session hold 30,000 addresses under 10,000 keys.
        """
        self.start()
        client = self.come("1")
        client.take()

        for n in range(10_000):
            body = {"scheme": "comm", "value": {"number": 3, "allocationKey": f"key number {n}"}}
            client.tell({"id": n, "type": "create", "from": client.runtime, "to": ALLOCATION, "body": body})

        self.assertEqual({200}, {answer["body"]["code"] for answer in client.take()})

    def test_limit_that_is_lowered_deletes_nothing(self) -> None:
        """
        A limit that is lowered deletes nothing; it refuses what is new.
        """
        self.start()
        client = self.come("1")
        self.subscribe(client, "comm://example.org/1")

        self.node.config.limits.state_bytes_per_session = 1
        self.node.apply()

        self.assertEqual(429, self.subscribe(client, "comm://example.org/2")["code"])
        self.assertEqual(200, self.subscribe(client, "comm://example.org/1")["code"])
        self.assertEqual(1, len(self.node.routes.resolve("comm://example.org/1")))


class UserTests(GateCase):
    """
    Sessions of users that a token proves.
    """

    auth = "optional"

    def test_session_that_turns_out_to_be_a_user_is_paid(self) -> None:
        """
        A session that turns out to be a user's is paid for by the user, with all it has.
        """
        client = self.attempt()
        client.subscribe("comm://example.org/1")
        before = self.node.budget.accounts["_per_ip", "192.0.2.1"].bytes

        client.tell({"id": 2, "type": "update", "to": "mn:/session", "body": {"token": self.token()}})

        self.assertEqual([("_per_user", ANN)], list(self.node.budget.accounts))
        account = self.node.budget.accounts["_per_user", ANN]
        self.assertEqual((before, 1), (account.bytes, account.sessions))
        self.assertEqual((before, 1), (self.node.budget.node.bytes, self.node.budget.node.sessions))

    def test_token_lets_its_user_in_where_its_host_has(self) -> None:
        """
        A token lets its user in where its host has all the sessions it may have, until the user has, too.
        """
        self.node.config.limits.sessions_per_ip = 1
        self.node.config.limits.sessions_per_user = 2
        self.attempt()

        clients = [self.attempt(self.token(), f"runtime://example.org/{n}") for n in range(3)]
        clients.append(self.attempt(None, "runtime://example.org/nobody"))

        self.assertEqual([True, True, False, False], [bool(client.raw) for client in clients])


class RestartTests(SynchronousTestCase):
    """
    What is known of it after kill -9.
    """

    def test_accounts_are_what_they(self) -> None:
        """
        The accounts are what they were: sessions for the host that opened them, and their bytes.
        """
        node = DurableNode(directory(self), Clock())
        for name in "ab":
            client = node.client(RUNTIME + name)
            asked = {"id": 2, "from": client.runtime}
            resources = [f"comm://example.org/{name}"]
            client.tell({**asked, "type": "subscribe", "to": SM, "body": {"resources": resources}})
            value = {"number": 2, "allocationKey": "key"}
            client.tell({**asked, "type": "create", "to": ALLOCATION, "body": {"value": value}})
        node.clock.advance(1)
        before = self.sums(node)

        node = node.killed()
        self.addCleanup(node.store.shut)
        self.addCleanup(node.spool.close)

        self.assertEqual([("_per_ip", "192.0.2.1")], list(before))
        self.assertEqual(before, self.sums(node))
        self.assertGreater(node.budget.node.bytes, 2 * SESSION)

    def test_resumed_session_counts_for_its_host(self) -> None:
        """
        A session that the spool alone knows comes back for its host, too.
        """
        node = DurableNode(directory(self), Clock())
        client = Client(node)
        opening = {"id": 1, "type": "open", "from": RUNTIME + "a", "to": "mn:/session"}
        client.tell({**opening, "body": {"resume": True}})
        before = self.sums(node)

        node = node.killed()
        self.addCleanup(node.store.shut)
        self.addCleanup(node.spool.close)

        self.assertEqual(before, self.sums(node))

    @staticmethod
    def sums(node: DurableNode) -> dict[tuple[str, str], tuple[int, int]]:
        return {who: (one.bytes, one.sessions) for who, one in node.budget.accounts.items()}
