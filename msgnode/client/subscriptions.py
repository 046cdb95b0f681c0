"""
The addresses that a client is bound to.
"""

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from msgnode.client.errors import Refused
from msgnode.client.handlers import Handler, Handlers
from msgnode.client.message import Message, Requester

PENDING = 504  # another domain has not answered a subscription yet, which stands nevertheless


class Subscriptions:
    """
    The table of bound addresses; their handlers are added and removed with them.
    """

    def __init__(self, client: Requester, handlers: Handlers) -> None:
        self._client = client
        self._handlers = handlers
        self._bound: dict[str, None] = {}  # in the order they were bound

    def subscribe(
        self, addresses: list[str], handler: Handler | None, serial: bool = False
    ) -> Deferred[None]:
        if handler is not None:
            self._handlers.add(addresses, handler, serial)

        def stands(why: Failure) -> Failure:
            if isinstance(why.value, Refused) and why.value.code == PENDING:
                self._bound.update(dict.fromkeys(addresses))
            return why

        asked = self._client.request(self._node("sm"), {"resources": addresses}, type="subscribe")
        return asked.addCallbacks(lambda _: self._bound.update(dict.fromkeys(addresses)), stands)

    def unsubscribe(self, addresses: list[str]) -> Deferred[None]:
        asked = self._client.request(self._node("sm"), {"resources": addresses}, type="unsubscribe")
        return asked.addCallback(lambda _: self._forget(addresses))

    def allocate(
        self, number: int, scheme: str, handler: Handler | None, serial: bool = False
    ) -> Deferred[list[str]]:
        def made(reply: Message) -> list[str]:
            addresses: list[str] = reply.body["value"]["allocated"]
            if handler is not None:
                self._handlers.add(addresses, handler, serial)
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
        Returns the address and the resources of the request that subscribes again in a new session, or None.
        """
        return (self._node("sm"), list(self._bound)) if self._bound else None

    def _node(self, place: str) -> str:
        return f"domain://msg-node.{self._client.domain}/{place}"

    def _forget(self, addresses: list[str]) -> None:
        for address in addresses:
            self._bound.pop(address, None)
        self._handlers.remove(addresses)
