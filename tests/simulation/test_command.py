"""`make test-sim SEEDS=n FROM=k` runs exactly these seeds, and tells how a failure is repeated."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=120,
    )  # fmt: skip


def test_the_makefile_passes_the_seeds_on() -> None:
    if shutil.which("make") is None:
        pytest.skip("the program make is not installed")
    shown = subprocess.run(
        ["make", "-n", "test-sim", "SEEDS=7", "FROM=30"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    assert "-m pytest tests/simulation --seeds 7 --from 30" in shown.stdout


def test_the_seeds_that_were_asked_for_are_run() -> None:
    done = run("--collect-only", "--seeds", "12", "--from", "30", "tests/simulation")
    assert "[30-39]" in done.stdout
    assert "[40-41]" in done.stdout
    assert "[0-9]" not in done.stdout


def test_a_failing_seed_prints_how_to_repeat_it_and_what_happened(tmp_path: Path) -> None:
    # A plugin, so that the defect is planted in the process that runs the seed.
    (tmp_path / "defect.py").write_text(
        "from headrace_mq.client.fetch.process_queue import ProcessQueue\n"
        "ProcessQueue.lowest_unfinished = property(lambda queue: queue.end)\n"
    )
    path = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
    done = subprocess.run(
        [
            sys.executable, "-c",
            path + "import pytest; sys.exit(pytest.main(sys.argv[1:]))",
            "-q", "-p", "no:cacheprovider", "-p", "defect", "--seeds", "1", "--from", "3",
            "tests/simulation/scenarios/test_deployments.py::test_no_promise_is_broken",
        ],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "seed 3, repeat: make test-sim SEEDS=1 FROM=3" in done.stdout
    assert "skipped: " in done.stdout
    assert "Options(" in done.stdout
    assert "broker started" in done.stdout
