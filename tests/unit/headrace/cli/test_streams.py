"""No text that a client chose controls the terminal of an operator."""

import io
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.streams import GuardedStream, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, tab\there\n", "plain, tab\there\n"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("back\rover", "back\\rover"),
        ("line\r\n", "line\r\n"),
        ("\x9b2J", "\\x9b2J"),
        ("abc\u202ecba", "abc\\u202ecba"),
        ("grüße 日本 🎉", "grüße 日本 🎉"),
    ],
)
def test_harmful_characters_are_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_cleaned_text_has_no_control_characters(text: str) -> None:
    left = re.sub("\x1b\\[[0-9;]*m", "", visible(text).replace("\r\n", "\n"))
    assert not any((one < " " and one not in "\t\n") or "\x7f" <= one <= "\x9f" for one in left)


def test_a_guarded_stream_is_the_stream_in_all_else() -> None:
    inner = io.StringIO()
    stream = GuardedStream(inner)
    assert stream.write("a\x1bc") == 3
    assert inner.getvalue() == "a\\x1bc"
    assert not stream.isatty()


def test_an_error_sentence_is_guarded() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "store", "check", "no\x1b[2Jwhere"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "\x1b[2J" not in done.stderr + done.stdout
    assert "\\x1b[2J" in done.stderr + done.stdout
