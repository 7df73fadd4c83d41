"""What the architecture tests look at: the project's files, and the modules of the packages."""

import ast
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = {
    "headrace": ROOT / "framework",
    "headrace_mq": ROOT / "mq",
    "pyspark_headrace": ROOT / "mq",
}


@dataclass(frozen=True)
class Module:
    """A Python file with its dotted name, its text and its syntax tree."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def where(self) -> str:
        return str(self.path.relative_to(ROOT))


def _modules(source_root: Path, package: str) -> list[Module]:
    modules = []
    for path in sorted((source_root / package).rglob("*.py")):
        parts = path.relative_to(source_root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules.append(Module(name, path))
    return modules


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the project."""
    return ROOT


@pytest.fixture(scope="session")
def modules() -> list[Module]:
    """Every module of the packages."""
    found = [m for package, place in SOURCE_ROOTS.items() for m in _modules(place, package)]
    assert len(found) > 20
    return found


@pytest.fixture(scope="session")
def tracked() -> list[Path]:
    """Every file of the project: those that git knows or would add."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout.split("\0")
    return [path for name in names if name and (path := ROOT / name).is_file()]


@pytest.fixture(scope="session")
def python_files(tracked: list[Path]) -> list[Module]:
    """Every Python file of the project, tests included."""
    return [
        Module(".".join(path.relative_to(ROOT).with_suffix("").parts), path)
        for path in tracked
        if path.suffix == ".py"
    ]
