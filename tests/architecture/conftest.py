"""What the architecture tests look at: the project's files, and the modules of the packages."""

import ast
import gc
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = {
    "headrace": ROOT / "framework",
    "headrace_mq": ROOT / "mq",
    "pyspark_headrace": ROOT / "mq",
}


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(_text(path), filename=str(path))


@dataclass(frozen=True)
class Module:
    """A Python file with its dotted name, its text and its syntax tree."""

    name: str
    path: Path

    @property
    def text(self) -> str:
        return _text(self.path)

    @property
    def tree(self) -> ast.Module:
        return _tree(self.path)

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


@pytest.fixture(scope="module", autouse=True)
def _trees_are_no_garbage() -> Iterator[None]:
    """The trees of all files stay: to look for garbage among them took most of the time."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


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
