"""
The runs: within a scenario every peer in turn, then every peer again, so that a
disturbance of the machine meets them all alike.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from benchmark.load.policy_corpus import corpus
from benchmark.peers.install import CHECKOUT, Venvs
from benchmark.peers.servers import Server
from benchmark.report.statistics import Run, compared, summary
from benchmark.scenarios.catalogue import Entrant, Scenario

GRACE = 180.0  # seconds a run may take beyond what it measures


class Bench:
    """
    Runs scenarios: `rounds` alternations, each measured for `seconds` after `warmup` seconds.

    `burst` is how the generator writes, as `pairs.Pair` says.
    """

    def __init__(
        self, venvs: Venvs, servers: set[str], rounds: int, seconds: float, warmup: float, burst: bool
    ) -> None:
        self._venvs = venvs
        self._allowed = servers
        self._rounds = rounds
        self._how = {"seconds": seconds, "warmup": warmup, "burst": burst}
        self._running: dict[tuple[str, str, str, int], Server] = {}
        self._count = 0

    def measure(self, scenario: Scenario, say: Callable[[str], None]) -> dict[str, Any]:
        """
        The scenario's result, as it goes into the JSON.
        """
        entrants = [entrant for entrant in scenario.entrants if entrant.server in self._allowed]
        runs: dict[str, list[Run]] = {entrant.label: [] for entrant in entrants}
        try:
            for _ in range(self._rounds):
                for entrant in entrants:
                    run = self._one(scenario, entrant)
                    runs[entrant.label].append(run)
                    say(_told(scenario, entrant, run))
                    if scenario.fresh:
                        self.stop()
        finally:
            self.stop()
        summaries = {label: summary(results) for label, results in runs.items()}
        return {
            "name": scenario.name,
            "title": scenario.title,
            "unit": scenario.unit,
            "load_average": os.getloadavg()[0],
            "ours": scenario.entrants[0].label,
            "entrants": summaries,
            "compared": compared(scenario, summaries),
        }

    def stop(self) -> None:
        """
        Stop every server that runs.
        """
        while self._running:
            _, server = self._running.popitem()
            server.stop()

    def _one(self, scenario: Scenario, entrant: Entrant) -> Run:
        self._count += 1
        try:
            config, behind = scenario.config + entrant.config, None
            if entrant.registry:
                behind = self._started(entrant.registry)
                config += f'[registry]\nurl = "http://127.0.0.1:{behind.ports["line"]}"\n'
            document = corpus(entrant.policies, entrant.body) if entrant.policies else ""
            server = self._started(entrant.server, config, document)
            ports = server.ports
            if entrant.wire == "proxied":
                proxy = self._started("TLS proxy", behind=ports["websocket"])
                ports = ports | {"proxied": proxy.ports["websocket"]}
        except RuntimeError as why:
            return {"figure": None, "errors": [str(why)]}
        job = {
            "load": scenario.load,
            "run": f"bench{self._count}",
            "server": entrant.server,
            "wire": entrant.wire,
            "port": ports[entrant.wire],
            "admin": ports["admin"] if entrant.server == "msgnode" else 0,
            "pids": server.pids(),
            "home": str(server.home),
            "registry": behind.ports["line"] if behind is not None else 0,
        }
        run = self._generate(job | self._how | scenario.job | entrant.job)
        if entrant.plane and run.get("plane", entrant.plane) != entrant.plane:
            run["errors"] = [f"the node ran its {run['plane']} data plane, not the {entrant.plane} one"]
        if run["figure"] is None:
            # What it was left with is not what the next run should meet.
            self._stop(server)
        return run

    def _started(self, kind: str, config: str = "", document: str = "", behind: int = 0) -> Server:
        which = kind, config, document, behind
        if which not in self._running:
            self._running[which] = Server(kind, self._venvs, config, document, behind)
        return self._running[which]

    def _stop(self, server: Server) -> None:
        self._running = {which: other for which, other in self._running.items() if other is not server}
        server.stop()

    def _generate(self, job: dict[str, Any]) -> Run:
        python = str(self._venvs.node / "bin" / "python")
        command = [python, "-m", "benchmark.load.generator", json.dumps(job)]
        environment = os.environ | {"PYTHONPATH": str(CHECKOUT / "tools")}
        limit = job["seconds"] + job["warmup"] + 60 * job.get("minutes", 0) + GRACE
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return {"figure": None, "errors": [f"not done after {limit:.0f} s"]}
        if done.returncode:
            return {"figure": None, "errors": [done.stderr.strip()[-500:] or f"exit {done.returncode}"]}
        return dict(json.loads(done.stdout.splitlines()[-1]))


def _told(scenario: Scenario, entrant: Entrant, run: Run) -> str:
    figure = run["figure"]
    parts = [f"{scenario.name}  {entrant.label}: "]
    parts.append("failed" if figure is None else f"{figure:,.1f} {scenario.unit}")
    if run.get("by_flow"):
        parts.append(f", {run['by_flow']:.0%} by flow")
    if "server_cores" in run:
        parts.append(f", cores {run['generator_cores']:.2f} + {run['server_cores']:.2f}")
    if run.get("lost"):
        parts.append(f", {run['lost']} LOST")
    parts += [f", {error}" for error in run.get("errors", [])[:1]]
    return "".join(parts)


def say_on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
