"""
Subscriptions: who wants to hear what is published at an address.

The requesting session is subscribed; `source` is a name for people, because
most of the sources that runtimes send are known to nobody.
"""

from copy import copy
from typing import Any

from msgnode.address import Domain
from msgnode.binding import Binder, flat
from msgnode.errors import Rejected
from msgnode.message import Message
from msgnode.points import SUBSCRIBE, Policy
from msgnode.routes import ALLOCATED, SUBSCRIBED, RoutingTable
from msgnode.session import Session

_LISTS = ("resources", "subscribe", "unsubscribe")
_CHILDREN = ("childrenResources", "children")


class Subscription:
    """
    Answers `subscribe` and `unsubscribe` at the Subscription Manager's address.
    """

    def __init__(self, domain: Domain, routes: RoutingTable, binder: Binder) -> None:
        self.address = f"{domain.node}/sm"
        self._routes = routes
        self._binder = binder
        self.policy: Policy | None = None

    def respond(self, message: Message, session: Session) -> Message:
        """
        A bare 200.
        """
        kind = message.type.lower()
        body = message.fields()
        if kind == "subscribe":
            addresses = _named(body, everything=False)
            if self.policy is not None:
                self._ask(self.policy, message, addresses, session)
            self._binder.bind(addresses, session, SUBSCRIBED)
        elif kind == "unsubscribe":
            addresses = _named(body, everything=True)
            for address in addresses:
                self._routes.unbind(address, session, ~ALLOCATED)
        else:
            raise Rejected(f"subscription understands subscribe and unsubscribe, not {message.type!r}")
        message.resources = addresses
        return message.reply({"code": 200})

    @staticmethod
    def _ask(policy: Policy, message: Message, addresses: list[str], session: Session) -> None:
        """
        All of them, or none: Blocked if one may not be listened to.
        """
        topic = copy(message)  # one for all: what is limited is messages
        for address in addresses:
            topic.to = address
            policy.check(SUBSCRIBE, topic, session, len(addresses))


def _named(body: dict[str, Any], everything: bool) -> list[str]:
    """
    The addresses in every spelling of docs/protocol.md, "Subscriptions".

    `resource` O with children n means O, O/changes, O/children/ and
    O/children/n.  `everything`: O/children/ is meant without children too,
    because observers unsubscribe from less than they subscribed to.
    """
    if all(body.get(key) is None for key in (*_LISTS, "resource")):
        raise Rejected("name the addresses in a list 'resources'")
    addresses = [address for key in _LISTS for address in flat(body.get(key))]
    children = [name for key in _CHILDREN for name in flat(body.get(key), "a child's name")]
    for resource in flat(body.get("resource")):
        addresses += [resource, f"{resource}/changes"]
        if children or everything:
            addresses.append(f"{resource}/children/")
        addresses += [f"{resource}/children/{name}" for name in children]
    return addresses
