"""
Stubs in the place of connectors: behind each is the node's own responder, so that the same tests pass.
"""

from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from msgnode.bus.components import Responder
from msgnode.config.foreign import Connector, ConnectorOptions
from msgnode.foreign.fetch.code_store import CodeStore
from msgnode.foreign.lifecycle.stub_host import StubEvents, StubStart
from msgnode.foreign.stubs import ForeignStubs, StubSurroundings
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message, decode
from msgnode.service.foreign import add_connector_stubs, addresses_of
from tests.support.fakes import MemoryNode
from tests.support.foreign_case import MemoryFetcher, MemoryHosts, MemoryStub, stub_code

STUB = "stub.example"


SECTIONS: dict[str, Any] = {
    "foreign": {
        "accept": "listed",
        "stub": [{"domain": STUB}],
        "message_bytes": 8_000_000,
        "rate_messages": 1_000_000,
        "rate_bytes": 1_000_000_000,
    }
}


class ResponderStub(MemoryStub):
    """
    A stub that answers as these responders do.
    """

    def __init__(
        self, start: StubStart, events: StubEvents, node: MemoryNode, responders: dict[str, Responder]
    ) -> None:
        super().__init__(start, events)
        self._node = node
        self._responders = responders

    def post(self, message: bytes) -> bool:
        if not super().post(message):
            return False
        asked = decode(message)
        assert isinstance(asked.to, str)
        session = self._node.routes.runtime(asked.from_)
        assert session is not None
        asked.origin = session.connection
        responder = (
            self._responders.get(asked.to) or self._responders[f"{'/'.join(asked.to.split('/')[:3])}/"]
        )
        answer: Deferred[Any] = maybeDeferred(responder.respond, asked, session)
        answer.addCallbacks(self._answer, self._refuse, errbackArgs=(asked,))
        return True

    def _answer(self, reply: Message) -> None:
        self.events.posted(reply.data)

    def _refuse(self, why: Failure, asked: Message) -> None:
        assert isinstance(why.value, Rejected), why
        self.events.posted(asked.reply(why.value.body()).data)


def put_stubs(node: MemoryNode, connector: Connector) -> MemoryHosts:
    """
    Puts a live stub into the place of a connector of the node.
    """
    config, hosts, fetcher = node.config, MemoryHosts(), MemoryFetcher()
    responders = {
        address: node.responders[address]
        for address in addresses_of(connector, config)
        if address in node.responders
    }
    config.connectors = {connector: ConnectorOptions(stub=STUB, deadline_seconds=60.0)}
    hosts.makes = partial(ResponderStub, node=node, responders=responders)
    fetcher.codes[STUB] = stub_code(STUB)
    around = StubSurroundings(config, hosts, fetcher, CodeStore(None), node.clock, lambda: 0.0, node.wall)
    stubs = ForeignStubs(node, around, node.traffic)
    add_connector_stubs(node, stubs, node.clock)
    stubs.start(None)
    hosts.last.live()
    return hosts
