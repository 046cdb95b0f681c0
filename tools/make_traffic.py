#!/usr/bin/env python3
"""
Write a realistic traffic log of any size, the same for the same seed, with things in it to be found.
"""

import argparse
import sys
import time
from pathlib import Path

from synthetic.plan import generate


def main(arguments: list[str]) -> int:
    """
    Exit code 0; 2 when the directory cannot be written or holds logs already.
    """
    parser = argparse.ArgumentParser(prog="tools/make_traffic.py", description=__doc__)
    parser.add_argument("out", type=Path, help="where the files go; truth.json says what is in them")
    parser.add_argument(
        "--lines", type=int, default=100_000, help="exactly so many valid ones (default 100000)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--days", type=int, default=4, help="spread over so many days (default 4)")
    parser.add_argument("--nodes", type=int, default=3, help="of so many nodes (default 3)")
    parser.add_argument("--hot", type=float, default=0.0, help="share of requests by one address (default 0)")
    parser.add_argument("--plain", action="store_true", help="compress nothing")
    options = parser.parse_args(arguments)
    if options.lines < 300 or options.days < 1 or options.nodes < 1:
        parser.error("at least 300 lines, one day and one node")
    if options.out.is_dir() and any(options.out.glob("traffic-*")):
        print(f"{options.out} holds a traffic log already; name another directory", file=sys.stderr)
        return 2
    begun = time.monotonic()
    try:
        truth = generate(
            options.out,
            options.lines,
            options.seed,
            options.days,
            options.nodes,
            options.hot,
            plain=options.plain,
        )
    except OSError as why:
        print(f"{why.filename}: {why.strerror}", file=sys.stderr)
        return 2
    print(f"{truth['lines']:,} lines in {options.out}, {time.monotonic() - begun:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
