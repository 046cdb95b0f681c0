"""
Three real nodes on a NATS cluster of two servers, which is cut between the servers and whole again.
"""

import json
import shutil
import tempfile
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from soaking.peers.ports import free_port

from msgnode.cluster.ownership.owners import owner as owner_of
from tests.support.made_policies import document, rule
from tests.support.nats_server import NatsServer

from .background_clients import BackgroundClients
from .cable import Cable
from .clustered import DOMAIN, Member, policies, start_all, until
from .process import Lines

NAMES = ("n1", "n2", "n3")
MORE = (
    'members = ["n1", "n2", "n3"]\n'
    '[policy]\nsource = "push"\n'
    '[pools.phones]\nscheme = "sip"\npattern = "sip:guest{1..20}@a.example"\n'
)
ROUTES = 'cluster {{ name: "c", host: "127.0.0.1", port: {}, no_advertise: true, routes: [{}] }}'
COUNT = 200  # messages in each direction
LINK_SECONDS = 40.0  # until a link is down, or up again


class Domain:
    """
    Nodes n1 and n2 at one NATS server, n3 at the other, and the cable between the two servers.
    """

    def __init__(self, directory: Path) -> None:
        self.left = NatsServer(ROUTES.format(-1, ""), free_port())
        self.cable = Cable(self.left.route)
        self.right = NatsServer(ROUTES.format(-1, f'"nats://127.0.0.1:{self.cable.port}"'), free_port())
        urls = (self.left.url, self.left.url, self.right.url)
        self.nodes = [Member(directory, name, url, MORE) for name, url in zip(NAMES, urls, strict=True)]
        start_all(self.nodes)
        self.wait_until_whole()

    def ups(self) -> list[int]:
        return [list(node.members().values()).count("up") for node in self.nodes]

    def wait_until_whole(self) -> None:
        until(lambda: self.ups() == [2, 2, 2], LINK_SECONDS)

    def part(self) -> None:
        self.cable.cut()
        until(lambda: self.ups() == [1, 1, 0], LINK_SECONDS)

    def heal(self) -> None:
        self.cable.join()
        self.wait_until_whole()

    def stop(self) -> None:
        """
        The end of a test: nobody needs what nodes would hand over.
        """
        for node in self.nodes:
            if node.process is not None:
                node.kill()
        self.cable.close()
        for server in (self.left, self.right):
            server.stop()


@pytest.fixture
def domain() -> Iterator[Domain]:
    directory = Path(tempfile.mkdtemp(prefix="partition-"))
    found = Domain(directory)
    yield found
    found.stop()
    shutil.rmtree(directory, ignore_errors=True)


def lease(client: Lines, name: str, number: int) -> dict[str, Any]:
    body: dict[str, Any] = client.ask(
        {
            "id": number,
            "type": "create",
            "from": f"runtime://{DOMAIN}/{name}/x",
            "to": f"domain://msg-node.{DOMAIN}/address-allocation",
            "body": {"scheme": "sip", "value": {"number": 2}},
        }
    )["body"]
    return body


def test_messages_over_a_partition(domain: Domain) -> None:
    """
    While the servers are parted, clients of one side go on with each other, and what is for the other side
    waits; each message arrives once and in its order, those sent before, during and after.
    """
    n1, n2, n3 = domain.nodes
    with BackgroundClients(ann=n1, carl=n2, bob=n3) as clients:
        for name, to in (("ann", "bob"), ("bob", "ann"), ("ann", "carl")):
            clients.send(name, to, range(COUNT // 4))
        domain.cable.cut()
        for name, to in (("ann", "bob"), ("bob", "ann"), ("ann", "carl")):
            clients.send(name, to, range(COUNT // 4, COUNT // 2))
        until(lambda: len(clients.got("carl")) == COUNT // 2)
        until(lambda: domain.ups() == [1, 1, 0], LINK_SECONDS)
        during = len(clients.got("bob")), len(clients.got("ann"))
        for name, to in (("ann", "bob"), ("bob", "ann"), ("ann", "carl")):
            clients.send(name, to, range(COUNT // 2, 3 * COUNT // 4))
        domain.heal()
        for name, to in (("ann", "bob"), ("bob", "ann"), ("ann", "carl")):
            clients.send(name, to, range(3 * COUNT // 4, COUNT))

        until(lambda: all(len(clients.got(name)) >= COUNT for name in ("ann", "bob", "carl")), LINK_SECONDS)
        time.sleep(1.0)  # for what would be doubled

        assert max(during) <= COUNT // 2
        assert [list(range(COUNT))] * 3 == [clients.got(name) for name in ("ann", "bob", "carl")]
        assert {0} == {clients.missed(name) for name in ("ann", "bob", "carl")}


def test_policies_and_pools_over_a_partition(domain: Domain) -> None:
    """
    While the servers are parted, policies change and addresses are leased only where the node is that decides
    about them; the other side is answered 503. Afterwards all nodes have the same policies, and no address is
    leased twice.
    """
    one, two, three = (json.dumps(document(rule("permit")), indent=n).encode() for n in range(3))
    names = [node.name for node in domain.nodes]
    lines = {node.name: node.client(f"c{number}") for number, node in enumerate(domain.nodes)}
    runtimes = {node.name: f"c{number}" for number, node in enumerate(domain.nodes)}
    policies(domain.nodes[0], one)
    leased = [lease(lines[name], runtimes[name], 10)["value"]["allocated"] for name in names]

    domain.part()

    sides = (frozenset(names[:2]), frozenset(names[2:]))
    for node in domain.nodes:
        [side] = (side for side in sides if node.name in side)
        answer = lease(lines[node.name], runtimes[node.name], 11)
        if owner_of("sip", tuple(names)) in side:
            # The node that leases has heard of all of `members` before.
            assert answer["code"] == 200, answer
            leased.append(answer["value"]["allocated"])
        else:
            assert answer["code"] == 503, answer
        if owner_of("policy", tuple(names)) in side:
            policies(node, two if node.name == min(side) else three)
        else:
            with pytest.raises(urllib.error.HTTPError) as refused:
                policies(node, two)
            assert refused.value.code == 503

    domain.heal()

    until(lambda: len({policies(node) for node in domain.nodes}) == 1, LINK_SECONDS)
    until(lambda: lease(lines[names[0]], runtimes[names[0]], 12)["code"] == 200)
    for name in names:
        leased.append(lease(lines[name], runtimes[name], 13)["value"]["allocated"])
    all_leased = [address for each in leased for address in each]
    assert len(all_leased) == len(set(all_leased))
    for client in lines.values():
        client.close()
