"""
Stubs in the place of connectors: the tests of the responders pass through them, and what is theirs alone.
"""

from msgnode.service.foreign import add_connector_stubs
from tests.backends import test_qos_broker as qos
from tests.backends.identity import test_responder as identity
from tests.backends.registry import test_domain_registry as domain_registry
from tests.backends.registry import test_global_registry as global_registry
from tests.support.fakes import MemoryNode
from tests.support.foreign_case import ForeignCase, stub_code
from tests.support.foreign_connectors import SECTIONS, STUB, put_stubs
from tests.support.openid import provider
from tests.support.registry import RegistryNode
from tests.support.world import World


class DomainRegistryTests(domain_registry.EnvelopeTests):
    """
    What the domain registry does with every request.
    """

    def setUp(self) -> None:
        self.node = RegistryNode(**SECTIONS)
        self.hosts = put_stubs(self.node, "registry")
        self.ann = self.node.client(domain_registry.ANN)


class RegisterTests(domain_registry.RegisterTests):
    """
    Registering and finding in the domain registry.
    """

    def setUp(self) -> None:
        self.node = RegistryNode(**SECTIONS)
        self.hosts = put_stubs(self.node, "registry")
        self.ann = self.node.client(domain_registry.ANN)


class GlobalRegistryTests(global_registry.GlobalTests):
    """
    The global registry.
    """

    def setUp(self) -> None:
        self.node = RegistryNode(**SECTIONS)
        self.hosts = put_stubs(self.node, "global_registry")
        self.ann = self.node.client(global_registry.ANN)
        self.owner = global_registry.Owner()


class QoSTests(qos.TurnTests):
    """
    The QoS broker.
    """

    def setUp(self) -> None:
        self.node = MemoryNode(world=World, qos=self.options, **SECTIONS)
        self.hosts = put_stubs(self.node, "qos")
        self.broker = self.node.world.broker
        self.client = self.node.client("runtime://example.org/ann")


class IdentityTests(identity.IdentityMessagesTests):
    """
    Identity.
    """

    def setUp(self) -> None:
        options = provider(client_id="app", redirect_uri="https://app.example.org/done")
        self.node = MemoryNode(world=World, identity={"auth": "optional", "providers": [options]}, **SECTIONS)
        self.hosts = put_stubs(self.node, "idm")
        self.openid = self.node.world.openid
        self.client = self.node.client("runtime://example.org/1")


class ConnectorCase(ForeignCase):
    """
    A registry that is a stub, and ann, who asks it.
    """

    sections = {"connectors": {"registry": {"stub": STUB, "in_flight": 2}}}
    foreign = {"accept": "listed", "stub": [{"domain": STUB}]}
    to = "domain://registry.a.example"

    def setUp(self) -> None:
        super().setUp()
        self.fetcher.codes[STUB] = stub_code(STUB)
        add_connector_stubs(self.node, self.stubs, self.node.clock)
        self.stub = self.hosts.last.live()

    def ask(self, id: int = 7) -> None:
        self.send(to=self.to, type="read", id=id, body={"resource": "hyperty://a.example/h"})

    def codes(self) -> list[tuple[int, int]]:
        return [(message["id"], message["body"]["code"]) for message in self.ann.take()]


class AskingTests(ConnectorCase):
    """
    Requests to the stub.
    """

    def test_two_clients_with_one_id_are_told_apart(self) -> None:
        """
        Each client gets the answer to its own request, whatever ids they use.
        """
        bob = self.node.client("runtime://a.example/bob")
        self.ask()
        bob.tell({"id": 7, "type": "read", "from": "runtime://a.example/bob/x", "to": self.to, "body": {}})
        first, second = self.stub.take()

        self.stub.answer(second, 404)
        self.stub.answer(first, 100)
        self.stub.answer(first, 200)

        self.assertEqual([(7, 200)], self.codes())
        self.assertEqual([404], [message["body"]["code"] for message in bob.take()])

    def test_answer_in_another_name_is_not_believed(self) -> None:
        """
        An answer for another client, from another address, or to no request, reaches nobody.
        """
        self.ask()
        [asked] = self.stub.take()
        self.stub.answer({**asked, "from": "runtime://a.example/bob/x"}, 200)
        self.stub.answer({**asked, "to": "domain://idm.a.example"}, 200)
        self.stub.answer({**asked, "id": 99}, 200)

        self.assertEqual([], self.codes())

    def test_silence_is_504(self) -> None:
        """
        Without an answer in `deadline_seconds` the client gets 504, and a later answer is dropped.
        """
        self.ask()
        [asked] = self.stub.take()
        self.node.clock.advance(5)
        self.stub.answer(asked, 200)

        self.assertEqual([(7, 504)], self.codes())

    def test_too_many_requests_are_503(self) -> None:
        """
        Beyond `in_flight`, while the stub is full, and while it is not live, the client gets 503.
        """
        for id in range(3):
            self.ask(id)
        self.assertEqual([(2, 503)], self.codes())

        self.node.clock.advance(5)
        self.codes()
        self.stub.room = 0
        self.ask(3)
        self.stub.end()
        self.ask(4)
        self.assertEqual([(3, 503), (4, 503)], self.codes())

    def test_stub_is_started_again(self) -> None:
        """
        A connector is needed at all times: its stub comes back without a request.
        """
        self.stub.end()
        self.node.clock.advance(1)

        self.assertEqual(2, len(self.hosts.stubs))
        self.assertEqual("connector stub", self.entry(STUB)["kind"])

    def test_registrations_are_published(self) -> None:
        """
        The stub may say that a registration has changed, and nothing else in the name of the registry.
        """
        entity = "hyperty://a.example/h/registration"
        self.ann.ask(
            type="subscribe", to="domain://msg-node.a.example/sm", body={"resources": [entity, entity[:-13]]}
        )
        for to in (entity, entity[:-13], "mn:/session"):
            self.stub.say(from_=self.to, type="update", to=to, body={"value": "live"})

        self.assertEqual(
            [(entity, self.to)], [(message["to"], message["from"]) for message in self.ann.take()]
        )

    def test_its_domain_is_not_reached_by_messages(self) -> None:
        """
        The stub of a connector carries nothing else.
        """
        self.send(to=f"hyperty://{STUB}/h")

        self.assertEqual([], self.stub.take())
