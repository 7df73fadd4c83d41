"""The Makefile: what `make` would run, and what it says to a Python that is too old."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def make(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    return subprocess.run(
        ["make", *arguments],
        capture_output=True, text=True, cwd=cwd, env=environment, timeout=120, check=False,
    )  # fmt: skip


def test_make_alone_lists_the_targets(root: Path) -> None:
    shown = make(cwd=root)
    assert shown.returncode == 0
    for target in ("demo", "console", "check", "test", "bench", "bench-peers", "clean"):
        assert f"make {target}" in shown.stdout


def test_transactions_reach_the_demo_from_a_file_of_any_name(root: Path) -> None:
    shown = make("-n", "demo", "TRANSACTIONS=my bank/a $$b.csv", cwd=root)
    assert "headrace demo --transactions 'my bank/a $b.csv'" in shown.stdout


def test_every_check_is_part_of_make_test(root: Path) -> None:
    shown = make("-n", "test", cwd=root).stdout
    for check in ("ruff check", "ruff format --check", "mypy", "lint-imports", "pytest"):
        assert check in shown
    last = shown.strip().splitlines()[-1]
    assert " -m pytest " in last
    assert " --durations 25" in last


def test_every_check_is_part_of_make_check_and_its_tests_are_quick(root: Path) -> None:
    *checks, last = make("-n", "check", cwd=root).stdout.strip().splitlines()
    assert checks == make("-n", "test", cwd=root).stdout.strip().splitlines()[:-1]
    assert " -m pytest --quick " in last


def test_the_script_for_continuous_integration_runs_make_test(root: Path) -> None:
    run = root / ".ci" / "run"
    assert os.access(run, os.X_OK)
    assert "make test" in run.read_text(encoding="utf-8")


@pytest.fixture
def bare_copy(root: Path, tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(root / name, tmp_path)
    return tmp_path


def test_an_old_python_is_refused_and_nothing_is_installed(bare_copy: Path) -> None:
    old = bare_copy / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    old.chmod(0o755)
    done = make("install", f"PYTHON={old}", cwd=bare_copy)
    assert done.returncode == 2
    assert "Headrace needs Python 3.11 or newer" in done.stderr
    assert not (bare_copy / ".venv").exists()


def test_a_second_install_does_nothing(bare_copy: Path) -> None:
    (bare_copy / ".venv").mkdir()
    (bare_copy / ".venv" / ".installed").touch()
    done = make("install", cwd=bare_copy)
    assert (done.returncode, "Installing" in done.stdout) == (0, False)
