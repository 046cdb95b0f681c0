"""
Who there is: domains, nodes, runtimes with their hyperties, objects with their observers.
"""

from dataclasses import dataclass, field
from random import Random
from uuid import UUID

DOMAINS = ("example.org", "example.net", "phones.example", "home.example", "city.example")
CONNECTORS = ("websocket", "websocket", "socketio", "line", "poll")
SERVICE = "domain://msg-node.example.org/sm"
REGISTRY = "domain://registry.example.org"
NODE = '"connector":"node",'  # of what the node publishes itself: no session, no peer
ATTACKER = "runtime://attacker.example/a"
LOOPING = "hyperty://home.example/stuck"
DEAF = "hyperty://example.net/deaf"
ORPHAN = "comm://example.org/orphan/changes"
UNHEARD = "comm://example.org/unheard/changes"


@dataclass
class Runtime:
    """
    A client; `place` is what every line of its says about where it is connected.
    """

    url: str
    hyperty: str
    node: int
    place: str = field(repr=False)
    awake: bool = False


class World:
    """
    As many runtimes and objects as the number of lines can keep busy.
    """

    def __init__(self, random: Random, lines: int, nodes: int) -> None:
        self.random = random
        self.nodes = [f"mn{number}" for number in range(1, nodes + 1)]
        size = max(20, min(20_000, lines // 200))
        self.runtimes = [self._runtime(number) for number in range(size)]
        self.objects = [self._object(number) for number in range(max(5, size // 4))]

    def _runtime(self, number: int) -> Runtime:
        random = self.random
        domain = DOMAINS[min(int(random.expovariate(0.9)), len(DOMAINS) - 1)]
        guid = f"{random.getrandbits(64):016x}"
        url = f"runtime://{domain}/{guid}"
        connector = random.choice(CONNECTORS)
        peer = f"192.0.2.{number % 250 + 1}:{20000 + number % 40000}"
        place = f'"session":"{url}","connector":"{connector}","peer":"{peer}",'
        return Runtime(url, f"hyperty://{domain}/{guid}", number % len(self.nodes), place)

    def visitor(self, name: UUID, node: int) -> Runtime:
        """
        Whoever posts without a session: a runtime of the node's domain for as long as the request.
        """
        url = f"runtime://example.org/public/rest/{name}"
        peer = f"203.0.113.{name.int % 60 + 1}:{30000 + name.int % 20000}"
        return Runtime(url, url, node, f'"session":"{url}","connector":"rest","peer":"{peer}",')

    def _object(self, number: int) -> tuple[Runtime, str, int]:
        reporter = self.runtimes[number % len(self.runtimes)]
        domain = reporter.url.split("/")[2]
        observers = min(int(self.random.paretovariate(1.1)), 2000)
        return reporter, f"comm://{domain}/{self.random.getrandbits(48):012x}", observers
