"""The catalogue of words has each text of the templates, and knows a browser's language."""

import pytest

from headrace.console.words import language_of, said


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-GB", "en"),
        ("de,zh;q=0.5", "zh"),
        ("de", "en"),
        ("", "en"),
    ],
)
def test_the_language_is_the_first_that_the_console_knows(accepted: str, language: str) -> None:
    assert language_of(accepted) == language


def test_a_text_keeps_its_values() -> None:
    assert said("Topic {name}", "en", name="a{b}") == "Topic a{b}"


def test_a_text_without_a_translation_stays_english() -> None:
    assert said("no such text", "zh") == "no such text"
