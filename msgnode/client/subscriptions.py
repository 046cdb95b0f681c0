"""
The addresses a client is bound to, and who handles what comes for them.
"""

from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred

from msgnode.client.message import Message, Requester

Handler = Callable[[Message], Any]


class Subscriptions:
    """
    A handler is found by the whole address, else by the nearest one above it at a `/`.
    """

    def __init__(self, client: Requester) -> None:
        self._client = client
        self._handlers: dict[str, Handler] = {}
        self._bound: dict[str, None] = {}  # in the order they were bound

    def handle(self, addresses: Iterable[str], handler: Handler | None) -> None:
        if handler is not None:
            self._handlers.update(dict.fromkeys(addresses, handler))

    def handler(self, address: str) -> Handler | None:
        handlers = self._handlers
        while address not in handlers and "/" in address:
            address = address.rpartition("/")[0]
        return handlers.get(address)

    def subscribe(self, addresses: list[str], handler: Handler | None) -> Deferred[None]:
        self.handle(addresses, handler)
        asked = self._client.request(self._node("sm"), {"resources": addresses}, type="subscribe")
        return asked.addCallback(lambda _: self._bound.update(dict.fromkeys(addresses)))

    def unsubscribe(self, addresses: list[str]) -> Deferred[None]:
        asked = self._client.request(self._node("sm"), {"resources": addresses}, type="unsubscribe")
        return asked.addCallback(lambda _: self._forget(addresses))

    def allocate(self, number: int, scheme: str, handler: Handler | None) -> Deferred[list[str]]:
        def made(reply: Message) -> list[str]:
            addresses: list[str] = reply.body["value"]["allocated"]
            self.handle(addresses, handler)
            self._bound.update(dict.fromkeys(addresses))
            return addresses

        body = {"scheme": scheme, "value": {"number": number}}
        return self._client.request(self._node("address-allocation"), body, type="create").addCallback(made)

    def free(self, addresses: list[str]) -> Deferred[None]:
        body = {"childrenResources": addresses}
        asked = self._client.request(self._node("address-allocation"), body, type="delete")
        return asked.addCallback(lambda _: self._forget(addresses))

    def renewal(self) -> tuple[str, list[str]] | None:
        """
        Where to subscribe what, when the node knows nothing of us any more.
        """
        return (self._node("sm"), list(self._bound)) if self._bound else None

    def _node(self, place: str) -> str:
        return f"domain://msg-node.{self._client.domain}/{place}"

    def _forget(self, addresses: list[str]) -> None:
        for address in addresses:
            self._bound.pop(address, None)
            self._handlers.pop(address, None)
