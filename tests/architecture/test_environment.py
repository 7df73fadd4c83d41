"""Only the command line reads the environment; everything else gets settings."""

import ast
from typing import Any

import pytest

READERS = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def environment_uses(tree: ast.AST) -> list[int]:
    """Returns the lines on which the process's environment is used."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in READERS:
            lines.append(node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            lines += [node.lineno for name in node.names if name.name in READERS]
    return lines


def test_only_the_command_line_uses_the_environment(modules: Any) -> None:
    found = {
        module.where: lines
        for module in modules
        if not module.name.startswith("headrace.cli") and (lines := environment_uses(module.tree))
    }
    assert found == {}


@pytest.mark.parametrize("code", ["os.environ['A']", "os.getenv('A')", "from os import environ"])
def test_each_use_is_found(code: str) -> None:
    assert environment_uses(ast.parse(code)) != []
