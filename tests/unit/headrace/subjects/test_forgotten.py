"""The list of who was forgotten, in a file."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.errors import SubjectKeysError
from headrace.subjects.forgotten import note_forgotten, read_forgotten
from headrace.subjects.keys import Subject

NOW = datetime(2026, 11, 28, 10, 0, 0, 5, UTC)


def test_a_noted_subject_is_read_once_with_its_first_moment(tmp_path: Path):
    file = tmp_path / "forgotten"
    note_forgotten(file, "c-1", NOW)
    note_forgotten(file, 'ä "2"\n', NOW)
    note_forgotten(file, "c-1", NOW + timedelta(days=1))
    assert read_forgotten(file) == [Subject("c-1", NOW), Subject('ä "2"\n', NOW)]
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_note_after_a_line_without_end_is_a_line_of_its_own(tmp_path: Path):
    file = tmp_path / "forgotten"
    file.write_text('{"subject": "c-1", "forgotten_at": "2026-11-28T10:00:00+00:00"}')
    note_forgotten(file, "c-2", NOW)
    assert [each.subject for each in read_forgotten(file)] == ["c-1", "c-2"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("c-1", "line 2 of .* is not one of a list"),
        ('{"subject": 1, "forgotten_at": "2026-11-28T10:00:00Z"}', "line 2 of"),
        ('{"subject": "c-1", "forgotten_at": null}', "'c-1', who was not forgotten"),
    ],
)
def test_a_line_of_something_else_is_named(tmp_path: Path, line: str, sentence: str):
    file = tmp_path / "forgotten"
    file.write_text(f"\n{line}\n")
    with pytest.raises(SubjectKeysError, match=sentence):
        read_forgotten(file)


def test_a_list_that_cannot_be_used_is_an_error_of_keys(tmp_path: Path):
    with pytest.raises(SubjectKeysError, match="cannot be read"):
        read_forgotten(tmp_path / "none")
    with pytest.raises(SubjectKeysError, match="nothing was forgotten"):
        note_forgotten(tmp_path / "none" / "list", "c-1", NOW)
