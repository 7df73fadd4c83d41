"""`framework/` and `mq/` are places on the path: each holds one package and nothing else to import."""

import ast
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(("folder", "package"), [("framework", "headrace"), ("mq", "headrace_mq")])
def test_a_source_root_holds_one_package_and_its_document(
    root: Path, folder: str, package: str
) -> None:
    names = {path.name for path in (root / folder).iterdir()} - {"__pycache__"}
    assert names == {package, "ARCHITECTURE.md"}


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
