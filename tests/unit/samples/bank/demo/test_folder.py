"""The demo's folder: its own, one demo at a time, and never anybody else's files."""

from pathlib import Path

import pytest

from samples.bank.demo.folder import Folder, FolderUnusable


def test_a_new_folder_is_made(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "a" / "b")
    with folder.open("set-1", fresh=False):
        assert folder.logs.is_dir()


def test_what_a_demo_left_is_kept_for_the_next_one(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "demo")
    for _ in range(2):
        with folder.open("set-1", fresh=False):
            (folder.path / "events.db").write_text("kept", encoding="utf-8")
    assert (folder.path / "events.db").read_text(encoding="utf-8") == "kept"


def test_fresh_forgets_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "demo")
    with folder.open("set-1", fresh=False):
        (folder.path / "events.db").write_text("old", encoding="utf-8")
        (folder.path / "broker").mkdir()
        (folder.path / "broker" / "log").write_text("old", encoding="utf-8")
    with folder.open("set-2", fresh=True):
        assert {path.name for path in folder.path.iterdir()} == {"demo.json", "logs"}


@pytest.mark.parametrize("fresh", [True, False])
def test_a_folder_with_other_files_is_left_alone(tmp_path: Path, fresh: bool) -> None:
    (tmp_path / "letter.txt").write_text("dear", encoding="utf-8")
    with (
        pytest.raises(FolderUnusable, match="holds something else"),
        Folder(tmp_path).open("set-1", fresh=fresh),
    ):
        pass
    assert (tmp_path / "letter.txt").exists()


def test_the_folder_of_another_data_set_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "demo")
    with folder.open("set-1", fresh=False):
        pass
    with (
        pytest.raises(FolderUnusable, match=r"another data set \(set-1\)"),
        folder.open("set-2", fresh=False),
    ):
        pass


def test_two_demos_at_once_are_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "demo")
    with (
        folder.open("set-1", fresh=False),
        pytest.raises(FolderUnusable, match="another demo is running"),
        Folder(tmp_path / "demo").open("set-1", fresh=True),
    ):
        pass
