"""What contributors are given fits the project: commands, hooks, templates."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def make_lines(root: Path, target: str) -> list[str]:
    """Returns what a target would run."""
    command = ["make", "--dry-run", "--no-print-directory", target]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip().splitlines()


def test_every_make_target_of_the_page_exists(root: Path) -> None:
    page = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"`make ([a-z-]+)`", page))
    assert {"check", "install", "test"} <= targets
    for target in targets:
        assert make_lines(root, target) is not None


def test_every_folder_of_the_page_exists(root: Path) -> None:
    page = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, _, table = page.partition("## Where things go\n")
    table, _, _ = table.partition("\n## ")
    named = re.findall(r"`([a-z][a-z/_]+)`", table)
    assert len(named) > 10
    assert [name for name in named if not (root / name).is_dir()] == []


def test_hooks_of_a_commit_are_the_checks_of_the_project_and_need_no_network(root: Path) -> None:
    (repository,) = read_yaml(root / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    hooks = repository["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    programs = {hook["entry"].split()[0] for hook in hooks}
    run = {line.split()[0] for line in make_lines(root, "check")}
    checks = {program for program in run if program.startswith(".venv/bin/")}
    assert programs == checks - {".venv/bin/python"}


@pytest.mark.parametrize("name", ["defect", "proposal"])
def test_a_form_for_issues_has_questions_with_ids_of_their_own(root: Path, name: str) -> None:
    form = read_yaml(root / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml")
    assert {"name", "description", "body"} <= form.keys()
    questions = [part for part in form["body"] if part["type"] != "markdown"]
    ids = [question["id"] for question in questions]
    assert len(set(ids)) == len(ids)
    assert all(question["attributes"]["label"] for question in questions)
    assert any(part.get("validations", {}).get("required") for part in questions)
