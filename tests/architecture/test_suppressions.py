"""A check is silenced for one named reason at a time, and the reason is written beside it."""

import io
import re
import tokenize
from typing import Any

import pytest

SUPPRESSION = re.compile(r"#\s*(type:\s*ignore|noqa|pragma:|pyright:|ruff:|mypy:|fmt:\s*off)")
REASONED = re.compile(
    r"#\s*(?:type:\s*ignore\[[a-z0-9, -]+\]|noqa:\s*[A-Z]+[0-9]+(?:,\s*[A-Z]+[0-9]+)*)"
    r"\s*(?: - |\s# )\s*\S.{5,}"
)


def unreasoned(text: str) -> list[str]:
    """Returns the comments that silence a check without a code or without a reason."""
    if not SUPPRESSION.search(text):
        return []
    comments = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    return [c for c in comments if SUPPRESSION.search(c) and not REASONED.search(c)]


def test_every_suppression_has_a_code_and_a_reason(python_files: Any) -> None:
    found = {file.where: unreasoned(file.text) for file in python_files}
    assert {where: comments for where, comments in found.items() if comments} == {}


@pytest.mark.parametrize(
    "comment",
    [
        "x = 1  # type: ignore",
        "x = 1  # type: ignore[assignment]",
        "x = 1  # noqa",
        "x = 1  # noqa: S101",
        "x = 1  # pragma: no cover",
        "# ruff: noqa",
    ],
)
def test_a_suppression_without_a_reason_is_found(comment: str) -> None:
    assert unreasoned(comment + "\n") != []


@pytest.mark.parametrize(
    "comment",
    [
        "x = 1  # type: ignore[assignment]  # the library's stub is wrong about this",
        "x = 1  # noqa: S101 - an invariant, not a check",
    ],
)
def test_a_suppression_with_a_reason_is_fine(comment: str) -> None:
    assert unreasoned(comment + "\n") == []
