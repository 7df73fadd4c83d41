"""`make demo BROKER=kafka` end to end: the same comparisons, on a Kafka broker."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from samples.kafka import KafkaBrokers

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(600)


def test_the_demo_ends_without_a_difference(one_broker: KafkaBrokers, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "samples.bank.demo", "--broker", "kafka", "--data", tmp_path / "d"],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["mismatches_live"], found["mismatches_spark"], found["restarts"]) == (0, 0, 1)
    assert found["new_events"] > found["commands"] > 0
