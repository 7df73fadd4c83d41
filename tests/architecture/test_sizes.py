"""Small functions and small files. The lists of exceptions may only become shorter."""

import ast
from typing import Any

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500

# "path" or "path::function" to its number of lines: lower a number or remove a line, never add.
LONG_FUNCTIONS: dict[str, int] = {}
LONG_FILES: dict[str, int] = {}


def function_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Counts a function's lines without its docstring and its decorators."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Returns every function of a file, nested ones and methods included."""
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_functions_have_at_most_sixty_lines(python_files: Any) -> None:
    long = {
        f"{file.where}::{function.name}": lines
        for file in python_files
        for function in functions(file.tree)
        if (lines := function_lines(function)) > FUNCTION_LINES_MAX
    }
    assert long == LONG_FUNCTIONS


def test_files_have_at_most_five_hundred_lines(python_files: Any) -> None:
    long = {
        file.where: lines
        for file in python_files
        if (lines := file.text.count("\n")) > FILE_LINES_MAX
    }
    assert long == LONG_FILES


def test_a_docstring_does_not_count() -> None:
    (function,) = functions(ast.parse('def f():\n    """One.\n\n    Two.\n    """\n    return 1\n'))
    assert function_lines(function) == 2
