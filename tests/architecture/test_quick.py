"""`make check` leaves out what it says: the names by which it knows slow tests are in use."""

import ast
import runpy
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def conftest(root: Path) -> dict[str, Any]:
    return runpy.run_path(str(root / "tests" / "conftest.py"))


def test_every_slow_fixture_is_one(python_files: Any, conftest: dict[str, Any]) -> None:
    defined = {
        node.name
        for file in python_files
        if file.where.startswith("tests/") and file.where.endswith("conftest.py")
        for node in ast.walk(file.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list)
    }
    assert sorted(conftest["SLOW_FIXTURES"] - defined) == []


def test_every_slow_folder_is_one(root: Path, conftest: dict[str, Any]) -> None:
    folders = {path.name for path in (root / "tests" / "unit").rglob("*") if path.is_dir()}
    assert sorted(conftest["SLOW_FOLDERS"] - folders) == []


def test_what_uses_no_database_is_quick_and_other_tests_are_not(
    request: pytest.FixtureRequest, conftest: dict[str, Any]
) -> None:
    item = request.node
    assert conftest["is_quick"](item)
    item.add_marker("slow")
    assert not conftest["is_quick"](item)
