"""Results as lines."""

import json
from pathlib import Path

import pytest

from benchmarks.lines import Lines, read


def test_a_line_is_in_the_file_as_soon_as_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pages" / "found.jsonl"
    lines = Lines(path)
    lines.say({"a": 1})
    assert read(path) == [{"a": 1}]
    lines.say({"b": 2})
    assert read(path) == lines.said == [{"a": 1}, {"b": 2}]
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == lines.said


def test_an_earlier_runs_lines_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "found.jsonl"
    path.write_text("old\n")
    Lines(path)
    assert read(path) == []
