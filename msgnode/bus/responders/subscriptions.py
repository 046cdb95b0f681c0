"""
Subscriptions: a session gets the messages that are published at an address.

The session that sends the request is subscribed; `source` is only information for people, because most
sources that runtimes send are bound to no session.
"""

from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from msgnode.bus.components import ForeignSubscriptions
from msgnode.bus.objects.catch_up import CatchUps
from msgnode.bus.objects.channels import object_of
from msgnode.bus.responders.bindings import Binder, Making, Requests, flatten_strings
from msgnode.bus.routing_table import RoutingTable
from msgnode.config.schema import Limits
from msgnode.policy.enforcement.points import SUBSCRIBE, Policy
from msgnode.protocol.address import Domain
from msgnode.protocol.errors import NotOffered, Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.allocation_keys import key_size
from msgnode.sessions.routing import ALLOCATED, SUBSCRIBED
from msgnode.sessions.session import Session
from msgnode.structures.time_slices import ADDRESSES

TIMED_OUT = 504  # the code if another domain has not answered yet
MAX_SINCE = 100  # addresses in a request with `since`
_LISTS = ("resources", "subscribe", "unsubscribe")
_CHILDREN = ("childrenResources", "children")
# Path segments of an object that are not names of its children.
_NO_CHILD = frozenset({"", "changes", "subscription", "children", "registration", "status"})


class MayServe(Protocol):
    """
    A function that decides if a session may serve an address of the node's own.
    """

    def __call__(self, address: str, message: Message, session: Session) -> bool: ...


