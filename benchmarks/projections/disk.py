"""
How long fdatasync takes while something else is measured.

    python -m benchmarks.projections.disk FOLDER

Appends 4 KiB and flushes, fifty times a second, until its input ends; prints median and slowest
hundredth as JSON on one line. In a process of its own: a thread would wait for the interpreter.
"""

import json
import os
import select
import statistics
import sys
import tempfile
import time

# Often enough for a hundredth of ten seconds, and below a hundredth of what a disk can do.
PERIOD_S = 0.02
# The file begins anew after so many blocks, so that it stays small.
BLOCKS = 2_048
BLOCK_BYTES = 4_096


def main() -> None:
    block = os.urandom(BLOCK_BYTES)
    seconds: list[float] = []
    with tempfile.TemporaryFile(dir=sys.argv[1]) as file:
        descriptor = file.fileno()
        os.posix_fallocate(descriptor, 0, BLOCKS * BLOCK_BYTES)
        while not select.select([sys.stdin], [], [], PERIOD_S)[0]:
            began = time.perf_counter()
            os.pwrite(descriptor, block, len(seconds) % BLOCKS * BLOCK_BYTES)
            os.fdatasync(descriptor)
            seconds.append(time.perf_counter() - began)
    cuts = statistics.quantiles(seconds, n=100)
    said = {"fdatasync_p50_ms": cuts[49] * 1e3, "fdatasync_p99_ms": cuts[98] * 1e3}
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
