"""
Runs many seeds of the simulated groups: `python -m headrace_mq.testing.cluster.many_seeds --seeds 100000`.

With `--group operated` an operator touches the groups, with `--group asynchronous` their leaders may acknowledge alone. The seed of the
first run that breaks a promise is printed, and ends the search.
"""

import argparse
import sys
from collections import Counter

from headrace_mq.testing.cluster import (
    asynchronous_cluster,
    operated_cluster,
    simulated_cluster,
)
from headrace_mq.testing.cluster.promises import BrokenPromise

__all__ = ["main"]

_GROUPS = ("simulated", "operated", "asynchronous")


def _run(group: str, seed: int) -> Counter[str]:
    if group == "simulated":
        return simulated_cluster.run(seed, resigns=seed % 2 == 1)
    if group == "operated":
        return operated_cluster.run(seed)
    return asynchronous_cluster.run(seed)


def main() -> int:
    """Runs the seeds, and prints what happened in all of them; returns 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m headrace_mq.testing.cluster.many_seeds")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many runs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--group", choices=_GROUPS, default="simulated", help="what happens to the groups"
    )
    options = parser.parse_args()
    total: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.seeds):
        try:
            total += _run(options.group, seed)
        except BrokenPromise as broken:
            sys.stdout.write(f"seed {seed}: {broken}\n")
            return 1
    sys.stdout.write(f"nothing broken in {dict(total)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
