"""
The clients: publishers who observe each other and ask each other, some of today's kind, and a victim.
"""

import asyncio
import random
import time
from bisect import bisect_left
from collections import defaultdict
from typing import Any

from soaking.babble import Babbler
from soaking.client import Message, Resuming
from soaking.links import LineLink, Link, PollLink, WebSocketLink
from soaking.node import Proxy
from soaking.verdict import Verdict, judge, judge_legacy, misdelivered, remembered

SM = "domain://msg-node.localhost/sm"
TAKEN = 15.0  # seconds the node has to take a flood
NEIGHBOURS = 3  # whom each client observes
TEXT = "x" * 100


class Peer:
    """
    One client that acknowledges: it publishes, observes its neighbours, asks and answers.
    """

    def __init__(self, number: int, load: "Load") -> None:
        self.number = number
        self.load = load
        self.runtime = f"runtime://soak/{number}"
        self.client = Resuming(self.runtime, self._link, self._heard)
        self.published = self.asked = 0
        self.sent_at: dict[str, tuple[int, float]] = {}  # number of the message and time, by name
        self.got: dict[int, list[int]] = defaultdict(list)  # numbers, by publisher
        self.answers: list[int] = []
        self.doubts: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by publisher; -1: of answers
        self.client.told_null = self.subscribe
        self.refusals: list[Message] = []
        self.addresses: list[str] = []  # what messages to it were addressed to
        self.ready = asyncio.Event()

    def topic(self, number: int) -> str:
        return f"comm://soak/{number}/changes"

    def neighbours(self) -> list[int]:
        return [(self.number + step) % self.load.count for step in range(1, NEIGHBOURS + 1)]

    def subscribe(self) -> None:
        resources = [self.topic(number) for number in self.neighbours()]
        self.client.send(
            {"id": "s", "type": "subscribe", "from": self.runtime, "to": SM, "body": {"resources": resources}}
        )

    def publish(self) -> None:
        self.published += 1
        message = {
            "id": self.published,
            "type": "update",
            "from": self.runtime,
            "to": self.topic(self.number),
        }
        number = self.client.send({**message, "body": {"value": TEXT}})
        self.sent_at[f"{self.runtime} {self.published}"] = number, time.time()

    def ask(self) -> None:
        self.asked += 1
        peer = random.choice([n for n in range(self.load.count) if n != self.number])
        to = f"runtime://soak/{peer}/echo"
        self.client.send({"id": f"q{self.asked}", "type": "read", "from": self.runtime, "to": to})

    def _link(self) -> Link:
        """
        Each connection by another connector, perhaps.
        """
        kind = random.choice((WebSocketLink, LineLink, PollLink))
        return kind(self.load.lines.port if kind is LineLink else self.load.web.port)

    def _heard(self, message: Message) -> None:
        kind, id = message["type"], message["id"]
        self.addresses.append(message["to"])
        if kind == "update":
            self.got[int(message["from"].rpartition("/")[2])].append(id)
        elif kind == "read":
            self.client.send({"id": id, "type": "response", "from": message["to"], "to": message["from"]})
        elif id == "s":
            if message["body"]["code"] == 200:
                self.ready.set()
            else:
                self.subscribe()
        elif isinstance(id, str) and id.startswith("q") and "code" not in message.get("body", {}):
            self.answers.append(int(id[1:]))
        else:
            self.refusals.append(message)

    def doubt(self) -> None:
        """
        What the node had for it may be gone.
        """
        self.client.may_restart = True
        self.doubts[-1].append((len(self.answers), self.asked))
        for number in self.neighbours():
            self.doubts[number].append((len(self.got[number]), self.load.peers[number].published))

    def verdict(self) -> Verdict:
        found = judge(self.asked, self.answers, doubts=self.doubts[-1])._replace(disordered=0)
        for number in self.neighbours():
            sent = self.load.peers[number].published
            found += judge(sent, self.got[number], doubts=self.doubts[number])
        return found

    def mixed_up(self) -> int:
        allowed = {self.topic(number) for number in self.neighbours()}
        return misdelivered(self.addresses, allowed, self.runtime)


