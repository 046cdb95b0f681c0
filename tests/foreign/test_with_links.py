"""
Foreign stubs next to links, policies, and sessions of before.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.foreign.fetch.code_store import CodeStore
from msgnode.foreign.stubs import ForeignStubs, StubSurroundings
from tests.support.foreign_case import B, ForeignCase, MemoryFetcher, MemoryHosts, stub_code
from tests.support.links_exchange import MemoryNetwork
from tests.support.policy_case import policy, policy_set, program

H2 = f"hyperty://{B}/h2"


class LinkedTests(SynchronousTestCase):
    """
    A node of a.example that is linked to l.example, and accepts stubs of any domain.
    """

    def setUp(self) -> None:
        foreign = {"accept": "any", "stub": [{"domain": B}, {"domain": "sub.l.example"}]}
        self.net = MemoryNetwork("a.example", "l.example", foreign=foreign)
        node = self.net["a.example"].node
        self.hosts, self.fetcher = MemoryHosts(), MemoryFetcher()
        self.fetcher.codes |= {name: stub_code(name) for name in ("l.example", "sub.l.example")}
        around = StubSurroundings(
            node.config,
            self.hosts,
            self.fetcher,
            CodeStore(None),
            self.net.clock,
            lambda: 0.0,
            node.wall,
        )
        self.stubs = ForeignStubs(node, around, node.traffic)
        self.stubs.start(node.router.foreign)
        self.ann, self.lea = self.net["a.example"].client("ann"), self.net["l.example"].client("lea")

    def test_linked_domain_is_reached_by_its_link(self) -> None:
        """
        What goes to a linked domain crosses the link; what goes to another one goes to its stub.
        """
        self.ann.request(self.lea.hyperty)
        self.ann.request(H2)
        self.net.flow()

        self.assertEqual([7], [message["id"] for message in self.lea.take()])
        self.assertEqual(["b.example"], self.fetcher.fetched)

    def test_linked_domain_that_is_down_has_no_stub(self) -> None:
        """
        A linked domain never falls over to a stub: its messages wait for the link.
        """
        self.ann.request(self.lea.hyperty)
        self.net.flow()
        self.lea.take()
        names = frozenset(self.net.nodes)
        self.net.cut.add(names)
        self.ann.request(self.lea.hyperty)
        self.net.flow()
        self.assertEqual([], self.fetcher.fetched)

        self.net.cut.clear()
        self.net.flow()

        self.assertEqual([7], [message["id"] for message in self.lea.take()])

    def test_domain_below_a_linked_one_has_no_stub(self) -> None:
        """
        An address below the name of a linked domain is that domain's, even if a table lists it.
        """
        self.ann.request("hyperty://sub.l.example/h")

        self.assertEqual([], self.fetcher.fetched)

    def test_no_domain_is_passed_on_to_a_stub(self) -> None:
        """
        A message of a linked domain does not leave by a stub, nor one of a stub over a link.
        """
        self.ann.request(H2)
        stub = self.hosts.last.live()
        stub.take()
        message = {"id": 3, "type": "create", "from": self.lea.hyperty, "to": H2, "body": {}}
        self.net.forge("l.example", "a.example", message)
        stub.say(id=4, to=self.lea.hyperty)
        self.net.flow()

        self.assertEqual([], stub.take())
        self.assertEqual([(3, 403)], [(each["id"], each["body"]["code"]) for each in self.lea.take()])

    def test_list_of_recipients_is_split(self) -> None:
        """
        A list with addresses here, of a link and of a stub reaches all three.
        """
        bob = self.net["a.example"].client("bob")
        self.ann.request([bob.hyperty, self.lea.hyperty, H2], type="update")
        stub = self.hosts.last.live()
        self.net.flow()

        self.assertEqual([H2], [message["to"] for message in stub.take()])
        self.assertEqual([self.lea.hyperty], [message["to"] for message in self.lea.take()])
        self.assertEqual([bob.hyperty], [message["to"] for message in bob.take()])


def rule(condition: dict[str, Any]) -> dict[str, Any]:
    return {"id": "r", "target": {}, "effect": "deny", "condition": condition}


class PolicyTests(ForeignCase):
    """
    What the policies see, and refuse.
    """

    def use(self, *rules: dict[str, Any]) -> None:
        made = program([policy_set([policy(list(rules), algorithm="firstApplicable")])])
        self.node.enforcement.use(made, 1)

    def test_kind_of_the_other_node_is_stub(self) -> None:
        """
        A rule about `peer.kind` decides about what comes from a stub, at `in`.
        """
        stub = self.live()
        self.use(rule({"peer.kind": {"equals": "stub"}}))
        stub.say(id=3, to=f"{self.ann.runtime}/x")

        self.assertEqual([], self.ann.take())
        self.assertEqual([403], [message["body"]["code"] for message in stub.take()])

    def test_domain_of_what_leaves(self) -> None:
        """
        A rule about `peer.domain` decides about what goes to the domain, at `out`.
        """
        stub = self.live()
        self.use(rule({"peer.domain": {"equals": B}}))
        self.send(id=9)

        self.assertEqual([(9, 403)], [(m["id"], m["body"]["code"]) for m in self.ann.take()])
        self.assertEqual([], stub.take())


class RestoredTests(ForeignCase):
    """
    Sessions that were here before the stubs.
    """

    def test_observers_of_before_are_subscribed(self) -> None:
        """
        Stubs that are accepted while the node runs serve the observers that are here already.
        """
        self.make(accept="none", stub=[])
        body = {"resources": [f"comm://{B}/o/changes"]}
        self.ann.ask(type="subscribe", to="domain://msg-node.a.example/sm", body=body)

        self.node.config.foreign.accept = "any"
        self.stubs.apply()
        self.node.clock.advance(0)
        stub = self.hosts.last.live()

        self.assertEqual([body["resources"]], [message["body"]["resources"] for message in stub.posted])
