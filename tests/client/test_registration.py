"""
The Python client and a domain registry: what it says there, and how it keeps a hyperty alive.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.client import Refused
from tests.support.network import Network
from tests.support.programs import Program

URL, USER = "hyperty://example.org/lamp", "user://example.org/ann"
REGISTRY = "domain://registry.example.org"


class Registry:
    """
    A responder that keeps entries by their URL, and every request.
    """

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

    def respond(self, message: Any, session: Any) -> Any:
        body = message.fields()
        self.asked.append((message.type, message.from_, body))
        if message.type == "create":
            self.entries[body["value"]["url"]] = body["value"]
            return message.reply({"code": 200})
        url = body["resource"].removeprefix("/hyperty/")
        if url not in self.entries and url != USER:
            return message.reply({"code": 404, "description": "Not Found"})
        if message.type == "read":
            return message.reply({"code": 200, "value": self.entries})
        return message.reply({"code": 200})


class RegistryTests(SynchronousTestCase):
    """
    A program `a` at a node with a registry.
    """

    def setUp(self) -> None:
        self.net = Network()
        self.registry = self.net.node.responders[REGISTRY] = Registry()
        self.a = Program(self.net, "a").opened()

    def register(self, **how: Any) -> Any:
        return self.a.result(self.a.register(URL, user=USER, **how))

    def kinds(self) -> list[tuple[str, Any]]:
        return [(kind, body.get("method")) for kind, _, body in self.registry.asked]

    def test_registers(self) -> None:
        """
        A hyperty is registered with all that a registry must be told, as runtimes tell it.
        """
        self.register(descriptor="https://example.org/lamp", resources=["light"], schemes=["comm"])

        ((kind, from_, body),) = self.registry.asked
        self.assertEqual(("create", "runtime://example.org/a/registry/"), (kind, from_))
        self.assertEqual(
            {
                "user": USER,
                "url": URL,
                "descriptor": "https://example.org/lamp",
                "expires": 3600,
                "resources": ["light"],
                "dataSchemes": ["comm"],
                "runtime": "runtime://example.org/a",
                "status": "live",
            },
            body["value"],
        )

    def test_long_registration_is_refreshed_in_time(self) -> None:
        """
        What asks for longer than a registry gives is refreshed in time; no time at all is refused.
        """
        self.register(expires=86400)

        self.net.advance(3600)

        self.assertEqual([("create", None), ("update", "refresh"), ("update", "refresh")], self.kinds())
        for wrong in (0, -1):
            with self.assertRaisesRegex(ValueError, f"'expires' must be 1 to 3600 seconds, not {wrong}"):
                self.a.register(URL, user=USER, expires=wrong)

    def test_keeps_alive(self) -> None:
        """
        A registration is refreshed before it expires, again and again.
        """
        self.register(expires=100)
        self.net.advance(100)

        self.assertEqual([("create", None), ("update", "refresh"), ("update", "refresh")], self.kinds())
        self.assertEqual({"status": "live"}, self.registry.asked[-1][2]["value"])

    def test_registry_that_has_forgotten_a_hyperty_is_told(self) -> None:
        """
        A registry that has forgotten a hyperty is told of it anew.
        """
        self.register(expires=100)
        self.registry.entries.clear()
        self.net.advance(50)

        self.assertIn(URL, self.registry.entries)

    def test_registry_that_does_not_answer_is_asked_again(self) -> None:
        """
        A registry that does not answer is asked again in time.
        """
        self.register(expires=100)
        responders = self.net.node.responders
        del responders[REGISTRY]
        self.net.advance(50)
        responders[REGISTRY] = self.registry
        self.net.advance(70)  # the first try timed out

        self.assertEqual(("update", "refresh"), self.kinds()[-1])

    def test_registration_that_ends_says_so_and_is_not_refreshed(self) -> None:
        """
        A registration that ends says so, and is not refreshed any more.
        """
        registration = self.register(expires=100)
        self.a.result(registration.end())
        self.net.advance(100)

        kind, _, body = self.registry.asked[-1]
        self.assertEqual("update", kind)
        wanted = {"resource": f"/hyperty/{URL}", "value": "disconnected", "attribute": "status"}
        self.assertEqual(wanted, body)

    def test_users_registrations_are_found(self) -> None:
        """
        What the registry has of a user is found, narrowed down where that is asked.
        """
        self.register()

        found = self.a.result(self.a.find(USER, resources=["light"]))

        self.assertEqual([URL], list(found))
        wanted = {"resource": USER, "criteria": {"resources": ["light"]}}
        self.assertEqual(("read", "runtime://example.org/a/discovery/", wanted), self.registry.asked[-1])

    def test_finds_by_mail_address(self) -> None:
        """
        A mail address is asked for as runtimes do; what is not there is refused with 404.
        """
        with self.assertRaises(Refused) as refused:
            self.a.result(self.a.find("ann@example.org"))

        self.assertEqual(404, refused.exception.code)
        self.assertEqual({"resource": "/hyperty/idp-identifier/ann@example.org"}, self.registry.asked[-1][2])
