"""
Whole nodes of several domains in memory, joined by streams that can delay, lose, refuse and forget.
"""

import hmac
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any

import msgspec

from msgnode.links.exchange.envelopes import MessageIds
from msgnode.links.exchange.exchange import Exchange
from msgnode.links.exchange.node_parts import ExchangeOptions
from msgnode.links.overlay.network import NodeKeys
from msgnode.links.stream.body import pack, unpack
from msgnode.links.stream.streams import (
    ACKNOWLEDGED,
    NO_PATH,
    SEVERAL,
    Envelope,
    IfReplaced,
    NoRoom,
    Outcome,
    part_of,
)
from msgnode.links.wire.datagram import Datagram
from msgnode.links.wire.node_name import domain_of
from msgnode.protocol.errors import Rejected
from tests.support.fakes import Client, MemoryNode, Turns
from tests.support.policy_case import policy, policy_set, program

NOW = 1_800_000_000.0

Done = Callable[[Envelope, Outcome], None]
Sent = tuple[str, str, Envelope, bytes, Done | None]


class MemoryStreams:
    """
    The streams of one node: what it sends stays on the wire until the network moves it.

    `room` is the number of messages that may be on the wire, `drained` has nodes that accept none;
    `losing`, if set, is the outcome of each message instead of its delivery.
    """

    def __init__(self, network: "MemoryNetwork", node: str) -> None:
        self._network = network
        self._node = node
        self.room = 1_000_000
        self.losing: Outcome | None = None
        self.sent: list[tuple[str, Envelope, bytes]] = []
        self.drained: set[str] = set()
        self.senders: list[str] = []
        self.if_replaced: dict[tuple[bytes, int], IfReplaced] = {}
        self.replaced: list[tuple[str, str]] = []

    def send(
        self,
        destination: str,
        envelope: Envelope,
        payload: bytes,
        done: Done | None = None,
        sender: str = "",
        if_replaced: IfReplaced = "wait",
        is_answer: bool = False,
    ) -> None:
        if destination in self.drained and envelope.kind in ("message", SEVERAL) and not is_answer:
            raise Rejected("this domain is drained", 403, "policy")
        if len(self._network.wire) >= self.room:
            raise NoRoom("there is no room for more messages to this domain")
        self.senders.append(sender)
        copied = msgspec.msgpack.decode(msgspec.msgpack.encode(envelope), type=Envelope)
        self.sent.append((destination, copied, payload))
        self.if_replaced[copied.id] = if_replaced
        self._network.wire.append((self._node, destination, copied, payload, done))

    def send_several(
        self,
        destination: str,
        envelope: Envelope,
        payloads: list[bytes],
        ended: Callable[[Envelope, bytes, Outcome], None],
        sender: str = "",
        if_replaced: IfReplaced = "wait",
    ) -> None:
        payload = pack(payloads)

        def done(envelope: Envelope, outcome: Outcome) -> None:
            if outcome.reason != "acknowledged":
                for index, each in enumerate(payloads):
                    ended(part_of(envelope, index), each, outcome)

        self.send(destination, envelope, payload, done, sender, if_replaced)

    def would_take(self, destination: str, sender: str, messages: int, size: int) -> bool:
        return destination not in self.drained and len(self._network.wire) + messages <= self.room

    def begin_epoch(self, destination: str) -> None:
        raise NotImplementedError

    def undelivered(self, destination: str) -> int:
        return sum((node, to) == (self._node, destination) for node, to, *_ in self._network.wire)

    def waiting(self) -> Iterator[str]:
        return iter({to for node, to, *_ in self._network.wire if node == self._node})

    def replace(self, destination: str, other: str, done: Callable[[], None] = lambda: None) -> None:
        self.replaced.append((destination, other))
        wire, stays = self._network.wire, []
        while wire:
            node, to, envelope, payload, told = sent = wire.popleft()
            if (node, to) != (self._node, destination) or self.if_replaced[envelope.id] == "wait":
                stays.append(sent)
            elif self.if_replaced[envelope.id] == "move":
                stays.append((node, other, envelope, payload, told))
            elif told is not None:
                told(envelope, NO_PATH)
        wire.extend(stays)
        done()

    def forget(self, destination: str) -> int:
        raise NotImplementedError


class View:
    """
    The network as one node sees it.
    """

    def __init__(self, network: "MemoryNetwork", node: str) -> None:
        self._network = network
        self.node = node

    def send(self, datagram: Datagram) -> bool:
        raise NotImplementedError

    def keys(self, node: str) -> NodeKeys | None:
        return NodeKeys(b"", b"", b"", frozenset(self._network.features.get(node, ())))

    def has_route(self, node: str) -> bool:
        is_foreign = domain_of(node) != domain_of(self.node)
        if is_foreign and not {self.node, node}.isdisjoint(self._network.unlinked):
            return False
        return frozenset((self.node, node)) not in self._network.cut

    def nodes_of(self, domain: str) -> Iterable[str]:
        return [node for node in self._network.nodes if domain_of(node) == domain and self.has_route(node)]

    def knows(self, domain: str) -> bool:
        return domain in self._network.domains and self.node not in self._network.unlinked

    def avoid_first_hop(self, node: str) -> None:
        raise NotImplementedError


