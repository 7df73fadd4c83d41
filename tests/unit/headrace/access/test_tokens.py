"""Tokens: found by their hash alone, and their lines read whole or not at all."""

import hashlib

import pytest

from headrace.access.principal import Principal
from headrace.access.tokens import TOKENS_MAX, Tokens, new_token, token_line

ANN = Principal("ann", frozenset({"clerk", "auditor"}))


def test_a_token_is_found_by_its_line_and_no_other_is() -> None:
    token = new_token()
    line = token_line(ANN, token)
    assert line == f"ann:auditor,clerk:{hashlib.sha256(token.encode()).hexdigest()}"
    tokens = Tokens.parse(f"# who may call\n\n  {line}\n")
    assert (len(tokens), tokens.find(token)) == (1, ANN)
    digest = line.rpartition(":")[2]
    for other in ("", token[:-1], token + "x", digest, new_token()):
        assert tokens.find(other) is None


def test_no_two_tokens_are_the_same_and_each_is_long_and_known_by_its_beginning() -> None:
    made = {new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(token.startswith("hrt_") and len(token) >= 46 for token in made)


def test_a_principal_may_have_several_tokens_and_a_name_colons() -> None:
    old, new = new_token(), new_token()
    robot = Principal("system:robot")
    tokens = Tokens.parse(f"{token_line(robot, old)}\n{token_line(robot, new)}")
    assert (tokens.find(old), tokens.find(new)) == (robot, robot)


@pytest.mark.parametrize(
    "line",
    ["ann", "ann:clerk", "ann:clerk:hrt_secret", f"ann:{'0' * 64}", f"ann:clerk:{'0' * 63}",
     f"ann:clerk:{'G' * 64}"],
)  # fmt: skip
def test_a_line_of_another_form_is_refused_with_its_number_and_without_its_text(line: str) -> None:
    with pytest.raises(ValueError, match="line 2: write NAME:ROLE,ROLE:SHA256") as refused:
        Tokens.parse(f"\n{line}")
    assert "secret" not in str(refused.value)


def test_names_roles_and_hashes_that_cannot_be_are_refused() -> None:
    digest = "0" * 64
    with pytest.raises(ValueError, match="line 1: a principal's name"):
        Tokens.parse(f"an n:clerk:{digest}")
    with pytest.raises(ValueError, match="line 1: a role has"):
        Tokens.parse(f"ann:cl erk:{digest}")
    with pytest.raises(ValueError, match="line 2: ann has the same token"):
        Tokens.parse(f"ann:clerk:{digest}\nbob::{digest}")
    with pytest.raises(ValueError, match="a role of a token has no ':'"):
        token_line(Principal("ann", frozenset({"orders:write"})), new_token())


def test_a_file_has_no_more_tokens_than_are_compared_quickly() -> None:
    lines = [f"ann::{number:064x}" for number in range(TOKENS_MAX + 1)]
    assert len(Tokens.parse("\n".join(lines[1:]))) == TOKENS_MAX
    with pytest.raises(ValueError, match="1001 tokens, and 1000 is the limit"):
        Tokens.parse("\n".join(lines))
