"""
Whatever a peer sends: it is refused and counted, no part of the node fails, and its own clients are served.
"""

import json
import random
from typing import Any

import msgspec
import pytest
from twisted.logger import globalLogPublisher

from msgnode.links.exchange.passing.origins import REDIRECTS
from msgnode.links.stream.streams import SEVERAL, Envelope, Hop, Origin
from tests.support.fuzz import TIMES
from tests.support.links_exchange import NOW, DomainClient, MemoryNetwork
from tests.support.policy_case import rule

DOMAINS = "a.example", "b.example", "c.example"
ALLOCATION = "domain://msg-node.b.example/hyperty-address-allocation"
STEPS = 1000

ADDRESSES = [
    *(f"hyperty://{domain}/ann" for domain in (*DOMAINS, "d.example")),
    "hyperty://b.example/desk",
    "hyperty://b.example/" + "x" * 2000,
    "hyperty://b.example/" + "x" * 2200,
    "comm://b.example/room",
    "comm://b.example/room/changes",
    "runtime://b.example/ann",
    ALLOCATION,
    "domain://registry.b.example",
    "domain://msg-node.b.example/sm",
    "domain://msg-node.a.example/links",
    "global://registry",
    "mn:/session",
    "mn:/receipt",
    "mn://b.example/n1",
    "HYPERTY://B.EXAMPLE/ann",
    "",
    "\ud800",
]
IDS = [1, 0, -5, 2**63 - 1, "", "x" * 1024, "x" * 1025, "é" * 3000, "\0"]
NODES = [*(f"mn://{domain}/n1" for domain in (*DOMAINS, "d.example")), "nonsense", ""]