class Subscription:
    """
    The responder to `subscribe` and `unsubscribe` at the Subscription Manager's address.

    A request names at most `limits.addresses_per_request` addresses, and makes no more of them than Making
    allows for its size; no more than ADDRESSES are bound, released or checked in one turn.
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
        self.foreign: ForeignSubscriptions | None = None
        self.catch_ups: CatchUps | None = None
        # May a session serve this address of the node's own?
        self.may_serve: MayServe = lambda address, message, session: False

    def respond(self, message: Message, session: Session) -> Message | Deferred[Message]:
        """
        Answers a bare 200.
        """
        kind = message.type.lower()
        body = message.fields()
        if kind == "subscribe" and body.get("since") is not None:
            return self._subscribe_since(message, body, session)
        return self._respond(message, kind, body, session)

    def _respond(
        self, message: Message, kind: str, body: dict[str, Any], session: Session
    ) -> Message | Deferred[Message]:
        addresses: list[str] = []  # the processed addresses
        fresh: list[str] = []  # those to which the session was not bound before
        if kind == "subscribe":
            steps = self._bind(message, body, session, addresses, fresh)
        elif kind == "unsubscribe":
            steps = self._unbind(self._to_unbind(message, body, session), session, addresses)
        else:
            raise Rejected(f"subscription understands subscribe and unsubscribe, not {message.type!r}")

        def reply() -> Message:
            message.resources = addresses
            return message.reply({"code": 200})

        answer = self._requests.answer(message, steps, reply)
        if kind == "unsubscribe" or self.foreign is None:
            return answer
        if isinstance(answer, Message):
            return self._ask_domains(answer, message, addresses, fresh, session)
        return answer.addCallback(self._ask_domains, message, addresses, fresh, session)

    # -- with what was missed ------------------------------------------------------------

    def _subscribe_since(self, message: Message, body: dict[str, Any], session: Session) -> Deferred[Message]:
        """
        Subscribes, and delivers what was published since a version of the object, before what comes now.
        """
        catch_ups = self.catch_ups
        if catch_ups is None:
            raise NotOffered("this node delivers nothing of before; subscribe without 'since'")
        object, since = self._object_of(body), _version(body["since"])
        catching = catch_ups.begin(object, since, message, session)
        fresh = [address for address in self._named(body) if address not in session.bindings]
        subscribed: Deferred[Any] = maybeDeferred(self._respond, message, "subscribe", body, session)

        def end(why: Failure) -> Failure:
            catch_ups.end(catching)
            return why

        def unbind(why: Failure) -> Failure:
            for address in fresh:
                self._routes.unbind(address, session, ~ALLOCATED)
            return why

        def run(answer: Message) -> Deferred[Any]:
            return catch_ups.run(catching).addErrback(unbind)

        return subscribed.addErrback(end).addCallback(run)

    def _named(self, body: dict[str, Any]) -> list[str]:
        named, resources, names = self._read(body)
        if len(named) + len(resources) > MAX_SINCE or names:
            raise Rejected(
                f"with 'since', name at most {MAX_SINCE} addresses, and no children's names",
                413,
                reason="limit",
            )
        return [*named, *(address for each in resources for address in (each, f"{each}/changes"))]

    def _object_of(self, body: dict[str, Any]) -> str:
        """
        The one object that a request with `since` is about.
        """
        found = {object_of(address) for address in self._named(body)} - {""}
        if len(found) != 1:
            raise Rejected("with 'since', name the '/changes' and '/children/' of one object")
        return found.pop()

    def _ask_domains(
        self, answer: Message, message: Message, addresses: list[str], fresh: list[str], session: Session
    ) -> Message | Deferred[Message]:
        """
        The answer, when the domains that decide about the addresses have permitted them.

        A domain that does not answer in time is asked again: the addresses stay bound.
        """
        assert self.foreign is not None
        asked = self.foreign.subscribe(message, addresses, session)
        if asked is None:
            return answer

        def failed(why: Failure) -> Failure:
            if not isinstance(why.value, Rejected) or why.value.code != TIMED_OUT:
                for address in fresh:
                    self._routes.unbind(address, session, ~ALLOCATED)
            return why

        return asked.addCallbacks(lambda done: answer, failed)

    def _unbind(self, meant: Iterator[str], session: Session, addresses: list[str]) -> Iterator[None]:
        for done, address in enumerate(meant):
            if done and done % ADDRESSES == 0:
                yield
            self._routes.unbind(address, session, ~ALLOCATED)
            addresses.append(address)

    @staticmethod
    def _ask(policy: Policy, message: Message, session: Session) -> Callable[[str, int], None]:
        """
        A function that raises Blocked if the policies do not permit one of the addresses.
        """
        topic = copy(message)  # one for all: the limits count messages

        def ask(address: str, number: int) -> None:
            topic.to = address
            policy.check(SUBSCRIBE, topic, session, number)

        return ask

    def _bind(
        self,
        message: Message,
        body: dict[str, Any],
        session: Session,
        addresses: list[str],
        fresh: list[str],
    ) -> Iterator[None]:
        """
        Binds the addresses in every spelling of docs/protocol.md, "Subscriptions"; raises Rejected if they
        would be too many.

        `resource` O with children n means O, O/changes, O/children/, O/children/n and O/n.
        """
        named, resources, names = self._read(body)
        channels = ["/changes", "/children/"] if names else ["/changes"]
        self._check(message, named, resources, channels, names)
        by_name = set(named) if names else set()
        known = session.children if session.children is not None else ()
        size = sum(key_size(resource) for resource in set(resources) if names and resource not in known)
        children: dict[str, int] = {}  # each child, with the length of its object

        def meant() -> Iterator[str]:
            yield from named
            for resource in resources:
                yield resource
                for suffix in channels:
                    yield resource + suffix
                for name in names:
                    for child in _spelt(resource, name):
                        if child not in by_name:
                            children[child] = len(resource)
                        yield child

        def noted() -> Iterator[str]:
            for address in meant():
                addresses.append(address)
                if self.foreign is not None and address not in session.bindings:
                    fresh.append(address)
                yield address

        ask = self._ask(self.policy, message, session) if self.policy is not None else None
        may_serve = partial(self.may_serve, message=message, session=session)
        return self._binder.bind(noted(), session, SUBSCRIBED, ask, size, children, may_serve)

    def _to_unbind(self, message: Message, body: dict[str, Any], session: Session) -> Iterator[str]:
        """
        The addresses to unbind: O/children/ is included even without children, because observers unsubscribe
        from less than they subscribed to.

        O alone also means everything that was bound as its children.
        """
        named, resources, names = self._read(body)
        channels = ["/changes", "/children/"]
        self._check(message, named, resources, channels, names)

        def meant() -> Iterator[str]:
            yield from named
            for resource in dict.fromkeys(resources):
                yield resource
                for suffix in channels:
                    yield resource + suffix
                if not names and session.children is not None:
                    yield from session.children.find(resource)
                for name in names:
                    in_full, *short = _spelt(resource, name)
                    yield in_full
                    if short and session.children is not None and session.children.of(*short) == resource:
                        yield from short

        return meant()

    def _read(self, body: dict[str, Any]) -> tuple[list[str], list[str], list[str]]:
        """
        The addresses, objects, and names of children in a request.
        """
        if all(body.get(key) is None for key in (*_LISTS, "resource")):
            raise Rejected("name the addresses in a list 'resources'")
        most = self._limits.addresses_per_request
        addresses = [address for key in _LISTS for address in flatten_strings(body.get(key), most)]
        names = [name for key in _CHILDREN for name in flatten_strings(body.get(key), most, "a child's name")]
        return addresses, flatten_strings(body.get("resource"), most), names

    def _check(
        self,
        message: Message,
        addresses: list[str],
        resources: list[str],
        channels: list[str],
        names: list[str],
    ) -> None:
        """
        Raises Rejected (413), if they would be too many, before they are made.
        """
        each = 1 + len(channels) + 2 * len(names)
        suffixes = sum(map(len, channels)) + 2 * sum(map(len, names)) + (len("/children/") + 1) * len(names)
        characters = each * sum(map(len, resources)) + suffixes * len(resources)
        most = self._limits.addresses_per_request
        Making(len(addresses) + each * len(resources), characters).check(len(message.data), most)


def _version(since: object) -> int:
    if isinstance(since, bool) or not isinstance(since, int) or not 0 <= since < 1 << 53:
        raise Rejected(f"'since' is the version of the object that you have, not {since!r}"[:200])
    return since


def _spelt(resource: str, name: str) -> list[str]:
    """
    The address of a child of an object, in both spellings if there are two.
    """
    in_full = f"{resource}/children/{name}"
    if name in _NO_CHILD or "/" in name:
        return [in_full]
    return [in_full, f"{resource}/{name}"]
