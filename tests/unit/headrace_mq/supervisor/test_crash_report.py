"""Crash reports: what they say, and how many are kept."""

import os
import stat
from pathlib import Path

import pytest

from headrace_mq.supervisor.crash_report import CrashReport, how_it_ended, keep


def report(ended_at_ms: int = 1_700_000_000_123, status: int = -9) -> CrashReport:
    return CrashReport(
        reason="it ended by itself", status=status, ended_at_ms=ended_at_ms, ran_ms=61_500,
        command=("headrace", "broker"), versions={"python": "3.11.7"}, last_lines="one\ntwo\n",
    )  # fmt: skip


def test_a_report_says_how_when_and_after_what() -> None:
    lines = report().text().splitlines()
    assert lines[:6] == [
        "reason: it ended by itself",
        "ended: signal SIGKILL",
        "when: 2023-11-14T22:13:20.123+00:00",
        "ran for: 0:01:01.500000",
        "command: headrace broker",
        "python: 3.11.7",
    ]
    assert lines[-2:] == ["one", "two"]


def test_signals_have_names_and_unknown_ones_numbers() -> None:
    assert [how_it_ended(status) for status in (1, -6, -63)] == [
        "exit status 1", "signal SIGABRT", "signal 63",
    ]  # fmt: skip


def test_the_newest_reports_are_kept_and_nothing_unfinished_stays(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "crashes"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    paths = [keep(report(1_700_000_000_000 + n), folder, reports_max=3) for n in range(5)]
    assert sorted(folder.iterdir()) == [*paths[2:], folder / "notes.txt"]
    assert paths[4].read_text(encoding="utf-8") == report(1_700_000_000_004).text()


def test_a_folder_that_cannot_be_made_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        keep(report(), tmp_path / "file" / "crashes", reports_max=1)


def test_reports_and_their_folders_are_for_the_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = keep(report(), tmp_path / "a" / "crashes", reports_max=1)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent, tmp_path / "a")]
    assert modes == [0o600, 0o700, 0o700]