class Peer:
    """
    A source of what a peer may send, by chance.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.pick = self.chance.choice

    def body(self) -> Any:
        addresses = [self.pick(ADDRESSES) for _ in range(3)]
        allocated = self.pick([[], None, addresses, [[1]], {}, ["hyperty://b.example/new"] * 2])
        return self.pick(
            [
                {},
                {"code": self.pick([100, 200, 404, 504, -1, "200", None, 2**40])},
                {"code": 200, "value": self.pick([None, 1, {"allocated": allocated}])},
                {"value": {"number": self.pick([1, 3, 0, True, "x", 10**30])}, "childrenResources": ["k"]},
                {"resource": self.pick(ADDRESSES), "childrenResources": [["a", ["b"]], "c"]},
                {"resources": addresses},
            ]
        )

    def message(self) -> dict[str, Any]:
        kinds = ["create", "read", "update", "response", "delete", "subscribe", "receipt", "RESPONSE", "x"]
        to = self.pick([self.pick(ADDRESSES), self.pick(ADDRESSES), [self.pick(ADDRESSES), "x"]])
        fields = {"id": self.pick(IDS), "type": self.pick(kinds), "from": self.pick(ADDRESSES), "to": to}
        more = {"receipt": True, "forward": True, "ttl": 1e9, "log": False, "transaction": "t", "token": "x"}
        return {
            **fields,
            "body": self.body(),
            **{key: more[key] for key in more if self.chance.random() < 0.2},
        }

    def origin(self) -> Origin | None:
        hop = Hop(
            self.pick(NODES), self.pick(ADDRESSES[:4]), self.pick([*DOMAINS, ""]), self.pick([True, False])
        )
        at = int(NOW) + self.pick([0, -(10**6), 10**6])
        return self.pick([None, Origin(self.pick(NODES), at, 60, b"?", [hop] * self.pick([0, 1, 9]))])

    def envelope(self, kind: str) -> Envelope:
        id = self.pick([b"", b"f" * 16]), self.pick([0, 1, -1, 2**62])
        identity = self.pick([{}, {"user": "u@a.example"}, {"user": "u@b.example"}, {"user": "u" * 5000}])
        return Envelope(
            kind,
            id,
            self.pick([0, 1000, -5, 10**12]),
            self.pick([5, 0, 9, -1, 100]),
            transaction=self.pick([None, "t" * 100, 5]),
            code=self.pick([0, 200, 404, 99999]),
            text=self.pick(["", "x\n" * 50]),
            reason=self.pick(["", "stale", "No word"]),
            identity=identity,
            origin=self.origin(),
        )

    def receipt(self) -> list[Any]:
        path = self.pick([[], [[self.pick(NODES), 2**63]], [["n" * 600, 1]], None])
        return [self.pick(IDS), self.pick(ADDRESSES[:-1]), self.pick(ADDRESSES[:-1]), path]

    def entry(self) -> Any:
        room, number = ["comm://b.example/room"], self.chance.randrange(9)
        lease = self.pick([0.0, -1.0, 1e300, float("nan")])
        ask = ["ask", number, 1, self.pick(ADDRESSES[:-1]), self.pick([room, ["x"] * 501])]
        answer = ["answer", number, [200, 404], "", "", lease]
        revoke, release = ["revoke", number, 1, room], ["release", number, 1, room]
        return self.pick([ask, answer, revoke, release, ["begin", number], ["end", number], [], None])


def written(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode()


class World:
    """
    Three domains with a client each; one redirects and lets others allocate.
    """

    def __init__(self, seed: int) -> None:
        self.peer = Peer(seed)
        self.network = network = MemoryNetwork(*DOMAINS)
        network["b.example"].use(
            rule("permit", {"msgTo": {"equals": ALLOCATION}}),
            rule(
                "permit", {"msgTo": {"like": "*/desk"}}, obligations={"redirect": "hyperty://c.example/ann"}
            ),
        )
        network.features[network["b.example"].name] = {REDIRECTS}
        self.clients: list[DomainClient] = [network[domain].client("ann") for domain in DOMAINS]

    def step(self) -> None:
        peer, network = self.peer, self.network
        here, there = peer.chance.sample(DOMAINS, 2)
        exchange, source, way = network[here].exchange, network[there].name, ((network[there].name, 5),)
        match peer.chance.randrange(7):
            case 0:
                peer.pick(self.clients).tell(peer.message())
            case 1:
                exchange.received(
                    source, peer.envelope("message"), written(peer.message()), way, lambda: None
                )
            case 2:
                several = iter([written(peer.message()) for _ in range(peer.pick([1, 5]))])
                exchange.received_several(source, peer.envelope(SEVERAL), several, way, lambda: lambda: None)
            case 3:
                payload = msgspec.msgpack.encode(peer.receipt())
                exchange.received(source, peer.envelope("receipt"), payload, (), lambda: None)
            case 4:
                kind = peer.pick(["subscription", "session", "directory", "receipt"])
                payload = msgspec.msgpack.encode(peer.entry())
                exchange.received(source, peer.envelope(kind), payload, (), lambda: None)
            case 5:
                self._disturb(here, there)
            case _:
                network.flow()

    def _disturb(self, here: str, there: str) -> None:
        network = self.network
        match self.peer.chance.randrange(4):
            case 0:
                network.cut.add(frozenset((network[here].name, network[there].name)))
            case 1:
                network.cut.clear()
            case 2:
                network[here].exchange.restarted(network[there].name)
            case _:
                network.clock.advance(self.peer.pick([1, 20]))


@pytest.mark.parametrize("seed", range(2 * TIMES))
def test_whatever_a_peer_sends(seed):
    """
    Nothing raises, nothing is logged as a failure of the node, and clients of the domains reach each other
    afterwards.
    """
    failures: list[Any] = []
    observer = lambda event: failures.append(event) if "log_failure" in event else None  # noqa: E731
    globalLogPublisher.addObserver(observer)
    try:
        world = World(seed)
        for _ in range(STEPS):
            world.step()
    finally:
        globalLogPublisher.removeObserver(observer)
    network = world.network
    network.cut.clear()
    network.flow()
    ann, bob = network["a.example"].client("al"), network["b.example"].client("bob")
    ann.request(bob.hyperty, id="good")
    network.flow()

    assert [event["log_failure"].getTraceback() for event in failures] == []
    assert [each["id"] for each in bob.take()] == ["good"]
    assert all(network[domain].exchange.counts["failed"] == 0 for domain in DOMAINS)
