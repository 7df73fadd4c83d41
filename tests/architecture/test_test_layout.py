"""Each module answers to its own test file, and no test waits for time to pass."""

import ast
from pathlib import Path
from typing import Any

import pytest

# Module to the file that tests it instead, because the parts only mean something together. This
# list may only become shorter.
COMMAND_LINE = "tests/unit/headrace/cli/test_cli.py"
TESTED_ELSEWHERE: dict[str, str] = {
    "headrace.__main__": COMMAND_LINE,
    "headrace.cli.application.db": COMMAND_LINE,
    "headrace.cli.logs": COMMAND_LINE,
    "headrace.cli.application.run": COMMAND_LINE,
}


def own_test(name: str) -> str:
    """Returns the test file of a module."""
    *folders, last = name.split(".")
    return "/".join(["tests/unit", *folders, f"test_{last}.py"])


def package_test(name: str) -> str:
    """Returns the test file of a package as a whole, which stands among those of its modules."""
    return own_test(f"{name}.{name.rpartition('.')[2]}")


def test_every_module_has_a_test_file_named_after_it(root: Path, modules: Any) -> None:
    untested = [
        module.name
        for module in modules
        if not module.is_package and not (root / own_test(module.name)).exists()
    ]
    assert sorted(untested) == sorted(TESTED_ELSEWHERE)


def test_modules_tested_elsewhere_are_tested_there(root: Path) -> None:
    assert [path for path in TESTED_ELSEWHERE.values() if not (root / path).exists()] == []


def test_every_unit_test_is_named_after_a_module(
    root: Path, modules: Any, python_files: Any
) -> None:
    beside = [f for f in python_files if f.where.startswith(("samples/", "seeds/", "benchmarks/"))]
    known = {own_test(module.name) for module in [*modules, *beside]}
    known |= {package_test(module.name) for module in modules if module.is_package}
    found = {str(path.relative_to(root)) for path in (root / "tests/unit").rglob("test_*.py")}
    assert sorted(found - known) == []


def sleeps(tree: ast.AST) -> list[int]:
    """Returns the lines that sleep; `sleep(0)` only lets others run."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) == "sleep"
        and not (
            len(node.args) == 1
            and isinstance(node.args[0], ast.Constant)
            and node.args[0].value == 0
        )
    ]


def test_no_test_sleeps(python_files: Any) -> None:
    found = {
        file.where: lines
        for file in python_files
        if file.where.startswith("tests/") and (lines := sleeps(file.tree))
    }
    assert found == {}


@pytest.mark.parametrize("code", ["time.sleep(1)", "asyncio.sleep(0.1)", "sleep(pause)"])
def test_each_sleep_is_found(code: str) -> None:
    assert sleeps(ast.parse(code)) == [1]


def test_no_test_is_skipped_without_a_reason(python_files: Any) -> None:
    found = [
        f"{file.where}:{node.lineno}"
        for file in python_files
        if file.where.startswith("tests/")
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Attribute)
        and node.attr in {"xfail", "skip"}
        and ast.unparse(node).startswith("pytest.mark")
    ]
    assert found == []


def test_tests_have_no_packages(root: Path) -> None:
    assert [str(path) for path in (root / "tests").rglob("__init__.py")] == []
