"""The project's documents and the code blocks in them."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the rest of its first line, its text and its place."""

    language: str
    info: str
    text: str
    where: str


@dataclass(frozen=True)
class Document:
    """A Markdown file."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def blocks(self) -> list[Block]:
        found = []
        for match in BLOCK.finditer(self.text):
            language, _, info = match[1].partition(" ")
            line = self.text.count("\n", 0, match.start()) + 1
            found.append(Block(language, info.strip(), match[2], f"{self.name}:{line}"))
        return found


def _documents() -> list[Document]:
    places = ["*.md", "docs/**/*.md", "framework/**/*.md", "mq/**/*.md"]
    places += ["samples/**/*.md", "seeds/**/*.md", "benchmarks/**/*.md", "migrations/**/*.md"]
    # The pages of a new project's template run in tests/acceptance/test_new_project.py.
    templates = ROOT / "samples" / "templates"
    found = [path for place in places for path in sorted(ROOT.glob(place))]
    return [Document(path) for path in found if not path.is_relative_to(templates)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test that asks for a `document` once for each."""
    if "document" in metafunc.fixturenames:
        documents = _documents()
        metafunc.parametrize("document", documents, ids=[one.name for one in documents])


@pytest.fixture
def documents() -> list[Document]:
    """Every Markdown file of the project."""
    return _documents()


@pytest.fixture
def root() -> Path:
    """The folder of the project."""
    return ROOT
