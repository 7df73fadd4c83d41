"""Pages of decisions have one form, and their numbers have no gap."""

import re
from pathlib import Path

import pytest

NAME = re.compile(r"(\d{4})-[a-z0-9]+(?:-[a-z0-9]+)*\.md")
HEADINGS = ["## Context", "## Decision", "## Consequences"]
LINES_MAX = 50  # one page


@pytest.fixture
def pages(root: Path) -> list[Path]:
    found = root / "docs" / "decisions"
    return sorted(path for path in found.glob("*.md") if path.name != "index.md")


def test_numbers_of_decisions_begin_at_one_and_have_no_gap(pages: list[Path]) -> None:
    matches = [NAME.fullmatch(page.name) for page in pages]
    numbers = [int(match[1]) for match in matches if match]
    assert numbers == list(range(1, len(pages) + 1))
    assert len(pages) >= 10


def test_a_decision_says_its_status_context_and_consequences_on_one_page(pages: list[Path]) -> None:
    for page in pages:
        lines = page.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith(f"# {int(page.name[:4])}. "), page.name
        assert lines[2].startswith("Status: "), page.name
        assert [line for line in lines if line.startswith("## ")] == HEADINGS, page.name
        assert len(lines) <= LINES_MAX, page.name


def test_each_decision_is_listed_once_under_its_number(root: Path, pages: list[Path]) -> None:
    index = (root / "docs" / "decisions" / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| \[[^\]]+\]\(([^)]+)\)", index, re.MULTILINE)
    assert rows == [(str(int(page.name[:4])), page.name) for page in pages]
