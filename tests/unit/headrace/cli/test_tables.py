"""Tables are printed by one function, in one way."""

import re
from pathlib import Path

import pytest

import headrace
from headrace.cli.tables import one_line, print_table, table_lines


def test_a_row_is_one_line_in_a_pipe_and_numbers_are_grouped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("name", "count"), [("x" * 300, 1_234_567), ("[red]y", 8)])
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "count"]
    assert first.split() == ["x" * 300, "1,234,567"]
    assert second.split() == ["[red]y", "8"]


def test_a_missing_value_is_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "count", "note"), [("", 1_000, None), (None, None, "x\ny"), ("b", 0, "0")])
    _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split() for row in rows] == [
        ["-", "1,000", "-"],
        ["-", "-", "x\\ny"],
        ["b", "0", "0"],
    ]


def test_a_text_with_line_feeds_is_one_line() -> None:
    assert one_line("a\r\nb\n") == "a\\r\\nb\\n"


def test_numbers_stand_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "count"), [("a", 1_000), ("b", None), ("c", 7)])
    ends = {len(line.rstrip()) for line in capsys.readouterr().out.splitlines()}
    assert len(ends) == 1


def test_no_other_module_prints_a_table() -> None:
    """And headings are in small letters."""
    folder = Path(headrace.__file__).parent / "cli"
    others = {
        path.name
        for path in folder.rglob("*.py")
        if re.search(r"rich\.(table|columns|console)", path.read_text("utf-8"))
    }
    # The screen draws lines that it gets from here.
    assert others == {"tables.py", "screen.py"}


def test_a_float_has_one_decimal_and_stands_to_the_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("rate",), [(1_234.56,), (0.0,)])
    assert capsys.readouterr().out.splitlines()[1:] == [" 1,234.6 ", "     0.0 "]


def test_the_lines_of_a_table_are_one_for_each_row() -> None:
    lines = table_lines(("name", "count"), [("x" * 99, 7), ("y", None)], 20)
    assert len(lines) == 3
    assert [len(line) <= 20 for line in lines] == [True] * 3
    assert "…" in lines[1]
    assert lines[2].split() == ["y", "-"]
