"""Documents say what is so: links lead somewhere, lists are complete, tables fit the code."""

import importlib
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main

from headrace.cli import _command_line

# A command as sentences of the code name it: "`headrace projection list`"; "headrace run ready" is output.
NAMED = re.compile(r"`headrace (?![a-z]+ ready)([a-z]+)(?: ([a-z]+))?")
LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)(?:#[^)]*)?\)")


def test_every_link_leads_to_a_file(document: Any) -> None:
    broken = [
        target
        for target in LINK.findall(document.text)
        if "://" not in target and not (document.path.parent / target).exists()
    ]
    assert broken == []


def test_every_page_of_docs_is_in_the_index(root: Path) -> None:
    """A folder with an index of its own lists its pages there."""
    docs = root / "docs"
    listed = {docs / "index.md"}
    for index in docs.rglob("index.md"):
        links = LINK.findall(index.read_text(encoding="utf-8"))
        listed |= {(index.parent / link).resolve() for link in links}
    assert sorted(str(page) for page in docs.rglob("*.md") if page not in listed) == []


def test_the_tables_of_settings_are_those_of_the_code(root: Path) -> None:
    limits = runpy.run_path(str(root / "docs" / "limits.py"))
    page = (root / "docs" / "limits.md").read_text(encoding="utf-8")
    assert limits["with_tables"](page) == page, "run: python docs/limits.py"


def test_every_setting_has_a_reason(root: Path) -> None:
    page = (root / "docs" / "limits.md").read_text(encoding="utf-8")
    _, _, tables = page.partition("<!-- settings: begin -->")
    assert [line for line in tables.splitlines() if line.endswith("|  |")] == []


def test_every_command_is_described_and_every_described_one_exists(root: Path) -> None:
    page = (root / "docs" / "command-line.md").read_text(encoding="utf-8")
    described = set(re.findall(r"^\| `headrace ([a-z -]+)` \| [a-z]", page, re.MULTILINE))
    assert described == commands()


def commands() -> set[str]:
    """Every command of the command line, by its words."""
    group: Any = typer.main.get_command(_command_line())
    existing = set()
    for name, command in group.commands.items():
        parts = getattr(command, "commands", None)
        existing |= {f"{name} {part}" for part in parts or ()}
        if not parts or command.invoke_without_command:
            existing.add(name)
    return existing


def test_every_command_that_a_sentence_of_the_code_names_exists(root: Path) -> None:
    existing = commands()
    # A command alone, and a group named without one of its commands.
    alone = existing | {command.partition(" ")[0] for command in existing}
    unknown = {
        f"{path.relative_to(root)}: headrace {first} {second}"
        for folder in ("framework", "mq")
        for path in (root / folder).rglob("*.py")
        for first, second in NAMED.findall(path.read_text(encoding="utf-8"))
        if first not in (existing if second else alone) and f"{first} {second}" not in existing
    }
    assert unknown == set()


@pytest.mark.parametrize("module", ["headrace.errors", "headrace_mq.errors"])
def test_every_error_has_a_row(root: Path, module: str) -> None:
    page = (root / "docs" / "exceptions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`[A-Za-z]+`(?:, )?)+) \|", page, re.MULTILINE)
    named = {each for row in rows for each in re.findall(r"[A-Za-z]+", row)}
    errors = {
        name
        for name, value in vars(importlib.import_module(module)).items()
        if isinstance(value, type) and issubclass(value, Exception) and name[0] != "_"
    }
    assert sorted(errors - named) == []


def test_every_dependency_has_a_line_and_a_reason(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = {name(one) for group in [project["dependencies"], *extras.values()] for one in group}
    wanted -= {"headrace"}
    page = (root / "docs" / "dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z0-9-]+) \|.* ([^|]{10,}) \|$", page, re.MULTILINE)
    assert {package for package, _ in rows} == wanted


def test_every_dependency_is_pinned(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    wanted = {name(one) for group in [project["dependencies"], *extras] for one in group}
    lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines if line[0] != "#"}
    assert sorted((wanted | {"hatchling"}) - {"headrace"} - pinned) == []
    assert [line for line in lines if line[0] != "#" and "==" not in line] == []


def test_the_oldest_versions_are_those_that_are_allowed(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    allowed = {
        name(one).lower().replace("_", "-"): padded(one.partition(">=")[2].partition(";")[0])
        for one in [*project["dependencies"], *extras["postgres"], *extras["uvloop"]]
    }
    lines = (root / "constraints-oldest.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if line[0] != "#")
    oldest = {one.lower().replace("_", "-"): padded(what) for one, what in pinned.items()}
    assert oldest == allowed


def padded(version: str) -> list[int]:
    """Returns a version's numbers, at least three."""
    numbers = [int(part) for part in version.split(".")]
    return numbers + [0] * (3 - len(numbers))


def name(requirement: str) -> str:
    """Returns the package of a requirement."""
    found = re.match(r"[A-Za-z0-9-]+", requirement)
    assert found
    return found[0]
