"""
The command: which attacks, on which node, and a table of what it bore.
"""

import argparse
import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attacking.peers.node_process import Node, Unfit
from attacking.scenarios import connectors, counts, fanout, names, sums, tokens  # noqa: F401  they name their attacks
from attacking.scenarios.ground import ATTACKS, Attack, Broke, Ground

GIB = 1 << 30
SPACE = 6.0  # GiB of addresses that the node may use
LONGEST = 180  # seconds one attack may take
CANARY = Path(__file__).parents[1] / "load/canary.py"
LOGGED = 200_000  # bytes that the node may have to say
SINGING = 60.0  # seconds the canary may take to end
TOP = Path(__file__).parents[3]


@dataclass
class Result:
    """
    One attack, and what became of the node.
    """

    name: str
    does: str
    sent: int = 0
    broke: str = ""
    pause: float | None = None
    before: int = 0
    peak: int = 0
    disk: int = 0
    seconds: float = 0.0


def main(arguments: list[str]) -> int:
    """
    Exit code 0 when everything was borne, 1 when not.
    """
    parser = argparse.ArgumentParser(prog="tools/attack", description=__doc__)
    parser.add_argument("--size", choices=("small", "full"), default="small")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this attack; repeatable")
    parser.add_argument("--list", action="store_true", help="name the attacks, and end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file, too")
    parser.add_argument("--python", default=_python(), help="interpreter beside whose twistd the node is")
    parser.add_argument(
        "--space", type=float, default=SPACE, metavar="GIB", help="addresses the node may use"
    )
    options = parser.parse_args(arguments)
    try:
        attacks = chosen(options.only)
    except ValueError as why:
        parser.error(str(why))
    if options.list:
        for attack in attacks:
            print(f"{attack.name:24} {attack.does}")
        return 0
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    results = []
    print(_head(), flush=True)
    with Nodes(options.python, options.size == "full", int(options.space * GIB)) as nodes:
        for number, attack in enumerate(attacks):
            result = _tried(attack, nodes, number)
            results.append(result)
            print(row(result), flush=True)
    broke = [result for result in results if result.broke]
    print(f"\n{len(results) - len(broke)} of {len(results)} attacks borne.")
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    return 1 if broke else 0


def chosen(only: list[str]) -> list[Attack]:
    """
    The attacks of those names, or all; ValueError if there is none of that name.
    """
    known = [attack.name for attack in ATTACKS]
    if wrong := sorted(set(only) - set(known)):
        raise ValueError(f"no attack {', '.join(wrong)}; there are: {', '.join(known)}")
    return [attack for attack in ATTACKS if not only or attack.name in only]


class Nodes:
    """
    One node for attacks that want the same of it; in full size one for each, so that memory tells of one.
    """

    def __init__(self, python: str, full: bool, space: int) -> None:
        self.full = full
        self._python = python
        self._space = space
        self._node: Node | None = None
        self._config = ""

    def __enter__(self) -> "Nodes":
        return self

    def __exit__(self, *why: object) -> None:
        self.drop()

    def get(self, attack: Attack) -> Node:
        config = attack.config + attack.newer + ("" if self.full else attack.lowered)
        if self._node is None or self.full or config != self._config or not self._node.alive():
            self.drop()
            self._node, self._config = self._started(attack, config), config
        return self._node

    def _started(self, attack: Attack, config: str) -> Node:
        try:
            return Node(self._python, config, self._space)
        except Unfit:
            if config == attack.config:
                raise
            return Node(self._python, attack.config, self._space)  # it is older than the keys

    def drop(self) -> None:
        if self._node is not None:
            self._node.leave()
            self._node = None


def _tried(attack: Attack, nodes: Nodes, number: int) -> Result:
    result = Result(attack.name, attack.does)
    try:
        node = nodes.get(attack)
    except Unfit as why:
        result.broke = f"the node does not start: {str(why)[-300:]}"
        return result
    ground = Ground(node, nodes.full, f"127.0.1.{number + 1}")
    node.forget_peak()
    result.before, disk, began = node.memory(), node.disk(), time.monotonic()
    canary = _Canary(node.ports["line"])
    try:
        with _no_longer_than(LONGEST):
            attack.run(ground)
    except Broke as why:
        result.broke = str(why)
    except (OSError, ValueError, KeyError, TypeError) as why:  # an answer that makes no sense, or none
        result.broke = f"{type(why).__name__}: {why}"[:200]
    result.seconds = round(time.monotonic() - began, 1)
    result.sent = ground.sent
    seen = canary.ended()
    ground.leave()
    result.pause = seen.get("pause")
    result.peak, result.disk = node.peak(), node.disk() - disk
    result.broke = result.broke or harm(node, result.peak - result.before, attack.memory, seen)
    if result.broke:
        nodes.drop()
    return result


def harm(node: Node, grown: int, most: int, canary: dict[str, Any]) -> str:
    """
    What the attack did to the node or to another client; "" for nothing.
    """
    complaint = node.complaint()
    for wrong, text in (
        (not node.alive(), "the node ended"),
        (complaint, f"in its log: {complaint[-200:]}"),
        (len(node.log()) > LOGGED, f"it wrote {len(node.log()) / 1e6:,.1f} MB into its own log"),
        (canary["lost"], f"the canary lost its connection: {canary['lost']}"),
        (canary["came"] != canary["sent"], f"the canary got {canary['came']} of {canary['sent']}"),
        (canary["disordered"], "the canary's messages came in disorder"),
        (not canary["kept"], "the canary's session was not kept"),
        (grown > most, f"memory grew by {grown / 1e6:,.0f} MB, {most / 1e6:,.0f} MB wanted"),
    ):
        if wrong:
            return text
    return ""


class _Canary:
    def __init__(self, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(CANARY), str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def ended(self) -> dict[str, Any]:
        try:
            said, _ = self._process.communicate(timeout=SINGING)
            return dict(json.loads(said))
        except (subprocess.TimeoutExpired, ValueError) as why:
            self._process.kill()
            self._process.wait()
            lost = f"it fell silent ({type(why).__name__})"
            return {"lost": lost, "sent": 0, "came": 0, "disordered": 0, "kept": False}


@contextmanager
def _no_longer_than(seconds: int) -> Iterator[None]:
    def late(*what: object) -> None:
        raise Broke(f"it took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _python() -> str:
    """
    The interpreter of an environment that has a node: this one, or what tools/test made.
    """
    own = Path(sys.executable)
    with suppress(OSError):
        if not own.with_name("twistd").exists() and (TOP / ".venv/bin/twistd").exists():
            return str(TOP / ".venv/bin/python")
    return str(own)


# -- the table -----------------------------------------------------------------


def _head() -> str:
    return (
        f"{'attack':24} {'sent':>9} {'pause':>8} {'memory':>17} {'disk':>9} {'took':>7}  outcome\n"
        f"{'':24} {'':>9} {'longest':>8} {'before → peak':>17}"
    )


def row(result: Result) -> str:
    pause = "-" if result.pause is None else f"{result.pause * 1000:,.0f} ms"
    memory = f"{result.before / 1e6:,.0f} → {result.peak / 1e6:,.0f} MB"
    outcome = "BROKE: " + " ".join(result.broke.split()) if result.broke else "bore"
    return (
        f"{result.name:24} {_size(result.sent):>9} {pause:>8} {memory:>17} {_size(result.disk):>9}"
        f" {result.seconds:>5.1f} s  {outcome}"
    )


def _size(number: int) -> str:
    return f"{number / 1e6:,.1f} MB" if abs(number) >= 100_000 else f"{number / 1e3:,.1f} KB"
