"""
The command line: which scenarios, how long, and where the results go.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import platform
import resource
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmark.peers.install import CHECKOUT, Venvs
from benchmark.report import plane_table, tables
from benchmark.report.interleave import Bench, say_on_stderr
from benchmark.scenarios import browser
from benchmark.scenarios.catalogue import SCENARIOS, Scenario, churn
from benchmark.scenarios.planes import PLANES

FILES = 1 << 20  # open files asked for, where the hard limit allows
QUICK = {"rounds": 2, "seconds": 1.0, "warmup": 0.5}
FULL = {"rounds": 5, "seconds": 3.0, "warmup": 1.0}


def main(arguments: list[str]) -> int:
    """
    Exit code 0 when all was measured, 1 when something was lost or failed.
    """
    options = _parser().parse_args(arguments)
    if options.list:
        for scenario in (*SCENARIOS, *PLANES):
            print(f"{scenario.name:20} {scenario.title}")
        return 0
    if options.browser:
        return browser.main(Venvs(options.venvs.resolve()), options.rounds or int(FULL["rounds"]))
    if options.mining:
        return _mine(options)
    if options.links:
        return _links(options)
    if options.cluster:
        return _cluster(options)
    if options.render:
        return _output(json.loads(options.render.read_text()), options)
    try:
        chosen = _chosen(options)
    except KeyError as unknown:
        print(f"no scenario named {unknown}; --list shows them", file=sys.stderr)
        return 2
    return _output(_measured(chosen, options), options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/bench",
        description="Measure the node beside nats-server and crossbar, alternating, in one run.",
    )
    parser.add_argument("--list", action="store_true", help="name the scenarios")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="these scenarios, or all that begin so with a *"
    )
    parser.add_argument("--quick", action="store_true", help="the first rows, in two minutes")
    parser.add_argument(
        "--planes",
        action="store_true",
        help="the compiled data plane, gathering or not, Python alone and nats-server, side by side",
    )
    parser.add_argument(
        "--churn", type=int, metavar="MINUTES", help="only connect, bind and close, for so long"
    )
    parser.add_argument(
        "--browser", action="store_true", help="only the protostub, between pages in Chromium"
    )
    parser.add_argument(
        "--peers", default="nats,crossbar,npm", help="nats, crossbar, npm; all (the default) or none"
    )
    parser.add_argument(
        "--mining", type=int, nargs="+", metavar="LINES", help="only tools/mine.py, on logs of so many lines"
    )
    parser.add_argument(
        "--links", action="store_true", help="only links: CPU time by node, added delay, subscriptions"
    )
    parser.add_argument(
        "--cluster", action="store_true", help="only several nodes of one domain: CPU time by node, moves"
    )
    parser.add_argument(
        "--sessions", type=int, default=10_000, help="of --cluster, that move at once (default 10,000)"
    )
    parser.add_argument("--rounds", type=int, help=f"alternations (default {FULL['rounds']})")
    parser.add_argument("--seconds", type=float, help=f"measured in each run (default {FULL['seconds']:g})")
    parser.add_argument("--warmup", type=float, help=f"seconds before (default {FULL['warmup']:g})")
    parser.add_argument("--burst", action="store_true", help="what one read released leaves in one write")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write the table, between the marks it has"
    )
    parser.add_argument("--render", type=Path, metavar="JSON", help="measure nothing, show these results")
    parser.add_argument("--venvs", type=Path, default=CHECKOUT / ".bench", help="where the bench installs")
    return parser


def _mine(options: argparse.Namespace) -> int:
    """
    Uses the Python that runs this.
    """
    from benchmark.scenarios import mining

    if missing := [name for name in mining.NEEDED if importlib.util.find_spec(name) is None]:
        print(f"--mining needs {', '.join(missing)}: pip install {' '.join(missing)}", file=sys.stderr)
        return 2
    results = mining.measure(options.mining, options.rounds or 3)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    print(mining.text(results))
    return 0


def _links(options: argparse.Namespace) -> int:
    """
    Uses the Python that runs this.
    """
    from benchmark.links import measure

    rounds, seconds = options.rounds or int(FULL["rounds"]), options.seconds or FULL["seconds"]
    found = asyncio.run(measure.measure(rounds, seconds))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    print(measure.text(found))
    return 0


def _cluster(options: argparse.Namespace) -> int:
    """
    Uses the Python that runs this.
    """
    from benchmark.cluster import measure

    _raise_file_limit()
    rounds, seconds = options.rounds or int(FULL["rounds"]), options.seconds or FULL["seconds"]
    found = asyncio.run(measure.measure(rounds, seconds, options.sessions))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    print(measure.text(found))
    print(f"\nLoad average {', '.join(f'{each:.1f}' for each in os.getloadavg())}, with this program.")
    return 0


def _chosen(options: argparse.Namespace) -> list[Scenario]:
    if options.churn:
        return [churn(options.churn)]
    all_of_them = PLANES if options.planes else SCENARIOS
    if not options.only:
        return [scenario for scenario in all_of_them if scenario.quick or not options.quick]
    found: list[Scenario] = []
    for name in options.only:
        start = name.removesuffix("*")
        matches = [s for s in all_of_them if s.name == name or (start != name and s.name.startswith(start))]
        if not matches:
            raise KeyError(name)
        found += [scenario for scenario in matches if scenario not in found]
    return found


def _measured(scenarios: list[Scenario], options: argparse.Namespace) -> dict[str, Any]:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    _raise_file_limit()
    peers = {peer for peer in options.peers.split(",") if peer and peer != "none"}
    servers = {"msgnode"} | peers
    used = servers & {entrant.server for scenario in scenarios for entrant in scenario.entrants}
    venvs = Venvs(options.venvs.resolve())
    venvs.make(used | {"msgnode"})  # the load generator imports it
    times = (QUICK if options.quick else FULL) | ({"rounds": 1} if options.churn else {})
    told = {key: value for key in times if (value := getattr(options, key)) is not None}
    times |= told | {"burst": options.burst}
    bench = Bench(venvs, used, int(times["rounds"]), times["seconds"], times["warmup"], options.burst)
    results: dict[str, Any] = {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": _machine(),
        "versions": venvs.versions(),
        "options": times,
        "scenarios": [],
    }
    try:
        for scenario in scenarios:
            results["scenarios"].append(bench.measure(scenario, say_on_stderr))
    except KeyboardInterrupt:
        say_on_stderr("interrupted; what was finished follows")
    return results


def _output(results: dict[str, Any], options: argparse.Namespace) -> int:
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    if options.planes:
        if options.markdown:
            marks = plane_table.BEGIN, plane_table.END
            tables.put(options.markdown, plane_table.markdown(results), marks)
        print(plane_table.text(results))
    else:
        if options.markdown:
            tables.put(options.markdown, tables.markdown(results))
        print(tables.text(results))
    entrants = [entrant for scenario in results["scenarios"] for entrant in scenario["entrants"].values()]
    return int(any(entrant["lost"] or entrant["errors"] for entrant in entrants))


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _machine() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": model,
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "system": platform.platform(terse=True),
        "Python": platform.python_version(),
    }
