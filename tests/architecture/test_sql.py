"""SQL stands in `.sql` files, one statement each, or is built by SQLAlchemy; never in a string."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

STATEMENT = re.compile(
    r"\b(?:SELECT\b.+\bFROM|INSERT\s+INTO|UPDATE\b.+\bSET|DELETE\s+FROM|CREATE\s+TABLE"
    r"|DROP\s+TABLE|ALTER\s+TABLE)\b",
    re.DOTALL,
)


def sql_strings(tree: ast.AST) -> list[int]:
    """Returns the lines of string literals, docstrings apart, that hold an SQL statement."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
        and STATEMENT.search(node.value)
    ]


def test_no_module_holds_sql_in_a_string(modules: Any) -> None:
    found = {m.where: lines for m in modules if (lines := sql_strings(m.tree))}
    assert found == {}


def test_an_sql_file_holds_one_statement_and_says_what_it_binds(root: Path) -> None:
    wrong = []
    for path in sorted((root / "framework").rglob("*.sql")):
        text = path.read_text(encoding="utf-8")
        statement = re.sub(r"--[^\n]*", "", text).strip()
        if not text.startswith("--") or statement.rstrip(";").count(";"):
            wrong.append(str(path.relative_to(root)))
    assert wrong == []


@pytest.mark.parametrize(
    "code",
    ["q = 'SELECT a FROM t'", "q = f'DELETE FROM {t}'", "q = 'UPDATE t SET a = 1'"],
)
def test_each_kind_of_statement_is_found(code: str) -> None:
    assert sql_strings(ast.parse(code)) == [1]


def test_a_docstring_may_speak_of_sql() -> None:
    assert sql_strings(ast.parse('"""Runs SELECT a FROM t."""')) == []
