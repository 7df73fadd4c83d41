"""`make test-crash COUNT=n` runs these tests for long, and what it prints can be read by programs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_the_makefile_passes_the_count_on() -> None:
    if shutil.which("make") is None:
        pytest.skip("the program make is not installed")
    shown = subprocess.run(
        ["make", "-n", "test-crash", "COUNT=7"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert "-m pytest tests/crash/store --count 7" in shown.stdout


@pytest.mark.timeout(300)
def test_a_count_prints_figures_and_their_total() -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--count", "2",
            "-n", "2", "tests/crash/store/test_disk_full.py", "tests/crash/store/test_clock.py",
        ],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    figures = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    (total,) = [line for line in figures if line["kind"] == "total"]
    # A third of the count, and at least one.
    assert {"kind": "ENOSPC at the n-th write", "full_disks": 1} in figures
    assert total["full_disks"] == sum(line.get("full_disks", 0) for line in figures[:-1])
    assert "seconds_to_resume" in total
