"""Words of a condition: what they are, and where a strange one stands."""

import pytest

from headrace_mq.filters.tokens import InvalidFilter, Token, tokens


def kinds(text: str) -> list[tuple[str, str]]:
    return [(token.kind, token.value) for token in tokens(text)]


def test_a_condition_is_cut_into_words_of_each_kind() -> None:
    assert kinds("""price>=-1.5e3 and "x-y" = 'it''s' , a.b$""") == [
        ("name", "price"), ("sign", ">="), ("number", "-1.5e3"), ("keyword", "AND"),
        ("quoted", "x-y"), ("sign", "="), ("string", "it's"), ("sign", ","), ("name", "a.b$"),
        ("end", ""),
    ]  # fmt: skip


def test_a_word_knows_its_place() -> None:
    assert list(tokens("a  <>'b'")) == [
        Token("name", "a", 0), Token("sign", "<>", 3), Token("string", "b", 5), Token("end", "", 8),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("a @ 1", 3, "'@' has no meaning here"),
        ("a = 'b", 5, "not closed"),
        ('a = "b', 5, "not closed"),
        ("1a = 2", 1, "'1' has no meaning here"),
        ("a = 1.2.3", 5, "'1' has no meaning here"),
    ],
)
def test_a_character_that_begins_no_word_is_named_with_its_column(
    text: str, column: int, what: str
) -> None:
    with pytest.raises(InvalidFilter, match=what) as caught:
        list(tokens(text))
    assert caught.value.column == column


def test_a_mistake_is_shown_between_the_text_around_it() -> None:
    with pytest.raises(InvalidFilter) as caught:
        list(tokens("x" * 100 + " ? " + "y" * 100))
    assert f"(… {'x' * 23} ▸? {'y' * 22} …)" in str(caught.value)