class SharedKeySigner:
    """
    A signer whose signature only the node of that name makes.
    """

    def __init__(self, node: str) -> None:
        self._node = node

    def sign(self, data: bytes) -> bytes:
        return hmac.digest(self._node.encode(), data, sha256)

    def verify(self, node: str, data: bytes, signature: bytes) -> str:
        is_good = hmac.compare_digest(SharedKeySigner(node).sign(data), signature)
        return "" if is_good else "the signature is invalid"


class DomainClient(Client):
    """
    A client with a hyperty.
    """

    hyperty = ""

    def request(self, to: Any, type: str = "create", **fields: Any) -> None:
        """
        Send a request from the hyperty.
        """
        self.tell({"id": 7, "type": type, "from": self.hyperty, "to": to, "body": {}, **fields})


class Far:
    """
    One node of a domain, with its exchange.
    """

    def __init__(
        self, network: "MemoryNetwork", domain: str, start: int = 1, node: str = "n1", **given: Any
    ) -> None:
        self.name = f"mn://{domain}/{given.pop('name', node)}"
        self.revision = 0
        self.domain = domain
        self.options = given.pop("options", None) or ExchangeOptions()
        self.node = MemoryNode(domain, clock=network.clock, **given)
        self.streams = MemoryStreams(network, self.name)
        self.exchange = Exchange(
            self.node,
            self.streams,
            View(network, self.name),
            MessageIds(domain.encode(), start),
            network.clock,
            self.node.traffic_recorder,
            self.options,
            SharedKeySigner(self.name),
            lambda: NOW + network.clock.seconds() + network.ahead.get(domain, 0.0),
        )

    def client(self, name: str) -> "DomainClient":
        """
        A client with a hyperty: it is subscribed to `hyperty://<domain>/<name>`.
        """
        client = DomainClient(self.node)
        client.open(f"runtime://{self.domain}/{name}")
        client.hyperty = f"hyperty://{self.domain}/{name}"
        self.subscribe(client, client.hyperty)
        client.take()
        return client

    def use(self, *rules: dict[str, Any]) -> None:
        """
        Make a policy with these rules live; what none of them is about is permitted.
        """
        self.revision += 1
        self.node.enforcement.use(
            program([policy_set([policy(list(rules), algorithm="firstApplicable")])]), self.revision
        )

    def subscribe(self, client: Client, *addresses: str, **fields: Any) -> None:
        client.tell(
            {
                "id": 50,
                "type": "subscribe",
                "from": f"{client.runtime}/sm",
                "to": f"domain://msg-node.{self.domain}/sm",
                "body": {"resources": list(addresses)},
                **fields,
            }
        )


class MemoryNetwork:
    """
    Several domains with one node each. `flow` moves what is on the wire, `cut` has the pairs without a route.
    `unlinked` are the nodes that have routes in their own domain only.
    """

    def __init__(self, *domains: str, **given: Any) -> None:
        self.clock = Turns()
        self.wire: deque[Sent] = deque()
        self.cut: set[frozenset[str]] = set()
        self.unlinked: set[str] = set()
        self.nodes: dict[str, Far] = {}
        self.domains: set[str] = set(domains)
        self.features: dict[str, set[str]] = {}  # by node
        self.ahead: dict[str, float] = {}  # seconds by which the wall clock of a domain is ahead
        self.acknowledged = 0
        for domain in domains:
            self.add(domain, **given)

    def add(self, domain: str, **given: Any) -> Far:
        far = Far(self, domain, **given)
        self.nodes[far.name] = far
        far.exchange.start()
        return far

    def __getitem__(self, domain: str) -> Far:
        return self.nodes[f"mn://{domain}/n1"]

    def flow(self) -> None:
        """
        Move everything that has a route, and what comes of it, until the wire is still.
        """
        waiting: deque[Sent] = deque()
        self.clock.advance(0)
        while self.wire:
            source, destination, envelope, payload, done = self.wire.popleft()
            losing = self.nodes[source].streams.losing
            if losing is not None:
                if done is not None:
                    done(envelope, losing)
            elif frozenset((source, destination)) in self.cut:
                waiting.append((source, destination, envelope, payload, done))
            else:
                self._move(source, destination, envelope, payload, done)
            self.clock.advance(0)
        self.wire.extend(waiting)

    def step(self) -> None:
        """
        Move the oldest message on the wire.
        """
        self._move(*self.wire.popleft())

    def _move(
        self, source: str, destination: str, envelope: Envelope, payload: bytes, done: Done | None
    ) -> None:
        path = ((source, 5),)
        exchange = self.nodes[destination].exchange
        if envelope.kind == SEVERAL:
            payloads = iter(unpack(payload))
            exchange.received_several(source, envelope, payloads, path, lambda: self._acknowledge)
        else:
            exchange.received(source, envelope, payload, path, self._acknowledge)
        if done is not None:
            done(envelope, ACKNOWLEDGED)
        for far in self.nodes.values():
            far.node.settle()

    def _acknowledge(self) -> None:
        self.acknowledged += 1

    def forge(self, source: str, destination: str, message: Any, **fields: Any) -> None:
        """
        Let a node send what its exchange would not.
        """
        given: dict[str, Any] = {"kind": "message", "id": (b"forged", 1), "ttl_millis": 1000, "priority": 5}
        envelope = Envelope(**{**given, **fields})
        encode = msgspec.json.encode if envelope.kind == "message" else msgspec.msgpack.encode
        self.wire.append((self[source].name, self[destination].name, envelope, encode(message), None))
        self.flow()
