"""`headrace samples`: every sample is listed, and a copy of each runs away from the package."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import headrace.cli
from headrace.cli.application.samples import SAMPLES

ROOT = Path(__file__).parents[5]
NAMES = sorted(SAMPLES)
# What is in the folder and is none of them: the template of `headrace new`.
NO_SAMPLES = {"__init__", "__pycache__", "templates"}
# Imports each module of a copied sample that needs no arguments, and says where each came from.
IMPORT = """
import importlib, pathlib, sys
sys.path.insert(0, "")
for path in sorted(pathlib.Path("samples").rglob("*.py")):
    if path.name not in {"__main__.py", "plots.py", "analysis.py"}:
        module = importlib.import_module(".".join(path.with_suffix("").parts))
        print(pathlib.Path(module.__file__).resolve())
"""


def samples(*arguments: object) -> Result:
    return CliRunner().invoke(headrace.cli._command_line(), ["samples", *map(str, arguments)])


def files(folder: Path) -> set[str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)) for path in found if path.suffix != ".pyc"}


def test_every_sample_is_listed() -> None:
    assert set(NAMES) == {path.stem for path in (ROOT / "samples").iterdir()} - NO_SAMPLES
    done = samples("list")
    assert done.exit_code == 0, done.output
    listed = {line.split()[0]: line for line in done.output.splitlines()[1:]}
    assert sorted(listed) == NAMES
    assert "transfers between them" in listed["bank"]
    assert not [line for line in done.output.splitlines() if len(line) > 100]


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_runs_away_from_the_package(tmp_path: Path, name: str) -> None:
    done = samples("copy", name, tmp_path / "here")
    assert done.exit_code == 0, done.output
    here = tmp_path / "here"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    ran = subprocess.run(
        [sys.executable, "-P", "-c", IMPORT],
        cwd=here, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()
    assert [line for line in ran.stdout.splitlines() if not line.startswith(str(here))] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_has_every_module_that_starts_it(tmp_path: Path, name: str) -> None:
    done = samples("copy", name, tmp_path)
    modules = re.findall(r"(?:-m |--factory |run )(samples\.[a-z_.]+)", done.output)
    assert modules or name == "shop"
    for module in modules:
        path = tmp_path.joinpath(*module.split("."))
        assert path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def test_a_copy_brings_other_samples_that_it_imports(tmp_path: Path) -> None:
    assert samples("copy", "web", tmp_path).exit_code == 0
    written = files(tmp_path)
    assert {
        "samples/web/bank_api.py",
        "samples/bank/accounts.py",
        "seeds/bank/accounts.csv",
    } < written
    assert not [name for name in written if "templates" in name or "conference" in name]


def test_your_files_are_not_overwritten(tmp_path: Path) -> None:
    assert samples("copy", "bank", tmp_path).exit_code == 0
    mine = tmp_path / "samples" / "bank" / "accounts.py"
    mine.write_text("mine")
    again = samples("copy", "bank", tmp_path)
    assert again.exit_code == 2
    assert "is there already" in " ".join(again.output.split())
    # Another one in the same folder, which needs the bank: yours is used.
    assert samples("copy", "web", tmp_path).exit_code == 0
    assert mine.read_text() == "mine"


def test_a_file_in_the_way_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    done = samples("copy", "notes", tmp_path / "file")
    assert done.exit_code == 2
    assert "is no folder" in " ".join(done.output.replace("│", " ").split())


def test_an_unknown_sample_is_one_sentence(tmp_path: Path) -> None:
    done = samples("copy", "bnak", tmp_path)
    assert (done.exit_code, files(tmp_path)) == (2, set())
    told = " ".join(done.output.replace("│", " ").split())
    assert "there is no sample 'bnak'; did you mean bank?" in told
    assert "headrace samples list" in " ".join(
        samples("copy", "xyz", tmp_path).output.replace("│", " ").split()
    )
