"""The changelog has a section for each version, in the words that its form allows."""

import re
import tomllib
from pathlib import Path

import pytest

HEADING = re.compile(r"## \[(?:Unreleased|(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$)")
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
ENTRY_LINES_MAX = 4


@pytest.fixture
def lines(root: Path) -> list[str]:
    return (root / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()


def test_the_newest_version_is_that_of_the_project(root: Path, lines: list[str]) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    headings = [line for line in lines if line.startswith("## ")]
    matches = [HEADING.match(heading) for heading in headings]
    assert [heading for heading, match in zip(headings, matches, strict=True) if not match] == []
    versions = [match[1] for match in matches if match]
    assert versions[:2] == [None, project["version"]]
    numbers = [tuple(map(int, version.split("."))) for version in versions[1:]]
    assert numbers == sorted(set(numbers), reverse=True)


def test_each_kind_of_change_stands_once_in_a_version(lines: list[str]) -> None:
    seen: set[str] = set()
    for line in lines:
        if line.startswith("## "):
            seen = set()
        elif line.startswith("### "):
            kind = line.removeprefix("### ")
            assert kind in KINDS - seen, line
            seen.add(kind)


def test_an_entry_is_short(lines: list[str]) -> None:
    length, long = 0, []
    for number, line in enumerate(lines, start=1):
        length = 1 if line.startswith("- ") else length + 1 if line.startswith("  ") else 0
        if length > ENTRY_LINES_MAX:
            long.append(number)
    assert long == []
