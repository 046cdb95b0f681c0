"""
Registrations of sessions at several nodes: the registry is called once when the last session that has an
address ends.
"""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from msgnode.backends.registry.disconnector import Disconnector
from msgnode.cluster.member_requests import MemberRequests
from msgnode.cluster.ownership.registrations import DomainRegistrations
from msgnode.sessions.session import Session
from tests.support.cluster_members import MemoryCluster
from tests.support.fakes import MemoryNode

A, B, C = (f"mn://example.org/{name}" for name in "abc")
ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"
URLS = [f"hyperty://example.org/{number}" for number in range(3)]
AFTER_SECONDS = 5.0


class RegistryNode:
    """
    One node: its sessions, what they registered, and what it disconnected at the registry.
    """

    def __init__(self, cluster: MemoryCluster, name: str) -> None:
        self._clock = cluster.clock
        self.node = MemoryNode(clock=cluster.clock)
        members = cluster.start(name)
        members.listener = requests = MemberRequests(members, cluster.clock)
        self.registered = self.node.registered
        self.registered.others = self.others = DomainRegistrations(
            name, requests, members.up, self.registered, lambda: True
        )
        self.disconnected: list[str] = []
        self.disconnector = Disconnector(
            self._disconnect,
            self.registered,
            self.node.sessions.get,
            AFTER_SECONDS,
            cluster.clock,
            self.node.slices,
        )
        self.node.sessions.on_end = self.disconnector.ended
        self.disconnector.startService()

    async def _disconnect(self, url: str) -> None:
        await deferLater(self._clock, 0.001)
        self.disconnected.append(url)

    def session(self, runtime: str) -> Session:
        found: Session = self.node.client(runtime).session
        return found

    def end(self, session: Session) -> None:
        self.node.sessions.end(session, "closed")


class RegistrationCase(SynchronousTestCase):
    """
    Three members.
    """

    def setUp(self) -> None:
        self.cluster = MemoryCluster(max_payload=32 * 1024)
        self.a, self.b, self.c = (RegistryNode(self.cluster, name) for name in (A, B, C))
        self.cluster.connect()
        self.cluster.run(0.1)

    @property
    def disconnected(self) -> list[str]:
        return sorted(url for node in (self.a, self.b, self.c) for url in node.disconnected)

    def registered(self, node: RegistryNode, runtime: str, urls: list[str] = URLS) -> Session:
        session = node.session(runtime)
        for url in urls:
            node.registered.add(url, session, anew=True)
        return session


class ClaimTests(RegistrationCase):
    """
    Addresses of ended sessions.
    """

    def test_registry_is_called_by_the_node_where_the_session_ended(self) -> None:
        """
        The registrations of a session that ends are disconnected, by its node alone.
        """
        ann = self.registered(self.a, ANN)

        self.a.end(ann)
        self.cluster.run(AFTER_SECONDS + 1)

        self.assertEqual((URLS, URLS), (sorted(self.a.disconnected), self.disconnected))

    def test_runtime_that_comes_back_at_another_node_keeps_its_registrations(self) -> None:
        """
        A runtime that opens its session again at another node keeps its registrations; they are disconnected
        when that session ends, once.
        """
        self.a.end(self.registered(self.a, ANN))
        self.cluster.run(1)
        again = self.b.session(ANN)
        self.cluster.run(AFTER_SECONDS + 1)
        self.assertEqual([], self.disconnected)

        self.b.end(again)
        self.cluster.run(AFTER_SECONDS + 1)

        self.assertEqual(URLS, sorted(self.b.disconnected))
        self.assertEqual(URLS, self.disconnected)

    def test_address_that_another_session_registered_elsewhere_stays(self) -> None:
        """
        What another session has registered meanwhile, at another node, is not disconnected with the first.
        """
        ann = self.registered(self.a, ANN)
        bob = self.registered(self.c, BOB, URLS[1:])

        self.a.end(ann)
        self.cluster.run(AFTER_SECONDS + 1)
        self.assertEqual(URLS[:1], self.disconnected)
        self.c.end(bob)
        self.cluster.run(AFTER_SECONDS + 1)

        self.assertEqual(URLS, self.disconnected)

    def test_sessions_that_end_together_are_said_once(self) -> None:
        """
        Sessions at all nodes that have the same addresses and end within a short time: the registry is called
        once for each address, however they end.
        """
        for pauses in ((0.0, 0.0), (0.0, 0.001), (0.001, 0.0), (0.5, 4.9), (4.998, 0.002), (5.0, 5.0)):
            nodes = (self.c, self.a, self.b)
            sessions = [self.registered(node, ANN) for node in nodes]
            for node, session, pause in zip(nodes, sessions, (*pauses, 0.0), strict=True):
                node.end(session)
                self.cluster.clock.pump([0.001] * round(pause * 1000))
            self.cluster.run(AFTER_SECONDS * 3)

            self.assertEqual(URLS, self.disconnected, pauses)
            for node in (self.a, self.b, self.c):
                node.disconnected.clear()
                self.assertEqual({}, node.registered.leaving)

    def test_member_that_is_away_is_not_waited_for(self) -> None:
        """
        Without the other members a node disconnects what its sessions had registered.
        """
        ann = self.registered(self.a, ANN)
        for other in (B, C):
            self.cluster.cut(A, other)

        self.a.end(ann)
        self.cluster.run(AFTER_SECONDS + 0.1)

        self.assertEqual(URLS, self.disconnected)

    def test_many_addresses_are_asked_about_in_parts(self) -> None:
        """
        A session with more addresses than one request has room for is disconnected whole.
        """
        urls = [f"hyperty://example.org/{'x' * 100}{number}" for number in range(900)]
        ann = self.registered(self.a, ANN, urls)

        self.a.end(ann)
        self.cluster.run(AFTER_SECONDS + 10)

        self.assertEqual(sorted(urls), self.disconnected)


class OwnerTests(RegistrationCase):
    """
    Users that registered an address.
    """

    def owner(self, node: RegistryNode, url: str) -> Any:
        asked: Deferred[str] = node.others.owner(url)
        self.cluster.run(0.1)
        return self.successResultOf(asked)

    def test_user_is_known_at_all_nodes(self) -> None:
        """
        Each node knows which user registered an address at another; of others it knows none.
        """
        ann = self.a.session(ANN)
        ann.identity = "user://example.org/ann"
        self.a.registered.add(URLS[0], ann, anew=True)

        self.assertEqual("user://example.org/ann", self.owner(self.b, URLS[0]))
        self.assertEqual("", self.owner(self.b, URLS[1]))
