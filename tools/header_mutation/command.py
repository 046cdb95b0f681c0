"""
The command: how many mutants, by how many processes, and what was found.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from multiprocessing import Pool
from random import Random
from typing import Any, NamedTuple

from header_mutation.compare import Disagreement, check
from header_mutation.mutants import mutant
from header_mutation.native_scan import check_scan
from header_mutation.reference import ACCEPTED, DUPLICATE, REFUSED

CHUNK = 50_000  # mutants
SHOWN = 10  # disagreements


class Chunk(NamedTuple):
    """
    A part of the mutants: `number` tells its seed, and the other readings of every so many are compared, too;
    `native`: so is the native scan of each.
    """

    seed: int
    number: int
    size: int
    every: int
    native: bool = False


class Found(NamedTuple):
    """
    How many mutants there were of each kind, how many the native scan took, and the disagreements.
    """

    kinds: Counter[str]
    taken_natively: int
    disagreements: list[str]


def main(arguments: list[str]) -> int:
    """
    Exit code 0 when the readers agreed on every mutant, 1 when not; 3 if the native scan is not built.
    """
    parser = argparse.ArgumentParser(prog="tools/mutate-headers", description=__doc__)
    parser.add_argument("--mutants", type=int, default=200_000, help="how many (default 200000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: one a core)")
    parser.add_argument(
        "--readings", type=int, default=10, metavar="N", help="compare all readings of every Nth mutant"
    )
    parser.add_argument(
        "--native", action="store_true", help="also read each mutant with the compiled data plane's scan"
    )
    options = parser.parse_args(arguments)
    if options.native and _native_scan() is None:
        print("msgnode_native is not built; tools/test builds it where cargo is", file=sys.stderr)
        return 3
    return _compare_all(options)


def _compare_all(options: argparse.Namespace) -> int:
    kinds: Counter[str] = Counter()
    taken_natively = 0
    disagreements: list[str] = []
    start = time.monotonic()
    parts = chunks(options.mutants, options.seed, options.readings, options.native)
    with Pool(options.jobs) as pool:
        for found in pool.imap_unordered(compared, parts):
            kinds += found.kinds
            taken_natively += found.taken_natively
            disagreements += found.disagreements
            print(_progress(kinds, options.mutants, len(disagreements), time.monotonic() - start), flush=True)
    if options.native:
        print(f"{taken_natively:,} were taken by the native scan")
    for text in disagreements[:SHOWN]:
        print(text)
    return 1 if disagreements else 0


def chunks(mutants: int, seed: int, every: int, native: bool) -> Iterator[Chunk]:
    """
    The parts of so many mutants.
    """
    for number, first in enumerate(range(0, mutants, CHUNK)):
        yield Chunk(seed, number, min(CHUNK, mutants - first), every, native)


def _native_scan() -> Callable[[bytes], Any] | None:
    try:
        module: Any = import_module("msgnode_native")
    except ImportError:
        return None
    scan: Callable[[bytes], Any] = module.scan
    return scan


def compared(chunk: Chunk) -> Found:
    """
    The chunk's mutants, read by each reader.
    """
    random = Random(f"{chunk.seed} {chunk.number}")
    scan = _native_scan() if chunk.native else None
    kinds: Counter[str] = Counter()
    taken_natively = 0
    disagreements = []
    for number in range(chunk.size):
        data = mutant(random)
        try:
            kind = check(data, number % chunk.every == 0)
            if scan is not None:
                taken_natively += check_scan(data, kind, scan)
            kinds[kind] += 1
        except Exception as why:  # a reader that fails is a finding, too
            kinds["disagreement"] += 1
            name = "" if isinstance(why, Disagreement) else f"{type(why).__name__}: "
            disagreements.append(f"chunk {chunk.number}, mutant {number}: {data!r}\n    {name}{why}")
    return Found(kinds, taken_natively, disagreements)


def _progress(kinds: Counter[str], wanted: int, disagreements: int, seconds: float) -> str:
    done = kinds.total()
    counts = ", ".join(f"{kinds[kind]:,} {kind}" for kind in (ACCEPTED, DUPLICATE, REFUSED))
    return f"{done:,} of {wanted:,} mutants: {counts}, {disagreements} disagreements; {done / seconds:,.0f}/s"
