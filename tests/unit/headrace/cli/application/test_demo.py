"""`headrace demo` finds the sample wherever it is called; tests/acceptance runs it to its end."""

import subprocess
import sys
from pathlib import Path


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    # A folder of that name where it is called is not what is meant.
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "demo", "--transactions", "none.csv", "--fresh"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "demo: [Errno 2] No such file or directory: 'none.csv'\n"
    assert [path.name for path in tmp_path.iterdir()] == ["samples"]


def test_a_console_is_of_the_demo_on_one_broker(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "demo", "--console", "--replicas"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "leave out the other option" in " ".join(done.stderr.replace("│", "").split())
    assert list(tmp_path.iterdir()) == []
