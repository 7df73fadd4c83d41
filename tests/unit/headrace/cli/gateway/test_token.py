"""`headrace token make`: a token is shown once, and a file gets its hash."""

import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace.access.principal import Principal
from headrace.access.tokens import Tokens
from headrace.cli import _command_line
from headrace.errors import HeadraceError


def make(*arguments: Any) -> Result:
    return CliRunner().invoke(_command_line(), ["token", "make", *map(str, arguments)])


def test_the_token_and_its_line_are_printed_once() -> None:
    done = make("ann", "--role", "clerk", "--role", "auditor")
    token, line = done.stdout.splitlines()
    assert line.startswith("ann:auditor,clerk:")
    assert Tokens.parse(line).find(token) == Principal("ann", frozenset({"clerk", "auditor"}))
    assert "not shown again" in done.stderr
    assert token not in done.stderr


def test_a_file_gets_a_line_for_each_token_and_is_for_this_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "tokens"
    ann = make("ann", "--tokens", path).stdout.strip()
    with path.open("a") as file:
        file.write("# the robots")
    bob = make("bob", "--role", "robot", "--tokens", path).stdout.strip()
    text = path.read_text()
    tokens = Tokens.parse(text)
    assert (tokens.find(ann), len(tokens)) == (Principal("ann"), 2)
    assert tokens.find(bob) == Principal("bob", frozenset({"robot"}))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ann not in text
    assert text.splitlines()[1] == "# the robots"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(["a b"], "a principal's name has"), (["ann", "--role", "a,b"], "a role has"),
     (["ann", "--role", "a:b"], "a role of a token has no ':'")],
)  # fmt: skip
def test_a_name_or_a_role_that_cannot_be_is_a_mistake(arguments: list[str], sentence: str) -> None:
    done = make(*arguments)
    assert (done.exit_code, sentence in " ".join(done.output.replace("│", "").split())) == (2, True)


def test_a_file_that_is_none_of_tokens_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("buy milk\n")
    done = make("ann", "--tokens", path)
    assert isinstance(done.exception, HeadraceError)
    assert "cannot take a token: line 1" in str(done.exception)
    assert path.read_text() == "buy milk\n"
