"""
The command line of the simulation.
"""

import argparse
import json
import random
from pathlib import Path

from simulating.run import STREAMS, Figures, simulate

WIDTH = 40  # of a figure's name


def main(arguments: list[str]) -> int:
    """
    Exit code 0 if all invariants held, 1 if one was broken.
    """
    options = _parser().parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    run = simulate(options.nodes, options.faults, options.seed, options.links, options.streams, _print)
    for what in run.judge.broken:
        print(f"broken: {what}")
    if options.json:
        options.json.write_text(json.dumps({**run.figures, "broken": run.judge.broken}, indent=1))
    return 1 if run.judge.broken else 0


def _print(figures: Figures) -> None:
    for name, figure in figures.items():
        shown = f"{figure:,}" if isinstance(figure, int) else figure
        print(f"{name:{WIDTH}}  {shown}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/simulate",
        description="Simulate a network of nodes in memory: partitions, flaps, changed costs, loss, "
        "doubling, reordering and kills under load; then compare all routes with networkx's "
        "and count what it took.",
        epilog="The same seed gives the same run. Exit code 0: all invariants held, 1: one was broken.",
    )
    parser.add_argument("--nodes", type=int, default=1000, help="how many nodes (default: 1000)")
    parser.add_argument("--links", type=int, default=0, help="how many links (default: 2.5 a node)")
    parser.add_argument(
        "--streams", type=int, default=STREAMS, help=f"how many nodes have streams (default: {STREAMS})"
    )
    parser.add_argument("--faults", type=int, default=18, help="how many faults, of nine kinds (default: 18)")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1 << 31), help="of all that is by chance"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file, too")
    return parser
