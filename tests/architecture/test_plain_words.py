"""Users read plain English: in the command line's help, in errors and in the log."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DIALECT = re.compile(
    r"\b(?:whoever|whatever|nobody|somebody|beside|anew|thereby|sits between|(?:is|are) told)\b",
    re.IGNORECASE,
)
COMMAND_LINE = "headrace.cli"

# Docstrings, comments and documents are plain, too, in these folders and files.
FRAMEWORK_PROSE = ("framework/", "samples/", "seeds/", "docs/", "README.md")
# Docstrings, comments and documents of the queue are plain, but not yet in these folders and files.
# Rewrite one and remove it; never add one.
QUEUE_EXEMPT: set[str] = set()


def sentences(module: Any) -> Iterator[str]:
    """Yields what users may read of a module: its strings, and the docstrings that are help."""
    tree = module.tree
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in documentation:
                yield node.value
        elif isinstance(node, ast.FunctionDef) and module.name.startswith(COMMAND_LINE):
            yield ast.get_docstring(node) or ""


def dialect(text: str) -> list[str]:
    """Returns the words of a sentence that plain English does without; a lone name has none."""
    return DIALECT.findall(text) if " " in text.strip() else []


def test_no_string_that_users_read_has_a_word_of_the_dialect(modules: Any) -> None:
    found = {
        f"{module.where}: {text}": words
        for module in modules
        for text in sentences(module)
        if (words := dialect(text))
    }
    assert found == {}


def prose(path: Path) -> Iterator[str]:
    """Yields what developers read in a file: docstrings and comments of code, and all of a document.

    Names in backquotes and addresses of links are no prose.
    """
    if path.suffix not in {".py", ".md", ".sql"}:
        return
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                yield str(node.value.value)
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string
    else:
        yield re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", text)


@pytest.mark.parametrize(
    ("folders", "exempt"),
    [(FRAMEWORK_PROSE, set()), (("mq/",), QUEUE_EXEMPT)],
    ids=["framework", "queue"],
)
def test_docstrings_comments_and_documents_are_plain(
    root: Path, tracked: list[Path], folders: tuple[str, ...], exempt: set[str]
) -> None:
    named = {str(path.relative_to(root)): path for path in tracked}
    found = {
        name: words
        for name, path in named.items()
        if name.startswith(folders)
        if (words := sorted({word for text in prose(path) for word in dialect(text)}))
    }
    left = {name: words for name, words in found.items() if not name.startswith(tuple(exempt))}
    assert left == {}
    plain = {entry for entry in exempt if not any(name.startswith(entry) for name in found)}
    assert plain == set(), "plain by now: remove it from the list"


def test_prose_is_docstrings_comments_and_documents_without_names(tmp_path: Path) -> None:
    code, page = tmp_path / "code.py", tmp_path / "page.md"
    code.write_text('"""Made anew."""\nnobody = "a string"  # kept beside it\n')
    assert list(prose(code)) == ["Made anew.", "# kept beside it"]
    page.write_text("For `nobody` and [you](beside.md), whoever you are.")
    assert [dialect(text) for text in prose(page)] == [["whoever"]]
    code.with_suffix(".json").write_text('"made anew"')
    assert list(prose(code.with_suffix(".json"))) == []


@pytest.mark.parametrize(
    "text",
    [
        "nobody waits for a reply",
        " the topic was made anew",
        "Whoever reaches the address may send",
        "kept beside the data",
        "groups of which no lag is told",
    ],
)
def test_each_word_of_the_dialect_is_found(text: str) -> None:
    assert dialect(text) != []


@pytest.mark.parametrize("text", ["NOBODY", "besides the data", "it told the group", "renewed"])
def test_words_that_only_look_alike_are_plain(text: str) -> None:
    assert dialect(text) == []


def test_help_is_read_from_strings_and_docstrings_and_comments_are_not(modules: Any) -> None:
    """Guards the guard: it reads f-strings, options' help and commands' docstrings."""
    read = {text for module in modules for text in sentences(module)}
    assert "Make the rebuilt table live." in read  # an option
    assert any(text.startswith("Compare live tables, row for row") for text in read)  # a command
    assert "its state cannot be rebuilt: " in read  # the beginning of an f-string