class Legacy:
    """
    A client as there are today: it opens, re-opens, and acknowledges nothing.
    """

    def __init__(self, number: int, load: "Load") -> None:
        self.runtime = f"runtime://soak/legacy-{number}"
        self.load = load
        self.got: list[int] = []
        self.got_at: list[float] = []
        self.addresses: list[str] = []  # what messages to it were addressed to
        self.doubts: list[tuple[int, int]] = []
        self._link: Link | None = None
        self._running = True

    async def run(self) -> None:
        while self._running:
            link = self._link = random.choice(
                (WebSocketLink(self.load.web.port), LineLink(self.load.lines.port))
            )
            try:
                await self._live(link)
            except Exception:
                pass
            finally:
                link.abort()
            await asyncio.sleep(random.uniform(0.1, 0.5))

    async def _live(self, link: Link) -> None:
        import json

        def say(**fields: Any) -> bytes:
            return json.dumps({"from": self.runtime, **fields}).encode()

        await link.open(say(id=1, type="open", to="mn:/session"))
        link.put(say(id="s", type="subscribe", to=SM, body={"resources": ["comm://soak/0/changes"]}), 0)
        async for data in link.messages(lambda: 0):
            message = json.loads(data or b"{}")
            self.addresses.append(message.get("to", ""))
            if message.get("type") == "update":
                self.got.append(message["id"])
                self.got_at.append(time.time())

    def lose(self) -> None:
        if self._link is not None:
            self._link.abort()

    def stop(self) -> None:
        self._running = False
        self.lose()

    def verdict(self) -> Verdict:
        found, begin, last = Verdict(), 0, 0
        for end, after in [*self.doubts, (len(self.got), 0)]:
            times = self.got_at[begin:end]
            part = remembered(self.got[begin:end], times, self.load.forgotten)
            found += judge_legacy([number for number in part if number > last])
            begin, last = end, after
        return found

    def doubt(self) -> None:
        self.doubts.append((len(self.got), self.load.peers[0].published))

    def mixed_up(self) -> int:
        return misdelivered(self.addresses, {"comm://soak/0/changes"}, self.runtime)


class Victim:
    """
    A client that is away while more is sent to it than may wait; it must be told exactly how many it missed.
    """

    def __init__(self, load: "Load") -> None:
        self.load = load
        self.runtime = "runtime://soak/victim"
        self.got: list[int] = []
        self.addresses: list[str] = []
        self.sent = 0
        self._doubt = (0, 0, 0)  # received, sent and told as missed before the last damage
        self.client = Resuming(self.runtime, lambda: LineLink(load.lines.port), self._heard)
        self.client.told_null = self.subscribe

    def _heard(self, message: Message) -> None:
        self.addresses.append(message["to"])
        if message["type"] == "update":
            self.got.append(message["id"])

    def subscribe(self) -> None:
        """
        A session that never bound anything lives for a minute only.
        """
        subscribe = {"id": "v", "type": "subscribe", "from": self.runtime, "to": SM}
        self.client.send({**subscribe, "body": {"resources": ["comm://v"]}})

    def flood(self, sender: Resuming, number: int) -> None:
        for _ in range(number):
            self.sent += 1
            sender.send(
                {"id": self.sent, "type": "update", "from": sender.runtime, "to": f"{self.runtime}/x"}
            )

    def doubt(self) -> None:
        """
        What the node had for it may be gone; it had all there was.
        """
        self.client.may_restart = True
        self._doubt = len(self.got), self.sent, self.client.missed

    def verdict(self) -> Verdict:
        index, last, missed = self._doubt
        before = judge(last, self.got[:index], missed)
        after = [number - last for number in self.got[index:] if number > last]
        return before + judge(self.sent - last, after, self.client.missed - missed)

    def mixed_up(self) -> int:
        return misdelivered(self.addresses, set(), self.runtime)


