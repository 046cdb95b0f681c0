"""
How it is spread over days and hours, and what is planted among it.
"""

import gzip
import json
import math
import time as clock
from pathlib import Path
from random import Random
from typing import Any

from synthetic.acts import SECOND, Acts, Line
from synthetic.world import ATTACKER, DEAF, LOOPING, ORPHAN, UNHEARD, Runtime, World

HOUR = 3600 * SECOND
START = 1_785_456_000 * SECOND  # 2026-07-31T00:00Z
LAST = 3 * 60 * SECOND  # nothing begins so close to the end of the log
BAD = 4  # lines that are none of the log
TORN = '{"v":1,"kind":"message","time":17855\n'
FOREIGN = '{"level":"info","msg":"not ours"}\n'


def generate(
    out: Path,
    lines: int,
    seed: int,
    days: int = 4,
    nodes: int = 3,
    hot: float = 0.0,
    hours: int = 24,
    plain: bool = False,
) -> dict[str, Any]:
    """
    Write a log of exactly so many valid lines into `out`, and a few others; return what is in it.

    Each day has its first `hours`; files of all days but the last are compressed, unless `plain`.
    """
    random = Random(seed)
    world = World(random, lines, nodes)
    plan = _Plan(world, Acts(world, hot), lines + BAD, days, hours)
    out.mkdir(parents=True, exist_ok=True)
    later: list[Line] = []
    quotas = plan.quotas()
    for index, quota in enumerate(quotas):
        begin = plan.begin(index)
        made = later + plan.hour(index, quota)
        if index == len(quotas) - 1:  # nothing comes after the end of the log
            made = [line if line[1] < begin + HOUR else _moved(line, begin + HOUR - 1) for line in made]
        now = [line for line in made if line[1] < begin + HOUR]
        # What an act leaves for an hour that is not in the plan comes in the next that is.
        following = plan.begin(index + 1)
        later = [line for line in made if line[1] >= begin + HOUR]
        later = [line if line[1] >= following else _postponed(line, following) for line in later]
        _write(out, world, begin, now, compressed=not plain and index // hours < days - 1)
    truth = plan.truth() | {"lines": lines, "bad": BAD}
    (out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    return truth


def _postponed(line: Line, until: int) -> Line:
    return _moved(line, until + line[1] % SECOND)


def _moved(line: Line, to: int) -> Line:
    node, time, text = line
    return node, to, text.replace(f'"time":{time}', f'"time":{to}')


def _write(out: Path, world: World, begin: int, lines: list[Line], compressed: bool) -> None:
    stamp = clock.strftime("%Y%m%dT%H", clock.gmtime(begin // SECOND))
    texts: list[list[tuple[int, str]]] = [[] for _ in world.nodes]
    for node, time, text in lines:
        texts[node].append((time, text))
    for node, found in enumerate(texts):
        found.sort(key=lambda line: line[0])
        path = out / f"traffic-{world.nodes[node]}-{stamp}.jsonl"
        data = "".join([text for _, text in found]).encode()
        if compressed:
            path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(data, 1, mtime=0))
        else:
            path.write_bytes(data)


class _Plan:
    """
    The planted things, each in an hour of its own on the last day.
    """

    def __init__(self, world: World, acts: Acts, lines: int, days: int, hours: int) -> None:
        self._world = world
        self._acts = acts
        self._lines, self._days, self._hours = lines, days, hours
        last = (days - 1) * hours
        self._busy, self._attack, self._storm, self._loop = (
            last + hours * part // 12 for part in (2, 4, 6, 8)
        )
        self._attacks = max(15, lines // 50)
        self._loops = 40 if lines >= 2000 else 12

    def begin(self, index: int) -> int:
        day, hour = divmod(index, self._hours)
        return START + (day * 24 + hour) * HOUR

    def quotas(self) -> list[int]:
        """
        How many lines each hour has: more by day than by night, and five times as many in the busy hour.
        """
        weights = [
            1.3
            - math.cos(2 * math.pi * (i % self._hours + 1) / self._hours)
            + 0.05 * self._world.random.random()
            for i in range(self._days * self._hours)
        ]
        weights[self._busy] *= 5
        planted = (
            (0, 2 + BAD),
            (self._attack, self._attacks),
            (self._storm, 2 * len(self._storming())),
            (self._loop, self._loops),
        )
        left = self._lines - sum(number for _, number in planted)
        quotas = [int(left * weight / sum(weights)) for weight in weights]
        quotas[self._busy] += left - sum(quotas)
        for index, number in planted:
            quotas[index] += number
        return quotas

    def hour(self, index: int, quota: int) -> list[Line]:
        """
        The lines that begin in this hour.
        """
        random, acts, begin = self._world.random, self._acts, self.begin(index)
        lines = self._planted(index, begin)
        span = HOUR - (LAST if index == self._days * self._hours - 1 else 0)
        while len(lines) < quota:
            lines += acts.any(begin + int(random.random() * span), quota - len(lines))
        return lines

    def _planted(self, index: int, begin: int) -> list[Line]:
        lines: list[Line] = []
        if index == 0:
            lines += self._first(begin)
        if index == self._attack:
            lines += [self._refused(begin + 600 * SECOND + i * 5_000_000) for i in range(self._attacks)]
        if index == self._storm:
            lines += self._all_come_back(begin + 1800 * SECOND)
        if index == self._loop:
            lines += self._ask_again(begin + 120 * SECOND)
        return lines

    def _first(self, begin: int) -> list[Line]:
        """
        A subscription to what is never published, a publication that nobody hears, and lines that are none.
        """
        acts, someone = self._acts, self._world.runtimes[-1]
        bad = [(0, begin + i, TORN if i % 2 else FOREIGN) for i in range(BAD)]
        acts.counts["no-route"] += 1
        unheard = acts.message(
            someone, begin + 9, "update", UNHEARD.removesuffix("/changes"), UNHEARD, 99, "no-route", 0, 8
        )
        return [acts.subscribe(someone, begin + 8, ORPHAN), unheard, *bad]

    def _refused(self, time: int) -> Line:
        place = f'"session":"{ATTACKER}","connector":"websocket","peer":"203.0.113.66:4444",'
        attacker = Runtime(ATTACKER, ATTACKER, 0, place)
        return self._acts.message(
            attacker, time, "create", ATTACKER, "hyperty://example.org/victim", 90, "refused", 0, 0,
            more=',"code":403',
        )  # fmt: skip

    def _all_come_back(self, begin: int) -> list[Line]:
        lines = []
        for runtime in self._storming():
            time = begin + int(self._world.random.random() * 50 * SECOND)
            lines += [self._acts.event(runtime, time, "detached")]
            lines += [self._acts.event(runtime, time + SECOND, "attached")]
        return lines

    def _storming(self) -> list[Runtime]:
        here = [runtime for runtime in self._world.runtimes if runtime.node == 0]
        wanted = max(25, min(200, self._lines // 15), self._lines // 500)
        return (here * (wanted // len(here) + 1))[:wanted]

    def _ask_again(self, begin: int) -> list[Line]:
        place = f'"session":"{LOOPING}","connector":"line","peer":"192.0.2.250:999",'
        looping = Runtime(LOOPING, LOOPING, 0, place)
        lines = [
            self._acts.message(
                looping, begin + i * SECOND, "read", LOOPING, DEAF, 100, "delivered", 1, 30, id=7
            )
            for i in range(self._loops)
        ]
        self._acts.counts["exchanges"] += self._loops
        self._acts.counts["unanswered"] += self._loops
        return lines

    def truth(self) -> dict[str, Any]:
        """
        What a tool should find.
        """
        return {
            "counts": dict(self._acts.counts) | {"attacks": self._attacks},
            "busy": self._when(self._busy),
            "attack": {"address": ATTACKER, "number": self._attacks, **self._when(self._attack)},
            "storm": {
                "node": self._world.nodes[0],
                "time": self.begin(self._storm) + 1800 * SECOND,
                "number": len(self._storming()),
            },
            "loop": {"address": LOOPING, "to": DEAF, "number": self._loops, **self._when(self._loop)},
            "orphan": ORPHAN,
            "unheard": UNHEARD,
        }

    def _when(self, index: int) -> dict[str, Any]:
        moment = clock.gmtime(self.begin(index) // SECOND)
        return {"date": clock.strftime("%Y-%m-%d", moment), "hour": moment.tm_hour}
