"""
Addresses of a foreign node that clients here have: asked for, used, and given back.
"""

from typing import Any

from msgnode.sessions.routing import ALLOCATED, OWNED
from tests.support.foreign_case import ForeignCase, MemoryStub

SERVICE = "domain://msg-node.b.example/address-allocation"
ONE, TWO = "hyperty://b.example/one", "hyperty://b.example/two"
H2 = "hyperty://b.example/h2"


class GivenAddressesTests(ForeignCase):
    """
    A client here that asks the allocation service of the foreign node.
    """

    def ask(self, **value: Any) -> dict[str, Any]:
        """
        The request of ann, as it reaches the stub.
        """
        self.send(to=SERVICE, body={"value": {"number": 1, **value}})
        if not self.hosts.last.events.is_live:  # type: ignore[attr-defined]
            self.hosts.last.live()
        return self.hosts.last.take()[-1]

    def give(self, *addresses: str) -> MemoryStub:
        """
        The stub, after the foreign node has given ann these addresses.
        """
        request = self.ask()
        self.hosts.last.answer(request, 200, value={"allocated": list(addresses)})
        return self.hosts.last

    def to_service(self) -> list[dict[str, Any]]:
        """
        What the stub got for the allocation service since the last look.
        """
        self.node.clock.advance(0)
        return [message for message in self.hosts.last.take() if message["to"] == SERVICE]

    def test_address_belongs_to_the_session_that_asked(self) -> None:
        """
        It is sent to, and sends, by the foreign node.
        """
        stub = self.give(ONE)
        [answer] = self.ann.take()
        stub.say(from_=H2, to=ONE, id=9)
        [asked] = self.ann.take()
        self.ann.tell({"id": 9, "type": "response", "from": ONE, "to": H2, "body": {"code": 200}})
        [answered] = stub.take()

        self.assertEqual([ONE], answer["body"]["value"]["allocated"])
        self.assertEqual((9, ONE), (asked["id"], asked["to"]))
        self.assertEqual((ONE, 200), (answered["from"], answered["body"]["code"]))

    def test_clients_here_reach_each_other_by_such_addresses(self) -> None:
        """
        The foreign node has given it to a client here, so the message stays here.
        """
        stub = self.give(ONE)
        self.ann.take()
        bob = self.node.client("runtime://a.example/bob")
        bob.tell({"id": 3, "type": "read", "from": f"{bob.runtime}/x", "to": ONE, "body": {}})

        self.assertEqual([3], [message["id"] for message in self.ann.take()])
        self.assertEqual([], stub.take())

    def test_no_other_client_has_it(self) -> None:
        """
        Neither sending from it nor giving it back.
        """
        stub = self.give(ONE)
        bob = self.node.client("runtime://a.example/bob")
        bob.tell({"id": 4, "type": "update", "from": ONE, "to": H2, "body": {}})
        bob.tell({"id": 5, "type": "delete", "from": bob.runtime, "to": SERVICE, "body": {"resource": ONE}})

        self.assertEqual([403], [message["body"]["code"] for message in bob.take() if message["id"] == 5])
        self.assertEqual([], stub.take())

    def test_it_is_given_back_when_the_session_ends(self) -> None:
        """
        By this node itself, under the name by which the foreign node knows it.
        """
        stub = self.give(ONE, TWO)
        extra = self.to_service()  # ann had asked for one
        self.ann.close()
        [request] = self.to_service()

        self.assertEqual([TWO], extra[0]["body"]["resource"])
        self.assertEqual(("delete", [ONE]), (request["type"], request["body"]["resource"]))
        self.assertTrue(request["from"].startswith(f"{stub.start.runtime_url}/"))

    def test_it_is_given_back_on_request(self) -> None:
        """
        A delete of the client goes to the foreign node, and the address is nobody's here.
        """
        stub = self.give(ONE)
        self.ann.take()
        self.send(to=SERVICE, type="delete", body={"resource": ONE})
        [request] = self.to_service()
        stub.answer(request, 200)

        self.assertEqual(ONE, request["body"]["resource"])
        self.assertEqual([200], [message["body"]["code"] for message in self.ann.take()])
        stub.say(from_=H2, to=ONE, id=9)
        self.assertEqual([], self.ann.take())
        self.assertEqual([], self.to_service())

    def test_it_is_subscribed_again_after_a_loss(self) -> None:
        """
        A foreign node that has lost its memory knows it again; a stub that holds addresses is not idle.
        """
        stub = self.give(ONE)
        self.node.clock.advance(100_000)
        self.assertFalse(stub.is_stopped)
        stub.posted.clear()
        stub.events.status("disconnected", "")
        stub.events.status("live", "")

        asked = [address for message in stub.posted for address in message["body"].get("resources", ())]
        self.assertIn(ONE, asked)

    def test_it_is_known_again_after_a_restart(self) -> None:
        """
        A session that is restored, or comes from another member, has its addresses; the stub runs for them.
        """
        session = self.node.sessions.get(self.ann.runtime)
        assert session is not None
        assert self.stubs.domains is not None
        self.node.routes.bind(ONE, session, ALLOCATED | OWNED)
        self.stubs.domains.adopt(session)
        self.node.clock.pump([0, 0])
        stub = self.hosts.last.live()

        self.assertEqual([[ONE]], [message["body"]["resources"] for message in stub.posted])
        self.ann.close()
        self.assertEqual([[ONE]], [message["body"]["resource"] for message in self.to_service()])

    def test_addresses_of_other_domains_are_not_believed(self) -> None:
        """
        A foreign node gives addresses of its own domain only.
        """
        self.give("hyperty://a.example/one", "hyperty://c.example/one", "domain://msg-node.b.example/sm")

        session = self.node.sessions.get(self.ann.runtime)
        assert session is not None
        self.assertEqual([], [address for address in session.bindings if address.endswith(("/one", "/sm"))])

    def test_an_answer_that_comes_too_late_is_given_back(self) -> None:
        """
        The session has got 504; the addresses do not stay allocated.
        """
        request = self.ask()
        stub = self.hosts.last
        stub.end()
        self.node.clock.pump([1, 0])
        self.hosts.last.live()
        self.node.clock.pump([1] * 30)
        self.assertEqual([504], [message["body"]["code"] for message in self.ann.take()])
        self.hosts.last.answer(request, 200, value={"allocated": [ONE]})
        [given_back] = self.to_service()

        self.assertEqual([ONE], given_back["body"]["resource"])

    def test_a_key_is_refused(self) -> None:
        """
        All clients of this node would share it at the foreign node.
        """
        self.send(to=SERVICE, body={"value": {"allocationKey": "mine"}})

        self.assertEqual(501, self.ann.take()[0]["body"]["code"])
