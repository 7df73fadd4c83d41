"""The terminal of a live view: harmless lines, pages that are drawn over each other, and keys."""

import io
import sys

import pytest

from headrace.cli.top.page import TopPage, TopTable
from headrace.cli.top.screen import Screen, lines_of

PAGE = TopPage(
    ["head"],
    [TopTable(("name", "count"), [("a\x1b[2Jb\r\nc", 1_234)], 3), TopTable(("x",), [("y" * 99,)])],
)


def test_a_page_is_lines_that_are_harmless_for_a_terminal() -> None:
    lines = lines_of(PAGE, 40)
    assert lines[:2] == ["head", ""]
    assert lines[2].split() == ["name", "count"]
    assert lines[3].split() == [r"a\x1b[2Jb\r\nc", "1,234"]
    assert lines[4] == " and 3 more"
    # One line for each row, however wide it is.
    assert len(lines) == 8
    assert lines[7].endswith("…")
    assert len(lines[7]) <= 40


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]  # as a terminal says
    monkeypatch.setattr(sys, "__stdout__", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "40")
    return stream


async def test_pages_are_drawn_in_a_screen_of_their_own(terminal: io.StringIO) -> None:
    with Screen() as screen:
        screen.draw(PAGE)
        assert "m: by messages" in terminal.getvalue()
        screen.draw(PAGE, "no answer: \x1bthe broker is away")
        assert screen.rows_max == 8
    text = terminal.getvalue()
    assert text.count("head") == 2
    assert r"no answer: \x1bthe broker is away" in text
    # It leaves the terminal as it was.
    assert text.index("\x1b[?1049h") < text.index("head") < text.index("\x1b[?1049l")


async def test_keys_are_taken_once(terminal: io.StringIO) -> None:
    with Screen() as screen:
        screen.press("nq")
        await screen.pressed.wait()
        assert screen.taken() == ["n", "q"]
        assert screen.taken() == []
        assert not screen.pressed.is_set()


async def test_without_a_terminal_no_key_is_read(
    terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("q"))
    with Screen() as screen, screen.listening():
        assert screen.taken() == []
