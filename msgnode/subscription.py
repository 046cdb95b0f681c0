"""
Subscriptions: who wants to hear what is published at an address.

The requesting session is subscribed; `source` is a name for people, because
most of the sources that runtimes send are known to nobody.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any

from twisted.internet.defer import Deferred

from msgnode.address import Domain
from msgnode.binding import Binder, Making, Requests, flat
from msgnode.config import Limits
from msgnode.errors import Rejected
from msgnode.message import Message
from msgnode.points import SUBSCRIBE, Policy
from msgnode.routes import ALLOCATED, SUBSCRIBED, RoutingTable
from msgnode.session import Session
from msgnode.slices import ADDRESSES

_LISTS = ("resources", "subscribe", "unsubscribe")
_CHILDREN = ("childrenResources", "children")


class Subscription:
    """
    Answers `subscribe` and `unsubscribe` at the Subscription Manager's address.

    A request names at most `limits.addresses_per_request` addresses, and makes
    no more of them than Making allows for its size; no more than ADDRESSES are
    bound, freed or checked in one turn.
    """

    def __init__(
        self, domain: Domain, routes: RoutingTable, binder: Binder, requests: Requests, limits: Limits
    ) -> None:
        self.address = f"{domain.node}/sm"
        self._routes = routes
        self._binder = binder
        self._requests = requests
        self._limits = limits
        self.policy: Policy | None = None

    def respond(self, message: Message, session: Session) -> Message | Deferred[Message]:
        """
        A bare 200.
        """
        kind = message.type.lower()
        body = message.fields()
        if kind == "subscribe":
            addresses = self._named(message, body, everything=False)
            ask = self._ask(self.policy, message, session) if self.policy is not None else None
            steps = self._binder.bind(addresses, session, SUBSCRIBED, ask)
        elif kind == "unsubscribe":
            addresses = self._named(message, body, everything=True)
            steps = self._unbind(addresses, session)
        else:
            raise Rejected(f"subscription understands subscribe and unsubscribe, not {message.type!r}")

        def reply() -> Message:
            message.resources = addresses
            return message.reply({"code": 200})

        return self._requests.answer(message, steps, reply)

    def _unbind(self, addresses: Iterable[str], session: Session) -> Iterator[None]:
        for done, address in enumerate(addresses):
            if done and done % ADDRESSES == 0:
                yield
            self._routes.unbind(address, session, ~ALLOCATED)

    @staticmethod
    def _ask(policy: Policy, message: Message, session: Session) -> Callable[[str, int], None]:
        """
        All of them, or none: Blocked if one may not be listened to.
        """
        topic = copy(message)  # one for all: what is limited is messages

        def ask(address: str, number: int) -> None:
            topic.to = address
            policy.check(SUBSCRIBE, topic, session, number)

        return ask

    def _named(self, message: Message, body: dict[str, Any], everything: bool) -> list[str]:
        """
        The addresses in every spelling of docs/protocol.md, "Subscriptions"; Rejected if they would be many.

        `resource` O with children n means O, O/changes, O/children/ and
        O/children/n.  `everything`: O/children/ is meant without children too,
        because observers unsubscribe from less than they subscribed to.
        """
        if all(body.get(key) is None for key in (*_LISTS, "resource")):
            raise Rejected("name the addresses in a list 'resources'")
        most = self._limits.addresses_per_request
        addresses = [address for key in _LISTS for address in flat(body.get(key), most)]
        children = [name for key in _CHILDREN for name in flat(body.get(key), most, "a child's name")]
        resources = flat(body.get("resource"), most)
        beside = ["/changes"]
        if children or everything:
            beside.append("/children/")
        each = 1 + len(beside) + len(children)
        suffixes = sum(map(len, beside)) + sum(map(len, children)) + len("/children/") * len(children)
        characters = each * sum(map(len, resources)) + suffixes * len(resources)
        Making(len(addresses) + each * len(resources), characters).check(len(message.data), most)
        for resource in resources:
            addresses.append(resource)
            addresses += [f"{resource}{suffix}" for suffix in beside]
            addresses += [f"{resource}/children/{name}" for name in children]
        return addresses
