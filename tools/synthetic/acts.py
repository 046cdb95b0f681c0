"""
What happens: each act is a few lines, with the node and the moment of each.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TypeVar
from uuid import UUID

from synthetic.world import CONNECTORS, NODE, REGISTRY, SERVICE, Runtime, World

SECOND = 1_000_000_000
Some = TypeVar("Some")
Line = tuple[int, int, str]  # node, nanoseconds, text

_CAUSES = ((401, 5), (403, 3), (400, 1), (413, 1), (429, 2))


class Acts:
    """
    Makes lines, and counts what a tool should find in them.
    """

    def __init__(self, world: World, hot: float) -> None:
        self._world = world
        self._random: Random = world.random
        self._hot = hot
        self._id = 0
        self.counts: Counter[str] = Counter()
        kinds: list[tuple[Callable[[int], list[Line]], int]] = [
            (self.publish, 40),
            (self.exchange, 38),
            (self.bind, 6),
            (self.reconnect, 2),
            (self.live, 1),
            (self.visit, 3),
            (self.announce, 1),
            (self.refuse, 1),
            (self.miss, 1),
        ]
        self._kinds = [act for act, weight in kinds for _ in range(weight)]

    def any(self, time: int, room: int) -> list[Line]:
        """
        Something at this moment, in at most `room` lines.
        """
        if room < 12:
            return self.publish(time)
        return self._kinds[int(self._random.random() * len(self._kinds))](time)

    # -- messages ----------------------------------------------------------

    def publish(self, time: int) -> list[Line]:
        """
        A reporter changes its object.
        """
        reporter, url, observers = self._pick(self._world.objects)
        size = 150 + int(self._random.expovariate(0.004))
        self.counts["publications"] += 1
        return [
            self.message(
                reporter, time, "update", url, f"{url}/changes", size, "delivered", observers, self._micros()
            )
        ]

    def exchange(self, time: int) -> list[Line]:
        """
        A request, most often with an answer, sometimes with provisional ones before it.
        """
        random = self._random
        asker = self._world.runtimes[0] if random.random() < self._hot else self._pick(self._world.runtimes)
        asked = self._pick(self._world.runtimes)
        self._id += 1
        id, type = self._id, random.choice(("create", "read", "execute"))
        nodes = (asker.node,) if random.random() < 0.9 else tuple({asker.node: 0, asked.node: 0})
        passed = time
        lines = []
        for node in nodes:
            lines.append(self._hop(asker, asked, node, passed, type, id))
            passed += 2_000_000
        self.counts["exchanges"] += len(nodes)
        if random.random() < 0.03:
            self.counts["unanswered"] += len(nodes)
            return lines
        moment = passed
        for _ in range(1 if random.random() < 0.9 else 2 + int(random.random() * 2)):
            moment += int(random.lognormvariate(17.5, 1.0))
            for late, node in enumerate(reversed(nodes)):
                lines.append(self._hop(asked, asker, node, moment + late * 2_000_000, "response", id))
        return lines

    def _hop(self, sender: Runtime, to: Runtime, node: int, time: int, type: str, id: int) -> Line:
        size = 120 + int(self._random.expovariate(0.003))
        return self.message(
            sender,
            time,
            type,
            sender.hyperty,
            to.hyperty,
            size,
            "delivered",
            1,
            self._micros(),
            id,
            node=node,
        )

    def bind(self, time: int) -> list[Line]:
        """
        A runtime subscribes to an object.
        """
        runtime, (_, url, _) = self._pick(self._world.runtimes), self._pick(self._world.objects)
        return [self.subscribe(runtime, time, f"{url}/changes")]

    def subscribe(self, runtime: Runtime, time: int, address: str) -> Line:
        self.counts["answered"] += 1
        more = f',"code":200,"resources":["{address}"]'
        line = self.message(
            runtime, time, "subscribe", f"{runtime.url}/sm", SERVICE, 210, "answered", 0, 90, more=more
        )
        return line

    def visit(self, time: int) -> list[Line]:
        """
        Somebody without a session asks over HTTP: the registry, which the node answers, or a hyperty.
        """
        random, asked = self._random, self._pick(self._world.runtimes)
        visitor = self._world.visitor(UUID(int=random.getrandbits(128), version=4), asked.node)
        self.counts["visits"] += 1
        if random.random() < 0.5:
            self.counts["answered"] += 1
            micros = 4000 + self._micros()
            return [
                self.message(
                    visitor, time, "read", visitor.url, REGISTRY + "/", 240, "answered", 0, micros,
                    more=',"code":200',
                )
            ]  # fmt: skip
        self._id += 1
        self.counts["exchanges"] += 1
        answered = time + int(random.lognormvariate(17.5, 1.0))
        return [
            self._hop(visitor, asked, asked.node, time, "read", self._id),
            self._hop(asked, visitor, asked.node, answered, "response", self._id),
        ]

    def announce(self, time: int) -> list[Line]:
        """
        A runtime wants to know who comes and goes at a hyperty, and the node tells it.
        """
        watcher, watched = self._pick(self._world.runtimes), self._pick(self._world.runtimes)
        address = f"{watched.hyperty}/registration"
        told = time + SECOND + int(self._random.random() * 60 * SECOND)
        self.counts["announcements"] += 1
        own = Runtime(REGISTRY, REGISTRY, watcher.node, NODE)
        return [
            self.subscribe(watcher, time, address),
            self.message(own, told, "update", REGISTRY, address, 190, "delivered", 1, 0),
        ]

    def refuse(self, time: int) -> list[Line]:
        """
        The node does not accept a message.
        """
        runtime, to = self._pick(self._world.runtimes), self._pick(self._world.runtimes)
        code = self._random.choices([c for c, _ in _CAUSES], [w for _, w in _CAUSES])[0]
        self.counts["refused"] += 1
        more = f',"code":{code}'
        return [
            self.message(
                runtime, time, "create", runtime.hyperty, to.hyperty, 300, "refused", 0, 0, more=more
            )
        ]

    def miss(self, time: int) -> list[Line]:
        """
        Nobody is there.
        """
        runtime = self._pick(self._world.runtimes)
        to = f"hyperty://{self._random.choice(('example.org', 'nowhere.example'))}/gone"
        self.counts["no-route"] += 1
        return [self.message(runtime, time, "update", runtime.hyperty, to, 180, "no-route", 0, 12)]

    def message(
        self,
        runtime: Runtime,
        time: int,
        type: str,
        from_: str,
        to: str,
        size: int,
        outcome: str,
        recipients: int,
        micros: int,
        id: int | None = None,
        more: str = "",
        node: int | None = None,
    ) -> Line:
        if id is None:
            self._id += 1
            id = self._id
        if node is None:
            node = runtime.node
        text = (
            f'{{"v":1,"kind":"message","time":{time},"node":"{self._world.nodes[node]}",{runtime.place}'
            f'"type":"{type}","id":{id},"from":"{from_}","to":"{to}","bytes":{size},"outcome":"{outcome}",'
            f'"recipients":{recipients},"waiting":0{more},"micros":{micros}}}\n'
        )
        return node, time, text

    # -- sessions ----------------------------------------------------------

    def live(self, time: int) -> list[Line]:
        """
        A session of some minutes, from the first event to the last.
        """
        self._id += 1
        domain, node = self._random.choice(("example.org", "example.net")), self._id % len(self._world.nodes)
        url = f"runtime://{domain}/visitor{self._id}"
        peer = f"198.51.100.7:{self._id % 60000}"
        place = f'"session":"{url}","connector":"{CONNECTORS[self._id % 5]}","peer":"{peer}",'
        visitor = Runtime(url, url, node, place)
        length = int(self._random.expovariate(1 / 300)) * SECOND
        self.counts["lives"] += 1
        return [
            self.event(visitor, time, "opened"),
            self.event(visitor, time + 10_000, "attached"),
            self.event(visitor, time + length + SECOND, "closed"),
        ]

    def reconnect(self, time: int) -> list[Line]:
        """
        A connection is lost, and back after some seconds.
        """
        runtime = self._pick(self._world.runtimes)
        away = int(self._random.expovariate(0.1) * SECOND)
        lines = [] if runtime.awake else [self.event(runtime, time - 1, "attached")]
        runtime.awake = True
        return [*lines, self.event(runtime, time, "detached"), self.event(runtime, time + away, "attached")]

    def event(self, runtime: Runtime, time: int, event: str) -> Line:
        place = runtime.place if event not in ("opened", "expired") else runtime.place.partition(",")[0] + ","
        text = (
            f'{{"v":1,"kind":"session","time":{time},"node":"{self._world.nodes[runtime.node]}",'
            f'{place}"event":"{event}"}}\n'
        )
        return runtime.node, time, text

    # -- chance ------------------------------------------------------------

    def _pick(self, some: list[Some]) -> Some:
        # Few are busy, many are not.
        return some[int(self._random.random() ** 2 * len(some))]

    def _micros(self) -> int:
        return 20 + int(self._random.expovariate(0.015))