class Load:
    """
    All of them, and the proxies they connect through.
    """

    def __init__(self, web: Proxy, lines: Proxy, ports: dict[str, int], count: int, rate: float) -> None:
        self.web = web
        self.lines = lines
        self.count = count
        self.peers = [Peer(number, self) for number in range(count)]
        self.legacy = [Legacy(number, self) for number in range(max(2, count // 8))]
        self.victim = Victim(self)
        self._flooder = Resuming("runtime://soak/flooder", lambda: LineLink(lines.port), lambda message: None)
        self.babbler = Babbler(ports, self._flooder)
        # From when to when a node that was killed could not write down what it gave to clients of today.
        self.forgotten: list[tuple[float, float]] = []
        self._rate = rate
        self._tasks: list[asyncio.Task[None]] = []
        self._publishing: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        clients = [peer.client for peer in self.peers] + [self.victim.client, self._flooder]
        self._tasks = [asyncio.create_task(client.run()) for client in clients]
        self.victim.subscribe()
        for peer in self.peers:
            peer.subscribe()
        await asyncio.wait_for(asyncio.gather(*(peer.ready.wait() for peer in self.peers)), 60)
        self._tasks += [asyncio.create_task(legacy.run()) for legacy in self.legacy]
        self._publishing = [asyncio.create_task(self._publish(peer)) for peer in self.peers]

    async def _publish(self, peer: Peer) -> None:
        while True:
            await asyncio.sleep(random.expovariate(self._rate))
            peer.publish()
            if random.random() < 0.2:
                peer.ask()

    async def overflow(self, number: int) -> None:
        """
        The victim is away while so many messages are sent to it.
        """
        self.victim.client.stalled.clear()
        self.victim.client.lose()
        self.victim.flood(self._flooder, number)
        # Only when the node has all of it, more waits than may.
        deadline = time.monotonic() + TAKEN
        while self._flooder.kept and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        self.victim.client.stalled.set()

    async def be_calm(self, seconds: float) -> bool:
        """
        The victim has all that is meant for it, and its sender knows that; False: not in time.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self._flooder.kept and not sum(self.victim.verdict()) and not sum(self.babbler.verdict()):
                return True
            await asyncio.sleep(0.1)
        return False

    def doubt(self) -> None:
        """
        The node is stopped, and its files are damaged.
        """
        self._flooder.may_restart = True
        for one in (*self.peers, *self.legacy, self.victim, self.babbler):
            one.doubt()

    def fallen(self) -> int:
        """
        How many clients stopped by a mistake: of the node, or of their own.
        """
        return sum(task.done() for task in self._tasks)

    async def drain(self, seconds: float) -> bool:
        """
        Nobody sends any more; True when all has come in time.
        """
        for task in self._publishing:
            task.cancel()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            await asyncio.sleep(0.5)
            if self._is_done():
                await asyncio.sleep(1)  # what comes too much comes now
                return True
        return False

    def _is_done(self) -> bool:
        clients = [peer.client for peer in self.peers] + [self.victim.client, self._flooder]
        return (
            not any(client.kept for client in clients)
            and all(peer.verdict().lost == 0 for peer in self.peers)
            and self.victim.verdict().lost == 0
        )

    async def stop(self) -> None:
        for client in [peer.client for peer in self.peers] + [self.victim.client, self._flooder]:
            client.stop()
        for legacy in self.legacy:
            legacy.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def acknowledged(self) -> dict[str, tuple[float, float]]:
        """
        When each message was sent that the node said it has, and when it said so.
        """
        found = {}
        for peer in self.peers:
            progress = peer.client.progress
            for name, (number, when) in peer.sent_at.items():
                step = bisect_left(progress, (number, 0.0))
                if step < len(progress):
                    found[name] = when, progress[step][1]
        return found
