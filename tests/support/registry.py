"""
A node in memory with the embedded registries behind it, by HTTP.
"""

from typing import Any

from msgnode.backends.http_client import BackendClient
from msgnode.devregistry.database import connect
from msgnode.devregistry.domain_api import DomainApi
from msgnode.devregistry.global_api import GlobalApi
from msgnode.devregistry.records import Records
from msgnode.devregistry.resource import RegistryResource, RegistrySite
from msgnode.service.wiring import add_disconnector, add_domain_registry, add_global_registry
from tests.support.back_ends import Memory
from tests.support.fakes import Client, MemoryNode

REGISTRY = "domain://registry.example.org"
GLOBAL = "global://registry"


class RegistryNode(MemoryNode):
    """
    The node; `domain` and `graph` are the registries' resources, `records` what the first one keeps.

    `journey` lists the requests that reached the domain registry. A node `beside` has the same registries.
    """

    def __init__(self, beside: "RegistryNode | None" = None, **sections: Any) -> None:
        super().__init__(**sections)
        database = connect(":memory:")
        own = Records(database, self.clock.seconds)
        self.records: Records = own if beside is None else beside.records
        self.journey: list[tuple[str, str, bytes]] = []
        domain = DomainApi(self.records)

        def answer(method: str, uri: str, body: bytes) -> Any:
            self.journey.append((method, uri, body))
            return domain.answer(method, uri, body)

        self.domain = RegistryResource(answer, self.clock)
        self.global_api = GlobalApi(database)
        self.graph = RegistryResource(self.global_api.answer, self.clock)
        self.memory = Memory(self.clock, lambda: self._serve(self.domain))
        self.graph_memory = Memory(self.clock, lambda: self._serve(self.graph))
        self.rest = self._rest(self.memory, self.config.registry, "domain registry")
        self.registry = add_domain_registry(self, self.rest)
        rest = self._rest(self.graph_memory, self.config.global_registry, "global registry")
        add_global_registry(self, rest, self._at_once)
        add_disconnector(self, self.registry, self.clock)

    def _serve(self, resource: RegistryResource) -> Any:
        return RegistrySite(resource, reactor=self.clock).buildProtocol(None)

    def _rest(self, memory: Memory, options: Any, name: str) -> BackendClient:
        return BackendClient("http://registry", options, self.clock, name, dial=lambda host, port: memory)

    @staticmethod
    def _at_once(function: Any, *arguments: Any) -> Any:
        from twisted.internet.defer import maybeDeferred

        return maybeDeferred(function, *arguments)

    @property
    def links(self) -> list[Any]:
        return [*super().links, *self.memory.links, *self.graph_memory.links]

    def pump(self) -> None:
        self.memory.pump()
        self.graph_memory.pump()

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.pump()

    def client(self, runtime: str | None = None) -> "Asking":
        client = Asking(self)
        if runtime is not None:
            client.open(runtime)
        return client


class Asking(Client):
    """
    A client that waits for the registry.
    """

    node: RegistryNode

    def request(self, type: str, body: Any, to: str = REGISTRY, **fields: Any) -> dict[str, Any]:
        """
        Ask a registry; the reply.  What else came stays to be taken.
        """
        self.tell(
            {"id": "r", "type": type, "from": f"{self.runtime}/registry/", "to": to, "body": body, **fields}
        )
        self.node.pump()
        (reply,) = [message for message in self.got if message["id"] == fields.get("id", "r")]
        self.raw = [data for data, message in zip(self.raw, self.got, strict=True) if message != reply]
        return reply

    def code(self, type: str, body: Any, **fields: Any) -> int:
        return self.request(type, body, **fields)["body"]["code"]

    def register(self, url: str, **more: Any) -> dict[str, Any]:
        """
        Register a hyperty or a data object as runtime-core does.
        """
        common = {
            "url": url,
            "expires": 3600,
            "resources": ["chat"],
            "dataSchemes": ["comm"],
            "runtime": self.runtime,
            "status": "live",
        }
        if url.startswith("hyperty:"):
            value = {**common, "user": "ann@example.org", "descriptor": "d", **more}
        else:
            value = {**common, "schema": "s", "name": "room", "reporter": "hyperty://example.org/h", **more}
        return self.request("create", {"value": value, "policy": "policy"})["body"]
