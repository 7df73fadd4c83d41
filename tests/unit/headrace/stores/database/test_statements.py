import re
from importlib.resources import files

import pytest

from headrace.stores.database.statements import load_statement

PACKAGES = ["headrace.stores.sqlite", "headrace.stores.postgres"]


def _statements() -> list[tuple[str, str]]:
    return [
        (package, file.name.removesuffix(".sql"))
        for package in PACKAGES
        for file in (files(package) / "sql").iterdir()
    ]


def test_both_databases_have_statements() -> None:
    assert {package for package, _ in _statements()} == set(PACKAGES)


@pytest.mark.parametrize(("package", "name"), _statements())
def test_a_file_holds_one_statement_and_lists_its_binds_on_top(package: str, name: str) -> None:
    content = (files(package) / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    comments = [line for line in content.splitlines() if line.startswith("--")]
    assert content.startswith("--")
    assert ";" not in load_statement(package, name)
    listed = " ".join(comments).partition("Binds:")[2]
    # A place within VALUES is filled with as many binds as there are rows.
    used = set(re.findall(r"(?::|VALUES \{)(\w+)", load_statement(package, name)))
    assert used or listed.strip() == "none"
    assert used <= set(re.findall(r"\w+", listed))


def test_comments_do_not_reach_the_database() -> None:
    assert "--" not in load_statement("headrace.stores.postgres", "append")


def test_a_statement_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        load_statement("headrace.stores.postgres", "nothing")
