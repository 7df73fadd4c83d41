"""`framework/` and `mq/` are places on the path: they hold the project's packages and nothing else to import."""

import ast
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("folder", "packages"),
    [
        ("framework", {"headrace"}),
        # Spark finds the second one by its name, which has to be at the top.
        ("mq", {"headrace_mq", "pyspark_headrace"}),
    ],
)
def test_a_source_root_holds_its_packages_and_its_document(
    root: Path, folder: str, packages: set[str]
) -> None:
    names = {path.name for path in (root / folder).iterdir()} - {"__pycache__"}
    assert names == {*packages, "ARCHITECTURE.md"}


def test_nobody_imports_through_a_source_root(python_files: Any) -> None:
    wrong = []
    for file in python_files:
        for node in ast.walk(file.tree):
            names = [n.name for n in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            if any(name.partition(".")[0] in {"framework", "mq"} for name in names):
                wrong.append(f"{file.where}:{node.lineno}")
    assert wrong == []


def test_every_package_folder_has_an_init(root: Path, modules: Any) -> None:
    folders = {module.path.parent for module in modules}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
